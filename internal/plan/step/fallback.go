// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// fallBack plans the next step once nothing more can be done in place. An obstacle that a new
// pod would meet as well, such as a quota, or that ends by itself, does not cause it.
func (p planner) fallBack(t tally) model.Plan {
	verdict := t.obstacles.Verdict()
	reasons := slices.DeleteFunc(slices.Clone(t.obstacles), func(o model.Obstacle) bool { return !o.NeedsNewPod })
	switch {
	case len(reasons) == 0:
		return p.without(verdict)
	case p.Policy.MayRollOut():
		return p.rollOutInstead(verdict, reasons)
	case p.Policy.MayEvict():
		return evictions{p, verdict, reasons, t.lowered}.next()
	}
	return p.without(verdict.Noting("The fallback is Wait: these pods stay unchanged"))
}

// rollOutInstead plans the next change of the pod template, as in the mode Rollout, if that
// creates pods of another size than the current ones.
func (p planner) rollOutInstead(blocked model.Verdict, reasons model.Obstacles) model.Plan {
	switch t := p.Template(); {
	case t.IsChanged:
	case t.Withheld.Exists():
		return p.without(model.Obstacles{t.Withheld.On("the pod template")}.Verdict().Noting(replaces(reasons)))
	case p.Deployment.RollingOut:
		return p.rolledOut()
	default:
		return p.without(blocked.Noting("The Deployment's pod template already has the decided size"))
	}
	fresh := p
	fresh.requeueAfter = 0
	next := fresh.rollOut()
	next.Verdict = next.Verdict.Noting(replaces(reasons))
	if next.Step == nil {
		next.Verdict = next.Verdict.Within(p.requeueAfter)
	}
	next.Progress = p.progress
	return next
}

func replaces(reasons model.Obstacles) string {
	return "Requires pod replacement: " + reasons.Verdict().Message
}
