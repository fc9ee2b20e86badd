// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// noCooldown lets bounds raise requests at once.
func noCooldown(w *world) { w.policy.Cooldown = 0 }

// mostPerContainer, mostPerPod and nodeShare are ceilings, in millicores and MiB, or percent.
func mostPerContainer(cpu, memory int64) func(*world) {
	return func(w *world) { w.situation.Ceilings.Container = amounts(cpu, memory) }
}

func mostPerPod(cpu, memory int64) func(*world) {
	return func(w *world) { w.situation.Ceilings.Pod = amounts(cpu, memory) }
}

func nodeShare(percent int64) func(*world) {
	return func(w *world) { w.situation.Ceilings.NodePercent = percent }
}

// TestWithoutMaxAllowed: raises stay within a multiple of what the user has set.
func TestWithoutMaxAllowed(t *testing.T) {
	factor := func(w *world) { w.situation.Ceilings.RaiseFactor = 8 }
	onlyMemory := policyOfApp(func(p *plan.ContainerPolicy) { p.CPU = false })
	// has is a world of one pod as in the template, whose usage needs so much memory.
	has := func(request, limit, wants int64, more ...func(*world)) world {
		c := sized("app", amounts(0, request), amounts(0, limit))
		return given(append([]func(*world){
			onlyMemory, factor, template(c), pods(pod("web-1", c)),
			recommends(rec(amounts(0, wants), amounts(0, wants), amounts(0, wants))),
		}, more...)...)
	}
	twoBytes := workload.Container{Name: "app", Resources: workload.Resources{Requests: quantity.Amounts{MemoryBytes: 2}, Limits: amounts(0, 512)}}
	rule := rulesOf(t)
	rule("A request is raised to eight times the template's", has(512, 0, 9000),
		"decides app - 4096Mi (LowerBound) · resizes web-1 to app - 4096Mi of - - · Resizing · 0/1 changing")
	rule("The limit counts if it is larger, and is not raised further", has(512, 1024, 9000),
		"decides app - 8192Mi (LowerBound) · resizes web-1 to app - 8192Mi of - 8192Mi · Resizing · 0/1 changing")
	rule("A wrong unit is not scaled: a request of 2000m of memory is two bytes",
		has(512, 0, 140, template(twoBytes), pods(pod("web-1", twoBytes))),
		"decides app - 140Mi (LowerBound) · resizes web-1 to app - 140Mi of - 1120Mi · Resizing · 0/1 changing")
	rule("A small container may have 1Gi", has(16, 0, 9000),
		"decides app - 1024Mi (LowerBound) · resizes web-1 to app - 1024Mi of - - · Resizing · 0/1 changing")
	rule("The reason names maxAllowed",
		has(512, 0, 9000, pods(pod("web-1", sized("app", amounts(0, 4096), quantity.Amounts{}))), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 4096) })),
		"keeps app - 4096Mi · RaiseLimit: All pods have the decided size. app memory: 9000Mi is recommended, but without maxAllowed it is raised to 4096Mi at most (ceilings.raiseFactor); set maxAllowed if it needs more · 1/1 applied")
	rule("With maxAllowed there is no other bound", has(512, 0, 9000, policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(0, 20000) })),
		"decides app - 9000Mi (LowerBound) · resizes web-1 to app - 9000Mi of - - · Resizing · 0/1 changing")
	killedAt := func(hit, floor int64) func(*world) {
		return func(w *world) {
			w.situation.Recommendations[0].OOMFloor = floor * mebi
			w.situation.Pods[0].Kills = []workload.OOMKill{{Container: "app", At: noon.Add(-time.Hour), HitBytes: hit * mebi}}
		}
	}
	bounded := policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(0, 512) })
	rule("An OOM kill that maxAllowed leaves unanswered needs a user", has(512, 0, 700, bounded, killedAt(512, 700)),
		"no decision · BoundTooLow: app memory: an OOM kill has shown that 512Mi is not enough, and maxAllowed allows no more · 0/1 stalled")
	rule("The message stays the same while the floor falls", has(512, 0, 700, bounded, killedAt(512, 600)),
		"no decision · BoundTooLow: app memory: an OOM kill has shown that 512Mi is not enough, and maxAllowed allows no more · 0/1 stalled")
	rule("One that maxAllowed answers does not", has(512, 0, 500, bounded, killedAt(512, 512)),
		"no decision · WithinTolerance · 1/1 applied")
	rule("Nor does one at less than the bound", has(512, 0, 500, bounded, killedAt(256, 600)),
		"no decision · WithinTolerance · 1/1 applied")
	rule("A limit that stays bounds it, too", has(512, 512, 700, killedAt(512, 700), policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay })),
		"no decision · BoundTooLow: app memory: an OOM kill has shown that 512Mi is not enough, and a LimitRange, or a limit that stays, allows no more · 0/1 stalled")
	rule("Memory is not raised if that did not stop the kills", given(recommends(endedClimb("RaiseDidNotHelp", 128))),
		"no decision · RaiseDidNotHelp: app memory: larger sizes did not stop the OOM kills, so 128Mi is not raised for now · 0/2")
	rule("Nor if usage has grown with it", given(recommends(endedClimb("UsageFollowsLimit", 128))),
		"no decision · UsageFollowsLimit: app memory: usage grows with the limit, so 128Mi is not raised for now · 0/2")
	rule("What pods have is kept",
		has(512, 0, 9000, pods(pod("web-1", sized("app", amounts(0, 6000), quantity.Amounts{}))), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 6000) })),
		"keeps app - 6000Mi · RaiseLimit: All pods have the decided size. app memory: 9000Mi is recommended, but without maxAllowed it is raised to 4096Mi at most (ceilings.raiseFactor); set maxAllowed if it needs more · 1/1 applied")
}

func TestCeilings(t *testing.T) {
	onlyCPU := policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false })
	wants := func(cpu int64) func(*world) {
		return recommends(rec(amounts(cpu, 0), amounts(cpu, 0), amounts(cpu, 0)))
	}
	// has is a world of one pod with one container that has so much CPU.
	has := func(cpu int64, more ...func(*world)) world {
		c := sized("app", amounts(cpu, 128), quantity.Amounts{})
		return given(append([]func(*world){
			onlyCPU, noCooldown, template(c), pods(pod("web-1", c)),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(cpu, 0) }),
		}, more...)...)
	}
	least := func(cpu int64) func(*world) {
		return policyOfApp(func(p *plan.ContainerPolicy) { p.Memory, p.MinAllowed = false, amounts(cpu, 0) })
	}
	beside := func(name string, cpu int64) workload.Container {
		return sized(name, amounts(cpu, 0), quantity.Amounts{})
	}
	rule := rulesOf(t)
	rule("What a pod has is not lowered", has(4000, wants(6000), mostPerContainer(2000, 0)),
		"keeps app 4000m - · OperatorCeiling: All pods have the decided size. app cpu: 6000m is recommended or required by minAllowed, but the operator's configuration allows at most 2000m for a container (ceilings.container) · 1/1 applied")
	rule("Usage lowers it, also above the ceiling", has(4000, wants(3000), mostPerContainer(2000, 0)),
		"decides app 3000m - (ScaleDown) · resizes web-1 to app 3000m 128Mi of - - · Resizing · 0/1 changing")
	rule("A pod shares its ceiling",
		has(1000, template(beside("app", 1000), beside("log", 500)), pods(pod("web-1", beside("app", 1000), beside("log", 500))), wants(6000), mostPerPod(4000, 0)),
		"decides app 3500m - (LowerBound) · resizes web-1 to app 3500m - of - - · Resizing · 0/1 changing")
	rule("A pod gets a share of the largest node", has(1000, wants(500), least(8000), largestNode(8000, 0), nodeShare(75)),
		"decides app 6000m - (Bounds) · resizes web-1 to app 6000m 128Mi of - - · Resizing · 0/1 changing")
	rule("And the share is named", has(6000, wants(500), least(8000), largestNode(8000, 0), nodeShare(75)),
		"keeps app 6000m - · OperatorCeiling: All pods have the decided size. app cpu: 8000m is recommended or required by minAllowed, but the operator's configuration allows at most 6000m for a pod, which is 75 % of the largest node (ceilings.nodePercent) · 1/1 applied")
	rule("The lowest ceiling of a pod is named", has(5000, wants(500), least(8000), largestNode(8000, 0), nodeShare(75), mostPerPod(5000, 0)),
		"keeps app 5000m - · OperatorCeiling: All pods have the decided size. app cpu: 8000m is recommended or required by minAllowed, but the operator's configuration allows at most 5000m for a pod (ceilings.pod) · 1/1 applied")
	rule("A rollout may ask for more than the share, since a new pod may bring a new node", has(1000, rollout, wants(6000), largestNode(4000, 0), nodeShare(75)),
		"decides app 6000m - (LowerBound) · holds app 1000m - of - - cpu=true memory=false · RollingOut · 0/1 changing")
	rule("A decision that no pod has is bounded, whatever made it",
		has(1000, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(7000, 0) }), wants(8000), mostPerContainer(4000, 0)),
		"decides app 4000m - (Bounds) · resizes web-1 to app 4000m 128Mi of - - · Resizing · 0/1 changing")
	rule("What the kernel rounds is no reason to lower a request",
		has(4000, pods(with(pod("web-1", sized("app", amounts(4000, 128), quantity.Amounts{})), func(p *workload.Pod) {
			p.Actual = p.Actual.With("app", sized("app", amounts(3990, 128), quantity.Amounts{}).Resources)
		})), wants(6000), mostPerContainer(2000, 0)),
		"keeps app 4000m - · OperatorCeiling: All pods have the decided size. app cpu: 6000m is recommended or required by minAllowed, but the operator's configuration allows at most 2000m for a container (ceilings.container) · 1/1 applied")
	rule("A container without a request gets none once the others use up the pod's ceiling",
		has(0, template(beside("app", 0), beside("log", 5000)), pods(pod("web-1", beside("app", 0), beside("log", 5000))), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(600, 0) }), wants(500), mostPerPod(4000, 0)),
		"no decision · OperatorCeiling: app cpu: 500m is recommended or required by minAllowed, but the operator's configuration allows at most 4000m for a pod (ceilings.pod) · 0/1")
	rule("A limit without a request is a request", has(4000, rollout, template(sized("app", quantity.Amounts{}, amounts(4000, 0))), pods(), wants(6000), mostPerContainer(2000, 0)),
		"keeps app 4000m - · holds app - - of 4000m - cpu=true memory=false · RollingOut · 0/0 changing")
	rule("Whole CPUs are rounded up within the pod's ceiling",
		given(noCooldown, rollout,
			template(sized("app", amounts(1000, 128), amounts(1000, 128)), sized("log", amounts(1000, 128), amounts(1000, 128))), pods(),
			func(w *world) {
				follows := plan.ContainerPolicy{CPU: true, Limits: plan.LimitsFollow}
				w.policy.Containers = map[string]plan.ContainerPolicy{"app": follows, "log": follows}
				app, log := rec(amounts(1500, 0), amounts(1500, 0), amounts(1500, 0)), rec(amounts(1500, 0), amounts(1500, 0), amounts(1500, 0))
				log.Name = "log"
				recommends(log, app)(w)
			}, mostPerPod(3200, 0)),
		"decides app 2000m - (LowerBound) · holds app 1000m - of 1000m - cpu=true memory=false · RollingOut · 0/0 changing")
	rule("Nothing changes if a LimitRange demands more than a ceiling allows",
		has(1000, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(2000, 0) }), wants(500), bounds(workload.Bounds{Name: "limits", ContainerMin: amounts(3000, 0)}), mostPerContainer(2000, 0)),
		"keeps app 2000m - · LimitRange: pod web-1: LimitRange limits allows container app no less than 3000m of cpu · 0/1 stalled")
}

// TestABoundWithAWrongUnit: 400 is meant to be 400m.
func TestABoundWithAWrongUnit(t *testing.T) {
	onlyCPU := func(least int64) func(*world) {
		return policyOfApp(func(p *plan.ContainerPolicy) { p.Memory, p.MinAllowed = false, amounts(least, 0) })
	}
	has := func(cpu int64, more ...func(*world)) world {
		c := sized("app", amounts(cpu, 128), quantity.Amounts{})
		return given(append([]func(*world){
			onlyCPU(400_000), template(c), pods(pod("web-1", c)), recommends(rec(amounts(100, 0), amounts(90, 0), amounts(150, 0))),
			decidedBefore(func(d *plan.Decision) {
				d.Requests["app"], d.Reason, d.Time = amounts(cpu, 0), plan.DecidedBounds, noon.Add(-time.Minute)
			}),
		}, more...)...)
	}
	// demands sets the request that usage asks for, besides minAllowed.
	demands := func(cpu int64) func(*world) {
		return func(w *world) {
			r := rec(amounts(400_000, 0), amounts(400_000, 0), amounts(400_000, 0))
			r.Uncapped = amounts(cpu, 0)
			recommends(r)(w)
		}
	}
	first := decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(100, 0) })
	rule := rulesOf(t)
	rule("It doubles a request at first", has(100, first, demands(100)),
		"decides app 200m - (Bounds) · resizes web-1 to app 200m 128Mi of - - · Resizing · 0/1 changing")
	rule("And again after the cooldown", has(200, demands(100)),
		"keeps app 200m - · InCooldown: All pods have the decided size. The next change (Bounds) waits until 5m0s after the last change · 1/1 applied, again in 4m0s")
	rule("A pod that has more already is not lowered to a step", has(100, first, demands(100), pods(pod("web-1", sized("app", amounts(900, 128), quantity.Amounts{})))),
		"decides app 900m - (Bounds) · Applied · 1/1 applied")
	rule("What the pod template requests is no wrong unit", has(100, first, demands(100), template(sized("app", amounts(900, 128), quantity.Amounts{}))),
		"decides app 900m - (Bounds) · resizes web-1 to app 900m 128Mi of - - · Resizing · 0/1 changing")
	rule("But nothing shows that while no pod of it runs: its rollout is paused",
		has(100, first, demands(100), template(sized("app", amounts(900, 128), quantity.Amounts{})), pausedRollout, pods(ofOldTemplate(pod("web-1", sized("app", amounts(100, 128), quantity.Amounts{}))))),
		"decides app 200m - (Bounds) · resizes web-1 to app 200m 128Mi of - - · Resizing · 0/1 changing")
	rule("Nor while its first pod cannot start",
		has(100, first, demands(100), template(sized("app", amounts(900, 128), quantity.Amounts{})), stuckRollout, pods(ofOldTemplate(pod("web-1", sized("app", amounts(100, 128), quantity.Amounts{}))), with(pod("web-2", sized("app", amounts(900, 128), quantity.Amounts{})), func(p *workload.Pod) { p.Running = false }))),
		"decides app 200m - (Bounds) · resizes web-1 to app 200m 128Mi of - - · Resizing · 0/1 changing")
	rule("One pod of it shows it, also beside pods of an older template that are silent",
		has(100, first, demands(100), template(sized("app", amounts(900, 128), quantity.Amounts{})), stuckRollout, func(w *world) { w.situation.MissingUsage = "no usage of web-1" }, pods(ofOldTemplate(pod("web-1", sized("app", amounts(100, 128), quantity.Amounts{}))), pod("web-2", sized("app", amounts(100, 128), quantity.Amounts{})))),
		"decides app 900m - (Bounds) · resizes web-1 to app 900m 128Mi of - - · Resizing · 0/2 changing")
	rule("Nor is what the API server makes of the template's limit", has(100, first, demands(100), template(sized("app", amounts(0, 128), amounts(700, 0)))),
		"decides app 700m - (Bounds) · resizes web-1 to app 700m 128Mi of - - · Resizing · 0/1 changing")
	rule("An OOM kill raises memory no further than the kill demands, or twice the request",
		given(policyOfApp(func(p *plan.ContainerPolicy) { p.CPU, p.MinAllowed = false, amounts(0, 400_000) }), func(w *world) {
			r := rec(amounts(0, 400_000), amounts(0, 400_000), amounts(0, 400_000))
			r.OOMFloor, r.Uncapped = 300*mebi, amounts(0, 300)
			recommends(r)(w)
		}),
		"decides app - 300Mi (OOMKill) · resizes web-1 to app 100m 300Mi of 200m 600Mi · Resizing · 0/2 changing")
	rule("A rollout is not paced: the Deployment keeps the old pods until the new ones are available", has(100, rollout, first, demands(100)),
		"decides app 400000m - (Bounds) · holds app 100m - of - - cpu=true memory=false · RollingOut · 0/1 changing")
	rule("A lower maxAllowed is applied at once: no request is above it",
		has(800, policyOfApp(func(p *plan.ContainerPolicy) {
			p.Memory, p.MinAllowed, p.MaxAllowed = false, quantity.Amounts{}, amounts(4, 0)
		}),
			recommends(rec(amounts(4, 0), amounts(4, 0), amounts(4, 0)))),
		"decides app 4m - (Bounds) · resizes web-1 to app 4m 128Mi of - - · Resizing · 0/1 changing")
}

// podCeiling is the most that a pod may be raised to of one resource; 0 for any.
func (w world) podCeiling(r plan.Resource) int64 {
	s := w.situation
	most := r.Of(s.Ceilings.Pod)
	if share := r.Of(s.LargestNode) * s.Ceilings.NodePercent / 100; share > 0 && w.policy.Mode == "InPlace" && (most == 0 || share < most) {
		return share
	}
	return most
}

// checkCeilings: no request is raised above a ceiling, and nothing that a pod has is lowered because
// of one. A request that is lowered is lowered as far as it would be without them.
func checkCeilings(w world, p plan.Plan, fail func(string, ...any)) {
	s := w.situation
	if !p.Decided || p.Decision == nil || p.Decision.Reason == plan.DecidedReverted || s.Ceilings == (plan.Ceilings{}) {
		return
	}
	free := w
	free.situation.Ceilings = plan.Ceilings{}
	unbounded := free.next(p.Decision.Time).Decision
	for _, r := range both {
		before := w.besideTemplate(r)
		after := before
		for _, c := range s.Deployment.Containers {
			has, then := r.Of(w.grantedTo(c)), r.Of(p.Decision.Requests[c.Name])
			before, after = before+has, after+max(has, then)
			if most := w.raiseLimit(c, r); most > 0 && then > max(most, has) {
				fail("container %s gets %d of %s; it has %d, and without maxAllowed %d is the most", c.Name, then, r, has, most)
			}
			if most := r.Of(s.Ceilings.Container); most > 0 && then > max(most, has) {
				fail("container %s gets %d of %s; it has %d, and the ceiling is %d", c.Name, then, r, has, most)
			}
			if unbounded == nil || w.policy.Verifies() || r.Of(unbounded.Requests[c.Name]) == 0 || r.Of(s.Bounds.PodMax) > 0 { // which leaves others more
				continue
			}
			unbound := r.Of(unbounded.Requests[c.Name])
			if then > 0 && then < min(has, unbound, r.Of(w.current(c))) {
				fail("container %s gets %d of %s because of a ceiling; it has %d and would get %d", c.Name, then, r, has, unbound)
			}
		}
		if most := w.podCeiling(r); most > 0 && after > max(most, before) {
			fail("a pod gets %d of %s; it has %d, and the ceiling is %d", after, r, before, most)
		}
	}
}

// besideTemplate is the most that a pod requests besides the containers of the template: for injected
// containers and as overhead.
func (w world) besideTemplate(r plan.Resource) (most int64) {
	for _, pod := range w.situation.Pods {
		if pod.Terminating || pod.Ended {
			continue
		}
		sum := r.Of(pod.Overhead)
		for _, c := range pod.Containers {
			if _, ok := w.situation.Deployment.Container(c.Name); !ok {
				sum += r.Of(c.Requests)
			}
		}
		most = max(most, sum)
	}
	return most
}

// grantedTo is the most that a container of a pod that stays declares and has applied, as far as kubelets
// can tell, or else what the template says. The API server sets a missing request to the limit.
func (w world) grantedTo(c workload.Container) (most quantity.Amounts) {
	for _, pod := range w.situation.Pods {
		if in, ok := pod.Container(c.Name); ok && !in.Unreadable && w.stays(pod) {
			for _, r := range both {
				declared, actual := workload.Resources{Requests: in.Requests}, workload.Resources{Requests: pod.Actual.Of(c.Name).Requests}
				has := r.Request(declared)
				if !r.IsApplied(actual, declared) {
					has = cmp.Or(min(has, r.Request(actual)), has) // a request that was added can't be taken back
				}
				r.Set(&most, max(r.Of(most), has))
			}
		}
	}
	for _, r := range both {
		if v := r.Of(most); v > 0 && w.situation.Decision.Request(c.Name, r) == v+1 { // the smallest amount less keeps the QoS class
			r.Set(&most, v+1)
		}
		r.Set(&most, cmp.Or(r.Of(most), r.Request(c.Resources), r.Limit(c.Resources)))
	}
	return most
}

// raiseLimit is the most that a container without maxAllowed is raised to; 0 for any.
func (w world) raiseLimit(c workload.Container, r plan.Resource) int64 {
	s, policy, written := w.situation, w.policy.Containers[c.Name], c.Resources
	for _, o := range s.Originals {
		if o.Container == c.Name && o.Has(r) {
			r.Copy(&written, o.Resources)
		}
	}
	base := cmp.Or(max(r.Of(written.Requests), r.Of(written.Limits)), r.Of(s.Bounds.ContainerDefault))
	if base == 0 || s.Ceilings.RaiseFactor == 0 || r.Of(policy.MaxAllowed) > 0 {
		return 0
	}
	return max(base*s.Ceilings.RaiseFactor, r.Of(amounts(1000, 1024)), r.Of(policy.MinAllowed), r.Of(s.Bounds.ContainerMin))
}

// checkSteps: what only minAllowed demands doubles a request at most, or raises it to what a pod, or the template of a running pod, has.
func checkSteps(w world, p plan.Plan, fail func(string, ...any)) {
	s := w.situation
	if !p.Decided || p.Decision == nil || p.Decision.Reason == plan.DecidedReverted || w.policy.Mode != "InPlace" || w.policy.CooldownOf(window.ScaleUp) == 0 || s.Bounds != (workload.Bounds{}) {
		return
	}
	for _, c := range s.Deployment.Containers {
		for _, rec := range s.Recommendations {
			if rec.Name != c.Name {
				continue
			}
			has, then, granted := w.current(c), p.Decision.Requests[c.Name], w.grantedTo(c)
			for _, r := range both {
				usage := r.Of(rec.Uncapped)
				if r == plan.Memory {
					usage = max(usage, rec.OOMFloor)
				}
				if slices.ContainsFunc(s.Pods, func(pod workload.Pod) bool { return pod.Current && pod.Running }) {
					usage = max(usage, requestIn(c.Resources, r)) // a node has room for what the template requests
				}
				if v := r.Of(has); v > 0 && r.Of(then) > max(2*v, v+(64<<10), r.Of(granted), usage) {
					fail("container %s goes from %d to %d, and usage asks for %d", c.Name, v, r.Of(then), usage)
				}
			}
		}
	}
}

// randomCeilings are none, or some that matter.
func randomCeilings(r *rand.Rand) (c plan.Ceilings) {
	if r.IntN(3) > 0 {
		return c
	}
	for _, a := range []*quantity.Amounts{&c.Container, &c.Pod} {
		if r.IntN(2) == 0 {
			*a = randomNode(r)
		}
	}
	c.NodePercent = r.Int64N(2) * (1 + r.Int64N(100))
	c.RaiseFactor = r.Int64N(2) * (2 + r.Int64N(8))
	return c
}

// A user who sets minAllowed above the raise limit wants that much.
func TestMinAllowedIsReachedAboveTheRaiseLimit(t *testing.T) {
	has := sized("app", amounts(0, 4096), quantity.Amounts{})
	w := given(template(sized("app", amounts(0, 512), quantity.Amounts{})), pods(pod("web-1", has)),
		decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 4096) }),
		recommends(rec(amounts(0, 100), amounts(0, 64), amounts(0, 120))),
		policyOfApp(func(p *plan.ContainerPolicy) { p.CPU, p.MinAllowed = false, amounts(0, 6000) }))
	w.situation.Ceilings.RaiseFactor = 8
	rulesOf(t)("512Mi in the template, and at least 6000Mi", w,
		"decides app - 6000Mi (Bounds) · resizes web-1 to app - 6000Mi of - - · Resizing · 0/1 changing")
}
