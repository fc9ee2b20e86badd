// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// withPodLevel is the pod with pod-level resources, which decide its QoS class.
func withPodLevel(p workload.Pod, requests, limits quantity.Amounts) workload.Pod {
	return with(p, func(p *workload.Pod) {
		p.PodLevelResources, p.PodLevel = true, resources(requests, limits)
		p.QoS = workload.QoSOf([]workload.Container{{Resources: p.PodLevel}})
	})
}

func TestPodLevelResourcesFollowTheContainers(t *testing.T) {
	init := workload.Container{Name: "init", Resources: resources(amounts(900, 900), amounts(0, 0))}
	sidecar := workload.Container{Name: "proxy", Resources: resources(amounts(50, 64), amounts(0, 0)), IsSidecar: true}
	none := sized("app", amounts(0, 0), amounts(0, 0))
	for name, tc := range map[string]struct {
		pod      workload.Pod
		decision quantity.Amounts
		only     bool // limits stay
		want     string
	}{
		"a raise raises them by the same amount, and their limits in proportion": {
			pod: withPodLevel(pod("web-1", small()), amounts(100, 128), amounts(400, 512)), decision: amounts(200, 256),
			want: "app 200m 256Mi of 400m 512Mi; pod 200m 256Mi of 800m 1024Mi",
		},
		"what they have beyond the containers stays": {
			pod: withPodLevel(pod("web-1", small(), container("log")), amounts(500, 512), amounts(500, 512)), decision: amounts(200, 256),
			want: "app 200m 256Mi of 400m 512Mi; pod 600m 640Mi of 600m 640Mi",
		},
		"a lower request lowers them by the same amount": {
			pod: withPodLevel(pod("web-1", small()), amounts(300, 256), amounts(600, 512)), decision: amounts(50, 64),
			want: "app 50m 64Mi of 100m 128Mi; pod 250m 192Mi of 500m 384Mi",
		},
		"a first request is taken from what they have": {
			pod: withPodLevel(pod("web-1", none), amounts(1000, 1024), amounts(2000, 2048)), decision: amounts(200, 256),
			want: "app 200m 256Mi of - -; pod 1000m 1024Mi of 2000m 2048Mi",
		},
		"a sidecar counts, and an init container that needs more for a moment": {
			pod: with(withPodLevel(pod("web-1", small()), amounts(1000, 1024), amounts(0, 0)), func(p *workload.Pod) {
				p.Others = []workload.Container{sidecar, init}
			}), decision: amounts(200, 256),
			want: "app 200m 256Mi of 400m 512Mi; pod 1000m 1024Mi of - -",
		},
		"only what is declared follows": {
			pod: withPodLevel(pod("web-1", small()), amounts(100, 0), amounts(0, 512)), decision: amounts(200, 256),
			want: "app 200m 256Mi of 400m 512Mi; pod 200m - of - 1024Mi",
		},
		"limits that stay are not touched": {
			pod: withPodLevel(pod("web-1", small()), amounts(100, 128), amounts(900, 900)), decision: amounts(150, 200), only: true,
			want: "app 150m 200Mi of 200m 256Mi; pod 150m 200Mi of 900m 900Mi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := given(decidedBefore(func(d *plan.Decision) { d.Requests["app"] = tc.decision }), pods(tc.pod), recommends())
			if tc.only {
				policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay })(&w)
			}
			p := w.next(noon)
			resize := as[plan.Resize](p)
			if resize == nil {
				t.Fatalf("no resize: %s", say(p))
			}
			if got := saySizes(resize.Sizes) + "; pod " + sayResources(resize.PodLevel); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestPodLevelResourcesThatCannotFollow(t *testing.T) {
	requestsOnly := policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay })
	noLimits := sized("app", amounts(100, 128), amounts(0, 0))
	unsupported := func(requests quantity.Amounts) func(*world) {
		return rejected(resources(requests, amounts(0, 0)), "Unsupported", "pods with pod-level resources cannot be resized")
	}
	rule := rulesOf(t)
	rule("A limit that stays bounds what was decided before it",
		given(decidedBefore(), requestsOnly, recommends(), pods(withPodLevel(pod("web-1", sized("app", amounts(100, 256), amounts(0, 0))), amounts(100, 256), amounts(150, 512)))),
		"decides app 150m 256Mi (Bounds) · resizes web-1 to app 150m 256Mi of - - · Resizing · 0/1 changing")
	rule("It bounds a raise before it is decided: the part that fits is applied",
		given(requestsOnly, recommends(recommended("app")), template(noLimits), pods(withPodLevel(pod("web-1", noLimits), amounts(120, 128), amounts(150, 512)))),
		"decides app 130m 256Mi (LowerBound) · resizes web-1 to app 130m 256Mi of - - · Resizing · 0/1 changing")
	rule("A Guaranteed pod keeps its class",
		given(decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 64) }), requestsOnly, recommends(), pods(withPodLevel(pod("web-1", noLimits), amounts(100, 128), amounts(100, 128)))),
		"keeps app 50m 64Mi · QoSChange: pod web-1: its pod-level resources would change its QoS class from Guaranteed to Burstable, which cannot be done in place: raise the pod-level limit in the Deployment, or use controlledValues RequestsAndLimits · 0/1 stalled")
	rule("What the API server cannot do has a reason",
		given(decidedBefore(), recommends(), pods(withPodLevel(pod("web-1", noLimits), amounts(100, 128), amounts(100, 128))),
			unsupported(amounts(200, 256)), unsupported(amounts(100, 256)), unsupported(amounts(200, 128))),
		"keeps app 200m 256Mi · Unsupported: pod web-1: pods with pod-level resources cannot be resized. The fallback is Wait: these pods stay unchanged · 0/1 stalled")
	rule("A quota counts what is declared at the pod level",
		given(decidedBefore(), recommends(), pods(withPodLevel(pod("web-1", sized("app", amounts(0, 0), amounts(0, 0))), amounts(1000, 1024), amounts(0, 0))), func(w *world) {
			w.situation.Quotas = []workload.Quota{{Name: "team", Key: "requests.cpu", Hard: 1000, Used: 1000}}
		}),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of - - · Resizing · 0/1 changing")
}

// TestPodLevelResourcesAreAccepted: whatever pods declare and is decided, the API server's own rules hold
// for a resize, and its QoS class stays.
func TestPodLevelResourcesAreAccepted(t *testing.T) {
	resized := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		amount := func(most int64) quantity.Amounts { return amounts(1+r.Int64N(most), 1+r.Int64N(most)) }
		var list []workload.Container
		for _, name := range []string{"app", "log"}[:1+r.IntN(2)] {
			c := sized(name, amount(500), amounts(0, 0))
			switch r.IntN(4) {
			case 0:
				c.Requests = amounts(0, 0)
			case 1:
				c.Limits = amounts(c.Requests.CPUMillis*2, c.Requests.MemoryBytes/mebi*2)
			}
			list = append(list, c)
		}
		p := pod("web-1", list...)
		if r.IntN(3) == 0 {
			p.Others = []workload.Container{{Name: "init", Resources: resources(amount(900), amounts(0, 0)), IsSidecar: r.IntN(2) == 0}}
		}
		requests, limits := p.ContainersSum().Requests, p.ContainersSum().Limits
		if r.IntN(2) == 0 {
			more := amount(800)
			requests.CPUMillis, requests.MemoryBytes = requests.CPUMillis+more.CPUMillis, requests.MemoryBytes+more.MemoryBytes
		}
		limits.CPUMillis, limits.MemoryBytes = max(limits.CPUMillis, requests.CPUMillis), max(limits.MemoryBytes, requests.MemoryBytes)
		if r.IntN(4) == 0 {
			limits = amounts(0, 0)
		}
		p = withPodLevel(p, requests, limits)
		target := map[string]quantity.Amounts{}
		for _, c := range list {
			target[c.Name] = amount(700)
		}
		w := given(template(list...), recommends(), pods(p), func(w *world) {
			w.policy.Containers["log"] = w.policy.Containers["app"]
			w.situation.Decision = &plan.Decision{Time: noon.Add(-time.Minute), Reason: "ScaleUp", Requests: target}
		})
		resize := as[plan.Resize](w.next(noon))
		if resize == nil {
			continue
		}
		resized++
		after := with(p, func(p *workload.Pod) {
			p.Containers, p.PodLevel = withSizes(p.Containers, resize.Sizes), resize.PodLevel
		})
		if problem := brokenPodLevel(p, after); problem != "" {
			t.Fatalf("seed %d: %s\n%+v\n→ %s; pod %s", seed, problem, p, saySizes(resize.Sizes), sayResources(resize.PodLevel))
		}
	}
	if resized < 1000 {
		t.Errorf("only %d resizes", resized)
	}
}

// brokenPodLevel says which rule of the API server the pod breaks.
func brokenPodLevel(before, after workload.Pod) string {
	sum, level := after.ContainersSum(), after.PodLevel
	for _, r := range []struct {
		name                          string
		sum, request, limit, was, has int64
	}{
		{"cpu", sum.Requests.CPUMillis, level.Requests.CPUMillis, level.Limits.CPUMillis, before.PodLevel.Requests.CPUMillis, before.PodLevel.Limits.CPUMillis},
		{"memory", sum.Requests.MemoryBytes, level.Requests.MemoryBytes, level.Limits.MemoryBytes, before.PodLevel.Requests.MemoryBytes, before.PodLevel.Limits.MemoryBytes},
	} {
		switch {
		case (r.request > 0) != (r.was > 0), (r.limit > 0) != (r.has > 0):
			return r.name + ": a value is added or removed"
		case r.request > 0 && r.sum > r.request:
			return fmt.Sprintf("%s: containers request %d, and the pod %d", r.name, r.sum, r.request)
		case r.limit > 0 && r.request > r.limit:
			return fmt.Sprintf("%s: the pod requests %d of %d", r.name, r.request, r.limit)
		}
	}
	for _, c := range after.Containers {
		if level.Limits.CPUMillis > 0 && c.Limits.CPUMillis > level.Limits.CPUMillis || level.Limits.MemoryBytes > 0 && c.Limits.MemoryBytes > level.Limits.MemoryBytes {
			return "container " + c.Name + " has a limit above the pod's"
		}
	}
	if qos := workload.QoSOf([]workload.Container{{Resources: level}}); qos != before.QoS {
		return fmt.Sprintf("the QoS class becomes %s", qos)
	}
	return ""
}
