// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"maps"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

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

// deferLowering drops the moves that lower a request if another one is urgent: an urgent move
// must not wait for the verification of the others. Only urgent moves are made while the usage
// history cannot be saved, so that they lower nothing then.
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

// withoutUnverified is the decision with the good values of requests that were lowered and not verified yet, for a
// new decision to add to; the same one if there are none.
func withoutUnverified(policy model.Policy, d *model.Decision) *model.Decision {
	v := d.Verifying()
	if policy.RollsOut() || v == nil || !v.FirstPodsVerified.IsZero() {
		return d
	}
	out := *d
	out.Requests = maps.Clone(d.Requests)
	for name, good := range v.Good {
		for _, r := range model.Resources {
			if now := d.Request(name, r); now > 0 {
				model.SetRequest(out.Requests, name, r, max(now, r.Of(good)))
			}
		}
	}
	return &out
}

// besideGood are the moves beside the good values of what is not verified yet, all within their bounds. Without any that does not
// need room which only the unverified values have freed, nothing moves.
func (e *evaluation) besideGood(good *model.Decision, ready []move, now time.Time) (*evaluation, []move) {
	s := e.Situation
	s.Decision = good
	next, moves, _ := readyMoves(s, e.policy, now)
	remains := false
	for _, m := range ready {
		isMoved := slices.ContainsFunc(moves, func(o move) bool { return o.container == m.container && o.resource == m.resource })
		isOwn := m.resource.Of(good.Verification.Good[m.container]) > 0 // it raises what was lowered too far
		if isOwn && !isMoved {
			moves = append(moves, m)
		}
		remains = remains || isMoved || isOwn
	}
	if !remains {
		return e, nil
	}
	return next, moves
}
