// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// boosts doubles the CPU of app until a minute after the pod is Ready.
func boosts(changes ...func(*plan.Boost)) func(*world) {
	boost := &plan.Boost{Percent: 200, Duration: time.Minute}
	for _, change := range changes {
		change(boost)
	}
	return policyOfApp(func(p *plan.ContainerPolicy) { p.Boost = boost })
}

// starting is a pod that was made so long ago, whose containers run and which is not Ready.
func starting(ago time.Duration, p workload.Pod) workload.Pod {
	return with(p, func(p *workload.Pod) {
		p.Started, p.Ready, p.ReadyChanged = noon.Add(-ago), false, noon.Add(-ago)
		p.Runs = nil
		for _, c := range p.Containers {
			p.Runs = append(p.Runs, workload.Run{Container: c.Name, Since: noon.Add(-ago).Add(time.Second)})
		}
	})
}

// started has become Ready so long ago, after a start of 30 seconds.
func started(ago time.Duration, p workload.Pod) workload.Pod {
	return with(starting(ago+30*time.Second, p), func(p *workload.Pod) { p.Ready, p.ReadyChanged = true, noon.Add(-ago) })
}

// restarted is a pod of yesterday whose container was restarted so long ago.
func restarted(ago time.Duration, p workload.Pod) workload.Pod {
	return with(starting(24*time.Hour, p), func(p *workload.Pod) {
		p.ReadyChanged = noon.Add(-ago)
		setRun(p, workload.Run{Container: "app", Since: noon.Add(-ago), Restarted: true})
	})
}

// setRun replaces the process of a container.
func setRun(p *workload.Pod, run workload.Run) {
	p.Runs = slices.DeleteFunc(slices.Clone(p.Runs), func(r workload.Run) bool { return r.Container == run.Container })
	p.Runs = append(p.Runs, run)
}

func resizedAt(ago time.Duration, p workload.Pod) workload.Pod {
	return with(p, func(p *workload.Pod) { p.Resized = noon.Add(-ago) })
}

// double is large with twice its CPU.
func double() workload.Container { return sized("app", amounts(400, 256), amounts(800, 512)) }

func TestUntilWhenAContainerStarts(t *testing.T) {
	const never = time.Duration(0)
	at := func(ago time.Duration) time.Time { return noon.Add(-ago) }
	boost := plan.Boost{Percent: 200, Duration: time.Minute}
	for name, tc := range map[string]struct {
		pod  workload.Pod
		left time.Duration
	}{
		"nothing is known":                             {workload.Pod{}, never},
		"nothing is known of the pod":                  {workload.Pod{Runs: []workload.Run{{Container: "app", Since: at(time.Second)}}}, never},
		"nothing is known of the container":            {workload.Pod{ReadyChanged: at(time.Second)}, never},
		"it runs, and the pod is not Ready":            {workload.Pod{ReadyChanged: at(30 * time.Second), Runs: runs(at(20*time.Second), false)}, 11*time.Minute - 20*time.Second},
		"it does not run yet":                          {workload.Pod{ReadyChanged: at(30 * time.Second), Runs: runs(time.Time{}, false)}, 11*time.Minute - 30*time.Second},
		"it never becomes Ready":                       {workload.Pod{ReadyChanged: at(12 * time.Minute), Runs: runs(at(11*time.Minute), false)}, never},
		"it was Ready late":                            {workload.Pod{Ready: true, ReadyChanged: at(10 * time.Second), Runs: runs(at(10*time.Minute+30*time.Second), false)}, 30 * time.Second},
		"it is Ready again, and started long ago":      {workload.Pod{Ready: true, ReadyChanged: at(10 * time.Second), Runs: runs(at(time.Hour), false)}, never},
		"it has become unready while it ran":           {workload.Pod{ReadyChanged: at(10 * time.Second), Runs: runs(at(time.Hour), false)}, never},
		"it has crashed and been restarted":            {workload.Pod{ReadyChanged: at(10 * time.Second), Runs: runs(at(9*time.Second), true)}, 11*time.Minute - 10*time.Second},
		"both in the same second":                      {workload.Pod{ReadyChanged: at(10 * time.Second), Runs: runs(at(10*time.Second), true)}, 11*time.Minute - 10*time.Second},
		"it waits to be restarted":                     {workload.Pod{ReadyChanged: at(10 * time.Second), Runs: runs(time.Time{}, true)}, 11*time.Minute - 10*time.Second},
		"it crashes again and again":                   {workload.Pod{ReadyChanged: at(11 * time.Minute), Runs: runs(at(time.Second), true)}, never},
		"it was restarted, and was never seen unready": {workload.Pod{Ready: true, ReadyChanged: at(time.Hour), Runs: runs(at(5*time.Second), true)}, 55 * time.Second},
		"Ready after a restart":                        {workload.Pod{Ready: true, ReadyChanged: at(5 * time.Second), Runs: runs(at(time.Minute), true)}, 55 * time.Second},
		"the clock of its node is ahead of ours":       {workload.Pod{Ready: true, ReadyChanged: noon.Add(time.Second), Runs: runs(noon, false)}, 61 * time.Second},
		"another container of the pod was restarted":   {workload.Pod{ReadyChanged: at(10 * time.Second), Runs: []workload.Run{{Container: "app", Since: at(time.Hour)}, {Container: "log", Since: at(time.Second), Restarted: true}}}, never},
		"Ready, and nothing runs, which cannot be":     {workload.Pod{Ready: true, ReadyChanged: at(time.Second), Runs: runs(time.Time{}, false)}, never},
	} {
		want := noon.Add(tc.left)
		if tc.left == never {
			want = time.Time{}
		}
		if got := boost.Until(tc.pod, "app", noon); !got.Equal(want) {
			t.Errorf("%s: until %s, want %s", name, got, want)
		}
	}
}

func runs(since time.Time, restarted bool) []workload.Run {
	return []workload.Run{{Container: "app", Since: since, Restarted: restarted}}
}

func TestBoost(t *testing.T) {
	later := with(starting(10*time.Second, pod("web-1", double())), func(p *workload.Pod) { p.Actual = p.Actual.With("app", small().Resources) })
	rule := rulesOf(t)
	rule("A new pod gets what is decided, and more CPU", given(decidedBefore(), boosts(), pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 400m 256Mi of 800m 512Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("It may be added instead of multiplied",
		given(decidedBefore(), boosts(func(b *plan.Boost) { b.Percent, b.MoreMillis = 0, 50 }), pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 250m 256Mi of 500m 512Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("It is no more than the largest node has, whatever minAllowed is",
		given(decidedBefore(), boosts(), largestNode(300, 1024), pods(starting(10*time.Second, pod("web-1", small()))),
			policyOfApp(func(p *plan.ContainerPolicy) { p.MinAllowed = amounts(5000, 0) })),
		"decides app 300m 256Mi (Bounds) · resizes web-1 to app 300m 256Mi of 600m 512Mi · Resizing · 0/1 changing")
	rule("It is at size meanwhile", given(decidedBefore(), boosts(), pods(starting(10*time.Second, pod("web-1", double())), pod("web-2", large()))),
		"keeps app 200m 256Mi · Boosted: Starting pods have more CPU until they are Ready (startupBoost) · 2/2 applied, again in 10m51s")
	rule("It stays a while once it is Ready", given(decidedBefore(), boosts(), pods(started(20*time.Second, pod("web-1", double())))),
		"keeps app 200m 256Mi · Boosted: Starting pods have more CPU until they are Ready (startupBoost) · 1/1 applied, again in 40s")
	rule("Then it is lowered", given(decidedBefore(), boosts(), pods(started(time.Minute, pod("web-1", double())))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("Also where the pod was resized just before", given(decidedBefore(), boosts(), pods(restarted(10*time.Second, resizedAt(10*time.Second, pod("web-1", large()))))),
		"keeps app 200m 256Mi · resizes web-1 to app 400m 256Mi of 800m 512Mi · Resizing · 0/1 changing, again in 10m50s")
	rule("A pod that has become unready while it ran is not",
		given(decidedBefore(), boosts(), pods(with(starting(24*time.Hour, pod("web-1", large())), func(p *workload.Pod) { p.ReadyChanged = noon.Add(-time.Second) }))),
		"keeps app 200m 256Mi · Applied · 1/1 applied")
	rule("A start is boosted once", given(decidedBefore(), boosts(), pods(resizedAt(5*time.Second, starting(10*time.Second, pod("web-1", large()))))),
		"keeps app 200m 256Mi · Applied · 1/1 applied")
	rule("Where the node cannot hold it, the decided size is asked for", given(decidedBefore(), boosts(), pods(with(later, func(p *workload.Pod) { p.Resize.Infeasible = true }))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("Where the API server refuses it, too",
		given(decidedBefore(), boosts(), pods(starting(10*time.Second, pod("web-1", small()))), rejected(double().Resources, "NodeCapacity", "")),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("maxAllowed bounds it",
		given(decidedBefore(), boosts(), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(300, 0) }), pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 300m 256Mi of 600m 512Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("A LimitRange for pods forbids it",
		given(decidedBefore(), boosts(), bounds(workload.Bounds{PodMax: amounts(500, 0)}), pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	learned := boosts(func(b *plan.Boost) { *b = plan.Boost{LeastMillis: 900} })
	rule("Once a start was throttled, a new pod gets what starts need", given(decidedBefore(), learned, pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 900m 256Mi of 1800m 512Mi · Resizing · 0/1 changing, again in 9m51s")
	rule("It says why", given(decidedBefore(), learned, pods(starting(10*time.Second, pod("web-1", sized("app", amounts(900, 256), amounts(1800, 512)))))),
		"keeps app 200m 256Mi · Boosted: Starting pods have more CPU until they are Ready (earlier starts were throttled) · 1/1 applied, again in 9m51s")
	rule("It ends when the pod is Ready", given(decidedBefore(), learned, pods(started(time.Second, pod("web-1", sized("app", amounts(900, 256), amounts(1800, 512)))))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("The raise limit bounds it", given(decidedBefore(), boosts(func(b *plan.Boost) { *b = plan.Boost{LeastMillis: 9000} }), func(w *world) { w.situation.Ceilings.RaiseFactor = 8 }, pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 1600m 256Mi of 1600m 512Mi · Resizing · 0/1 changing, again in 9m51s")
	rule("Starts that need no more than is decided get no more", given(decidedBefore(), boosts(func(b *plan.Boost) { *b = plan.Boost{LeastMillis: 200} }), pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("The largest node bounds it", given(decidedBefore(), boosts(), largestNode(320, 4096), pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 320m 256Mi of 640m 512Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("The ceiling of a container bounds it", given(decidedBefore(), boosts(), mostPerContainer(310, 0), pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 310m 256Mi of 620m 512Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("A quota without room for it leaves it out",
		given(decidedBefore(), boosts(), func(w *world) {
			w.situation.Deployment.Unavailable = 1
			w.situation.Quotas = []workload.Quota{{Name: "team", Key: "requests.cpu", Hard: 1000, Used: 850}}
		}, pods(starting(10*time.Second, pod("web-1", small())))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("A limit that stays bounds it, and the QoS class",
		given(decidedBefore(), boosts(func(b *plan.Boost) { b.Percent = 150 }), policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay }), pods(starting(10*time.Second, pod("web-1", sized("app", amounts(100, 128), amounts(250, 256)))))),
		"keeps app 200m 256Mi · resizes web-1 to app 249m 256Mi of 250m 256Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("No memory limit is added for it",
		given(decidedBefore(), boosts(), template(sized("app", amounts(100, 128), amounts(200, 0))), pods(starting(10*time.Second, pod("web-1", sized("app", amounts(100, 256), amounts(200, 0)))))),
		"keeps app 200m 256Mi · resizes web-1 to app 400m 256Mi of 800m - · Resizing · 0/1 changing, again in 10m51s")
	rule("Nothing is restarted for it", given(decidedBefore(), boosts(), template(restartsForCPU(small())), pods(starting(10*time.Second, pod("web-1", restartsForCPU(large()))))),
		"keeps app 200m 256Mi · Applied · 1/1 applied")
	rule("A pod that starts is not lowered", given(decidedBefore(), boosts(), pods(starting(10*time.Second, pod("web-1", sized("app", amounts(900, 256), amounts(1800, 512)))))),
		"keeps app 200m 256Mi · Boosted: Starting pods have more CPU until they are Ready (startupBoost) · 1/1 applied, again in 10m51s")
	rule("What an HPA scales on is left alone",
		given(boosts(), func(w *world) { w.situation.Scaled = workload.Scaled{CPU: "web", Memory: "web"} }, pods(starting(10*time.Second, pod("web-1", small())))),
		"no decision · HPAConflict: cpu, memory: not managed, because HorizontalPodAutoscaler web scales on its utilization · 0/1")
	rule("Rollout gives none", given(rollout, decidedBefore(), appTakenOver(), template(large()), boosts(), pods(starting(10*time.Second, pod("web-1", large())))),
		"keeps app 200m 256Mi, written · Applied: The Deployment's pod template has the decided size · 1/1 applied")
	rule("It waits for the first recommendation", given(boosts(), recommends(), pods(starting(10*time.Second, pod("web-1", small())))),
		"no decision · Learning: There is no recommendation yet · 0/1")
	rule("Which decides the CPU that pods have, also if it is near to that", given(boosts(), cpuOf(105, 100, 150), pods(starting(10*time.Second, pod("web-1", small())))),
		"decides app 100m - (Adopted) · resizes web-1 to app 200m 128Mi of 400m 256Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("Another container's CPU stays as it is",
		given(decidedBefore(func(d *plan.Decision) { d.Requests["log"] = amounts(100, 128) }), boosts(), template(small(), container("log")), func(w *world) {
			w.policy.Containers["log"] = plan.ContainerPolicy{CPU: true, Memory: true, Limits: plan.LimitsFollow}
		}, pods(starting(10*time.Second, pod("web-1", small(), container("log"))))),
		"keeps app 200m 256Mi; log 100m 128Mi · resizes web-1 to app 400m 256Mi of 800m 512Mi; log 100m 128Mi of 200m 256Mi · Resizing · 0/1 changing, again in 10m51s")
	rule("Memory that a boosted pod may need to start is not lowered", given(decidedBefore(), boosts(), pods(starting(10*time.Second, pod("web-1", sized("app", amounts(400, 512), amounts(800, 1024)))))),
		"keeps app 200m 256Mi · Boosted: Starting pods have more CPU until they are Ready (startupBoost) · 1/1 applied, again in 10m51s")
	rule("Nor is it by the boost itself", given(decidedBefore(), boosts(), pods(starting(10*time.Second, pod("web-1", sized("app", amounts(100, 512), amounts(200, 1024)))))),
		"keeps app 200m 256Mi · resizes web-1 to app 400m 512Mi of 800m 1024Mi · Resizing · 0/1 changing, again in 10m51s")
}

// createdBoosted are new pods that the API server gave the CPU of a boost.
func createdBoosted(list ...workload.Pod) func(*world) {
	return func(w *world) {
		sizesNewPods(w)
		pods(list...)(w)
		w.situation.NewPods = plan.NewPods{
			Sizes:  []plan.Size{{Container: "app", Resources: large().Resources}},
			Starts: []plan.Size{{Container: "app", Resources: resources(amounts(400, 0), amounts(800, 0))}},
		}
	}
}

// A boost that a pod was created with ends like any other.
func TestBoostsFromTheCreationOfAPod(t *testing.T) {
	const told = "puts into new pods app 200m 256Mi of 400m 512Mi, which start with app 400m - of 800m - · "
	fullMemory := sized("app", amounts(400, 512), amounts(800, 1024))
	rule := rulesOf(t)
	rule("Nothing is resized while it starts", given(decidedBefore(), boosts(), createdBoosted(starting(10*time.Second, pod("web-1", double())))),
		"keeps app 200m 256Mi · "+told+"Boosted: Starting pods have more CPU until they are Ready (startupBoost) · 1/1 applied, again in 10m51s")
	rule("It is lowered once it has started", given(decidedBefore(), boosts(), createdBoosted(started(time.Minute, pod("web-1", double())))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · "+told+"Resizing · 0/1 changing")
	rule("Or has had its time to start", given(decidedBefore(), boosts(), createdBoosted(starting(12*time.Minute, pod("web-1", double())))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · "+told+"Resizing · 0/1 changing")
	rule("Also while usage is missing", given(decidedBefore(), boosts(), createdBoosted(started(time.Minute, pod("web-1", double()))), func(w *world) { w.situation.MissingUsage = "web-1" }),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · "+told+"Resizing · 0/1 changing")
	rule("Memory that it may need to start is not lowered", given(decidedBefore(), boosts(), template(sized("app", amounts(100, 512), amounts(200, 1024))), createdBoosted(starting(10*time.Second, pod("web-1", fullMemory)))),
		"keeps app 200m 256Mi · "+told+"Boosted: Starting pods have more CPU until they are Ready (startupBoost) · 1/1 applied, again in 10m51s")
}

func restartsForCPU(c workload.Container) workload.Container {
	c.RestartOnCPU = true
	return c
}

// A boost waits for no other resize, and no resize waits for it.
func TestBoostsAndOtherSteps(t *testing.T) {
	flying := func(name string) workload.Pod {
		return with(pod(name, large()), func(p *workload.Pod) { p.Actual = p.Actual.With("app", small().Resources) })
	}
	rule := rulesOf(t)
	rule("A boost comes first", given(decidedBefore(recently), boosts(), pods(pod("web-1", small()), starting(10*time.Second, pod("web-2", large())))),
		"keeps app 200m 256Mi · resizes web-2 to app 400m 256Mi of 800m 512Mi · Resizing · 0/2 changing, again in 10m51s")
	rule("It waits for no other resize, but memory does", given(decidedBefore(recently), boosts(), pods(flying("web-1"), starting(10*time.Second, pod("web-2", small())))),
		"keeps app 200m 256Mi · resizes web-2 to app 400m 128Mi of 800m 256Mi · Resizing · 0/2 changing, again in 9m0s")
	rule("Its end waits for its turn", given(decidedBefore(recently), boosts(), pods(flying("web-1"), started(time.Minute, pod("web-2", double())))),
		"keeps app 200m 256Mi · Resizing · 0/2 changing, again in 9m0s")
	rule("The kubelet has ten minutes for the end of one, too",
		given(decidedBefore(), boosts(), pods(with(resizedAt(time.Minute, started(2*time.Minute, pod("web-1", large()))), func(p *workload.Pod) {
			p.Started, p.Actual = noon.Add(-time.Hour), p.Actual.With("app", double().Resources)
		}))),
		"keeps app 200m 256Mi · Resizing · 0/1 changing, again in 9m0s")
	rule("What is contested holds boosts, too", given(decidedBefore(func(d *plan.Decision) { d.Reverts = 2 }), boosts(), pods(starting(10*time.Second, pod("web-1", large())))),
		"keeps app 200m 256Mi, reverted 2 times · Contested: Another controller keeps changing the resources of the pods: stop it, then edit the scaler to try again · 0/1 stalled, again in 10m51s")
}

// TestNoteStarts: only a container without a startupBoost, with a CPU limit that follows its request, gets what its starts need.
func TestNoteStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   *plan.Boost
	}{
		"a start was throttled": {func(*world) {}, &plan.Boost{LeastMillis: 300}},
		"a startupBoost":        {boosts(), &plan.Boost{Percent: 200, Duration: time.Minute}},
		"a limit that stays":    {policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay }), nil},
		"CPU is not managed":    {policyOfApp(func(p *plan.ContainerPolicy) { p.CPU = false }), nil},
		"no CPU limit":          {template(sized("app", amounts(100, 128), amounts(0, 256))), nil},
	} {
		h := &history.Container{}
		h.Add(usage.Sample{Time: noon, CPUMillis: 200, LimitFactor: 2, CPULimitMillis: 200, Starting: true}, history.DefaultParams())
		w := given(tc.change)
		plan.NoteStarts(w.policy, w.situation, history.Histories{"app": h})
		assert.Equal(t, name, tc.want, w.policy.Containers["app"].Boost)
	}
}

// FuzzBoost lets pods of made-up worlds start, become Ready or not, and crash. It checks the
// promises of boosts: they stay within the bounds, each start has one, they end, and at the end
// all is as if there had been none. A failure is found again with
//
//	go test ./internal/plan -run FuzzBoost/seed#N
func FuzzBoost(f *testing.F) {
	for seed := 0; seed < 100; seed += stride() {
		f.Add(uint64(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := randomWorld(r)
		w.policy.Mode, w.policy.Suspended = "InPlace", false
		for _, name := range slices.Sorted(maps.Keys(w.policy.Containers)) {
			policy := w.policy.Containers[name]
			if r.IntN(4) > 0 {
				policy.Boost = &plan.Boost{Duration: time.Duration(r.IntN(120)) * time.Second}
				if policy.Boost.Percent = 200 * r.Int64N(4); policy.Boost.Percent == 0 {
					policy.Boost.MoreMillis = 1 + r.Int64N(2000)
				}
				if r.IntN(4) == 0 {
					policy.Boost = &plan.Boost{LeastMillis: 1 + r.Int64N(4000)}
				}
			}
			w.policy.Containers[name] = policy
		}
		w.policy.SizesNewPods = !w.evicts()
		now := noon
		for i := range w.situation.Pods {
			pod := &w.situation.Pods[i]
			*pod = []workload.Pod{starting(10*time.Second, *pod), started(10*time.Second, *pod), started(24*time.Hour, *pod)}[r.IntN(3)]
		}
		for range epochs {
			now = w.start(t, r, seed, now)
			w.crash(r, now)
			w.replace(t, r, seed, now)
		}
	})
}

// crash restarts some containers.
func (w *world) crash(r *rand.Rand, now time.Time) {
	for i := range w.situation.Pods {
		w.situation.Pods[i] = with(w.situation.Pods[i], func(p *workload.Pod) {
			for _, c := range p.Containers {
				if r.IntN(3) == 0 {
					p.Ready, p.ReadyChanged = false, now
					setRun(p, workload.Run{Container: c.Name, Since: now, Restarted: true})
				}
			}
		})
	}
}

// replace lets the API server make a new pod instead of the first one, and checks that it may have what it starts with.
func (w *world) replace(t *testing.T, r *rand.Rand, seed uint64, now time.Time) {
	t.Helper()
	n := w.situation.NewPods
	if len(n.Starts) == 0 || len(w.situation.Pods) == 0 {
		return
	}
	w.Now = now
	made := w.newPod(fmt.Sprintf("new-%d", r.Uint32()))
	isExact := r.IntN(2) == 0
	for i, c := range made.Containers {
		for _, size := range slices.Concat(n.Sizes, n.Starts) {
			for _, p := range both {
				request, limit := p.Request(size.Resources), p.Limit(size.Resources)
				if size.Container != c.Name || request == 0 {
					continue
				}
				if !isExact {
					request, limit = max(request, p.Request(c.Resources)), max(limit, p.Limit(c.Resources))
				}
				p.Put(&made.Containers[i].Resources, request, limit)
			}
		}
	}
	made.QoS, made.Created, made.Resized = workload.QoSOf(made.Containers, made.Others), now, time.Time{}
	caughtUp(&made)
	if broken, ours := brokenRule(made, n.Starts, w.situation.Bounds); ours {
		t.Errorf("seed %d: the API server refuses a new pod with its boost: %s", seed, broken)
	}
	for _, c := range made.Containers {
		if template, _ := w.situation.Deployment.Container(c.Name); exceeds(c.Requests, c.Limits) && !exceeds(template.Requests, template.Limits) {
			t.Errorf("seed %d: container %s starts with a request above its limit: %s", seed, c.Name, sayResources(c.Resources))
		}
	}
	w.situation.Pods[0] = starting(noon.Sub(now), made)
}

// start carries out plan after plan until there is none.
func (w *world) start(t *testing.T, r *rand.Rand, seed uint64, now time.Time) time.Time {
	t.Helper()
	s := &w.situation
	tries := map[types.UID]int{}
	var last string
	for range maxPasses {
		for i := range s.Pods {
			if p := &s.Pods[i]; !p.Ready && r.IntN(10) == 0 {
				p.Ready, p.ReadyChanged = true, now
			}
		}
		w.Now = now
		p := w.next(now)
		w.checkBoost(t, seed, p, now)
		checkDeterminism(t, r, *w, p, now)
		if is[plan.Resize](p) && as[plan.Resize](p).Boost {
			if tries[as[plan.Resize](p).UID]++; tries[as[plan.Resize](p).UID] > 6*len(s.Deployment.Containers) {
				t.Errorf("seed %d: pod %s is boosted again and again", seed, as[plan.Resize](p).Pod)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d: after\n%s\nin %+v\nwith %+v", seed, say(p), w.situation, w.policy)
		}
		changed := w.carryOut(t, r, p)
		if w.policy.SizesNewPods {
			s.NewPods = p.NewPods
		}
		for i := range s.Pods {
			if pod := &s.Pods[i]; is[plan.Resize](p) && pod.UID == as[plan.Resize](p).UID && !w.isRefused(as[plan.Resize](p)) {
				pod.Resized = now
				if as[plan.Resize](p).Boost && r.IntN(5) == 0 {
					pod.Resize = workload.Resize{Infeasible: r.IntN(2) == 0, Deferred: true}
				}
			}
		}
		if said := say(p); changed || said != last {
			last = said
		} else if (p.Verdict.RequeueAfter == 0 || p.Verdict.RequeueAfter == time.Minute && (len(s.Quotas) > 0 || w.policy.MayEvict())) && !w.hasStarts(now) {
			w.checkEnd(t, seed, now)
			return now
		}
		wait := max(time.Second, p.Verdict.RequeueAfter)
		if w.hasStarts(now) {
			wait = min(wait, time.Duration(1+r.IntN(100))*time.Second)
		}
		now = now.Add(wait)
	}
	t.Fatalf("seed %d: no rest after %d passes: %s", seed, maxPasses, say(w.next(now)))
	return now
}

func (w *world) hasStarts(now time.Time) bool {
	for _, pod := range w.situation.Pods {
		for name, policy := range w.policy.Containers {
			if policy.Boost != nil && !policy.Boost.Until(pod, name, now).IsZero() {
				return true
			}
		}
	}
	return false
}

func (w *world) isRefused(step *plan.Resize) bool {
	return slices.ContainsFunc(w.situation.RejectedResizes[step.UID], func(r plan.RejectedResize) bool { return slices.Equal(r.Sizes, step.Sizes) })
}

// checkBoost: as any plan, and a boost only of what starts, and within all that is allowed.
func (w *world) checkBoost(t *testing.T, seed uint64, p plan.Plan, now time.Time) {
	t.Helper()
	fail := func(format string, args ...any) { t.Errorf("seed %d: "+format, append([]any{seed}, args...)...) }
	decision := plan.Decision{}
	if p.Decision != nil {
		decision = *p.Decision
	}
	if p.Verdict.State.IsApplied() && ((p.Verdict.State == plan.Changing) || p.Progress.PodsAtSize != p.Progress.Pods) {
		fail("applied, but %d/%d pods, changing %t", p.Progress.PodsAtSize, p.Progress.Pods, (p.Verdict.State == plan.Changing))
	}
	if !is[plan.Resize](p) {
		return
	}
	i := slices.IndexFunc(w.situation.Pods, func(q workload.Pod) bool { return q.UID == as[plan.Resize](p).UID })
	pod := w.situation.Pods[i]
	if as[plan.Resize](p).Withdraws != nil {
		checkWithdrawal(pod, *as[plan.Resize](p), fail)
		return
	}
	checkSizes(*w, &decision, pod.Containers, as[plan.Resize](p).Sizes, true, fail)
	if !as[plan.Resize](p).Boost {
		return
	}
	var starts bool
	var after, plain int64
	for _, c := range withSizes(pod.Containers, as[plan.Resize](p).Sizes) {
		before, _ := pod.Container(c.Name)
		policy, bounds := w.policy.Containers[c.Name], w.situation.Bounds
		after += c.Requests.CPUMillis
		plain += max(before.Requests.CPUMillis, decision.Requests[c.Name].CPUMillis)
		starts = starts || policy.Boost != nil && !policy.Boost.Until(pod, c.Name, now).IsZero()
		most := policy.LimitPolicy.MaxAllowed.CPUMillis
		if c.Limits.CPUMillis == 0 || policy.Limits == plan.LimitsStay {
			most = 0
		}
		for _, most := range []int64{policy.MaxAllowed.CPUMillis, bounds.ContainerMax.CPUMillis, most} {
			if v := c.Requests.CPUMillis; v > before.Requests.CPUMillis && most > 0 && v > max(most, bounds.ContainerMin.CPUMillis, decision.Requests[c.Name].CPUMillis) {
				fail("container %s is boosted to %dm, more than %dm", c.Name, v, most)
			}
		}
	}
	if !starts {
		fail("pod %s is boosted, and does not start", pod.Name)
	}
	if node := w.podCeiling(plan.CPU); node > 0 && after > max(node, plain) {
		fail("pod %s is boosted to %dm; the largest node has %dm", pod.Name, after, node)
	}
}

// checkEnd: at rest, nothing is boosted, and a plan without boosts finds nothing
// to do.
func (w *world) checkEnd(t *testing.T, seed uint64, now time.Time) {
	t.Helper()
	without := *w
	without.policy.Containers = maps.Clone(w.policy.Containers)
	for name, policy := range without.policy.Containers {
		policy.Boost = nil
		without.policy.Containers[name] = policy
	}
	for _, pod := range w.situation.Pods {
		for _, start := range w.situation.NewPods.Starts {
			if c, _ := pod.Container(start.Container); pod.Resized.IsZero() && strings.HasPrefix(pod.Name, "new-") && c.Requests.CPUMillis == start.Requests.CPUMillis {
				t.Errorf("seed %d: pod %s keeps the CPU that it has started with", seed, pod.Name)
			}
		}
	}
	boosted := w.next(now)
	boosted.NewPods.Starts = nil
	if with, without := say(boosted), say(without.next(now)); with != without {
		t.Fatalf("seed %d: at rest\n%s\nand without boosts\n%s\nin %+v", seed, with, without, w.situation)
	}
}
