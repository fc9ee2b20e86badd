// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what to do next about one Deployment.
//
// Next is a pure function: the same situation yields the same plan, whatever the order of its lists, and planning again after a
// plan is carried out yields nothing. It decides twice: first what to request (package decision, checked by package
// verification), then the one next step that brings the pods or the template closer to it (package step). Every plan without a
// step has a reason.
package plan

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/step"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Next decides what to do next.
func Next(s Situation, policy Policy, now time.Time) Plan {
	if byName := func(a, b workload.Pod) int { return cmp.Compare(a.Name, b.Name) }; !slices.IsSortedFunc(s.Pods, byName) {
		s.Pods = slices.SortedFunc(slices.Values(s.Pods), byName)
	}
	if s.Unsized.Exists() && !policy.NeedsSizedNewPods() {
		policy.SizesNewPods = false
	}
	s = retried(s, policy)
	if p, isIdle := idle(s, policy, now); isIdle {
		return p
	}
	p := active(s, policy, now)
	for _, correct := range corrections {
		p = correct(p, s, policy, now)
	}
	return p
}

// corrections adjust an active plan, in this order. A cause that stalls the scaler comes before one that only waits, and each
// later one keeps the time of the earlier ones. A cause that forbids any change has the last word.
var corrections = [...]func(Plan, Situation, Policy, time.Time) Plan{
	reportInvalidWindow,
	reportUnsizedPods, // replaces the verdict: without sizes for new pods, Initial does nothing
	withCreateFailure, // knows which new pods are left
	hold,              // keeps what is recorded
}

// reportInvalidWindow stalls a scaler with a window that never opens, unless something else does, or something changes.
func reportInvalidWindow(p Plan, _ Situation, policy Policy, _ time.Time) Plan {
	if policy.InvalidWindow != "" && !p.Verdict.State.IsStalled() && !isChange(p.Step) {
		p.Verdict = p.Verdict.Stalled(v1beta1.ReasonInvalidWindow, policy.InvalidWindow)
	}
	return p
}

// reportUnsizedPods gives new pods nothing in the mode Initial while the API server does not size them.
func reportUnsizedPods(p Plan, s Situation, policy Policy, _ time.Time) Plan {
	if s.Unsized.Exists() && policy.SizesOnlyNewPods() {
		p.NewPods, p.Verdict = NewPods{}, s.Unsized.Verdict().Within(p.Verdict.RequeueAfter)
	}
	return p
}

// withCreateFailure stalls a scaler while the API server refuses to create pods, and gives new ones their template's size after
// that.
func withCreateFailure(p Plan, s Situation, _ Policy, now time.Time) Plan {
	p.NewPods = goal.WithFailure(p.NewPods, s, now)
	failure := s.Deployment.CreateFailure
	if failure == "" || p.Decision == nil || p.Verdict.State.IsStalled() {
		return p
	}
	message := "Pods are missing: " + failure
	if o := p.NewPods.Obstacle; o.Reason == v1beta1.ReasonReplicaFailure {
		message = "Pods are missing, and new ones start as in the pod template: " + o.Message
	}
	p.Verdict = p.Verdict.Stalled(v1beta1.ReasonReplicaFailure, message)
	return p
}

// active is the plan of a scaler that is not idle: it verifies the last change, decides what to request, and finds the next step.
func active(s Situation, policy Policy, now time.Time) Plan {
	recorded, goals := s.Decision, goal.Of(s, policy, now)
	s.RevertedChanges = verification.StillReverted(s, now)
	s.Decision = step.NoteReverts(goals)
	finding := verification.Check(s, policy, now)
	s.Decision, s.RevertedChanges = finding.Decision, finding.RevertedChanges
	decided := decision.Decide(s, policy, goals.Rows, now)
	decided.Decision = noteMemoryRaises(goals.Rows, recorded, decided.Decision, now)
	o := outcome{Outcome: decided, recorded: recorded, finding: finding, Goals: goals.With(decided.Decision)}
	p := Plan{
		Decision: o.Decision, Decided: o.Decided || finding.Evidence != "", Reverted: finding.Evidence, RevertedChanges: s.RevertedChanges,
		NewPods: NewPods{IneffectiveOnPod: s.NewPods.IneffectiveOnPod}, Progress: Progress{Pods: s.AlivePods()},
	}
	switch {
	case step.MustRestore(o.Goals):
		p.Step = Restore{}
		p.Verdict = Changing.Because(v1beta1.ReasonRollingOut, "Restoring the original values in the Deployment's pod template, because none of its resources are managed any longer")
		return p
	case decided.Decision == nil:
		return o.undecided(p)
	}
	return o.follow(p)
}

// outcome has the findings and the decision, together with the inputs.
type outcome struct {
	decision.Outcome
	goal.Goals

	recorded *Decision // the decision in the status
	finding  verification.Finding
}

func (o outcome) undecided(p Plan) Plan {
	p.Verdict = o.Remark
	isIdle := p.Progress.Pods == 0 && !p.Verdict.State.IsStalled()
	switch leaving := o.Count(func(pod workload.Pod) bool { return o.IsLeaving(o.Policy, pod) }); {
	case isIdle: // nothing is learned or applied, whatever the remark says about the template
		p.Verdict = Waiting.Because(v1beta1.ReasonNoPods, "The Deployment has no running pods").Within(o.Remark.RequeueAfter)
	case p.Verdict.State.IsApplied():
		p.Progress.PodsAtSize = p.Progress.Pods - leaving
		if leaving > 0 {
			p.Verdict = step.AboutToBeReplaced(leaving, p.Progress.Pods)
		}
	}
	return p
}

func (o outcome) follow(decided Plan) Plan {
	p := step.Next(o.Goals)
	p.Decided, p.Reverted, p.RevertedChanges = decided.Decided, decided.Reverted, decided.RevertedChanges
	verdict := p.Verdict.Within(o.finding.RequeueAfter)
	if o.Remark.Reason == v1beta1.ReasonVerifying && p.Decision.Verification == nil {
		verdict = verdict.Within(time.Second) // changes that waited for the verification are due
	}
	if o.finding.Starting != "" && verdict.State.IsApplied() {
		verdict = Waiting.Because(v1beta1.ReasonVerifying, "Waiting for a new pod to be Ready: "+o.finding.Starting).Within(verdict.RequeueAfter)
	}
	p = o.recordFirst(p)
	if !isChange(p.Step) {
		// The remark names a deferred change and its time, or an unmanaged request. A step is more urgent.
		verdict = verdict.Within(o.Remark.RequeueAfter)
	}
	switch verdict.State {
	case Waiting, Changing:
		verdict = verdict.AlsoNoting(o.Unmanaged)
	default:
		if !isChange(p.Step) {
			verdict = verdict.Remarking(o.Remark)
		}
		if heaps := heapsOfBefore(o.Rows, p.Decision); heaps != "" && verdict.State.IsApplied() {
			verdict = verdict.Noting(heaps)
		}
	}
	p.Verdict = verdict
	return p
}

// recordFirst replaces the step with Record if a restart of the operator would lose data that the step depends on. These are the
// good values before a decision, the decision that the template is about to carry, or findings about new pods.
func (o outcome) recordFirst(p Plan) Plan {
	before, mustVerify := o.NewPods, o.Decision.Verification != nil || p.Reverted != ""
	v, known := o.Decision.Verification, o.recorded.Verifying()
	begins := v != nil && (known == nil || !known.Began.Equal(v.Began))
	hasLearned := p.NewPods.IneffectiveOnPod != before.IneffectiveOnPod || !p.NewPods.EffectiveSince.Equal(before.EffectiveSince)
	switch p.Step.(type) {
	case nil:
		return p
	case Rewrite:
		// Otherwise the template would differ from the recorded decision, as if another controller had undone that.
		if next := p.Decision.NotApplied(); !reflect.DeepEqual(o.recorded, next) {
			p.Decision, p.Step = next, Record{}
			return p
		}
	}
	switch {
	case p.Decided && mustVerify, begins:
		p.Decision, p.Step = o.Decision, Record{}
	case hasLearned && o.Policy.MayEvict():
		p.Step = Record{}
	}
	return p
}

func isChange(step Step) bool {
	switch step.(type) {
	case nil, Record:
		return false
	}
	return true
}
