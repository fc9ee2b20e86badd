// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// orRecreate evicts, and has the API server size new pods since long ago.
func orRecreate(w *world) {
	w.policy.Fallback, w.policy.MinReplicas = "Recreate", 2
	w.situation.NewPods = plan.NewPods{
		Sizes:      []plan.Size{{Container: "app", Resources: large().Resources}},
		AskedSince: noon.Add(-time.Hour), EffectiveSince: noon.Add(-24 * time.Hour),
	}
}

// toBeEvicted names the pod that an eviction takes, or those that it chooses from.
func toBeEvicted(step *plan.Evict) string {
	var names []string
	for _, pod := range step.Pods {
		names = append(names, pod.Name)
	}
	if step.IfBusy {
		names = append(names, "if its node is busy")
	}
	return strings.Join(names, " ")
}

// effective has the API server size new pods as the plan wants it, since long ago.
func (w *world) effective() {
	if w.policy.Mode == "InPlace" && w.policy.Fallback == "Recreate" {
		w.situation.NewPods = plan.NewPods{
			Sizes: w.next(noon).NewPods.Sizes, AskedSince: noon.Add(-time.Hour), EffectiveSince: noon.Add(-24 * time.Hour),
		}
	}
}

func admission(change func(*plan.NewPods)) func(*world) {
	return func(w *world) { change(&w.situation.NewPods) }
}

// infeasible was asked to be large, and its node can never hold that.
func infeasible(name string) workload.Pod {
	return with(requested(name, workload.Resize{Infeasible: true, Message: "Node didn't have enough capacity", Since: noon.Add(-time.Minute)}), func(p *workload.Pod) {
		p.Resized = noon.Add(-time.Hour)
	})
}

// shortOfMemory is infeasible, but for its memory only.
func shortOfMemory(name string) workload.Pod {
	return with(infeasible(name), func(p *workload.Pod) {
		p.Actual = p.Actual.With("app", resources(amounts(200, 128), amounts(400, 256)))
	})
}

// made is a pod that was made a minute ago.
func made(p workload.Pod) workload.Pod {
	return with(p, func(p *workload.Pod) { p.Created, p.Started = noon.Add(-time.Minute), noon.Add(-time.Minute) })
}

func notReady(p workload.Pod) workload.Pod {
	return with(p, func(p *workload.Pod) { p.Ready, p.ReadyChanged = false, noon.Add(-time.Minute) })
}

func TestWhenAPodIsEvicted(t *testing.T) {
	none := sized("app", amounts(0, 0), amounts(0, 0))
	killed := func(d *plan.Decision) { d.Reason = "OOMKill" }
	rule := rulesOf(t)
	rule("One that its node can never hold", given(orRecreate, decidedBefore(), pods(infeasible("web-1"), infeasible("web-2"))),
		"keeps app 200m 256Mi · evicts web-1 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2 changing")
	rule("One that its node can never hold, though the decision was lost",
		given(orRecreate, recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 500))), pods(infeasible("web-1"), infeasible("web-2"))),
		"decides app 200m 256Mi (Adopted) · evicts web-1 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2 changing")
	rule("Not one that was made with the size",
		given(orRecreate, decidedBefore(), pods(with(pod("web-1", large()), func(p *workload.Pod) { p.Actual = p.Actual.With("app", small().Resources) }), pod("web-2", large()))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · ResizeError: pod web-1: the kubelet has not applied the new size for 10m0s. A new pod would have the same size · 1/2")
	rule("A single one where that is accepted",
		given(orRecreate, decidedBefore(), policy(func(p *plan.Policy) { p.MinReplicas = 1 }), deployment(func(d *workload.Deployment) { d.Replicas = 1 }), pods(infeasible("web-1"))),
		"keeps app 200m 256Mi · evicts web-1 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1: Node didn't have enough capacity · 0/1 changing")
	rule("But not with fewer replicas than updatePolicy.minReplicas",
		given(orRecreate, decidedBefore(), deployment(func(d *workload.Deployment) { d.Replicas = 1 }), pods(infeasible("web-1"))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · TooFewReplicas: The Deployment has 1 replicas, and pods are evicted only with at least 2 (updatePolicy.minReplicas). Requires pod replacement: pod web-1: Node didn't have enough capacity · 0/1 stalled")
	rule("Not while the Deployment's controller has yet to see it", given(orRecreate, decidedBefore(), rollingOut, pods(infeasible("web-1"), infeasible("web-2"))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · PodsUnavailable: Not all replicas are available: no pod is evicted until they are. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2")
	rule("Not while another pod is missing", given(orRecreate, decidedBefore(), pods(infeasible("web-1"))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Waiting for the replacement pod to become ready. Requires pod replacement: pod web-1: Node didn't have enough capacity · 0/1 changing")
	rule("Not while another one is not ready", given(orRecreate, decidedBefore(), pods(infeasible("web-1"), notReady(infeasible("web-2")))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · PodsUnavailable: Not all replicas are available: no pod is evicted until they are. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2")
	rule("Not outside of the windows", given(orRecreate, decidedBefore(), windows(nightly("ScaleUp")), pods(infeasible("web-1"), infeasible("web-2"))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · OutsideWindow: Waiting for the next of updatePolicy.windows to evict pods. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2, again in 14h0m0s")
	rule("Not while the last one goes and the next is not ready",
		given(orRecreate, decidedBefore(), pods(infeasible("web-1"), with(infeasible("web-2"), func(p *workload.Pod) { p.Terminating = true }), notReady(made(pod("web-3", large()))))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Waiting for the replacement pod to become ready. Requires pod replacement: pod web-1: Node didn't have enough capacity · 1/2 changing")
	rule("Not before it has been ready for minReadySeconds",
		given(orRecreate, decidedBefore(), deployment(func(d *workload.Deployment) { d.MinReady = time.Minute }), pods(infeasible("web-1"), with(made(pod("web-3", large())), func(p *workload.Pod) { p.ReadyChanged = noon.Add(-time.Second) }))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Waiting for the replacement pod to become ready. Requires pod replacement: pod web-1: Node didn't have enough capacity · 1/2 changing")
	rule("One is available when it is ready, even if its node's clock is ahead",
		given(orRecreate, decidedBefore(), pods(infeasible("web-1"), with(made(pod("web-3", large())), func(p *workload.Pod) { p.ReadyChanged = noon.Add(90 * time.Second) }))),
		"keeps app 200m 256Mi · evicts web-1 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1: Node didn't have enough capacity · 1/2 changing")
	rule("One that is only going holds up nothing, nor one that has ended",
		given(orRecreate, decidedBefore(), pods(infeasible("web-1"), made(pod("web-3", large())), with(infeasible("web-2"), func(p *workload.Pod) { p.Terminating = true }), with(infeasible("web-4"), func(p *workload.Pod) { p.Running, p.Ended, p.Ready = false, true, false }))),
		"keeps app 200m 256Mi · evicts web-1 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1: Node didn't have enough capacity · 1/2 changing")
	rule("But for that one itself, if it is OOM-killed", given(orRecreate, decidedBefore(killed), rollingOut, pods(shortOfMemory("web-1"), notReady(shortOfMemory("web-2")))),
		"keeps app 200m 256Mi · evicts web-2 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2 changing")
	down := with(notReady(shortOfMemory("web-1")), unmovable)
	rule("Not one that is down if it is not to be evicted", given(orRecreate, decidedBefore(killed), pods(down, notReady(shortOfMemory("web-2")))),
		"keeps app 200m 256Mi · evicts web-2 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2 changing")
	rule("Nor one that is ready beside it", given(orRecreate, decidedBefore(killed), pods(down, shortOfMemory("web-2"))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · PodsUnavailable: Not all replicas are available: no pod is evicted until they are. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2")
	rule("And not the next one before it is back", given(orRecreate, decidedBefore(killed), rollingOut, pods(notReady(shortOfMemory("web-1")), notReady(made(pod("web-3", large()))))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Waiting for the replacement pod to become ready. Requires pod replacement: pod web-1: Node didn't have enough capacity · 1/2 changing")
	rule("Not before a PodDisruptionBudget is asked again",
		given(orRecreate, decidedBefore(), refusedEviction("DisruptionBudget", false), pods(infeasible("web-1"), infeasible("web-2"))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · DisruptionBudget: no. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2, again in 30s")
	rule("What was refused for good needs a person", given(orRecreate, decidedBefore(), refusedEviction("Forbidden", true), pods(infeasible("web-1"), infeasible("web-2"))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Forbidden: no. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2 stalled, again in 30s")
	rule("Not one whose owner asks node autoscalers not to", given(orRecreate, decidedBefore(), pods(with(infeasible("web-1"), unmovable), infeasible("web-2"))),
		"keeps app 200m 256Mi · evicts web-2 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2 changing")
	rule("Nor all of them", given(orRecreate, decidedBefore(), pods(with(infeasible("web-1"), unmovable), with(infeasible("web-2"), unmovable))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Infeasible: pod web-1, pod web-2: Node didn't have enough capacity. An annotation asks not to evict these pods · 0/2 stalled")
	rule("Contested pods are not evicted",
		given(orRecreate, decidedBefore(func(d *plan.Decision) { d.Reverts = 2 }), template(none), pods(pod("web-1", none), pod("web-2", none)), admission(func(a *plan.NewPods) {
			a.Sizes = []plan.Size{{Container: "app", Resources: resources(amounts(200, 256), amounts(0, 0))}}
		})),
		"keeps app 200m 256Mi, reverted 2 times · puts into new pods app 200m 256Mi of - - · Contested: Another controller keeps changing the resources of the pods: stop it, then edit the scaler to try again · 0/2 stalled")
}

// An eviction needs room for the replacement, unless pods may not become available without it.
func TestWhatAnEvictionNeeds(t *testing.T) {
	for reason, want := range map[string]quantity.Amounts{
		plan.DecidedScaleUp: amounts(200, 256), plan.DecidedLowerBound: amounts(200, 256), plan.DecidedOOMKill: {}, plan.DecidedReverted: {},
	} {
		w := given(orRecreate, decidedBefore(func(d *plan.Decision) { d.Reason = reason }), pods(infeasible("web-1"), infeasible("web-2")))
		if step := as[plan.Evict](w.next(noon)); step == nil || step.Needs != want {
			t.Errorf("%s: %+v", reason, step)
		}
	}
}

func unmovable(p *workload.Pod) { p.Unmovable = true }

// A pod that cannot be resized is evicted if that hurts it.
func TestWhichPodIsHurtByItsSize(t *testing.T) {
	lacksOnly := func(r plan.Resource) func(*workload.Pod) {
		return func(p *workload.Pod) {
			actual := large().Resources
			r.Copy(&actual, small().Resources)
			p.Node, p.Actual = "node-1", workload.Reported{}.With("app", actual)
		}
	}
	stuck := func(name string) workload.Pod {
		return with(requested(name, workload.Resize{InProgress: true}), func(p *workload.Pod) { p.Resized = noon.Add(-time.Hour) })
	}
	two := func(change ...func(*workload.Pod)) func(*world) {
		return pods(with(stuck("web-1"), change...), with(stuck("web-2"), change...))
	}
	throttled := func(p *workload.Pod) {
		has := p.Actual.Of("app")
		has.Limits.CPUMillis = 150
		p.Actual = p.Actual.With("app", has)
	}
	const has = "keeps app 200m 256Mi · "
	const why = "puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1, pod web-2: the kubelet has not applied the new size for 10m0s · 0/2 changing"
	const stays = has + "puts into new pods app 200m 256Mi of 400m 512Mi · ResizeError: pod web-1, pod web-2: the kubelet has not applied the new size for 10m0s. The fallback Recreate leaves these pods: they lack neither memory nor CPU · 0/2"
	rule := rulesOf(t)
	rule("It lacks memory", given(orRecreate, decidedBefore(), two(lacksOnly(plan.Memory))), has+"evicts web-1 · "+why)
	rule("It lacks CPU, on a busy node", given(orRecreate, decidedBefore(), two(lacksOnly(plan.CPU))), has+"evicts web-1 web-2 if its node is busy · "+why)
	rule("It lacks CPU beyond its own limit", given(orRecreate, decidedBefore(), two(lacksOnly(plan.CPU), throttled)), has+"evicts web-1 · "+why)
	rule("It lacks nothing", given(orRecreate, decidedBefore(), pods(with(stuck("web-1"), hasMore), with(stuck("web-2"), hasMore))), stays)
	rule("It lacks nothing, and can never be resized", given(orRecreate, decidedBefore(), pods(with(infeasible("web-1"), hasMore), with(infeasible("web-2"), hasMore))),
		has+"evicts web-1 · puts into new pods app 200m 256Mi of 400m 512Mi · Recreating: Evicting pods one at a time. Requires pod replacement: pod web-1, pod web-2: Node didn't have enough capacity · 0/2 changing")
	rule("It cannot be resized, but only its boost is to end", given(orRecreate, boosts(), decidedBefore(), pods(pod("web-1", double()), pod("web-2", large())), admission(func(a *plan.NewPods) {
		a.Starts = []plan.Size{{Container: "app", Resources: resources(amounts(400, 0), amounts(800, 0))}}
	}), func(w *world) {
		w.reject("uid-web-1", plan.RejectedResize{Sizes: []plan.Size{{Container: "app", Resources: large().Resources}}, Reason: "Unsupported", Message: "no"})
	}), has+"puts into new pods app 200m 256Mi of 400m 512Mi, which start with app 400m - of 800m - · Unsupported: pod web-1: no. The fallback Recreate leaves these pods: they lack neither memory nor CPU · 1/2 stalled")
	rule("It lacks memory, and no node could hold its replacement", given(orRecreate, decidedBefore(), two(lacksOnly(plan.Memory)), func(w *world) { w.situation.LargestNode = amounts(4000, 200) }),
		"keeps app 200m 256Mi · NodeCapacity: no node could hold a new pod with 256Mi of memory · 0/2")
	rule("No node was found for its size before", given(orRecreate, decidedBefore(), two(lacksOnly(plan.Memory), func(p *workload.Pod) { p.Scheduled = noon.Add(-time.Minute) })), stays)
}

// hasMore has more than it needs.
func hasMore(p *workload.Pod) { p.Actual = workload.Reported{}.With("app", double().Resources) }

// An eviction for which the API server does not size the new pod has no effect.
func TestWhetherTheAPIServerSizesNewPods(t *testing.T) {
	two := pods(infeasible("web-1"), infeasible("web-2"))
	missed := made(with(infeasible("web-3"), func(p *workload.Pod) {
		p.Containers, p.Resize, p.Resized = []workload.Container{small()}, workload.Resize{}, time.Time{}
		p.Containers[0].RestartOnCPU, p.Containers[0].RestartOnMemory = true, true
	}))
	for name, tc := range map[string]struct {
		world   world
		evicts  bool
		reason  string
		newest  time.Time
		missed  string
		records bool
		again   time.Duration
	}{
		"not before it has been asked":    {world: given(orRecreate, decidedBefore(), two, admission(func(a *plan.NewPods) { *a = plan.NewPods{} })), reason: "Recreating", again: 10 * time.Second},
		"nor asked for these very sizes":  {world: given(orRecreate, decidedBefore(), two, admission(func(a *plan.NewPods) { a.Sizes = nil })), reason: "Recreating", again: 10 * time.Second},
		"nor asked for their boost":       {world: given(orRecreate, boosts(), decidedBefore(), two), reason: "Recreating", again: 10 * time.Second},
		"nor before it has had its time":  {world: given(orRecreate, decidedBefore(), two, admission(func(a *plan.NewPods) { a.EffectiveSince, a.AskedSince = time.Time{}, noon.Add(-4*time.Second) })), reason: "Recreating", again: 6 * time.Second},
		"nor before that is recorded":     {world: given(orRecreate, decidedBefore(), two, admission(func(a *plan.NewPods) { a.EffectiveSince = time.Time{} })), reason: "Recreating", newest: noon.Add(-24 * time.Hour), records: true},
		"then":                            {world: given(orRecreate, decidedBefore(), two), evicts: true, reason: "Recreating", newest: noon.Add(-24 * time.Hour)},
		"a new pod without them is found": {world: given(orRecreate, decidedBefore(), pods(infeasible("web-1"), missed)), reason: "AdmissionIneffective", newest: noon.Add(-24 * time.Hour), missed: "web-3"},
		"before it is ready, too":         {world: given(orRecreate, decidedBefore(), pods(infeasible("web-1"), with(notReady(missed), func(p *workload.Pod) { p.Running = false }))), reason: "AdmissionIneffective", newest: noon.Add(-24 * time.Hour), missed: "web-3"},
		"and recorded before it is resized": {
			world: given(orRecreate, decidedBefore(), pods(infeasible("web-1"), made(pod("web-3", small())))), reason: "Resizing", newest: noon.Add(-24 * time.Hour), missed: "web-3", records: true,
		},
		"it is remembered once it is resized": {
			world: given(orRecreate, decidedBefore(), two, admission(func(a *plan.NewPods) { a.IneffectiveOnPod = "web-3" })), reason: "AdmissionIneffective", newest: noon.Add(-24 * time.Hour), missed: "web-3",
		},
		"whatever is decided next": {
			world: given(orRecreate, decidedBefore(), two, admission(func(a *plan.NewPods) { a.IneffectiveOnPod, a.Sizes = "web-3", nil })), reason: "AdmissionIneffective", missed: "web-3",
		},
		"until a newer pod has them": {
			world:  given(orRecreate, decidedBefore(), pods(infeasible("web-1"), made(pod("web-4", large()))), admission(func(a *plan.NewPods) { a.IneffectiveOnPod = "web-3" })),
			reason: "Recreating", newest: noon.Add(-time.Minute), records: true,
		},
		"which may have started with its boost": {
			world: given(orRecreate, boosts(), decidedBefore(), pods(infeasible("web-1"), made(starting(time.Minute, pod("web-4", double())))), admission(func(a *plan.NewPods) {
				a.IneffectiveOnPod, a.Starts = "web-3", []plan.Size{{Container: "app", Resources: resources(amounts(400, 0), amounts(800, 0))}}
			})),
			reason: "Recreating", newest: noon.Add(-time.Minute),
		},
		"and is waited for, also if pods are unavailable at their old size": {
			world: given(orRecreate, boosts(), decidedBefore(func(d *plan.Decision) { d.Reason = "OOMKill" }), pods(
				with(notReady(shortOfMemory("web-1")), func(p *workload.Pod) { p.Running = true }), made(starting(time.Minute, pod("web-4", double()))),
			), admission(func(a *plan.NewPods) {
				a.Starts = []plan.Size{{Container: "app", Resources: resources(amounts(400, 0), amounts(800, 0))}}
			})),
			reason: "Recreating", newest: noon.Add(-24 * time.Hour),
		},
		"but no older pod counts": {
			world: given(orRecreate, decidedBefore(), pods(made(pod("web-2", large())), with(missed, wasResized, func(p *workload.Pod) { p.Created = noon.Add(-time.Second) })),
				admission(func(a *plan.NewPods) { a.IneffectiveOnPod = "web-3" })),
			reason: "AdmissionIneffective", newest: noon.Add(-24 * time.Hour), missed: "web-3",
		},
		"or a person edits the scaler": {
			world:  given(orRecreate, decidedBefore(), pods(infeasible("web-1"), missed), policy(func(p *plan.Policy) { p.Edited = true }), admission(func(a *plan.NewPods) { a.IneffectiveOnPod = "web-3" })),
			reason: "Recreating", newest: noon.Add(-time.Minute), records: true,
		},
		"a limit that another controller adds is no excuse": {
			world: given(orRecreate, decidedBefore(), pods(infeasible("web-1"), with(missed, func(p *workload.Pod) {
				p.Containers = slices.Clone(p.Containers)
				p.Containers[0].Limits = amounts(0, 1024)
			}))), reason: "Resizing", newest: noon.Add(-24 * time.Hour), missed: "web-3",
		},
		"a pod of an older template tells nothing": {
			world: given(orRecreate, decidedBefore(), pods(infeasible("web-1"), with(missed, func(p *workload.Pod) { p.Current = false }))), reason: "RolloutInProgress", newest: noon.Add(-24 * time.Hour),
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.world.next(noon)
			if is[plan.Evict](p) != tc.evicts || p.Verdict.Reason != tc.reason || !p.NewPods.EffectiveSince.Equal(tc.newest) || p.NewPods.IneffectiveOnPod != tc.missed || is[plan.Record](p) != tc.records || tc.again > 0 && p.Verdict.RequeueAfter != tc.again {
				t.Errorf("%s\nnewest %s, missed by %q, recorded first %t", say(p), p.NewPods.EffectiveSince, p.NewPods.IneffectiveOnPod, is[plan.Record](p))
			}
			if is[plan.Record](p) && (is[plan.Resize](p) || is[plan.Evict](p)) {
				t.Errorf("a step before what is known is recorded: %s", say(p))
			}
		})
	}
}

func refusedEviction(reason string, stalled bool) func(*world) {
	return func(w *world) {
		w.situation.RejectedEviction = &plan.RejectedEviction{Reason: reason, Message: "no", Stalled: stalled, Until: noon.Add(30 * time.Second)}
	}
}

func TestWhatAnEvictionIsWorth(t *testing.T) {
	w := given(orRecreate, decidedBefore(), pods(infeasible("web-1"), infeasible("web-2")))
	want := plan.WantOf(w.next(noon), w.situation)
	// Each pod misses 100m and 128Mi, whatever it declares.
	if least := 2 * 0.1; want.Class != budget.ScaleUp || want.Benefit <= least || want.Benefit > 2*least {
		t.Errorf("WantOf() = %+v", want)
	}
}

// A pod that was created with the new size is verified, too.
func TestAnEvictionIsVerified(t *testing.T) {
	lowered := func(w *world) {
		decidedBefore(verifying)(w)
		watching(w)
		recommends(halved())(w)
	}
	stuck := with(halfSized("web-2"), func(p *workload.Pod) {
		p.Resize, p.Actual = workload.Resize{Infeasible: true, Message: "no"}, p.Actual.With("app", small().Resources)
	})
	young := func(change func(*workload.Pod)) workload.Pod {
		return with(halfSized("web-1"), func(p *workload.Pod) {
			p.Resized, p.Created, p.Started = time.Time{}, noon.Add(time.Second), noon.Add(time.Second)
			change(p)
		})
	}
	for name, tc := range map[string]struct {
		pod    workload.Pod
		reason string
		after  time.Duration
	}{
		"it is watched before the next is evicted": {young(func(*workload.Pod) {}), "Verifying", 30 * time.Second},
		"it may take its time to start":            {young(func(p *workload.Pod) { p.Ready, p.Unready = false, noon.Add(time.Second) }), "Recreating", time.Minute},
		"where it is OOM-killed, the change is reverted": {
			young(func(p *workload.Pod) {
				p.Exits = []workload.Exit{{Container: "app", At: noon.Add(10 * time.Second), OOMKilled: true}}
			}), "", 30 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := given(orRecreate, lowered, pods(tc.pod, stuck))
			w.effective()
			p := w.next(noon.Add(tc.after))
			if tc.reason == "" && p.Reverted == "" || tc.reason != "" && p.Verdict.Reason != tc.reason || is[plan.Evict](p) {
				t.Errorf("%s, reverted for %q", say(p), p.Reverted)
			}
			if got := saySizes(p.NewPods.Sizes); p.Reverted != "" && got != "app 100m 128Mi of 200m 256Mi" {
				t.Errorf("reverted, and new pods get %s", got)
			}
		})
	}
}

// A size below the template belongs to one ReplicaSet. Pods of others start with more, although the API server sizes them.
func TestAPodOfAnotherRevisionProvesNothingAboutItsSize(t *testing.T) {
	for set, want := range map[types.UID]string{"set-1": "web-2", "set-2": ""} {
		w := given(orRecreate, hadProved("set-1", half()), recommends(halved()),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 64) }),
			pods(of("set-1", pod("web-1", half())), of(set, made(pod("web-2", small())))))
		if got := w.next(noon).NewPods.IneffectiveOnPod; got != want {
			t.Errorf("a pod of %s starts with the size of the template: pods that did not get their size: %q, want %q", set, got, want)
		}
	}
}
