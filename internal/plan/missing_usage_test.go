// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func lackingUsage(w *world) { w.situation.MissingUsage = "pod web-2: no usage reported" }

// mixed needs more memory and less CPU than large has.
func mixed() recommend.Container {
	return rec(amounts(50, 400), amounts(40, 390), amounts(60, 500))
}

func TestNothingIsLoweredWhileUsageIsMissing(t *testing.T) {
	lowered := decidedBefore(func(d *plan.Decision) {
		d.Reason, d.Requests = "ScaleDown", map[string]quantity.Amounts{"app": amounts(50, 64)}
	})
	raisedAndLowered := decidedBefore(func(d *plan.Decision) {
		d.Requests = map[string]quantity.Amounts{"app": amounts(50, 400)}
	})
	rule := rulesOf(t)
	rule("a lower target waits", given(lackingUsage, decidedBefore(), atSize(), recommends(halved())),
		"keeps app 200m 256Mi · MetricsIncomplete: All pods have the decided size. The next change (ScaleDown) waits until all running pods report usage (pod web-2: no usage reported) · 2/2 applied")
	rule("a higher target does not", given(lackingUsage, decidedBefore(), atSize(), recommends(mixed())),
		"decides app 200m 400Mi (LowerBound) · resizes web-1 to app 200m 400Mi of 400m 800Mi · Resizing · 0/2 changing")
	rule("what was decided to be lower waits", given(lackingUsage, lowered, recommends(halved())),
		"keeps app 50m 64Mi · MetricsIncomplete: pod web-1, pod web-2: waits until all running pods report usage (pod web-2: no usage reported) · 0/2")
	rule("of a decision only what is higher is applied", given(lackingUsage, raisedAndLowered, recommends(mixed())),
		"keeps app 50m 400Mi · resizes web-1 to app 100m 400Mi of 200m 800Mi · Resizing · 0/2 changing")
	rule("a bound of the user is no usage, but lowers no further",
		given(lackingUsage, decidedBefore(), atSize(), recommends(halved()), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(150, 0) })),
		"decides app 150m 256Mi (Bounds) · resizes web-1 to app 150m 256Mi of 300m 512Mi · Resizing · 0/2 changing")
	rule("a pending decision below a new bound lowers to the bound",
		given(lackingUsage, lowered, recommends(halved()), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(80, 0) })),
		"keeps app 50m 64Mi · resizes web-1 to app 80m 128Mi of 160m 256Mi · Resizing · 0/2 changing")
	rule("a boost ends",
		given(lackingUsage, decidedBefore(), boosts(), pods(with(pod("web-1", double()), func(p *workload.Pod) {
			p.Started, p.ReadyChanged = noon.Add(-5*time.Minute), noon.Add(-2*time.Minute)
			p.Runs = []workload.Run{{Container: "app", Since: noon.Add(-5 * time.Minute)}}
			p.Resized = noon.Add(-4 * time.Minute)
		}))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("the template waits", given(lackingUsage, rollout, appTakenOver(), lowered, recommends(halved())),
		"keeps app 50m 64Mi · MetricsIncomplete: the pod template: waits until all running pods report usage (pod web-2: no usage reported) · 0/2")
	rule("of a template only what is higher is written", given(lackingUsage, rollout, appTakenOver(), raisedAndLowered, recommends(mixed())),
		"keeps app 50m 400Mi · rewrites app 100m 400Mi of 200m 800Mi · RollingOut · 0/2 changing")
	rule("a reverted template is restored",
		given(lackingUsage, rollout, appTakenOver(), recommends(recommended("app")), template(large()), decidedBefore(func(d *plan.Decision) {
			d.Reason, d.Requests = "Reverted", map[string]quantity.Amounts{"app": amounts(100, 128)}
		}), func(w *world) {
			w.situation.RevertedChanges = []plan.RevertedChange{
				{Container: "app", Resource: "cpu", Value: 200, Good: 100, At: noon}, {Container: "app", Resource: "memory", Value: 256 * mebi, Good: 128 * mebi, At: noon},
			}
		}),
		"keeps app 100m 128Mi, written · rewrites app 100m 128Mi of 200m 256Mi · RollingOut · 2/2 changing")
	rule("a fallback to a rollout that only lowers waits",
		given(lackingUsage, orRollout, appTakenOver(), lowered, recommends(halved()), pods(with(halfSized("web-1"), func(p *workload.Pod) {
			p.Resize, p.Actual = workload.Resize{Infeasible: true, Message: "No room"}, p.Actual.With("app", small().Resources)
		}))),
		"keeps app 50m 64Mi · MetricsIncomplete: the pod template: waits until all running pods report usage (pod web-2: no usage reported). Requires pod replacement: pod web-1: No room · 0/1")
	rule("what stays does not change the QoS class",
		given(lackingUsage, raisedAndLowered, recommends(mixed()), policyOfApp(func(p *plan.ContainerPolicy) {
			exact := int64(0)
			p.LimitPolicy = plan.LimitPolicy{HeadroomCPU: &exact, HeadroomMemory: &exact}
		}), pods(pod("web-1", sized("app", amounts(100, 128), amounts(100, 256))))),
		"keeps app 50m 400Mi · resizes web-1 to app 100m 419430399 of 100m 400Mi · Resizing · 0/1 changing")
}

// The verification of the first lowered pods goes on while usage is missing, but does not end before
// the other pods are lowered. It writes each of its steps once.
func TestVerificationWaitsForMissingUsage(t *testing.T) {
	w := given(decidedBefore(verifying), watching, recommends(halved()), pods(halfSized("web-1"), pod("web-2", small())))
	lackingUsage(&w)
	var last plan.Plan
	changed := 0
	for minute := range 60 {
		p := w.next(noon.Add(time.Duration(minute) * time.Minute))
		if p.Step != nil {
			t.Fatalf("minute %d: a step while usage is missing:\n%s", minute, say(p))
		}
		if minute > 0 && fmt.Sprintf("%+v", *p.Decision.Verification) != fmt.Sprintf("%+v", *last.Decision.Verification) {
			changed++
		}
		w.situation.Decision, last = p.Decision, p
	}
	if v := last.Decision.Verification; v == nil || v.FirstPodsVerified.IsZero() || changed != 1 {
		t.Errorf("after an hour the verification is %+v, changed %d times", v, changed)
	}
	if last.Verdict.Reason != "MetricsIncomplete" {
		t.Errorf("an hour later:\n%s", say(last))
	}
	w.situation.MissingUsage = ""
	if p := w.next(noon.Add(time.Hour)); !is[plan.Resize](p) || as[plan.Resize](p).Pod != "web-2" {
		t.Errorf("with all usage, web-2 is not lowered:\n%s", say(p))
	}
}

// An eviction whose only effect is a lower request waits. An urgent one does not.
func TestEvictionsWaitForMissingUsage(t *testing.T) {
	w := given(lackingUsage, orRecreate, decidedBefore(verifying), recommends(halved()), pods(halfSized("web-1"), halfSized("web-2")), (*world).effective)
	for i := range w.situation.Pods {
		pod := &w.situation.Pods[i]
		pod.Resize, pod.Resized, pod.Actual = workload.Resize{Infeasible: true}, noon.Add(-time.Hour), pod.Actual.With("app", small().Resources)
	}
	w.situation.Decision.Verification = nil
	if p := w.next(noon); is[plan.Evict](p) || p.Verdict.Reason != "MetricsIncomplete" {
		t.Errorf("a pod is evicted to be lowered:\n%s", say(p))
	}
	w.situation.MissingUsage = ""
	if p := w.next(noon); !is[plan.Evict](p) {
		t.Errorf("with all usage, no pod is evicted:\n%s", say(p))
	}
	lacksCPU := given(lackingUsage, orRecreate, decidedBefore(), recommends(), toEvict, (*world).effective)
	for i := range lacksCPU.situation.Pods {
		lacksCPU.situation.Pods[i].Actual = lacksCPU.situation.Pods[i].Actual.With("app", sized("app", amounts(100, 512), amounts(200, 1024)).Resources)
	}
	if p := lacksCPU.next(noon); is[plan.Evict](p) || p.Verdict.Reason != "MetricsIncomplete" {
		t.Errorf("a pod is evicted for CPU, and gets less memory:\n%s", say(p))
	}
	urgent := given(lackingUsage, orRecreate, decidedBefore(func(d *plan.Decision) { d.Reason, d.Requests["app"] = "OOMKill", amounts(50, 256) }), recommends(), toEvict, (*world).effective)
	for i := range urgent.situation.Pods {
		urgent.situation.Pods[i].Containers = []workload.Container{sized("app", amounts(50, 256), amounts(100, 512))}
	}
	if p := urgent.next(noon); !is[plan.Evict](p) {
		t.Errorf("an urgent eviction waits:\n%s", say(p))
	}
}
