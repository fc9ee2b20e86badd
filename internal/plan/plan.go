// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what to do next about one Deployment.
//
// Next is a pure function: the same situation yields the same plan, whatever the order of
// its lists, and planning again after a plan is carried out yields nothing. It decides
// twice. First what to request (package decision, checked by package verification), then
// the one next step that brings the pods or the template closer to it (package step). Every
// plan without a step has a reason.
package plan

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/step"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
)

// Next decides what to do next.
func Next(s Situation, policy Policy, now time.Time) Plan {
	s.RevertedChanges = verification.StillReverted(s, policy, now)
	if p := idle(s, policy, now); p.Verdict.Reason != "" {
		return p
	}
	p := next(s, policy, now)
	switch {
	case policy.InvalidWindow == "", p.Verdict.State.IsStalled(), isChange(p.Step):
		return p
	}
	return p.WithVerdict(p.Verdict.Stalled(v1beta1.ReasonInvalidWindow, policy.InvalidWindow))
}

// idle is the plan while nothing is to be decided or changed.
func idle(s Situation, policy Policy, now time.Time) Plan {
	p := Plan{
		Decision: s.Decision, RevertedChanges: s.RevertedChanges,
		NewPods:  NewPods{IneffectiveOnPod: s.NewPods.IneffectiveOnPod},
		Progress: Progress{Pods: s.ActivePods()},
	}
	switch {
	case s.Deployment.Terminating:
		p.Verdict = Waiting.Because(v1beta1.ReasonTerminating, "The Deployment is being deleted")
	case policy.Mode == v1beta1.UpdateModeRecommend:
		p.Decision = nil
		p.Verdict = Waiting.Because(v1beta1.ReasonRecommendOnly, "updateMode is Recommend: recommendations are not applied")
	case policy.Suspended:
		if s.Decision != nil {
			p.Progress.PodsAtSize = step.Next(s, policy, now).Progress.PodsAtSize
		}
		p.Verdict = Waiting.Because(v1beta1.ReasonSuspended, "Nothing is changed while the scaler is suspended")
	}
	return p
}

// next decides, verifies and finds the next step.
func next(s Situation, policy Policy, now time.Time) Plan {
	s.Decision = step.NoteReverts(s, policy, now)
	judged := verification.Judge(s, policy, now)
	s.Decision, s.RevertedChanges = judged.Decision, judged.RevertedChanges
	decided := decision.Decide(step.WithoutBoosts(s, policy, now), policy, now)
	o := outcome{Outcome: decided, judged: judged, situation: s, policy: policy, now: now}
	switch {
	case step.MustRestore(s, policy):
		return o.restore()
	case decided.Decision == nil:
		return o.undecided()
	}
	return o.follow()
}

// outcome is what has been decided, with what it was decided on.
type outcome struct {
	decision.Outcome

	judged    verification.Judgement
	situation Situation
	policy    Policy
	now       time.Time
}

// plan is the plan with what has been decided.
func (o outcome) plan(p Plan) Plan {
	p.Decided = o.Decided || o.judged.Evidence != ""
	p.Reverted, p.RevertedChanges = o.judged.Evidence, o.situation.RevertedChanges
	return p
}

// restore gives the pod template its original values back.
func (o outcome) restore() Plan {
	return o.plan(Plan{
		Decision: o.Decision,
		NewPods:  NewPods{IneffectiveOnPod: o.situation.NewPods.IneffectiveOnPod},
		Step:     Restore{},
		Verdict:  Changing.Because(v1beta1.ReasonRollingOut, "Restoring the original values in the Deployment's pod template, because nothing of it is managed any longer"),
		Progress: Progress{Pods: o.situation.ActivePods()},
	})
}

// undecided is the plan without a decision. Pods that start may still be boosted.
func (o outcome) undecided() Plan {
	p := o.plan(Plan{
		NewPods:  NewPods{IneffectiveOnPod: o.situation.NewPods.IneffectiveOnPod},
		Verdict:  o.Remark,
		Progress: Progress{Pods: o.situation.ActivePods()},
	})
	if p.Verdict.State.IsApplied() {
		p.Progress.PodsAtSize = p.Progress.Pods
	}
	if !o.policy.Boosts() {
		return p
	}
	boosts := step.Boosts(o.situation, o.policy, o.now)
	switch v := boosts.Verdict; {
	case v.State == Changing:
		p.Step, p.Verdict, p.Progress = boosts.Step, v, boosts.Progress
	case v.Reason == v1beta1.ReasonBoosted:
		p.Verdict = p.Verdict.Noting(v.Message)
	case !v.State.IsApplied() && v.Reason != v1beta1.ReasonNoPods:
		p.Verdict, p.Progress.PodsAtSize = v, 0
	}
	p.Verdict = p.Verdict.Within(o.Remark.RequeueAfter).Within(boosts.Verdict.RequeueAfter)
	return p
}

// follow is the next step towards the decision.
func (o outcome) follow() Plan {
	p := o.plan(step.Next(o.situation.With(o.Decision), o.policy, o.now))
	verdict := p.Verdict.Within(o.judged.RequeueAfter)
	if o.Remark.Reason == v1beta1.ReasonVerifying && p.Decision.Verification == nil {
		verdict = verdict.Within(time.Second) // what has waited for the verification is due
	}
	p = o.recordFirst(p)
	if !isChange(p.Step) {
		// A deferred change has a time to look again, and an unmanaged request is worth a
		// remark, but only if there is nothing more urgent to say.
		verdict = verdict.Within(o.Remark.RequeueAfter).Remarking(o.Remark)
	}
	return p.WithVerdict(verdict)
}

// recordFirst replaces a step that would lose something if the operator restarted: what was
// good before a decision, or what is known of new pods.
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
	return p
}

// isChange says whether the step changes the cluster.
func isChange(step Step) bool {
	switch step.(type) {
	case nil, Record:
		return false
	}
	return true
}
