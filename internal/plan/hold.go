// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/step"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
)

// A plan is held while something outside of the Deployment forbids changes. Nothing is decided then: once
// changes are allowed, the newest recommendation counts. New pods keep the sizes that are recorded.

// NotTaken is the plan once its step has failed, because of the obstacle. Without one the cause is unknown, and the
// verdict stays.
func NotTaken(p Plan, s Situation, policy Policy, now time.Time, o Obstacle) Plan {
	v := p.Verdict
	switch {
	case o.Stalled:
		v = v.Stalled(o.Reason, o.Message)
	case o.Exists():
		v = o.Verdict().Within(v.RequeueAfter)
	}
	return held(p, retried(s, policy), policy, now, v)
}

// WithoutEviction is the plan of an eviction if none of the nodes is busy, or if that is not known, for a reason.
func WithoutEviction(p Plan, unknown string) Plan {
	if step, isEviction := p.Step.(Evict); isEviction {
		p.Step, p.Verdict = nil, step.Otherwise.Within(p.Verdict.RequeueAfter)
		if unknown != "" {
			p.Verdict = p.Verdict.Noting("The use of the nodes is not known: " + unknown)
		}
	}
	return p
}

// WithoutRoom is the plan of an eviction if no node has room for the replacement.
func WithoutRoom(p Plan) Plan {
	if step, isEviction := p.Step.(Evict); isEviction {
		v := Waiting.Because(v1beta1.ReasonNodeCapacity, fmt.Sprintf("No node has room for a new pod that requests %s of cpu and %s of memory, so no pod is evicted",
			CPU.Format(step.Needs.CPUMillis), Memory.Format(step.Needs.MemoryBytes)))
		p.Step, p.Verdict = nil, v.Within(roomRetry).Within(p.Verdict.RequeueAfter)
	}
	return p
}

// roomRetry is the time until the next look at the room of nodes.
const roomRetry = time.Minute

// retried is the situation without what an edit of the scaler gives another try: contests, reverted changes, and sizes that new
// pods did not get. Also a plan that is held forgets them, since the next one no longer knows of the edit.
func retried(s Situation, policy Policy) Situation {
	if policy.Edited {
		s.Decision, s.RevertedChanges = s.Decision.Uncontested(), nil
		if s.NewPods.IneffectiveOnPod != "" {
			s.NewPods.IneffectiveOnPod, s.NewPods.EffectiveSince = "", time.Time{}
		}
		s.NewPods.FailedAt, s.NewPods.Failure = time.Time{}, ""
	}
	return s
}

// held is the plan that keeps what is recorded. While nothing may be resized, nothing would end the boosts of new pods.
func held(p Plan, s Situation, policy Policy, now time.Time, v Verdict) Plan {
	newPods := goal.WithFailure(s.NewPods, s, now)
	if s.IsUnclaimed || s.Frozen.Exists() || s.Unable.Exists() || policy.Suspended || policy.Paused != "" {
		newPods.Starts = nil
	}
	return Plan{
		Decision: s.Decision, RevertedChanges: s.RevertedChanges, NewPods: newPods, Progress: p.Progress,
		IsHeld: true, Postponed: p.Decision, Verdict: v,
	}
}

func hold(p Plan, s Situation, policy Policy, now time.Time) Plan {
	switch {
	case s.IsUnclaimed:
		v := p.Verdict
		if v.State == Changing {
			v = Waiting.Because(v.Reason, v.Message).Within(v.RequeueAfter)
		}
		return held(p, s, policy, now, v)
	case s.Unsaved.Exists() && waitsForRecord(p):
		return NotTaken(p, s, policy, now, s.Unsaved)
	case s.Frozen.Exists() && changes(p, s, policy):
		return NotTaken(p, s, policy, now, s.Frozen)
	case s.Frozen.Exists():
		return held(p, s, policy, now, p.Verdict)
	}
	return p
}

// waitsForRecord reports whether the plan must not be carried out before the usage history is saved. A
// container that is OOM-killed or starved does not wait for that, and original values are restored in any case.
func waitsForRecord(p Plan) bool {
	if _, restores := p.Step.(Restore); restores || p.Step == nil && !p.Decided {
		return false
	}
	return classOf(p) < budget.Urgent
}

// changes reports whether the plan changes something, decides something, or gives new pods other sizes while
// the policy needs sized new pods.
func changes(p Plan, s Situation, policy Policy) bool {
	if p.Decided || isChange(p.Step) {
		return true
	}
	return policy.NeedsSizedNewPods() && !goal.IsSame(p.NewPods.Sizes, s.NewPods.Sizes)
}

// idle is the plan of a scaler for which nothing is planned at all. isIdle is false for any other.
func idle(s Situation, policy Policy, now time.Time) (p Plan, isIdle bool) {
	p.Progress.Pods = s.AlivePods()
	switch {
	case s.Unable.Exists():
		return held(p, s, policy, now, s.Unable.Verdict()), true
	case policy.Paused != "":
		return held(resumed(p, s, policy, now), s, policy, now, Waiting.Because(v1beta1.ReasonPaused, policy.Paused)), true
	case s.Deployment.Terminating:
		p.Decision = s.Decision
		p.Verdict = Waiting.Because(v1beta1.ReasonTerminating, "The Deployment is being deleted")
	case policy.Mode == v1beta1.UpdateModeRecommend:
		p.Verdict = Waiting.Because(v1beta1.ReasonRecommendOnly, "updateMode is Recommend: recommendations are not applied")
	case policy.Suspended:
		return held(resumed(p, s, policy, now), s, policy, now, Waiting.Because(v1beta1.ReasonSuspended, "Nothing is changed while the scaler is suspended")), true
	default:
		return p, false
	}
	p.RevertedChanges = verification.StillReverted(s, now)
	p.NewPods.IneffectiveOnPod = s.NewPods.IneffectiveOnPod
	return p, true
}

// resumed adds to a plan what would be decided if the scaler were not suspended or paused, and how many pods have
// the recorded sizes.
func resumed(p Plan, s Situation, policy Policy, now time.Time) Plan {
	if policy.Mode == v1beta1.UpdateModeRecommend || s.Deployment.Terminating {
		return p
	}
	if s.Decision != nil {
		p.Progress.PodsAtSize = step.Next(goal.Of(s, policy, now)).Progress.PodsAtSize
	}
	p.Decision = active(s, policy, now).Decision
	return p
}
