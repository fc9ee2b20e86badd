// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
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
