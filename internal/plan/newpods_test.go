// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func initial(w *world) { w.policy.Mode = "Initial" }

func TestWhatNewPodsGet(t *testing.T) {
	requestsOnly := policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay })
	memoryOnly := policyOfApp(func(p *plan.ContainerPolicy) { p.CPU = false })
	unlimited := sized("app", amounts(100, 128), amounts(0, 0))
	rule := rulesOf(t)
	rule("Those that run are left alone", given(initial, decidedBefore()),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · NewPodsOnly · 0/2")
	rule("Only what is managed", given(initial, decidedBefore(), memoryOnly),
		"keeps app - 256Mi · puts into new pods app - 256Mi of - 512Mi · NewPodsOnly · 0/2")
	rule("A limit that stays bounds the request", given(initial, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(300, 300) }), requestsOnly, recommends()),
		"decides app 200m 256Mi (Bounds) · puts into new pods app 200m 256Mi of 200m 256Mi · NewPodsOnly · 0/2")
	rule("A limit that a LimitRange gives to each new pod grows with the request",
		given(initial, decidedBefore(), template(unlimited), bounds(workload.Bounds{ContainerDefault: amounts(150, 512)})),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 200m 512Mi · NewPodsOnly · 0/2")
	rule("Nothing beside resources for a pod as a whole", given(initial, decidedBefore(), deployment(func(d *workload.Deployment) { d.PodLevelResources = true })),
		"keeps app 200m 256Mi · Unsupported: The Deployment declares pod-level resources, which are not managed · 0/2 stalled")
	rule("Limits that are off are those of the template",
		given(initial, policyOfApp(func(p *plan.ContainerPolicy) { p.LimitPolicy.MaxAllowed = amounts(150, 0) }), pods(), recommends(rec(amounts(100, 128), amounts(90, 120), amounts(110, 140)))),
		"decides app 100m - (Bounds) · puts into new pods app 100m - of 150m - · Applied, and new pods get it · 0/0 applied")
	rule("Not what no node can hold", given(initial, func(w *world) { w.situation.LargestNode = amounts(150, 200) }),
		"decides app 200m 256Mi (LowerBound) · NodeCapacity: no node could hold a new pod with 200m of cpu · 0/2")
}

// of is the pod as one of a ReplicaSet.
func of(set types.UID, p workload.Pod) workload.Pod {
	return with(p, func(p *workload.Pod) { p.ReplicaSet = set })
}

// hadProved gives new pods of the ReplicaSet the size of a container.
func hadProved(set types.UID, c workload.Container) func(*world) {
	return admission(func(a *plan.NewPods) {
		a.ReplicaSet, a.Sizes = set, []plan.Size{{Container: c.Name, Resources: c.Resources}}
	})
}

// A size below the template belongs to the ReplicaSet whose pods are healthy with it.
func TestWhichReplicaSetHasProvedASize(t *testing.T) {
	lowered := func(set types.UID, name string, change ...func(*workload.Pod)) workload.Pod {
		return with(of(set, resizedPod(name, half())), change...)
	}
	const newSize = "app 50m 64Mi of 100m 128Mi"
	for name, tc := range map[string]struct {
		change []func(*world)
		want   string
	}{
		"all pods run with it":      {[]func(*world){pods(lowered("set-1", "web-1"), lowered("set-1", "web-2"))}, newSize + ", exactly in set-1"},
		"one has still more":        {[]func(*world){pods(lowered("set-1", "web-1"), of("set-1", pod("web-2", small())))}, newSize},
		"one is not Ready":          {[]func(*world){pods(lowered("set-1", "web-1", func(p *workload.Pod) { p.Ready = false }))}, newSize},
		"one is ready for a moment": {[]func(*world){deployment(func(d *workload.Deployment) { d.MinReady = time.Hour }), pods(lowered("set-1", "web-1", func(p *workload.Pod) { p.ReadyChanged = noon }))}, newSize},
		"a kubelet is lowering one": {[]func(*world){pods(lowered("set-1", "web-1", func(p *workload.Pod) { p.Resize.InProgress = true }))}, newSize},
		"a kubelet has not lowered": {[]func(*world){pods(lowered("set-1", "web-1", func(p *workload.Pod) { p.Actual = workload.Reported{}.With("app", small().Resources) }))}, newSize},
		"the rollout goes on": {[]func(*world){
			hadProved("set-1", half()), deployment(func(d *workload.Deployment) { d.RollingOut = true }),
			pods(ofOldTemplate(lowered("set-1", "web-1")), lowered("set-2", "web-2")),
		}, newSize + ", exactly in set-1"},
		"the rollout has more pods to make": {[]func(*world){
			hadProved("set-1", half()), deployment(func(d *workload.Deployment) { d.RollingOut = true }), pods(lowered("set-2", "web-2")),
		}, newSize + ", exactly in set-1"},
		"the rollout is complete":            {[]func(*world){hadProved("set-1", half()), pods(lowered("set-2", "web-2"))}, newSize + ", exactly in set-2"},
		"there are no pods":                  {[]func(*world){hadProved("set-1", half()), pods()}, newSize + ", exactly in set-1"},
		"more was proved, and less is tried": {[]func(*world){hadProved("set-1", small()), pods(of("set-1", pod("web-1", small())))}, "app 100m 128Mi of 200m 256Mi, exactly in set-1"},
		"less was proved, and more is tried": {[]func(*world){hadProved("set-1", sized("app", amounts(40, 60), amounts(90, 120))), pods(of("set-1", pod("web-1", small())))}, newSize + ", exactly in set-1"},
		"a LimitRange does not allow what was proved": {[]func(*world){
			hadProved("set-1", sized("app", amounts(120, 128), amounts(240, 256))), pods(of("set-1", pod("web-1", small()))), bounds(workload.Bounds{ContainerMax: amounts(220, 0)}),
		}, newSize},
		"another container has proved it": {[]func(*world){hadProved("set-1", sized("other", small().Requests, small().Limits)), pods(of("set-1", pod("web-1", small())))}, newSize},
		"only CPU was proved": {[]func(*world){admission(func(a *plan.NewPods) {
			a.ReplicaSet, a.Sizes = "set-1", []plan.Size{{Container: "app", Resources: resources(amounts(60, 0), amounts(120, 0))}}
		}), pods(of("set-1", pod("web-1", small())))}, newSize},
		"nothing has been told since": {[]func(*world){admission(func(a *plan.NewPods) { a.ReplicaSet = "set-1" }), pods(of("set-1", pod("web-1", small())))}, newSize},
	} {
		w := given(append([]func(*world){sizesNewPods, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 64) }), recommends(halved())}, tc.change...)...)
		p := w.next(noon).NewPods
		got := saySizes(p.Sizes)
		if p.ReplicaSet != "" {
			got += ", exactly in " + string(p.ReplicaSet)
		}
		if got != tc.want {
			t.Errorf("%s: new pods get %s, want %s", name, got, tc.want)
		}
	}
}

// If pods with our sizes cannot be created, for any reason, new pods then start as in the template, also while the scaler
// may change nothing.
func TestPodsThatTheAPIServerRefuses(t *testing.T) {
	refused := func(w *world) { w.situation.Deployment.CreateFailure = `policy "cap" denied the request` }
	before := func(ago time.Duration) func(*world) {
		return admission(func(a *plan.NewPods) { a.FailedAt, a.Failure = noon.Add(-ago), "cap" })
	}
	ofQuota := admission(func(a *plan.NewPods) { a.Failure = "exceeded quota: team" })
	base := []func(*world){sizesNewPods, decidedBefore(), pods(pod("web-1", large()))}
	for name, tc := range map[string]struct {
		change  []func(*world)
		sizes   bool
		stalled bool
	}{
		"refused with our sizes":   {[]func(*world){hadProved("", large()), refused}, false, true},
		"while it is suspended":    {[]func(*world){hadProved("", large()), refused, func(w *world) { w.policy.Suspended = true }}, false, false},
		"refused without them":     {[]func(*world){refused}, true, true},
		"a while ago":              {[]func(*world){before(time.Hour)}, false, false},
		"a day ago":                {[]func(*world){before(24 * time.Hour)}, true, false},
		"by a quota a moment ago":  {[]func(*world){before(time.Minute), ofQuota}, false, false},
		"by a quota a while ago":   {[]func(*world){before(10 * time.Minute), ofQuota}, true, false},
		"until the spec is edited": {[]func(*world){before(time.Hour), func(w *world) { w.policy.Edited = true }}, true, false},
	} {
		w := given(append(slices.Clone(base), tc.change...)...)
		p := w.next(noon)
		if got := len(p.NewPods.Sizes) > 0; got != tc.sizes || (p.NewPods.Obstacle.Reason == "ReplicaFailure") == tc.sizes {
			t.Errorf("%s: new pods get %+v", name, p.NewPods)
		}
		if p.Verdict.State.IsStalled() != tc.stalled {
			t.Errorf("%s: stalled %t, %s: %s", name, !tc.stalled, p.Verdict.Reason, p.Verdict.Message)
		}
	}
}

// unreadyFor is a pod that was started so long ago with less than its template has, and is not Ready since.
func unreadyFor(since time.Duration) workload.Pod {
	return with(of("set-1", pod("web-1", half())), func(p *workload.Pod) {
		p.Ready, p.Created, p.Unready = false, noon.Add(-since-time.Minute), noon.Add(-since)
		setRun(p, workload.Run{Container: "app", Since: noon.Add(-since)})
	})
}

// A heap that is sized from the limit may be too small to start with, although a running process was lowered without harm.
func TestAContainerThatDoesNotStartWithLessGetsItsTemplate(t *testing.T) {
	crashing := func(name string) workload.Pod {
		return with(of("set-1", resizedPod(name, half())), func(p *workload.Pod) { p.Ready, p.BackingOff = false, []string{"app"} })
	}
	started := with(of("set-1", pod("web-2", half())), func(p *workload.Pod) { setRun(p, workload.Run{Container: "app", Since: p.Created.Add(time.Second)}) })
	lower := []func(*world){sizesNewPods, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 64) }), recommends(halved()), hadProved("set-1", half())}
	for name, tc := range map[string]struct {
		change []func(*world)
		want   string
	}{
		"it crashes":                        {[]func(*world){pods(crashing("web-1"))}, "Reverted app 100m 128Mi"},
		"beside one that was lowered":       {[]func(*world){pods(crashing("web-1"), of("set-1", resizedPod("web-2", half())))}, "Reverted app 100m 128Mi"},
		"it is not Ready for ten minutes":   {[]func(*world){pods(unreadyFor(10 * time.Minute))}, "Reverted app 100m 128Mi"},
		"its rollout has longer":            {[]func(*world){pods(unreadyFor(10 * time.Minute)), deployment(func(d *workload.Deployment) { d.ProgressDeadline = 15 * time.Minute })}, "ScaleUp app 50m 64Mi, Verifying again in 5m0s"},
		"beside one that has started":       {[]func(*world){pods(unreadyFor(10*time.Minute), started)}, "ScaleUp app 50m 64Mi"},
		"it is not Ready for nine minutes":  {[]func(*world){pods(unreadyFor(9 * time.Minute))}, "ScaleUp app 50m 64Mi, Verifying again in 1m0s"},
		"it was Ready, and is not now":      {[]func(*world){pods(with(unreadyFor(time.Hour), func(p *workload.Pod) { p.Unready = noon.Add(-30 * time.Minute) }))}, "ScaleUp app 50m 64Mi"},
		"its image is pulled":               {[]func(*world){pods(with(unreadyFor(time.Hour), func(p *workload.Pod) { setRun(p, workload.Run{Container: "app"}) }))}, "ScaleUp app 50m 64Mi"},
		"it is not Ready with the template": {[]func(*world){pods(with(unreadyFor(time.Hour), func(p *workload.Pod) { p.Containers = []workload.Container{small()} }))}, "ScaleUp app 50m 64Mi"},
		"another one has started with it":   {[]func(*world){pods(crashing("web-1"), started)}, "ScaleUp app 50m 64Mi"},
		"it is of an old template":          {[]func(*world){pods(ofOldTemplate(crashing("web-1")), started)}, "ScaleUp app 50m 64Mi"},
		"it crashes with the template too":  {[]func(*world){pods(with(crashing("web-1"), func(p *workload.Pod) { p.Containers = []workload.Container{small()} }))}, "ScaleUp app 50m 64Mi"},
		"a template with a limit only": {[]func(*world){
			template(sized("app", amounts(0, 0), amounts(100, 128))),
			pods(with(crashing("web-1"), func(p *workload.Pod) {
				p.Containers = []workload.Container{sized("app", amounts(50, 64), amounts(50, 64))}
			})),
		}, "Reverted app 100m 128Mi"},
		"the template is ours": {[]func(*world){rollout, template(half()), func(w *world) {
			w.situation.Originals = []plan.Original{{Container: "app", CPU: true, Memory: true, Resources: small().Resources}}
		}, pods(crashing("web-1"))}, "Reverted app 100m 128Mi"},
		"no pod can be created from ours": {[]func(*world){rollout, template(half()), func(w *world) {
			w.situation.Originals = []plan.Original{{Container: "app", CPU: true, Memory: true, Resources: small().Resources}}
			w.situation.Deployment.CreateFailure = "too small"
		}, pods()}, "Reverted app 100m 128Mi"},
		"a quota refuses no pod for being smaller": {[]func(*world){rollout, template(half()), ours, refusedByQuota(time.Hour), pods()}, "ScaleUp app 50m 64Mi"},
		"a quota may refuse a larger one":          {[]func(*world){rollout, template(large()), ours, refusedByQuota(time.Hour), decidedBefore(), nearlyAsRecommended, pods()}, "Reverted app 190m 250Mi"},
		"but not for a moment":                     {[]func(*world){rollout, template(large()), ours, refusedByQuota(time.Minute), decidedBefore(), nearlyAsRecommended, pods()}, "ScaleUp app 200m 256Mi"},
		"nor while a pod that ends uses it": {[]func(*world){
			rollout, template(large()), ours, refusedByQuota(time.Hour), decidedBefore(), nearlyAsRecommended,
			pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Terminating, p.Current = true, false })),
		}, "ScaleUp app 200m 256Mi"},
	} {
		w := given(append(slices.Clone(lower), tc.change...)...)
		p := w.next(noon)
		got := p.Decision.Reason + " app " + sayAmounts(p.Decision.Requests["app"])
		if p.Verdict.Reason == "Verifying" {
			got += ", Verifying again in " + p.Verdict.RequeueAfter.String()
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		if (p.Reverted != "") != strings.HasPrefix(tc.want, "Reverted") {
			t.Errorf("%s: reverted because %q", name, p.Reverted)
		}
	}
}

// ours is a template that we have written.
func ours(w *world) {
	w.situation.Originals = []plan.Original{{Container: "app", CPU: true, Memory: true, Resources: small().Resources}}
}

// refusedByQuota creates no pods for so long.
func refusedByQuota(since time.Duration) func(*world) {
	return func(w *world) {
		w.situation.Deployment.CreateFailure = "pods \"web-2\" is forbidden: exceeded quota: team, requested: memory=256Mi, used: memory=256Mi, limited: memory=300Mi"
		w.situation.Deployment.CreateFailureSince = noon.Add(-since)
	}
}

// nearlyAsRecommended is a recommendation close to what large has.
func nearlyAsRecommended(w *world) {
	recommends(rec(amounts(190, 250), amounts(150, 200), amounts(400, 500)))(w)
}

func wasResized(p *workload.Pod) { p.Resized = noon.Add(-time.Minute) }

func resizedPod(name string, c workload.Container) workload.Pod {
	return with(pod(name, c), wasResized)
}

func sizesNewPods(w *world) { w.policy.SizesNewPods = true }

func inPlaceSized(w *world) {
	sizesNewPods(w)
	w.policy.Mode, w.situation.Originals = "InPlace", nil
}

// In InPlace, the running pods are resized as ever, and the API server sizes new ones.
func TestWhatNewPodsGetInPlace(t *testing.T) {
	rule := rulesOf(t)
	rule("The decided size, beside what runs", given(sizesNewPods, decidedBefore(), pods(pod("web-1", large()))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Applied · 1/1 applied")
	rule("What all pods were resized to, though the decision was lost",
		given(sizesNewPods, nearlyAsRecommended, pods(resizedPod("web-1", large()), resizedPod("web-2", large()), ofOldTemplate(pod("web-3", small())))),
		"decides app 200m 256Mi (Adopted) · puts into new pods app 200m 256Mi of 400m 512Mi · RolloutInProgress: 1 of 3 pods have an older template, and keep their size until they are replaced · 2/3")
	rule("What they were resized to, and no other resource",
		given(sizesNewPods, nearlyAsRecommended, pods(resizedPod("web-1", sized("app", amounts(100, 256), amounts(200, 512)))), recommends(rec(amounts(100, 250), amounts(80, 200), amounts(400, 500)))),
		"decides app - 256Mi (Adopted) · puts into new pods app - 256Mi of - 512Mi · Applied · 1/1 applied")
	rule("Nothing if it was lost, and something else has made the pods larger", given(sizesNewPods, nearlyAsRecommended, atSize()),
		"no decision · WithinTolerance · 2/2 applied")
	rule("Nothing if it was lost, and no pod of the current template was resized",
		given(sizesNewPods, nearlyAsRecommended, pausedRollout, pods(ofOldTemplate(resizedPod("web-1", large())), ofOldTemplate(resizedPod("web-2", large())))),
		"no decision · WithinTolerance · 2/2 applied")
	rule("Nothing if only another resource is decided: nothing was lost",
		given(sizesNewPods, nearlyAsRecommended, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), pods(resizedPod("web-1", large()), resizedPod("web-2", large()))),
		"keeps app 200m - · puts into new pods app 200m - of 400m - · Applied · 2/2 applied")
	rule("Nothing if it was lost, and the template leaves the request to its limit",
		given(sizesNewPods, nearlyAsRecommended, template(sized("app", amounts(0, 0), amounts(200, 256))), pods(resizedPod("web-1", sized("app", amounts(200, 256), amounts(200, 256))))),
		"no decision · WithinTolerance · 1/1 applied")
	rule("Nothing that a quota has no room for, and the pods are resized all the same", given(sizesNewPods, decidedBefore(), atSize(), quotas(quota("requests.cpu", 399, 399))),
		"keeps app 200m 256Mi · leaves new pods as in the template: QuotaExceeded: ResourceQuota team allows 399m of requests.cpu, of which 399m are used, and 200m more are needed for a new pod, which gets the size in the Deployment · Applied · 2/2 applied")
	rule("Nor for its limits", given(sizesNewPods, decidedBefore(), atSize(), quotas(quota("limits.cpu", 799, 799))),
		"keeps app 200m 256Mi · leaves new pods as in the template: QuotaExceeded: ResourceQuota team allows 799m of limits.cpu, of which 799m are used, and 400m more are needed for a new pod, which gets the size in the Deployment · Applied · 2/2 applied")
	rule("Nothing that no node could hold", given(sizesNewPods, decidedBefore(), atSize(), largestNode(150, 1024)),
		"keeps app 200m 256Mi · leaves new pods as in the template: NodeCapacity: no node could hold a new pod with 200m of cpu · Applied · 2/2 applied")
	rule("Whole CPUs, which a fraction would take away, are left as in the template",
		guaranteed(2000, inPlaceSized, needs(1500), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(1500, 0) })),
		"keeps app 1500m - · resizes web-1 to app 1500m 128Mi of 1500m 128Mi · Resizing · 0/1 changing")
	rule("Once a lower request is verified, the decided size",
		given(sizesNewPods, watching, decidedBefore(verifying, func(d *plan.Decision) {
			d.Time = noon.Add(-time.Hour)
			d.Verification.Began, d.Verification.ObservedSince = noon.Add(-10*time.Minute), noon.Add(-5*time.Minute)
			d.Verification.FirstPodsVerified = noon.Add(-8 * time.Minute)
		}), recommends(halved()), pods(
			with(halfSized("web-1"), func(p *workload.Pod) { p.Resized = noon.Add(-9 * time.Minute) }),
			with(halfSized("web-2"), func(p *workload.Pod) { p.Resized = noon.Add(-6 * time.Minute) }),
		)),
		"keeps app 50m 64Mi · puts into new pods app 50m 64Mi of 100m 128Mi · Applied · 2/2 applied")
	rule("While a lower request is being verified, new pods of the ReplicaSet get what it has proved before",
		given(sizesNewPods, watching, decidedBefore(verifying), recommends(halved()), pods(of("set-1", pod("web-1", small())), of("set-1", halfSized("web-2"))), hadProved("set-1", small())),
		"keeps app 50m 64Mi · puts into new pods app 100m 128Mi of 200m 256Mi, exactly in set-1 · Verifying: Verifying the first resized pods before lowering the rest · 1/2 changing, again in 2m0s")
}

// A new pod has its startup boost from its creation, where it can be lowered in place once it has started.
func TestNewPodsStartWithTheirBoost(t *testing.T) {
	const plain = "keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Applied · 2/2 applied"
	const boosted = "keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi, which start with app 400m - of 800m - · Applied · 2/2 applied"
	fixed := sized("app", amounts(100, 128), amounts(250, 256))
	rule := rulesOf(t)
	boosting := func(changes ...func(*world)) world {
		return given(append([]func(*world){sizesNewPods, decidedBefore(), atSize(), boosts()}, changes...)...)
	}
	rule("The boost of what is decided", boosting(), boosted)
	rule("Not what was only learned: it may need another node, and no user has asked for that", boosting(boosts(func(b *plan.Boost) { *b = plan.Boost{LeastMillis: 900} })), plain)
	rule("With Recreate, too, which evicts no pod for its boost", boosting(orRecreate), boosted)
	rule("Not where a pod that keeps its boost would cause a rollout", boosting(orRollout),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Applied · 2/2 applied")
	rule("Nor in Initial, where nothing ends it", boosting(initial),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Applied, and new pods get it · 2/2 applied")
	rule("Not while another controller keeps changing the pods", boosting(decidedBefore(func(d *plan.Decision) { d.Reverts = 2 })), strings.Replace(plain, "256Mi", "256Mi, reverted 2 times", 1))
	rule("Not beyond maxAllowed", boosting(policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.CPUMillis = 200 })), plain)
	rule("Not beyond the largest node", boosting(largestNode(320, 4096)),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi, which start with app 320m - of 640m - · Applied · 2/2 applied")
	rule("Not beyond a ceiling", boosting(mostPerContainer(310, 0)),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi, which start with app 310m - of 620m - · Applied · 2/2 applied")
	rule("Not beyond a LimitRange for pods", boosting(bounds(workload.Bounds{PodMax: amounts(799, 0)})), plain)
	rule("A quota needs room for as many boosted pods as there are replicas", boosting(quotas(quota("requests.cpu", 1199, 400))), plain)
	rule("And has it", boosting(quotas(quota("requests.cpu", 1200, 400))), boosted)
	rule("Not while a new pod finds no node", boosting(func(w *world) { w.situation.IsSetBack = true }, template(large())), plain)
	rule("Below a limit that stays, in the same QoS class",
		boosting(template(fixed), policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay }), pods(pod("web-1", sized("app", amounts(200, 256), amounts(250, 256))))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 250m 256Mi, which start with app 249m - of 250m - · Applied · 1/1 applied")
	rule("Not if it would be of another class than once it is lowered",
		boosting(template(evenly("log", 500), sized("app", amounts(100, 128), amounts(200, 128))), decidedBefore(func(d *plan.Decision) {
			d.Requests["app"], d.Requests["log"] = amounts(200, 0), amounts(200, 0)
		}), policyOfApp(func(p *plan.ContainerPolicy) { p.LimitPolicy.MaxAllowed.CPUMillis, p.Memory = 250, false }), func(w *world) {
			w.policy.Containers["log"] = plan.ContainerPolicy{CPU: true, Limits: plan.LimitsFollow}
		}, recommends(), pods(pod("web-1", evenly("log", 200), sized("app", amounts(200, 128), amounts(250, 128))))),
		"keeps app 200m -; log 200m - · puts into new pods app 200m - of 250m -; log 200m - of 200m - · Applied · 1/1 applied")
	rule("Below a limit that a LimitRange gives to each new pod",
		boosting(template(sized("app", amounts(100, 128), amounts(0, 256))), policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay }), bounds(workload.Bounds{ContainerDefault: amounts(250, 0)})),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 250m 256Mi, which start with app 249m - of 250m - · Applied · 2/2 applied")
	rule("No container with whole CPUs, which a kubelet may not let go",
		guaranteed(1000, inPlaceSized, needs(1000), boosts(), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(1000, 0) }), pods(pod("web-1", evenly("app", 1000)))),
		"keeps app 1000m - · puts into new pods app 1000m - of 1000m - · Applied · 1/1 applied")
	rule("A template that has as much has it already", boosting(template(double())), plain)
	rule("What a ReplicaSet has proved is its size once started",
		boosting(pods(of("set-1", pod("web-1", large()))), hadProved("set-1", large())),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi, exactly in set-1, which start with app 400m - of 800m - · Applied · 1/1 applied")
	rule("A boosted pod proves nothing, and takes nothing away",
		boosting(pods(of("set-1", starting(time.Minute, pod("web-1", double())))), hadProved("set-1", large())),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi, exactly in set-1, which start with app 400m - of 800m - · Boosted: Starting pods have more CPU until they are Ready (startupBoost) · 1/1 applied, again in 10m1s")
}

// evenly is a container whose limits equal its requests.
func evenly(name string, cpu int64) workload.Container {
	return sized(name, amounts(cpu, 128), amounts(cpu, 128))
}

// A boost that does not end where it should would be paid for in each new pod.
func TestNewPodsHaveNoBoostWhereBoostsDoNotEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		change []func(*world)
		want   bool
	}{
		"a boost has just ended":             {[]func(*world){pods(started(2*time.Minute, pod("web-1", double())))}, true},
		"it has ended, and the pod has it":   {[]func(*world){pods(started(12*time.Minute, pod("web-1", double())))}, false},
		"the same for less than ten minutes": {[]func(*world){pods(started(10*time.Minute, pod("web-1", double())))}, true},
		"the decision is new":                {[]func(*world){pods(started(12*time.Minute, pod("web-1", double()))), decidedBefore(recently)}, true},
		"a node can lower nothing":           {[]func(*world){pods(with(started(2*time.Minute, pod("web-1", double())), func(p *workload.Pod) { p.Resize.Infeasible = true }))}, false},
		"it is suspended":                    {[]func(*world){func(w *world) { w.policy.Suspended = true }}, false},
		"it is paused":                       {[]func(*world){func(w *world) { w.policy.Paused = "paused" }}, false},
		"it is frozen":                       {[]func(*world){func(w *world) { w.situation.Frozen = plan.Obstacle{Reason: "Frozen", Message: "frozen"} }}, false},
		"another scaler comes first":         {[]func(*world){func(w *world) { w.situation.IsUnclaimed = true }}, false},
	} {
		w := given(append([]func(*world){sizesNewPods, decidedBefore(func(d *plan.Decision) { d.Time = noon.Add(-time.Hour) }), atSize(), boosts(), hadProved("set-1", large()), func(w *world) {
			w.situation.NewPods.Starts = []plan.Size{{Container: "app", Resources: resources(amounts(400, 0), amounts(800, 0))}}
		}}, tc.change...)...)
		if n := w.next(noon).NewPods; len(n.Starts) > 0 != tc.want || len(n.Sizes) == 0 {
			t.Errorf("%s: new pods get %s and start with %s", name, saySizes(n.Sizes), saySizes(n.Starts))
		}
	}
}

// withoutNode is a pod that has waited for a node for a minute.
func withoutNode(name string, containers ...workload.Container) workload.Pod {
	return with(pod(name, containers...), func(p *workload.Pod) {
		p.Running, p.Ready, p.Started, p.Actual, p.NoNodeSince = false, false, time.Time{}, nil, noon.Add(-time.Minute)
		p.InsufficientCPU, p.InsufficientMemory = true, true
	})
}

// tooLong is how long a pod without a node keeps the decided size, and more.
func tooLong(p *workload.Pod) { p.NoNodeSince = noon.Add(-3 * time.Minute) }

// Without this, a rollout would wait until a user deletes the pod.
func TestAPodThatFindsNoNodeIsSetBack(t *testing.T) {
	guaranteedSmall, guaranteedLarge := sized("app", amounts(100, 128), amounts(100, 128)), sized("app", amounts(200, 256), amounts(200, 256))
	sidecar, agent := container("agent"), sized("agent", amounts(200, 128), amounts(400, 256))
	rule := rulesOf(t)
	rule("After three minutes, to the requests of the template", given(sizesNewPods, decidedBefore(), pods(pod("web-1", large()), with(withoutNode("web-2", large()), tooLong))),
		"keeps app 200m 256Mi · resizes web-2 to app 100m 128Mi of 400m 512Mi · leaves new pods as in the template · Resizing an unschedulable pod · 1/1 changing")
	rule("If no other pod runs", given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong))),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 400m 512Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/0 changing")
	rule("Before running pods are resized", given(sizesNewPods, decidedBefore(), pods(pod("web-1", small()), with(withoutNode("web-2", large()), tooLong))),
		"keeps app 200m 256Mi · resizes web-2 to app 100m 128Mi of 400m 512Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/1 changing")
	rule("Also if something else is decided by now",
		given(sizesNewPods, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 192) }), recommends(), pods(with(withoutNode("web-1", large()), tooLong))),
		"keeps app 200m 192Mi · resizes web-1 to app 100m 128Mi of 400m 512Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/0 changing")
	rule("What is lower than in the template stays",
		given(sizesNewPods, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 64) }), recommends(), pods(with(withoutNode("web-1", sized("app", amounts(200, 64), amounts(400, 128))), tooLong))),
		"keeps app 200m 64Mi · resizes web-1 to app 100m 64Mi of 400m 128Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/0 changing")
	rule("Containers for which nothing is decided stay", given(sizesNewPods, decidedBefore(), template(small(), sidecar), pods(with(withoutNode("web-1", large(), agent), tooLong))),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 400m 512Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/0 changing")
	rule("Not before, because an autoscaler may add a node",
		given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), func(p *workload.Pod) { p.NoNodeSince = noon.Add(-179 * time.Second) }))),
		"keeps app 200m 256Mi · leaves new pods as in the template · NoPods · 0/0, again in 1s")
	rule("What the nodes have enough of stays",
		given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong, func(p *workload.Pod) { p.InsufficientMemory = false }))),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 256Mi of 400m 512Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/0 changing")
	rule("What is not decided stays",
		given(sizesNewPods, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), recommends(), pods(with(withoutNode("web-1", large()), tooLong))),
		"keeps app 200m - · resizes web-1 to app 100m 256Mi of 400m 512Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/0 changing")
	rule("With its limits, if it is Guaranteed", given(sizesNewPods, decidedBefore(), template(guaranteedSmall), pods(with(withoutNode("web-1", guaranteedLarge), tooLong))),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 100m 128Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/0 changing")
	rule("Not if that changed its QoS class",
		given(sizesNewPods, decidedBefore(), policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay }), template(sized("app", amounts(100, 128), amounts(200, 256))), pods(with(withoutNode("web-1", guaranteedLarge), tooLong))),
		"keeps app 200m 256Mi · leaves new pods as in the template · NoPods · 0/0")
	rule("Not if it waits for something else",
		given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong, func(p *workload.Pod) { p.InsufficientCPU, p.InsufficientMemory = false, false }))),
		"keeps app 200m 256Mi · leaves new pods as in the template · NoPods · 0/0")
	rule("Not if a scheduling gate was removed from it",
		given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong, func(p *workload.Pod) { p.Generation = 2 }))),
		"keeps app 200m 256Mi · leaves new pods as in the template · NoPods · 0/0")
	rule("Not if it requests no more than the template", given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", small()), tooLong))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · NoPods · 0/0")
	rule("Not twice", given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong, wasResized))),
		"keeps app 200m 256Mi · leaves new pods as in the template · NoPods · 0/0")
	rule("Not if the API server has refused it",
		given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong)), rejected(resources(amounts(100, 128), amounts(400, 512)), "Rejected", "no")),
		"keeps app 200m 256Mi · leaves new pods as in the template · NoPods · 0/0")
	rule("Not below a LimitRange", given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong)), bounds(workload.Bounds{ContainerMin: amounts(150, 0)})),
		"keeps app 200m 256Mi · leaves new pods as in the template · NoPods · 0/0")
	rule("Not a pod of an older template, which is about to go",
		given(sizesNewPods, decidedBefore(), pods(pod("web-1", large()), with(withoutNode("web-2", large()), tooLong, func(p *workload.Pod) { p.Current = false }))),
		"keeps app 200m 256Mi · puts into new pods app 200m 256Mi of 400m 512Mi · Applied · 1/1 applied")
	rule("Not a pod with pod-level resources",
		given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong, func(p *workload.Pod) { p.PodLevelResources = true }))),
		"keeps app 200m 256Mi · leaves new pods as in the template · NoPods · 0/0")
	rule("With the fallback Recreate, too, once it is recorded that new pods start as in the template", given(sizesNewPods, orRecreate, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong))),
		"keeps app 200m 256Mi · leaves new pods as in the template · Resizing an unschedulable pod · 0/0 changing")
	rule("Not if new pods are as in the template anyway", given(decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong))),
		"keeps app 200m 256Mi · NoPods · 0/0")
	rule("Later pods start as in the template for a while", given(sizesNewPods, decidedBefore(), atSize(), func(w *world) { w.situation.IsSetBack = true }),
		"keeps app 200m 256Mi · leaves new pods as in the template · Applied · 2/2 applied")
}

// half is a container with half of its template's size.
func half() workload.Container { return sized("app", amounts(50, 64), amounts(100, 128)) }
