// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// byDefault gives the container the default of the API: its limit only rises.
func byDefault(w *world) {
	policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsRise })(w)
}

// decides is a decision for the container, of ten minutes ago, and a recommendation for the same.
func decides(requests quantity.Amounts) func(*world) {
	return func(w *world) {
		decidedBefore(func(d *plan.Decision) { d.Requests["app"] = requests })(w)
		recommends(rec(requests, requests, requests))(w)
	}
}

func TestLimitsOfRunningContainersAreNotLowered(t *testing.T) {
	rule := rulesOf(t)
	rule("Requests fall, and limits stay", given(byDefault, decides(amounts(50, 64))),
		"keeps app 50m 64Mi · resizes web-1 to app 50m 64Mi of 200m 256Mi · Resizing · 0/2 changing")
	rule("Limits rise in the template's proportion", given(byDefault, decides(amounts(200, 256))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("A limit that was raised stays when the request falls",
		given(byDefault, decides(amounts(50, 64)), pods(pod("web-1", large()))),
		"keeps app 50m 64Mi · resizes web-1 to app 50m 64Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("A limit that was lowered before gets the template's back",
		given(byDefault, decides(amounts(50, 64)), pods(pod("web-1", sized("app", amounts(50, 64), amounts(100, 128))))),
		"keeps app 50m 64Mi · resizes web-1 to app 50m 64Mi of 200m 256Mi · Resizing · 0/1 changing")
	rule("A Burstable pod keeps its limit also where that was its request",
		given(byDefault, decides(amounts(50, 64)), template(sized("app", amounts(100, 256), amounts(200, 256))), pods(pod("web-1", sized("app", amounts(100, 256), amounts(200, 256))))),
		"keeps app 50m 64Mi · resizes web-1 to app 50m 64Mi of 200m 256Mi · Resizing · 0/1 changing")
	rule("A headroom raises a limit, and lowers none",
		given(byDefault, decides(amounts(50, 300)), policyOfApp(func(p *plan.ContainerPolicy) {
			fifty := int64(50)
			p.LimitPolicy = plan.LimitPolicy{HeadroomCPU: &fifty, HeadroomMemory: &fifty}
		})),
		"keeps app 50m 300Mi · resizes web-1 to app 50m 300Mi of 200m 450Mi · Resizing · 0/2 changing")
	rule("A ratio of a LimitRange bounds how far the request falls",
		given(byDefault, recommends(rec(amounts(20, 30), amounts(10, 20), amounts(30, 40))), bounds(workload.Bounds{ContainerRatio: workload.Ratios{CPU: 4000, Memory: 3000}})),
		"decides app 50m 89478486 (ScaleDown) · resizes web-1 to app 50m 89478486 of 200m 256Mi · Resizing · 0/2 changing")
	rule("A pod with a higher limit than the others has a higher request",
		given(byDefault, decides(amounts(100, 128)), pods(pod("web-1", small()), pod("web-2", large())), bounds(workload.Bounds{ContainerRatio: workload.Ratios{CPU: 2000, Memory: 2000}})),
		"keeps app 100m 128Mi · Applied · 2/2 applied")
	rule("New pods start with the template's limit",
		given(byDefault, sizesNewPods, decides(amounts(50, 64)), pods(pod("web-1", sized("app", amounts(50, 64), amounts(400, 512))))),
		"keeps app 50m 64Mi · puts into new pods app 50m 64Mi of 200m 256Mi · Applied · 1/1 applied")
	rule("So does a template that was rewritten with a higher one",
		given(byDefault, rollout, decides(amounts(50, 64)), template(large()), appTakenOver(), pods(pod("web-1", large()))),
		"keeps app 50m 64Mi, written · rewrites app 50m 64Mi of 200m 256Mi · RollingOut · 0/1 changing")
}

func TestGuaranteedPodsKeepTheirMemory(t *testing.T) {
	c := sized("app", amounts(400, 512), amounts(400, 512))
	given := func(changes ...func(*world)) world {
		return given(append([]func(*world){byDefault, template(c), pods(pod("web-1", c)), recommends(rec(amounts(50, 64), amounts(40, 50), amounts(60, 80)))}, changes...)...)
	}
	starts := policyOfApp(func(p *plan.ContainerPolicy) { p.StartCPU = 300 })
	rule := rulesOf(t)
	rule("CPU is lowered in place, and memory stays", given(), "decides app 50m - (ScaleDown) · resizes web-1 to app 50m 512Mi of 50m 512Mi · Resizing · 0/1 changing")
	rule("The message names the way to more", given(decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 512) }), pods(pod("web-1", sized("app", amounts(50, 512), amounts(50, 512))))), "keeps app 50m 512Mi · Applied. app memory: 512Mi stays beside a target of 64Mi, because the pods are Guaranteed, and the limit of a running container is not lowered; controlledValues RequestsAndLimits lowers it · 1/1 applied")
	rule("CPU stays at what starts have needed", given(starts), "decides app 300m - (ScaleDown) · resizes web-1 to app 300m 512Mi of 300m 512Mi · Resizing · 0/1 changing")
	rule("New pods start with the template's CPU", given(sizesNewPods, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 512) }), pods(pod("web-1", sized("app", amounts(50, 512), amounts(50, 512))))), "keeps app 50m 512Mi · puts into new pods app 400m 512Mi of 400m 512Mi · Applied. app memory: 512Mi stays beside a target of 64Mi, because the pods are Guaranteed, and the limit of a running container is not lowered; controlledValues RequestsAndLimits lowers it · 1/1 applied")
	rule("A raise keeps the QoS class", given(recommends(rec(amounts(600, 700), amounts(550, 650), amounts(700, 800)))), "decides app 600m 700Mi (LowerBound) · resizes web-1 to app 600m 700Mi of 600m 700Mi · Resizing · 0/1 changing")
	rule("With an injected container, pods are Burstable, and the request falls",
		given(pods(with(pod("web-1", c), func(p *workload.Pod) { p.QoS = corev1.PodQOSBurstable }))), "decides app 50m 64Mi (ScaleDown) · resizes web-1 to app 50m 64Mi of 400m 512Mi · Resizing · 0/1 changing")
	restarting := c
	restarting.RestartOnCPU = true
	rule("A container that restarts for CPU keeps it: a new pod would start with it, too", given(orRecreate, template(restarting), pods(pod("web-1", restarting))), "no decision · WithinBounds: app cpu: 400m stays beside a target of 50m, because the pods are Guaranteed, and the container restarts when its cpu changes (resizePolicy); app memory: 512Mi stays beside a target of 64Mi, because the pods are Guaranteed, and the limit of a running container is not lowered; controlledValues RequestsAndLimits lowers it · 1/1 applied")
	rule("Without RequestsAndLimits, a rollout lowers nothing", given(rollout), "no decision · WithinBounds: app cpu: 400m stays beside a target of 50m, because the pods are Guaranteed, and the limit of a running container is not lowered; controlledValues RequestsAndLimits lowers it; app memory: 512Mi stays beside a target of 64Mi, because the pods are Guaranteed, and the limit of a running container is not lowered; controlledValues RequestsAndLimits lowers it · 1/1 applied")
	rule("RequestsAndLimits lowers it", given(policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsFollow })), "decides app 50m 64Mi (ScaleDown) · resizes web-1 to app 50m 64Mi of 50m 64Mi · Resizing · 0/1 changing")
}

// A limit that a boost has raised stays: the process has seen it.
func TestTheLimitOfABoostStays(t *testing.T) {
	boost := boosts(func(b *plan.Boost) { b.Percent = 200 })
	rule := rulesOf(t)
	rule("A start gets the limit with the request", given(byDefault, decides(amounts(100, 128)), boost, pods(starting(10*time.Second, pod("web-1", small())))), "keeps app 100m 128Mi · resizes web-1 to app 200m 128Mi of 400m 256Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("The request is lowered once it is Ready", given(byDefault, decides(amounts(100, 128)), boost, pods(pod("web-1", sized("app", amounts(200, 128), amounts(400, 256))))), "keeps app 100m 128Mi · resizes web-1 to app 100m 128Mi of 400m 256Mi · Resizing · 0/1 changing")
}

// A process that sizes its heap from its limit does not see a raise in place.
func TestARaiseThatAProcessCannotUseIsReported(t *testing.T) {
	heap := func(h workload.Heap) func(*world) {
		return deployment(func(d *workload.Deployment) { d.Heaps = map[string]workload.Heap{"app": h} })
	}
	percentage := heap(workload.Heap{Flag: "-XX:MaxRAMPercentage=75 in args"})
	runs := func(since time.Time) func(*world) {
		return pods(with(pod("web-1", large()), func(p *workload.Pod) { p.Runs = []workload.Run{{Container: "app", Since: since}} }))
	}
	raised := decidedBefore(func(d *plan.Decision) { d.MemoryRaised = map[string]time.Time{"app": d.Time} })
	before, after := noon.Add(-time.Hour), noon.Add(-time.Minute)
	rule := rulesOf(t)
	rule("A process from before the raise", given(byDefault, raised, percentage, runs(before)), "keeps app 200m 256Mi · Applied. Container app of web-1 started before its memory limit was raised, and keeps the heap of its start (-XX:MaxRAMPercentage=75 in args): restart these pods, for example with kubectl rollout restart · 1/1 applied")
	rule("One that has started since", given(byDefault, raised, percentage, runs(after)), "keeps app 200m 256Mi · Applied · 1/1 applied")
	rule("A heap of a fixed size", given(byDefault, raised, heap(workload.Heap{Bytes: 1 << 20, Flag: "-Xmx1m in args"}), runs(before)), "keeps app 200m 256Mi · Applied · 1/1 applied")
	rule("A process from before a decision that raised no limit", given(byDefault, decidedBefore(), percentage, runs(before)), "keeps app 200m 256Mi · Applied · 1/1 applied")

	w := given(byDefault)
	if d := w.next(noon).Decision; !d.MemoryRaised["app"].Equal(noon) {
		t.Errorf("a raise of 256Mi to 512Mi is noted as %v", d.MemoryRaised)
	}
	w = given(byDefault, recommends(rec(amounts(100, 64), amounts(50, 60), amounts(110, 70))))
	if d := w.next(noon).Decision; len(d.MemoryRaised) > 0 {
		t.Errorf("a reduction is noted as %v", d.MemoryRaised)
	}
}
