// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
)

// Pace: when a request may move, and how far in one decision. An urgent move does not wait,
// and no step limit stops it before it reaches what is urgent.

// directions are the directions of the reasons that can wait. An adopted decision raises pods to the largest one.
var directions = map[string]window.Direction{
	model.DecidedScaleUp:   window.ScaleUp,
	model.DecidedScaleDown: window.ScaleDown,
	model.DecidedAdopted:   window.ScaleUp,
}

// IsUrgent reports whether a change for this reason does not wait.
func IsUrgent(reason string) bool {
	_, waits := directions[reason]
	return !waits
}

// MayRestart reports whether pods may be restarted now for a decision with this reason, and otherwise how long that waits.
func MayRestart(reason string, windows window.Windows, now time.Time) (open bool, in time.Duration) {
	if IsUrgent(reason) {
		return true, 0
	}
	return windows.Opens(directions[reason], now)
}

// deferral is a move that must wait, and what for.
type deferral struct {
	reason     string // of the decision
	waitReason string // one of the reasons of the condition Applied
	message    string
	left       time.Duration // 0: without end
}

// split separates the moves that can be made at once from those that wait for usage, the
// cooldown or a window. Meanwhile, pods get what they were asked for before.
func split(s model.Situation, policy model.Policy, moves []move, now time.Time) (ready []move, later []deferral) {
	for _, m := range moves {
		switch d := deferralOf(s, policy, m, now); {
		case d.waitReason == "":
			ready = append(ready, m)
		case m.isUnsettled:
			ready = append(ready, m.adopting())
		default:
			later = append(later, d)
		}
	}
	return ready, later
}

// deferralOf says what a move waits for: whichever takes longest.
func deferralOf(s model.Situation, policy model.Policy, m move, now time.Time) (d deferral) {
	direction, ok := directions[m.why]
	last := s.Decision
	switch {
	case !ok && m.isPaced && last.HasReason(model.DecidedBounds):
		return inCooldown(s, policy, m, window.ScaleUp, now)
	case !ok:
		return d
	case direction == window.ScaleDown:
		if o := s.WaitsForUsage(); o.Exists() {
			return deferral{m.why, o.Reason, o.Message, 0}
		}
		if last.Verifying() != nil {
			return deferral{m.why, v1beta1.ReasonVerifying, "waits until the last change is verified", 0}
		}
	}
	d = inCooldown(s, policy, m, direction, now)
	open, in := policy.Windows.Opens(direction, now)
	if open || 0 < in && in <= d.left { // 0 is without end
		return d
	}
	return deferral{m.why, v1beta1.ReasonOutsideWindow, "waits for the next of updatePolicy.windows", in}
}

// inCooldown is a move that waits for the cooldown of a direction; no deferral if that is over.
func inCooldown(s model.Situation, policy model.Policy, m move, direction window.Direction, now time.Time) (d deferral) {
	if s.Decision == nil {
		return d
	}
	cooldown := policy.CooldownOf(direction)
	if left := s.Decision.Time.Add(cooldown).Sub(now); left > 0 {
		return deferral{m.why, v1beta1.ReasonInCooldown, fmt.Sprintf("waits until %s after the last change", cooldown), left}
	}
	return d
}

// deferredVerdict sums up what waits. The move that is due first gives the reason.
func deferredVerdict(list []deferral) model.Verdict {
	reasons := map[string][]string{} // of decisions, by what they wait for
	first, left := list[0], time.Duration(0)
	for _, d := range list {
		reasons[d.message] = append(reasons[d.message], d.reason)
		if left = model.Sooner(left, d.left); left > 0 && left == d.left {
			first = d
		}
	}
	var parts []string
	for what, of := range reasons {
		slices.Sort(of)
		parts = append(parts, fmt.Sprintf("(%s) %s", strings.Join(slices.Compact(of), ", "), what))
	}
	slices.Sort(parts)
	return model.Waiting.Because(first.waitReason, "The next change "+strings.Join(parts, "; ")).Within(left)
}

// paced is the move as far as usage, the API server and limits demand it. The part that only minAllowed
// demands is a step: at most twice the request, or the amount that a pod has already or has started with. The
// next step follows after the cooldown. A bound with a wrong unit is thus seen before all pods declare it.
//
// Only pods that run are protected. A rollout starts new pods, and its Deployment keeps the old ones until those are available.
// Without a cooldown there is no pace. maxAllowed is not paced: no request is above it.
func (e *evaluation) paced(q request, m move) move {
	switch {
	case q.current == 0, m.to <= q.current, !e.policy.InPlace(), e.policy.CooldownOf(window.ScaleUp) == 0:
		return m
	}
	usage := max(q.Resource.Of(q.container.Recommendation.Uncapped), q.oomFloor())
	demanded := max(q.current, q.enforced.Fit(q.current), q.enforced.Fit(usage))
	m.isPaced = demanded == q.current
	shown := max(demanded, q.granted, q.stepUp(100))
	if e.OldPods() < e.AlivePods() { // a pod of the template runs, so a node has room for what that requests
		shown = max(shown, q.Template)
	}
	m.to = min(m.to, shown)
	return m
}

// stepTo is the request after one step: all the way, or as far as the step limit of its direction
// allows. An urgent move goes at least to the lower bound, or into the allowed range; after an OOM
// kill it goes all the way. The part that only a bound demands is paced.
func stepTo(policy model.Policy, q request, m move) int64 {
	urgent := q.current
	switch m.why {
	case model.DecidedBounds:
		urgent = q.allowed.Fit(q.current)
	case model.DecidedLowerBound:
		urgent = q.lowerBound()
	case model.DecidedScaleUp, model.DecidedScaleDown:
	default:
		return m.to
	}
	switch {
	case q.current == 0:
		return m.to
	case m.to > q.current:
		return min(m.to, max(urgent, q.stepUp(policy.ScaleUp.MaxStepPercent)))
	}
	return max(m.to, min(urgent, q.stepDown(policy.ScaleDown.MaxStepPercent)))
}

// stepUp is the most that a request may be after a step, in readable amounts; at least one grain more. 0 % is any step.
//
//	100m, 25 % → 125m    256Mi, 10 % → 281Mi    1m, 10 % → 2m
func (q request) stepUp(percent int64) int64 {
	most := q.Resource.Most()
	if percent > 0 {
		most = min(most, row.MulDiv(q.current, 100+percent, 100, false))
	}
	grain := q.grain(most)
	return min(max(most/grain*grain, q.current+grain), q.Resource.Most())
}

// stepDown is the least that a request may be after a step. 0 % is any step.
//
//	100m, 25 % → 75m    256Mi, 10 % → 231Mi    1m, 10 % → 0m, and so the target
func (q request) stepDown(percent int64) int64 {
	least := row.MulDiv(q.current, max(0, 100-cmp.Or(percent, 100)), 100, true)
	grain := q.grain(least)
	return min((least+grain-1)/grain*grain, max(0, q.current-grain))
}

// skipKnownBad returns the move. If usage would move the request to a reverted value or further, it ends at the value that
// was good, and that change is returned too; else nil.
func skipKnownBad(reverted []model.RevertedChange, m move) (move, *model.RevertedChange) {
	switch m.why {
	case model.DecidedScaleDown, model.DecidedScaleUp, model.DecidedLowerBound:
	default:
		return m, nil
	}
	isReduction := m.to < m.from
	for i, c := range reverted {
		switch {
		case c.Container != m.container, c.Resource != m.resource.String(), c.IsReduction() != isReduction:
		case isReduction && m.to <= c.Value:
			m.to = min(c.Good, m.from)
			return m, &reverted[i]
		case !isReduction && m.to >= c.Value:
			m.to = max(c.Good, m.from)
			return m, &reverted[i]
		}
	}
	return m, nil
}

// deferLowering drops the moves that lower a request if another one is urgent: an urgent move must not wait for the verification
// of the others. Only urgent moves are made while the usage history cannot be saved, so that they lower nothing then.
func deferLowering(s model.Situation, policy model.Policy, moves []move, now time.Time) []move {
	switch {
	case s.Unsaved.Exists():
	case policy.RollsOut(), !policy.Verifies():
		return moves
	}
	isUrgent := revertedNow(s.Decision, now) != "" || slices.ContainsFunc(moves, func(m move) bool { return IsUrgent(m.why) })
	if !isUrgent {
		return moves
	}
	return slices.DeleteFunc(slices.Clone(moves), func(m move) bool { return m.why == model.DecidedScaleDown })
}
