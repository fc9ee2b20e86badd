// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func orRollout(w *world) { w.policy.Fallback = "Rollout" }

// requested is a pod that has been asked to be large, and is small yet.
func requested(name string, says workload.Resize) workload.Pod {
	return with(pod(name, large()), func(p *workload.Pod) {
		p.Resize = says
		p.Actual = p.Actual.With("app", small().Resources)
	})
}

func TestWhatAKubeletPutsOff(t *testing.T) {
	deferred := func(since time.Time) workload.Resize {
		return workload.Resize{Deferred: true, Message: "Node didn't have enough resource: cpu", Since: since}
	}
	long := func(d *plan.Decision) { d.Time = noon.Add(-time.Hour) }
	rule := rulesOf(t)
	rule("The next resize has the whole grace again", given(orRollout, decidedBefore(long), pods(requested("web-1", deferred(noon)))),
		"keeps app 200m 256Mi · Deferred: pod web-1: Node didn't have enough resource: cpu · 0/1, again in 10m0s")
	rule("Where it is not known since when, the decision and the last resize tell",
		given(orRollout, decidedBefore(long), pods(with(requested("web-1", deferred(time.Time{})), func(p *workload.Pod) { p.Resized = noon.Add(-time.Minute) }))),
		"keeps app 200m 256Mi · Deferred: pod web-1: Node didn't have enough resource: cpu · 0/1, again in 9m0s")
}

// A template gets the same values as in the mode Rollout, with the same original values: see TestHowATemplateIsRewritten.
func TestWhenTheDeploymentIsRolledOutInstead(t *testing.T) {
	infeasible := infeasible("web-1")
	rolling := deployment(func(d *workload.Deployment) { d.RollingOut = true })
	written := func(d *plan.Decision) { d.AppliedToTemplate = true }
	reverted := func(n int) func(*plan.Decision) {
		return func(d *plan.Decision) { d.Reverts, d.LastRevert = n, noon.Add(-time.Minute) }
	}
	undone := func(w *world) { w.situation.Undone = map[types.UID]bool{"uid-web-2": true} }
	rule := rulesOf(t)
	rule("Infeasible, at once, and held first", given(orRollout, decidedBefore(recently), pods(infeasible)),
		"keeps app 200m 256Mi · holds app 100m 128Mi of 200m 256Mi cpu=true memory=true · RollingOut. Requires pod replacement: pod web-1: Node didn't have enough capacity · 0/1 changing")
	rule("A node that is known to resize nothing", given(orRollout, decidedBefore(), appTakenOver(), pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Actual = nil }))),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut. Requires pod replacement: pod web-1: its node has not reported the applied resources, which a resize in place requires · 0/1 changing")
	rule("Not on account of a pod that has just started",
		given(orRollout, decidedBefore(), appTakenOver(), pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Actual, p.Started = nil, noon.Add(-time.Minute) }))),
		"keeps app 200m 256Mi · Unsupported: pod web-1: its node has not reported the applied resources, which a resize in place requires · 0/1, again in 9m0s")
	rule("Not again while it is rolled out", given(orRollout, decidedBefore(written), appTakenOver(), template(large()), rolling, pods(infeasible)),
		"keeps app 200m 256Mi, written · RollingOut · 0/1 changing")
	rule("While it is rolled out and no pod runs yet",
		given(orRollout, decidedBefore(written), appTakenOver(), template(large()), rolling, pods(with(pod("web-2", large()), func(p *workload.Pod) { p.Running = false }))),
		"keeps app 200m 256Mi, written · RollingOut · 0/0 changing")
	rule("Not again where the template has the size already", given(orRollout, decidedBefore(written), appTakenOver(), template(large()), pods(infeasible)),
		"keeps app 200m 256Mi, written · Infeasible: pod web-1: Node didn't have enough capacity. The Deployment's pod template already has the decided size · 0/1 stalled")
	rule("What is decided later is applied in place again",
		given(orRollout, atSize(), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(250, 256) }), appTakenOver(), template(large()), recommends()),
		"keeps app 250m 256Mi · resizes web-1 to app 250m 256Mi of 500m 512Mi · Resizing · 0/2 changing")
	rule("Another writer undoes it twice", given(orRollout, decidedBefore(written, reverted(1)), appTakenOver(), pods(infeasible)),
		"keeps app 200m 256Mi, reverted 2 times · Contested: Another controller keeps undoing the sizes in the Deployment's pod template: remove the resources from the applied manifest, or edit the scaler to try again. Requires pod replacement: pod web-1: Node didn't have enough capacity · 0/1 stalled")
	rule("Who has undone the template keeps its new pods from being resized, too", given(orRollout, decidedBefore(written, reverted(1)), appTakenOver()),
		"keeps app 200m 256Mi, reverted 2 times · Contested: Another controller keeps undoing the sizes in the Deployment's pod template: remove the resources from the applied manifest, or edit the scaler to try again · 0/2 stalled")
	rule("Another controller undoes pods twice, with the template unchanged", given(orRollout, decidedBefore(reverted(1)), undone, pods(infeasible, pod("web-2", small()))),
		"keeps app 200m 256Mi, reverted 2 times · Contested: Another controller keeps changing the resources of the pods: stop it, then edit the scaler to try again · 0/2 stalled")
	rule("A template that was never taken over is not contested", given(orRollout, decidedBefore(reverted(2)), pods(infeasible)),
		"keeps app 200m 256Mi · holds app 100m 128Mi of 200m 256Mi cpu=true memory=true · RollingOut. Requires pod replacement: pod web-1: Node didn't have enough capacity · 0/1 changing")
}

// A kubelet does not lower a memory limit below what is in use, and says so for as long
// as it is asked to.
func TestAMemoryLimitThatCannotBeLowered(t *testing.T) {
	lowered := decidedBefore(func(d *plan.Decision) {
		d.Time, d.Requests["app"] = noon.Add(-time.Hour), amounts(100, 64)
	})
	needsLittle := recommends(rec(amounts(100, 64), amounts(100, 60), amounts(110, 70)))
	limited := func(c workload.Container, since time.Duration) workload.Pod {
		return with(pod("web-1", c), func(p *workload.Pod) {
			actual := c.Resources
			actual.Limits.MemoryBytes = 256 * mebi
			p.Actual = p.Actual.With("app", actual)
			p.Resize = workload.Resize{InProgress: true, Failed: true, Message: "attempting to set pod memory limit below current usage", Since: noon.Add(-since)}
		})
	}
	burstable := sized("app", amounts(100, 64), amounts(200, 128))
	guaranteed := sized("app", amounts(100, 64), amounts(100, 64))
	rule := rulesOf(t)
	rule("The kubelet may try again for a while", given(lowered, needsLittle, pods(limited(burstable, time.Minute))),
		"keeps app 100m 64Mi · ResizeError: pod web-1: attempting to set pod memory limit below current usage · 0/1, again in 1m0s")
	rule("Then the limit is restored", given(lowered, needsLittle, pods(limited(burstable, 3*time.Minute))),
		"keeps app 100m 64Mi · resizes web-1 to app 100m 64Mi of 200m 256Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing")
	rule("That of a Guaranteed pod with its request",
		given(lowered, needsLittle, template(sized("app", amounts(100, 256), amounts(100, 256))), pods(limited(guaranteed, 3*time.Minute))),
		"keeps app 100m 64Mi · resizes web-1 to app 100m 256Mi of 100m 256Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing")
	refused := func(c workload.Container, sizes workload.Resources) func(*world) {
		return func(w *world) {
			w.situation.Pods = []workload.Pod{pod("web-1", c)}
			w.reject(w.situation.Pods[0].UID, plan.RejectedResize{Sizes: []plan.Size{{Container: "app", Resources: sizes}}, Reason: v1beta1.ReasonResizeError, Message: "memory limit below current usage"})
		}
	}
	rule("It is not lowered again, and the request is", given(lowered, needsLittle, refused(sized("app", amounts(100, 128), amounts(200, 256)), burstable.Resources)),
		"keeps app 100m 64Mi · resizes web-1 to app 100m 64Mi of 200m 256Mi · Resizing · 0/1 changing")
	rule("Nothing is left to do", given(lowered, needsLittle, refused(sized("app", amounts(100, 64), amounts(200, 256)), burstable.Resources)),
		"keeps app 100m 64Mi · ResizeError: pod web-1: memory limit below current usage · 0/1")
	rule("A Guaranteed pod keeps its memory",
		given(lowered, needsLittle, template(sized("app", amounts(100, 256), amounts(100, 256))), refused(sized("app", amounts(100, 256), amounts(100, 256)), guaranteed.Resources)),
		"keeps app 100m 64Mi · ResizeError: pod web-1: memory limit below current usage · 0/1")
}

func TestPodsThatMakeRoomComeFirst(t *testing.T) {
	rule := rulesOf(t)
	rule("A pod to be lowered before one to be raised", given(decidedBefore(), pods(pod("web-1", small()), pod("web-2", sized("app", amounts(400, 512), amounts(800, 1024))))),
		"keeps app 200m 256Mi · resizes web-2 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("One that gets more of something is not lowered", given(decidedBefore(), pods(pod("web-1", small()), pod("web-2", sized("app", amounts(400, 128), amounts(800, 256))))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
}

// A request or limit can be added in place and never removed.
func TestNoLimitIsRemovedInPlace(t *testing.T) {
	rule := rulesOf(t)
	rule("Of a pod whose template has none any more", given(decidedBefore(), template(sized("app", amounts(100, 128), amounts(0, 0))), pods(pod("web-1", small()))),
		"keeps app 200m 256Mi · resizes web-1 to app 199m 256Mi of 200m 256Mi · Resizing · 0/1 changing")
}
