// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// skipKnownBad returns the move. If the move would repeat a reverted change, it ends at the
// value that was good, and that change is returned too; else nil.
func skipKnownBad(reverted []model.RevertedChange, m move) (move, *model.RevertedChange) {
	for i, change := range reverted {
		if m.repeats(change) {
			return m.stoppedBefore(change), &reverted[i]
		}
	}
	return m, nil
}

// repeats reports whether usage moves the request to the reverted value or further.
func (m move) repeats(change model.RevertedChange) bool {
	if change.Container != m.container || change.Resource != m.resource.String() {
		return false
	}
	switch m.why {
	case model.DecidedScaleDown:
		return change.IsReduction() && m.to <= change.Value
	case model.DecidedScaleUp, model.DecidedLowerBound:
		return !change.IsReduction() && m.to >= change.Value
	}
	return false
}

// stoppedBefore is the move as far as the value that was good.
func (m move) stoppedBefore(change model.RevertedChange) move {
	if change.IsReduction() {
		m.to = min(change.Good, m.from)
	} else {
		m.to = max(change.Good, m.from)
	}
	return m
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

// rollBackUnverified restores the good values of requests that were lowered and not verified
// yet, before a new decision adds to them.
func rollBackUnverified(policy model.Policy, requests model.Requests, v *model.Verification) {
	switch {
	case policy.RollsOut(), v == nil, !v.FirstPodsVerified.IsZero():
		return
	}
	for name, good := range v.Good {
		for _, r := range model.Resources {
			if now := r.Of(requests[name]); now > 0 {
				model.SetRequest(requests, name, r, max(now, r.Of(good)))
			}
		}
	}
}
