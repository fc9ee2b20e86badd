// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// skipKnownBad is the move, stopped before a value that was reverted, and the reverted
// change; nil if there is none in the way.
func skipKnownBad(reverted []model.RevertedChange, m move) (move, *model.RevertedChange) {
	for i, change := range reverted {
		if m.repeats(change) {
			return m.stoppedBefore(change), &reverted[i]
		}
	}
	return m, nil
}

// repeats says whether usage moves the request to the reverted value or further.
func (m move) repeats(change model.RevertedChange) bool {
	if change.Container != m.container || change.Resource != m.resource.Name {
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

// deferLowering drops what is lowered from the moves if something urgent is decided with
// it, which must not wait for its verification.
func deferLowering(policy model.Policy, moves []move, d *model.Decision, now time.Time) []move {
	if !policy.Verifies() || policy.RollsOut() {
		return moves
	}
	isUrgent := revertedNow(d, now) != "" || slices.ContainsFunc(moves, func(m move) bool { return !IsDeferrable(m.why) })
	if !isUrgent {
		return moves
	}
	return slices.DeleteFunc(slices.Clone(moves), func(m move) bool { return m.why == model.DecidedScaleDown })
}

// rollBackUnverified takes back what no pod has verified yet, before another decision is
// added to it.
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
