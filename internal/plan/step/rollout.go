// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
)

func (p planner) rollOut() model.Plan {
	t := p.Template()
	p.progress.PodsAtSize = p.PodsAt(p.DecidedTemplate().Owned)
	if !t.IsChanged {
		if t.Withheld.Exists() {
			return p.without(model.Obstacles{t.Withheld.On("the pod template")}.Verdict())
		}
		return p.with(p.Decision.Applied()).rolledOut()
	}
	if p.Decision.IsContested() {
		c := p.contested()
		if !p.isReleased(c) {
			return p.contest(c, p.without(model.Verdict{}))
		}
		p = p.with(p.Decision.Uncontested())
	}
	if o := p.rolloutObstacle(t); o.Exists() {
		return p.without(o.Verdict())
	}
	if open, in := decision.MayRestart(p.Decision.Reason, p.Policy.Windows, p.Now); !open {
		return p.within(in).without(model.Waiting.Because(v1beta1.ReasonOutsideWindow, "Waiting for the next of updatePolicy.windows to roll out the decided size"))
	}
	if o := p.OverQuota(t); o.Exists() {
		return p.within(goal.QuotaRetry).without(o.Verdict())
	}
	verdict := model.Changing.Because(v1beta1.ReasonRollingOut, "The Deployment is rolling out the decided size")
	if len(t.Originals) > 0 {
		return p.plan(model.TakeOver{UID: p.Deployment.UID, ResourceVersion: p.Deployment.ResourceVersion, Originals: t.Originals}, verdict)
	}
	rewrite := model.Rewrite{UID: p.Deployment.UID, ResourceVersion: p.Deployment.ResourceVersion, Sizes: t.Owned}
	if t.Withheld.Exists() {
		return p.plan(rewrite, verdict)
	}
	return p.with(p.Decision.Applied()).plan(rewrite, verdict)
}

// rolloutObstacle says what keeps the template from being changed.
//
// OOM-killed pods never become available, and pods that the API server refuses are never created, which reverts the decision.
// Pods that are larger than the free room on any node never start. A rollout that waits for them may never end: it must not
// block what helps them.
func (p planner) rolloutObstacle(t goal.Template) model.Obstacle {
	switch {
	case t.Obstacle.Exists():
		return t.Obstacle
	case p.Deployment.Paused:
		return model.Wait(v1beta1.ReasonRolloutPaused, "The Deployment is paused: its pod template is not changed until it is resumed")
	case p.Deployment.RollingOut && !p.endsRollout(t):
		return anotherRollout()
	}
	return model.Obstacle{}
}

// endsRollout reports whether the changed template lets a rollout end that otherwise would not.
func (p planner) endsRollout(t goal.Template) bool {
	wasApplied := p.Decision.AppliedToTemplate || p.Decision.LastRevert.After(p.Decision.Time) // even if another controller has undone it since
	if p.Decision.IsUrgentRestart() && !wasApplied {
		return true
	}
	return slices.ContainsFunc(p.Pods, goal.LacksNode) && t.Wanted.OnlyLowerRequests()
}

func anotherRollout() model.Obstacle {
	return model.Wait(v1beta1.ReasonRolloutInProgress, "Another rollout of the Deployment is in progress")
}

// rolledOut says how far the Deployment is with a template that is as decided.
func (p planner) rolledOut() model.Plan {
	switch {
	case !p.Deployment.RollingOut:
	case p.Deployment.Paused:
		return p.without(model.Waiting.Because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: its pods get the decided size once it is resumed"))
	default:
		return p.without(model.Changing.Because(v1beta1.ReasonRollingOut, "The Deployment is rolling out the decided size"))
	}
	if p.Decision.Verification != nil {
		d, left := verification.Observe(p.Situation, p.Policy, p.Decision, p.Now)
		if left <= 0 {
			d, left = d.WithVerification(nil), 0
		}
		p = p.with(d).within(left)
	}
	return p.without(model.Applied.Because(v1beta1.ReasonApplied, "The Deployment's pod template has the decided size"))
}

// MustRestore reports whether we own something of the template, but nothing that is still managed.
func MustRestore(g goal.Goals) bool {
	if !g.OwnsTemplate() {
		return false
	}
	for _, c := range g.Rows.Containers {
		for _, q := range c.Rows {
			if q.IsOurs && c.Original.Has(q.Resource) {
				return false
			}
		}
	}
	return true
}
