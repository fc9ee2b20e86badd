// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestHowATemplateIsRewritten(t *testing.T) {
	written := func(d *plan.Decision) { d.AppliedToTemplate = true }
	reverted := func(n int) func(*plan.Decision) {
		return func(d *plan.Decision) { d.AppliedToTemplate, d.Reverts, d.LastRevert = true, n, noon.Add(-time.Minute) }
	}
	by := func(names ...string) func(*plan.Decision) { return func(d *plan.Decision) { d.ContestedBy = names } }
	has := func(names ...string) func(*world) {
		return func(w *world) { w.situation.Writers = &plan.Writers{Names: names} }
	}
	const helm = "helm (Update)"
	rolling := deployment(func(d *workload.Deployment) { d.RollingOut = true })
	memoryOnly := policyOfApp(func(p *plan.ContainerPolicy) { p.CPU = false })
	rule := rulesOf(t)
	rule("Original values are recorded before the template is changed", given(rollout, decidedBefore()),
		"keeps app 200m 256Mi · holds app 100m 128Mi of 200m 256Mi cpu=true memory=true · RollingOut · 0/2 changing")
	rule("Only managed resources are recorded", given(rollout, memoryOnly, decidedBefore()),
		"keeps app - 256Mi · holds app - 128Mi of - 256Mi cpu=false memory=true · RollingOut · 0/2 changing")
	rule("A write whose end was not recorded counts as written", given(rollout, decidedBefore(), appTakenOver(), template(large()), atSize()),
		"keeps app 200m 256Mi, written · Applied: The Deployment's pod template has the decided size · 2/2 applied")
	rule("What a LimitRange filled in does not make pods differ", given(rollout, decidedBefore(written), template(sized("app", amounts(200, 256), amounts(0, 0))), atSize()),
		"keeps app 200m 256Mi, written · Applied: The Deployment's pod template has the decided size · 2/2 applied")
	rule("A rollout that waits for OOM-killed pods does not block another", given(rollout, decidedBefore(func(d *plan.Decision) { d.Reason = "OOMKill" }), appTakenOver(), rolling),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("A rollout whose pods have no room on any node is not waited for by a smaller size",
		given(rollout, decidedBefore(), appTakenOver(), template(double()), rolling, unschedulable),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/1 changing")
	rule("A larger size waits for it", given(rollout, decidedBefore(), appTakenOver(), rolling, unschedulable),
		"keeps app 200m 256Mi · RolloutInProgress: Another rollout of the Deployment is in progress · 0/1")
	rule("So does one that is smaller in one resource and larger in another",
		given(rollout, decidedBefore(), appTakenOver(), template(sized("app", amounts(400, 128), amounts(800, 256))), rolling, unschedulable),
		"keeps app 200m 256Mi · RolloutInProgress: Another rollout of the Deployment is in progress · 0/1")
	rule("A smaller size waits for pods that are not available for another reason",
		given(rollout, decidedBefore(), appTakenOver(), template(double()), rolling, pods(notReady(pod("web-1", double())))),
		"keeps app 200m 256Mi · RolloutInProgress: Another rollout of the Deployment is in progress · 0/1")
	rule("And for an unschedulable pod of an older template, which the rollout replaces",
		given(rollout, decidedBefore(), appTakenOver(), template(double()), rolling, unschedulable, func(w *world) { w.situation.Pods[1].Current = false }),
		"keeps app 200m 256Mi · RolloutInProgress: Another rollout of the Deployment is in progress · 0/1")
	rule("A rollout after an OOM kill is waited for once the template has carried the answer",
		given(rollout, decidedBefore(written, func(d *plan.Decision) { d.Reason = "OOMKill" }), appTakenOver(), rolling),
		"keeps app 200m 256Mi, reverted 1 times · RolloutInProgress: Another rollout of the Deployment is in progress · 0/2")
	rule("A first revert is undone", given(rollout, decidedBefore(written), appTakenOver()),
		"keeps app 200m 256Mi, reverted 1 times · then rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("A second revert is the end of it", given(rollout, decidedBefore(reverted(1)), appTakenOver()),
		"keeps app 200m 256Mi, reverted 2 times · Contested: Another controller keeps undoing the sizes in the Deployment's pod template: remove the resources from the applied manifest, or edit the scaler to try again · 0/2 stalled")
	rule("What is contested is tried again once the scaler is edited", given(rollout, decidedBefore(reverted(2)), appTakenOver(), func(w *world) { w.policy.Edited = true }),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("A revert counts also where the next decision is made at the same time",
		given(rollout, decidedBefore(reverted(1)), appTakenOver(), recommends(rec(amounts(400, 256), amounts(300, 200), amounts(500, 400)))),
		"decides app 400m 256Mi (LowerBound), reverted 2 times · Contested: Another controller keeps undoing the sizes in the Deployment's pod template: remove the resources from the applied manifest, or edit the scaler to try again · 0/2 stalled")
	rule("What the next decision changes itself is no revert",
		given(rollout, decidedBefore(reverted(1)), appTakenOver(), template(large()), recommends(rec(amounts(400, 256), amounts(300, 200), amounts(500, 400)))),
		"decides app 400m 256Mi (LowerBound), reverted 1 times · then rewrites app 400m 256Mi of 800m 512Mi · RollingOut · 0/2 changing")
	rule("A revert of the day before yesterday is forgotten",
		given(rollout, decidedBefore(reverted(1), func(d *plan.Decision) { d.LastRevert = noon.Add(-25 * time.Hour) }), appTakenOver()),
		"keeps app 200m 256Mi, reverted 1 times · then rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("What is contested is not forgotten with time",
		given(rollout, decidedBefore(reverted(2), by(helm), func(d *plan.Decision) { d.LastRevert = noon.Add(-25 * time.Hour) }), appTakenOver(), has(helm)),
		"keeps app 200m 256Mi, written, reverted 2 times by helm (Update) · Contested: helm (Update) keeps undoing the sizes in the Deployment's pod template: remove the resources from the applied manifest, or edit the scaler to try again · 0/2 stalled")
	rule("Those who have what is contested are named", given(rollout, decidedBefore(reverted(2)), appTakenOver(), has("argocd-controller (Apply)", helm)),
		"keeps app 200m 256Mi, written, reverted 2 times by argocd-controller (Apply), helm (Update) · Contested: argocd-controller (Apply) and helm (Update) keep undoing the sizes in the Deployment's pod template: remove the resources from the applied manifest, or edit the scaler to try again · 0/2 stalled")
	rule("What no field manager owns any longer is tried again", given(rollout, decidedBefore(reverted(2), by(helm)), appTakenOver(), has()),
		"keeps app 200m 256Mi · then rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("What is still ours was not undone", given(rollout, decidedBefore(reverted(1)), appTakenOver(), func(w *world) { w.situation.Writers = &plan.Writers{Ours: true} }),
		"keeps app 200m 256Mi · then rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("What no field manager ever owned is not tried again", given(rollout, decidedBefore(reverted(2)), appTakenOver(), has()),
		"keeps app 200m 256Mi, written, reverted 2 times · Contested: Another controller keeps undoing the sizes in the Deployment's pod template: remove the resources from the applied manifest, or edit the scaler to try again · 0/2 stalled")
	rule("A contested template that has the decided size all the same is left at that",
		given(rollout, decidedBefore(reverted(2), by(helm)), appTakenOver(), template(large()), atSize()),
		"keeps app 200m 256Mi, written, reverted 2 times by helm (Update) · Applied: The Deployment's pod template has the decided size · 2/2 applied")
	rule("What is no longer managed is sent as it was found", given(rollout, memoryOnly, decidedBefore(written), appTakenOver(), template(large()), atSize()),
		"keeps app - 256Mi · then rewrites app 100m 256Mi of 200m 512Mi · RollingOut · 0/2 changing")
	rule("Original values are restored if nothing is managed any longer",
		given(rollout, decidedBefore(written), appTakenOver(), template(large()), atSize(), func(w *world) {
			w.situation.Scaled = workload.Scaled{CPU: "web", Memory: "web"}
		}),
		"no decision · gives back · RollingOut: Restoring the original values in the Deployment's pod template, because none of its resources are managed any longer · 0/2 changing")
	rule("A suspended scaler gives nothing back",
		given(rollout, decidedBefore(written), appTakenOver(), template(large()), atSize(), func(w *world) {
			w.policy.Suspended = true
			w.policy.Containers["app"] = plan.ContainerPolicy{}
		}),
		"keeps app 200m 256Mi, written · Suspended: Nothing is changed while the scaler is suspended · 2/2")
	rule("A template with pod-level resources is not written", given(rollout, decidedBefore(), deployment(func(d *workload.Deployment) { d.PodLevelResources = true })),
		"keeps app 200m 256Mi · Unsupported: The Deployment declares pod-level resources, which are not managed · 0/2 stalled")
	rule("A template that would make no pods by its LimitRange gets what fits", given(rollout, decidedBefore(), appTakenOver(), bounds(workload.Bounds{PodMax: amounts(0, 300)})),
		"decides app 200m 150Mi (Bounds) · then rewrites app 200m 150Mi of 400m 300Mi · RollingOut · 0/2 changing")
	rule("A template that makes no pods without an injected container is not written",
		given(rollout, decidedBefore(), appTakenOver(), pods(pod("web-1", small(), sized("proxy", amounts(50, 64), amounts(100, 100))), pod("web-2", small(), sized("proxy", amounts(50, 64), amounts(100, 100)))), bounds(workload.Bounds{PodMin: amounts(0, 300)})),
		"keeps app 200m 256Mi · LimitRange: LimitRange limits allows a pod no less than 300Mi of memory · 0/2 stalled")
	rule("The limit that a LimitRange gives to new pods bounds a request without one",
		given(rollout, template(sized("app", amounts(100, 128), amounts(0, 0))), bounds(workload.Bounds{ContainerDefault: amounts(150, 200), PodMax: amounts(0, 300)}), takenOver(plan.Original{Container: "app", CPU: true, Memory: true, Resources: resources(amounts(100, 128), amounts(0, 0))}), recommends(rec(amounts(900, 900), amounts(800, 800), amounts(1000, 1000)))),
		"decides app 150m 200Mi (LowerBound) · then rewrites app 150m 200Mi of - - · RollingOut · 0/2 changing")
	rule("A container that is taken over and cannot be read blocks changes of the template",
		given(rollout, decidedBefore(), takenOver(plan.Original{Container: "app", CPU: true, Memory: true, Resources: small().Resources}, plan.Original{Container: "log", CPU: true, Resources: small().Resources}), template(small(), workload.Container{Name: "log", Unreadable: true})),
		"keeps app 200m 256Mi · Rejected: Container log has resources outside the supported range: correct them in the Deployment · 0/2 stalled")
	rule("The proportion is that of the template as it was found",
		given(rollout, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(400, 256) }), recommends(), appTakenOver(), template(sized("app", amounts(200, 256), amounts(201, 512)))),
		"keeps app 400m 256Mi, written · rewrites app 400m 256Mi of 800m 512Mi · RollingOut · 0/2 changing")
}

// The least that is written of a container holds nothing that was not decided.
// unschedulable has one pod that runs, and one that no node has room for.
func unschedulable(w *world) {
	pods(pod("web-1", double()), with(pod("web-2", double()), func(p *workload.Pod) {
		p.Running, p.Ready, p.Started, p.Actual, p.NoNodeSince = false, false, time.Time{}, nil, noon
	}))(w)
}

func TestAContainerThatIsNotDecidedIsNotWritten(t *testing.T) {
	w := given(rollout, decidedBefore(), appTakenOver(), template(small(), container("log")))
	for _, size := range as[plan.Rewrite](w.next(noon)).Sizes {
		if size.Container != "app" {
			t.Errorf("container %s is written", size.Container)
		}
	}
	if w.situation.Decision.Requests["app"] != (quantity.Amounts{CPUMillis: 200, MemoryBytes: 256 * mebi}) || w.situation.Decision.AppliedToTemplate {
		t.Error("the situation was changed")
	}
}

// The rewrite of a fallback is recorded as well: once the new pods have the size, no rollout is left
// to look at.
func TestALostRewriteOfAFallbackIsRecorded(t *testing.T) {
	for name, pods := range map[string]func(*world){"while it rolls out": pods(), "once it has rolled out": atSize()} {
		rolling := deployment(func(d *workload.Deployment) { d.RollingOut = name == "while it rolls out" })
		w := given(orRollout, decidedBefore(), appTakenOver(), template(large()), rolling, pods)
		if p := w.next(noon); p.Decision == nil || !p.Decision.AppliedToTemplate {
			t.Errorf("%s: %s, with the decision %+v", name, say(p), p.Decision)
		}
	}
	for name, w := range map[string]world{
		"a template that was never taken over": given(orRollout, decidedBefore(), template(large()), atSize()),
		"a template with another size":         given(orRollout, decidedBefore(), appTakenOver(), atSize()),
	} {
		if p := w.next(noon); p.Decision == nil || p.Decision.AppliedToTemplate {
			t.Errorf("%s: %s, with the decision %+v", name, say(p), p.Decision)
		}
	}
}
