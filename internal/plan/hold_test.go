// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// While changes are not allowed, nothing is decided, and new pods keep their sizes.
func TestHeldPlans(t *testing.T) {
	frozen := func(w *world) { w.situation.Frozen = plan.Obstacle{Reason: "Frozen", Message: "incident"} }
	unsized := func(w *world) {
		w.situation.Unsized = plan.Obstacle{Reason: "AdmissionUnavailable", Message: "no policy", Stalled: true}
	}
	initial := func(w *world) { w.policy.Mode = "Initial" }
	kills := func(w *world) { w.situation.Recommendations[0].OOMFloor = 200 * mebi }
	for name, tc := range map[string]struct {
		world  world
		reason string
		state  plan.State
		isHeld bool
	}{
		"frozen before a change": {given(frozen), "Frozen", plan.Waiting, true},
		"frozen before new pods get another size": {
			given(frozen, initial, decidedBefore()), "Frozen", plan.Waiting, true,
		},
		"frozen with nothing to change": {given(frozen, decidedBefore(), atSize()), "Applied", plan.Applied, true},
		"unsaved":                       {given(unsaved, recommends(rec(amounts(200, 256), amounts(50, 64), amounts(400, 400)))), "QuotaExceeded", plan.Stalled, true},
		"unsaved, and urgent":           {given(unsaved, kills), "Resizing", plan.Changing, false},
		"unsaved, and nothing to do":    {given(unsaved, decidedBefore(), atSize()), "Applied", plan.Applied, false},
		"unclaimed":                     {given(func(w *world) { w.situation.IsUnclaimed = true }), "Resizing", plan.Waiting, true},
		"without a history": {
			given(func(w *world) {
				w.situation.Unable = plan.Obstacle{Reason: "Forbidden", Message: "no role", Stalled: true}
			}), "Forbidden", plan.Stalled, true,
		},
		"unsized, and only new pods are": {given(unsized, initial), "AdmissionUnavailable", plan.Stalled, false},
		"unsized, and pods are resized":  {given(unsized), "Resizing", plan.Changing, false},
		"unsized, and a pod is to be evicted": {
			given(unsized, orRecreate, decidedBefore(), pods(infeasible("web-1"), infeasible("web-2"))), "AdmissionUnavailable", plan.Stalled, false,
		},
	} {
		p := tc.world.next(noon)
		if p.Verdict.Reason != tc.reason || p.Verdict.State != tc.state || p.IsHeld != tc.isHeld {
			t.Errorf("%s: held %t\n%s", name, p.IsHeld, say(p))
		}
		if tc.isHeld && (p.Step != nil || p.Decided || p.Decision != tc.world.situation.Decision) {
			t.Errorf("%s: something is decided\n%s", name, say(p))
		}
	}
}

// A step that fails decides nothing, and its cause is the verdict if it is known.
func TestAFailedStepDecidesNothing(t *testing.T) {
	w := given()
	p := w.next(noon)
	for o, want := range map[plan.Obstacle]plan.Verdict{
		{}: p.Verdict,
		{Reason: "WaitingForBudget", Message: "later"}:      plan.Waiting.Because("WaitingForBudget", "later"),
		{Reason: "Forbidden", Message: "no", Stalled: true}: plan.Stalled.Because("Forbidden", "no").Within(time.Duration(0)),
	} {
		next := plan.NotTaken(p, w.situation, w.policy, noon, o)
		if next.Verdict != want || next.Step != nil || next.Decision != nil || next.Postponed != p.Decision {
			t.Errorf("%+v:\n%s", o, say(next))
		}
	}
}

// The status of a held plan has the edit's generation, so the next plan does not see the edit.
func TestAHeldPlanForgetsWhatAnEditGivesAnotherTry(t *testing.T) {
	w := given(
		decidedBefore(func(d *plan.Decision) { d.Reverts, d.ContestedBy = 2, []string{"gitops"} }), pods(pod("web-1", small())),
		admission(func(n *plan.NewPods) { n.IneffectiveOnPod, n.FailedAt, n.Failure = "web-0", noon, "no quota" }),
		func(w *world) { w.situation.RevertedChanges = []plan.RevertedChange{{Container: "app", At: noon}} },
	)
	later := plan.Obstacle{Reason: "WaitingForBudget", Message: "later"}
	for _, edited := range []bool{false, true} {
		w.policy.Edited = edited
		next := plan.NotTaken(w.next(noon), w.situation, w.policy, noon, later)
		isContested, isReverted := next.Decision.Reverts > 0 || next.Decision.ContestedBy != nil, len(next.RevertedChanges) > 0
		hasFailed := next.NewPods.IneffectiveOnPod != "" || !next.NewPods.FailedAt.IsZero() || next.NewPods.Failure != ""
		if isContested == edited || isReverted == edited || hasFailed == edited || next.Decision.Request("app", plan.CPU) == 0 {
			t.Errorf("edited %t: contested %t, reverted %t, failed %t:\n%s", edited, isContested, isReverted, hasFailed, say(next))
		}
	}
}
