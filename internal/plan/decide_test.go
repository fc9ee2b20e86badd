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

// atSize are two pods that have what decision says.
func atSize() func(*world) { return pods(pod("web-1", large()), pod("web-2", large())) }

func recently(d *plan.Decision) { d.Time = noon.Add(-time.Minute) }

func rec(target, lower, upper quantity.Amounts) recommend.Container {
	return recommend.Container{Name: "app", Target: target, LowerBound: lower, UpperBound: upper, Uncapped: target}
}

// withOOMFloor is a recommendation after an OOM kill, which shows that usage needs that many MiB.
func withOOMFloor(floor int64, r recommend.Container) recommend.Container {
	r.OOMFloor, r.Uncapped.MemoryBytes = floor*mebi, max(floor*mebi, r.Uncapped.MemoryBytes)
	return r
}

func TestWhetherAnythingIsDone(t *testing.T) {
	rule := rulesOf(t)
	rule("Off recommends only, and forgets what was decided", given(decidedBefore(), func(w *world) { w.policy.Mode = "Recommend" }),
		"no decision · RecommendOnly: updateMode is Recommend: recommendations are not applied · 0/2")
	rule("Nothing is done about a Deployment that is being deleted", given(decidedBefore(), deployment(func(d *workload.Deployment) { d.Terminating = true })),
		"keeps app 200m 256Mi · Terminating: The Deployment is being deleted · 0/2")
	rule("A suspended scaler changes nothing and remembers what was decided",
		given(decidedBefore(), pods(pod("web-1", large()), pod("web-2", small())), func(w *world) { w.policy.Suspended = true }),
		"keeps app 200m 256Mi · Suspended: Nothing is changed while the scaler is suspended · 1/2")
	rule("A policy that leaves nothing to manage ends the decision", given(decidedBefore(), policyOfApp(func(p *plan.ContainerPolicy) { p.CPU, p.Memory = false, false })),
		"no decision · NothingControlled: The resource policy leaves nothing to manage · 0/2")
	rule("A container whose resources cannot be believed is left alone", given(template(workload.Container{Name: "app", Unreadable: true})),
		"no decision · Rejected: container app: its resources are outside the supported range and are not changed · 0/2 stalled")
	rule("Containers beyond the 64th are named", given(manyContainers(100, 64)),
		"no decision · Rejected: container c64, container c65, container c66, and 33 more: not managed, because a scaler manages at most 64 containers; if that is intended, set mode Off for it in spec.resourcePolicy · 0/2 stalled")
	rule("Containers beyond the 64th that the policy leaves alone are not named",
		given(manyContainers(70, 64), func(w *world) {
			for i := 64; i < 70; i++ {
				w.policy.Containers[fmt.Sprintf("c%02d", i)] = plan.ContainerPolicy{}
			}
		}),
		"no decision · WithinTolerance · 2/2 applied")
	rule("An HPA on both resources leaves nothing to do", given(decidedBefore(), func(w *world) { w.situation.Scaled = workload.Scaled{CPU: "web", Memory: "web-memory"} }),
		"no decision · HPAConflict: cpu: not managed, because HorizontalPodAutoscaler web scales on its utilization; memory: not managed, because HorizontalPodAutoscaler web-memory scales on its utilization · 0/2")
	rule("A VPA on one container's memory leaves its CPU to us",
		given(
			template(small(), container("log")), pods(pod("web-1", large(), container("log"))),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }),
			func(w *world) {
				w.situation.Sized = map[string]workload.Scaled{"app": {Memory: "old"}, "proxy": {CPU: "old"}}
			}),
		"keeps app 200m - · VPAConflict: All pods have the decided size. app memory: not managed, because VerticalPodAutoscaler old sizes it · 1/1 applied")
	rule("An HPA has the word before a VPA",
		given(decidedBefore(), func(w *world) {
			w.situation.Scaled = workload.Scaled{CPU: "web", Memory: "web"}
			w.situation.Sized = map[string]workload.Scaled{"app": {CPU: "old", Memory: "old"}}
		}),
		"no decision · HPAConflict: cpu, memory: not managed, because HorizontalPodAutoscaler web scales on its utilization · 0/2")
	rule("An HPA on CPU leaves memory to us, and is named once for all containers",
		given(
			template(small(), container("log")), pods(pod("web-1", large(), container("log"))),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 256) }),
			func(w *world) {
				w.situation.Scaled = workload.Scaled{CPU: "web"}
				w.policy.Containers["log"] = plan.ContainerPolicy{CPU: true}
			}),
		"keeps app - 256Mi · HPAConflict: All pods have the decided size. cpu: not managed, because HorizontalPodAutoscaler web scales on its utilization · 1/1 applied")
}

func TestWhatIsDecided(t *testing.T) {
	onlyMemory := policyOfApp(func(p *plan.ContainerPolicy) { p.CPU = false })
	onlyCPU := policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false })
	rule := rulesOf(t)
	rule("What is close enough stays", given(onlyCPU, recommends(rec(amounts(109, 0), amounts(90, 0), amounts(200, 0)))),
		"no decision · WithinTolerance · 2/2 applied")
	rule("A request above its target stays while the upper bound allows it", given(onlyCPU, recommends(rec(amounts(50, 0), amounts(40, 0), amounts(100, 0)))),
		"no decision · WithinBounds: app cpu: 100m stays until the upper bound of 100m falls below it · 2/2 applied")
	rule("It is said how much evidence lowers it",
		given(onlyCPU, recommends(recommend.Container{Name: "app", Target: amounts(50, 0), LowerBound: amounts(40, 0), UpperBound: amounts(613, 0), Observed: time.Hour})),
		"no decision · WithinBounds: app cpu: 100m stays until the upper bound of 613m falls below it, after about 8h of observed time · 2/2 applied")
	rule("Not if maxAllowed bounds it",
		given(onlyCPU, policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.CPUMillis = 200 }), recommends(recommend.Container{
			Name: "app", Target: amounts(50, 0), LowerBound: amounts(40, 0), UpperBound: amounts(200, 0), Observed: time.Hour,
		})),
		"no decision · WithinBounds: app cpu: 100m stays until the upper bound of 200m falls below it · 2/2 applied")
	rule("A request above the upper bound is lowered", given(onlyCPU, recommends(rec(amounts(50, 0), amounts(40, 0), amounts(99, 0)))),
		"decides app 50m - (ScaleDown) · resizes web-1 to app 50m 128Mi of 100m 256Mi · Resizing · 0/2 changing")
	rule("A resource that does not move is left out of the first decision", given(recommends(rec(amounts(200, 128), amounts(150, 64), amounts(300, 200)))),
		"decides app 200m - (LowerBound) · resizes web-1 to app 200m 128Mi of 400m 256Mi · Resizing · 0/2 changing")
	rule("A raise waits for the cooldown",
		given(onlyCPU, atSize(), decidedBefore(recently, func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), recommends(rec(amounts(250, 0), amounts(150, 0), amounts(300, 0)))),
		"keeps app 200m - · InCooldown: All pods have the decided size. The next change (ScaleUp) waits until 5m0s after the last change · 2/2 applied, again in 4m0s")
	rule("Usage above what is requested does not wait for the cooldown",
		given(onlyCPU, atSize(), decidedBefore(recently, func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), recommends(rec(amounts(250, 0), amounts(201, 0), amounts(300, 0)))),
		"decides app 250m - (LowerBound) · resizes web-1 to app 250m 256Mi of 500m 512Mi · Resizing · 0/2 changing")
	rule("No rollout is made for a little more CPU, even where usage is above the request",
		given(rollout, onlyCPU, template(large()), atSize(), decidedBefore(recently, func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), recommends(rec(amounts(215, 0), amounts(210, 0), amounts(300, 0)))),
		"keeps app 200m -, written · Applied: The Deployment's pod template has the decided size · 2/2 applied")
	rule("What does not wait takes along nothing that does", given(atSize(), decidedBefore(recently), recommends(rec(amounts(50, 400), amounts(40, 300), amounts(90, 500)))),
		"decides app 200m 400Mi (LowerBound) · resizes web-1 to app 200m 400Mi of 400m 800Mi · Resizing · 0/2 changing")
	rule("An OOM kill does not wait for the cooldown, nor for the tolerance",
		given(onlyMemory, atSize(), decidedBefore(recently, func(d *plan.Decision) { d.Requests["app"] = amounts(0, 256) }),
			recommends(withOOMFloor(260, rec(amounts(0, 260), amounts(0, 200), amounts(0, 400))))),
		"decides app - 260Mi (OOMKill) · resizes web-1 to app 200m 260Mi of 400m 520Mi · Resizing · 0/2 changing")
	rule("An OOM floor above maxAllowed is reached as far as is allowed, and then left",
		given(onlyMemory, atSize(), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 256) }),
			policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(0, 256) }),
			recommends(withOOMFloor(900, rec(amounts(0, 256), amounts(0, 256), amounts(0, 256))))),
		"keeps app - 256Mi · Applied · 2/2 applied")
	rule("A maxAllowed below what is requested is no OOM kill, however high the floor",
		given(onlyMemory, atSize(), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 256) }),
			policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(0, 200) }),
			recommends(withOOMFloor(900, rec(amounts(0, 200), amounts(0, 200), amounts(0, 200))))),
		"decides app - 200Mi (Bounds) · resizes web-1 to app 200m 200Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("A minAllowed above what is requested is applied at once",
		given(onlyCPU, atSize(), decidedBefore(recently, func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), policyOfApp(func(p *plan.ContainerPolicy) { p.MinAllowed = amounts(205, 0) })),
		"decides app 205m - (Bounds) · resizes web-1 to app 205m 256Mi of 410m 512Mi · Resizing · 0/2 changing")
	rule("A maxAllowed below what is requested is no evidence for lowering further",
		given(onlyCPU, atSize(), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(180, 0) }), recommends(rec(amounts(20, 0), amounts(10, 0), amounts(180, 0)))),
		"decides app 180m - (Bounds) · resizes web-1 to app 180m 256Mi of 360m 512Mi · Resizing · 0/2 changing")
	rule("A maxAllowed below what is requested does not hinder lowering further",
		given(onlyCPU, atSize(), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(180, 0) }), recommends(rec(amounts(20, 0), amounts(10, 0), amounts(100, 0)))),
		"decides app 20m - (Bounds) · resizes web-1 to app 20m 256Mi of 40m 512Mi · Resizing · 0/2 changing")
	rule("A decision whose recommendation is gone stands", given(atSize(), decidedBefore(), recommends()), "keeps app 200m 256Mi · Applied · 2/2 applied")
	rule("The LimitRange wins over the policy",
		given(onlyCPU, noCooldown, policyOfApp(func(p *plan.ContainerPolicy) { p.MinAllowed = amounts(500, 0) }), bounds(workload.Bounds{ContainerMax: amounts(300, 0)})),
		"decides app 300m - (Bounds) · resizes web-1 to app 300m 128Mi of 300m 256Mi · Resizing · 0/2 changing")
	rule("A request is not raised above a limit that stays",
		given(onlyCPU, policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay }), recommends(rec(amounts(900, 0), amounts(800, 0), amounts(1000, 0)))),
		"decides app 200m - (LowerBound) · resizes web-1 to app 200m 128Mi of 200m 256Mi · Resizing · 0/2 changing")
	rule("A resource that the policy takes out is no longer decided", given(onlyCPU, atSize(), decidedBefore()), "keeps app 200m - · Applied · 2/2 applied")
	rule("A renamed container starts again",
		given(decidedBefore(), template(container("api")), pods(pod("web-1", container("api"))),
			recommends(recommend.Container{Name: "api", Target: amounts(105, 130), UpperBound: amounts(200, 200)}),
			func(w *world) {
				w.policy.Containers = map[string]plan.ContainerPolicy{"api": {CPU: true, Memory: true}}
			}),
		"no decision · WithinTolerance · 1/1 applied")
	rule("A lost status does not make a resized pod look small", given(atSize(), recommends(rec(amounts(190, 250), amounts(150, 200), amounts(400, 500)))),
		"no decision · WithinTolerance · 2/2 applied")
	rule("A lost status does not leave a new pod small beside resized ones",
		given(pods(pod("web-1", large()), pod("web-2", small())), recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 500)))),
		"decides app 200m 256Mi (Adopted) · resizes web-2 to app 200m 256Mi of 400m 512Mi · Resizing · 1/2 changing")
	raised := pod("web-2", sized("app", amounts(200, 1024), amounts(400, 2048)))
	rule("A lost status raises no pod to one that was raised alone, which keeps its memory",
		given(pods(pod("web-1", large()), raised, pod("web-3", large()), pod("web-4", small())),
			recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 500)))),
		"decides app 200m 256Mi (Adopted) · resizes web-4 to app 200m 256Mi of 400m 512Mi · Resizing · 2/4 changing")
	rule("Nor if the others differ, and usage needs a little more",
		given(pods(pod("web-1", large()), raised, pod("web-3", sized("app", amounts(200, 240), amounts(400, 480)))),
			recommends(rec(amounts(190, 260), amounts(80, 100), amounts(400, 2000)))),
		"decides app - 260Mi (Adopted) · resizes web-1 to app 200m 260Mi of 400m 520Mi · Resizing · 0/3 changing")
	rule("The other of two pods is raised",
		given(pods(pod("web-1", large()), raised), recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 2000)))),
		"decides app - 1024Mi (Adopted) · resizes web-1 to app 200m 1024Mi of 400m 2048Mi · Resizing · 1/2 changing")
	adopted := decidedBefore(func(d *plan.Decision) { d.Reason = plan.DecidedAdopted })
	later := with(raised, func(p *workload.Pod) { p.Created = noon })
	rule("It keeps its memory until the next decision", given(adopted, pods(pod("web-1", large()), raised, pod("web-3", large()))),
		"keeps app 200m 256Mi · OutlierPod: pod web-2: container app has more memory than the other pods, and keeps it until the next decision · 2/3")
	rule("A pod that was created later is sized as decided", given(adopted, pods(pod("web-1", large()), later, pod("web-3", large()))),
		"keeps app 200m 256Mi · resizes web-2 to app 200m 256Mi of 400m 512Mi · Resizing · 2/3 changing")
	rule("A lost status does not make a resize that was asked for look applied",
		given(pods(askedFor(large(), refusedByNode), pod("web-2", small())), recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 500)))),
		"decides app 200m 256Mi (Adopted) · resizes web-2 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("A resize that no decision tells of is infeasible on all pods",
		given(pods(askedFor(large(), refusedByNode)), recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 500)))),
		"decides app - 256Mi (Adopted) · Infeasible: pod web-1: no room. The fallback is Wait: these pods stay unchanged · 0/1 stalled")
	rule("A lower request that waits does not keep a resize from being followed",
		given(pods(askedFor(large(), refusedByNode)), recommends(rec(amounts(110, 140), amounts(80, 100), amounts(150, 200))), func(w *world) { w.situation.MissingUsage = "pod web-1: no usage reported" }),
		"decides app - 256Mi (Adopted) · Infeasible: pod web-1: no room. The fallback is Wait: these pods stay unchanged · 0/1 stalled")
	rule("While the history cannot be saved, an urgent change lowers nothing beside it",
		given(unsaved, decidedBefore(), atSize(), recommends(rec(amounts(500, 64), amounts(400, 50), amounts(600, 90)))),
		"decides app 500m 256Mi (LowerBound) · resizes web-1 to app 500m 256Mi of 1000m 512Mi · Resizing · 0/2 changing")
	rule("Once it is saved, it lowers the rest at once, if nothing is verified",
		given(decidedBefore(), atSize(), recommends(rec(amounts(500, 64), amounts(400, 50), amounts(600, 90)))),
		"decides app 500m 64Mi (LowerBound) · resizes web-1 to app 500m 64Mi of 1000m 128Mi · Resizing · 0/2 changing")
	rule("A resize of a sidecar is not ours",
		given(pods(askedFor(large(), refusedByNode, applied(large().Resources))), recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 500)))),
		"no decision · WithinTolerance · 1/1 applied")
	rule("CPU is as fine as the kernel holds it",
		given(pods(askedFor(large(), applied(resources(amounts(202, 256), amounts(400, 512))))), recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 500)))),
		"no decision · WithinTolerance · 1/1 applied")
	rule("A kubelet that reports something else of a pod that nobody has resized is not believed",
		given(pods(pod("web-1", large()), untouched(large())), recommends(rec(amounts(190, 250), amounts(80, 100), amounts(400, 500)))),
		"no decision · WithinTolerance · 2/2 applied")
	rule("What the user writes into the template gives way to a decision",
		given(decidedBefore(), template(sized("app", amounts(500, 512), amounts(500, 1024))), pods(pod("web-1", sized("app", amounts(500, 512), amounts(500, 1024))))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 200m 512Mi · Resizing · 0/1 changing")
	rule("A clock that was set back restarts the cooldown once",
		given(onlyCPU, atSize(), decidedBefore(func(d *plan.Decision) { d.Time, d.Requests["app"] = noon.Add(24*time.Hour), amounts(200, 0) }), recommends(rec(amounts(250, 0), amounts(150, 0), amounts(300, 0)))),
		"keeps app 200m - · InCooldown: All pods have the decided size. The next change (ScaleUp) waits until 5m0s after the last change · 2/2 applied, again in 5m0s")
	rule("Without requests in a Burstable pod the first ones are set",
		given(onlyCPU, template(sized("app", amounts(0, 128), amounts(0, 256))), pods(pod("web-1", sized("app", amounts(0, 128), amounts(0, 256))))),
		"decides app 200m - (ScaleUp) · resizes web-1 to app 200m 128Mi of - 256Mi · Resizing · 0/1 changing")
}

func unsaved(w *world) {
	w.situation.Unsaved = plan.Obstacle{Reason: "QuotaExceeded", Message: "full", Stalled: true}
}

// askedFor is web-1, which was asked for a size a minute ago and still has the template's.
func askedFor(c workload.Container, changes ...func(*workload.Pod)) workload.Pod {
	p := pod("web-1", c)
	p.Resized, p.Actual = noon.Add(-time.Minute), p.Actual.With("app", small().Resources)
	for _, change := range changes {
		change(&p)
	}
	return p
}

// refusedByNode refuses the memory of the pod.
func refusedByNode(p *workload.Pod) {
	p.Resize.Infeasible, p.Resize.Message = true, "no room"
	p.Actual = p.Actual.With("app", resources(amounts(200, 128), amounts(400, 256)))
}

func applied(r workload.Resources) func(*workload.Pod) {
	return func(p *workload.Pod) { p.Actual = p.Actual.With("app", r) }
}

// untouched is web-2, which has its size since its creation. Its kubelet reports another one.
func untouched(c workload.Container) workload.Pod {
	p := pod("web-2", c)
	p.Actual = p.Actual.With("app", small().Resources)
	return p
}

// A clock that was set back is noted in the decision, so that time goes on from there.
func TestADecisionOfTheFutureIsDatedBack(t *testing.T) {
	w := given(atSize(), decidedBefore(func(d *plan.Decision) { d.Time = noon.Add(24 * time.Hour) }))
	if got := w.next(noon).Decision.Time; !got.Equal(noon) {
		t.Errorf("the decision is dated %s, want %s", got, noon)
	}
	if !w.situation.Decision.Time.Equal(noon.Add(24 * time.Hour)) {
		t.Error("the situation was changed")
	}
}

// manyContainers is a Deployment with that many containers, of which the first ones have what is
// recommended for them.
func manyContainers(all, known int) func(*world) {
	return func(w *world) {
		var containers []workload.Container
		var recs []recommend.Container
		w.policy.Containers = map[string]plan.ContainerPolicy{}
		for i := range all {
			c := container(fmt.Sprintf("c%02d", i))
			containers = append(containers, c)
			w.policy.Containers[c.Name] = plan.ContainerPolicy{CPU: true, Memory: true, Limits: plan.LimitsFollow}
			if i < known {
				rec := recommended(c.Name)
				rec.Target, rec.LowerBound = c.Requests, amounts(50, 64)
				recs = append(recs, rec)
			}
		}
		template(containers...)(w)
		recommends(recs...)(w)
		pods(pod("web-1", containers...), pod("web-2", containers...))(w)
	}
}
