// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what to do next about one Deployment.
//
// Next is a pure function: the same situation yields the same plan, whatever the order of
// its lists, and planning again after a plan is carried out yields nothing. It decides
// twice: first what to request (package decision, checked by package verification), then
// the one next step that brings the pods or the template closer to it (package step). Every
// plan without a step has a reason.
package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
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
	if p, isIdle := idle(s, policy, now); isIdle {
		return p
	}
	p := active(s, policy, now)
	if policy.InvalidWindow != "" && !p.Verdict.State.IsStalled() && !isChange(p.Step) {
		p.Verdict = p.Verdict.Stalled(v1beta1.ReasonInvalidWindow, policy.InvalidWindow)
	}
	if s.Unsized.Exists() && policy.SizesOnlyNewPods() {
		p.NewPods, p.Verdict = NewPods{}, s.Unsized.Verdict().Within(p.Verdict.RequeueAfter)
	}
	p.NewPods = step.WithFailure(p.NewPods, s, policy, now)
	if o := p.NewPods.Obstacle; o.Reason == v1beta1.ReasonReplicaFailure && s.Deployment.CreateFailure != "" && !p.Verdict.State.IsStalled() {
		p.Verdict = p.Verdict.Stalled(o.Reason, "Pods are missing, and new ones start as in the pod template: "+o.Message)
	}
	return hold(p, s, policy, now)
}

// active is the plan of a scaler that is not idle: it verifies the last change, decides what
// to request, and finds the next step.
func active(s Situation, policy Policy, now time.Time) Plan {
	recorded := s.Decision
	s.RevertedChanges = verification.StillReverted(s, policy, now)
	s.Decision = step.NoteReverts(s, policy, now)
	finding := verification.Check(s, policy, now)
	if finding.Evidence == "" {
		finding = verification.CheckStarts(finding, s, policy, now)
	}
	s.Decision, s.RevertedChanges = finding.Decision, finding.RevertedChanges
	decided := decision.Decide(s, policy, now)
	o := outcome{Outcome: decided, recorded: recorded, finding: finding, situation: s, policy: policy, now: now}
	switch {
	case step.MustRestore(s, policy):
		return o.restore()
	case decided.Decision == nil:
		return o.undecided()
	}
	return o.follow()
}

// outcome is what was found and decided, together with the inputs.
type outcome struct {
	decision.Outcome

	recorded  *Decision // the decision in the status
	finding   verification.Finding
	situation Situation
	policy    Policy
	now       time.Time
}

// complete adds to a plan what was found and decided.
func (o outcome) complete(p Plan) Plan {
	p.Decided = o.Decided || o.finding.Evidence != ""
	p.Reverted, p.RevertedChanges = o.finding.Evidence, o.situation.RevertedChanges
	return p
}

// restore is the plan that restores the original values of the pod template.
func (o outcome) restore() Plan {
	return o.complete(Plan{
		Decision: o.Decision,
		NewPods:  NewPods{IneffectiveOnPod: o.situation.NewPods.IneffectiveOnPod},
		Step:     Restore{},
		Verdict:  Changing.Because(v1beta1.ReasonRollingOut, "Restoring the original values in the Deployment's pod template, because none of its resources are managed any longer"),
		Progress: Progress{Pods: o.situation.AlivePods()},
	})
}

// undecided is the plan without a decision.
func (o outcome) undecided() Plan {
	p := o.complete(Plan{
		NewPods:  NewPods{IneffectiveOnPod: o.situation.NewPods.IneffectiveOnPod},
		Verdict:  o.Remark,
		Progress: Progress{Pods: o.situation.AlivePods()},
	})
	if p.Progress.Pods == 0 && !p.Verdict.State.IsStalled() {
		// Nothing is learned or applied, whatever the remark says about the template.
		p.Verdict = Waiting.Because(v1beta1.ReasonNoPods, "The Deployment has no running pods").Within(o.Remark.RequeueAfter)
	}
	if p.Verdict.State.IsApplied() {
		leaving := o.situation.LeavingPods(o.policy)
		p.Progress.PodsAtSize = p.Progress.Pods - leaving
		if leaving > 0 {
			p.Verdict = step.AboutToBeReplaced(leaving, p.Progress.Pods)
		}
	}
	return p
}

// follow is the next step towards the decision.
func (o outcome) follow() Plan {
	p := o.complete(step.Next(o.situation.With(o.Decision), o.policy, o.now))
	verdict := p.Verdict.Within(o.finding.RequeueAfter)
	if o.Remark.Reason == v1beta1.ReasonVerifying && p.Decision.Verification == nil {
		verdict = verdict.Within(time.Second) // changes that waited for the verification are due
	}
	if o.finding.Starting != "" && verdict.State.IsApplied() {
		verdict = Waiting.Because(v1beta1.ReasonVerifying, "Waiting for a new pod to be Ready: "+o.finding.Starting).Within(verdict.RequeueAfter)
	}
	p = o.recordFirst(p)
	if !isChange(p.Step) {
		// The remark names a deferred change and its time, or an unmanaged request. A step is
		// more urgent.
		verdict = verdict.Within(o.Remark.RequeueAfter)
	}
	switch {
	case !verdict.State.IsApplied() && !verdict.State.IsStalled():
		verdict = verdict.AlsoNoting(o.Unmanaged)
	case !isChange(p.Step):
		verdict = verdict.Remarking(o.Remark)
	}
	return p.WithVerdict(verdict)
}

// recordFirst replaces the step with Record if a restart of the operator would lose what the
// step depends on: the good values before a decision, the decision that the template is about
// to carry, or findings about new pods.
func (o outcome) recordFirst(p Plan) Plan {
	mustVerify := o.Decision.Verification != nil || p.Reverted != ""
	switch {
	case p.Step == nil:
		return p
	case p.Decided && mustVerify:
		return p.WithDecision(o.Decision).WithStep(Record{})
	case o.policy.MayEvict() && p.NewPods.LearnedMoreThan(o.situation.NewPods):
		return p.WithStep(Record{})
	}
	if _, ok := p.Step.(Rewrite); ok {
		// Otherwise the template would differ from the recorded decision, as if another
		// controller had undone that.
		if next := p.Decision.NotApplied(); !o.recorded.Expects(next) {
			return p.WithDecision(next).WithStep(Record{})
		}
	}
	return p
}

// isChange reports whether the step changes the cluster.
func isChange(step Step) bool {
	switch step.(type) {
	case nil, Record:
		return false
	}
	return true
}
