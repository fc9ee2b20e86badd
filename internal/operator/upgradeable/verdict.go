// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package upgradeable

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The reasons of the condition Upgradeable.
const (
	// ReasonStepUnderWay: pods are being resized, or a Deployment rolls out our sizes.
	// The upgrade waits.
	ReasonStepUnderWay = "StepUnderWay"
	// ReasonNoStepUnderWay: nothing is being changed.
	ReasonNoStepUnderWay = "NoStepUnderWay"
	// ReasonHeldLongEnough: steps are under way, but they have held upgrades for as
	// long as they may.
	ReasonHeldLongEnough = "HeldLongEnough"
	// ReasonOperatorStopped: the operator has ended and can no longer tell. It may be
	// the upgrade that brings it back.
	ReasonOperatorStopped = "OperatorStopped"
)

const (
	// stepHolds is how long one step holds upgrades, from when it began. A resize can
	// be deferred for hours.
	stepHolds = 10 * time.Minute
	// gateHolds is how long upgrades are held in a row, however many steps follow each
	// other: in a big cluster there may always be one.
	gateHolds = 30 * time.Minute
	// opensFor is how long upgrades are then let through, whatever begins meanwhile.
	// OLM looks again every five minutes, and more often while one is waiting.
	opensFor = 10 * time.Minute
	// briefly is how short an opening is that does not break a row: OLM needs some
	// seconds to notice it.
	briefly = time.Minute
	// settling is how long it must have been quiet before upgrades are let through, so
	// that a Deployment whose pods are resized one by one is one hold.
	settling = 5 * time.Second
	// rewording is how long a message stands at least.
	rewording = time.Minute
)

// step is a change under way.
type step struct {
	scaler types.NamespacedName
	// since is when it began.
	since time.Time
}

// answer is what the condition says. The zero value is a condition that is not there,
// which OLM takes for upgradeable.
type answer struct {
	held            bool
	reason, message string
}

// memory is what a verdict must know of those before it. The zero value has no past.
type memory struct {
	// said is the answer. It changes only when there is something new to say.
	said answer
	// saidAt is when it was put in these words.
	saidAt time.Time
	// heldSince is when the present row of holds began, or the last one.
	heldSince time.Time
	// heldUntil is when the last of the steps seen under way stops holding.
	heldUntil time.Time
	// quietSince is when no step was holding any more; zero while one is.
	quietSince time.Time
	// openedAt is when upgrades were last let through.
	openedAt time.Time
	// openUntil is how long no step may hold them.
	openUntil time.Time
}

// verdict decides whether the steps hold upgrades now, and when to ask again if
// nothing happens until then; zero for never.
//
// A hold is a courtesy to whoever watches the steps, not a matter of safety: all that a
// step needs is on the API server, and the next operator carries on with it. That is
// why nothing here may hold an upgrade for long:
//
//   - a step holds for 10 minutes from when it began;
//   - steps together hold for 30 minutes in a row, openings of less than a minute
//     included, and then for 10 minutes not at all.
//
// Holding is at once. Letting through waits until it has been quiet for 5 seconds, but
// never beyond these limits.
func verdict(m memory, steps []step, now time.Time) (memory, time.Time) {
	h := holding(steps, now)
	if h.count > 0 {
		m.quietSince, m.heldUntil = time.Time{}, h.until
		if m.said.held {
			return m.holdOn(h, now)
		}
		return m.hold(h, now)
	}
	if m.said.held {
		return m.settle(len(steps), now)
	}
	if outdated := m.said.reason == ReasonHeldLongEnough || m.said.reason == ReasonOperatorStopped; outdated && len(steps) == 0 {
		if now.Before(m.openUntil) {
			return m, m.openUntil
		}
		m.say(nothing, now)
	}
	return m, time.Time{}
}

var nothing = answer{reason: ReasonNoStepUnderWay, message: "No step is under way"}

// hold begins a hold, unless steps have had their time.
func (m memory) hold(h holders, now time.Time) (memory, time.Time) {
	if now.Before(m.openUntil) {
		return m, m.openUntil
	}
	if m.heldSince.IsZero() || now.Sub(m.openedAt) >= briefly {
		m.heldSince = now
	}
	if !now.Before(m.heldSince.Add(gateHolds)) {
		return m.open(h.words(), now)
	}
	m.say(answer{held: true, reason: ReasonStepUnderWay, message: h.words()}, now)
	return m, earliest(m.heldSince.Add(gateHolds), m.heldUntil)
}

// holdOn continues a hold, unless it has lasted long enough.
func (m memory) holdOn(h holders, now time.Time) (memory, time.Time) {
	limit := m.heldSince.Add(gateHolds)
	if !now.Before(limit) {
		return m.open(h.words(), now)
	}
	next := earliest(limit, m.heldUntil)
	if words := h.words(); words != m.said.message {
		if again := m.saidAt.Add(rewording); now.Before(again) {
			return m, earliest(next, again)
		}
		m.say(answer{held: true, reason: ReasonStepUnderWay, message: words}, now)
	}
	return m, next
}

// settle ends a hold once it has been quiet for a while. stale is the number of steps
// that are under way and hold no more.
func (m memory) settle(stale int, now time.Time) (memory, time.Time) {
	if m.quietSince.IsZero() {
		m.quietSince = now
	}
	at := earliest(m.quietSince.Add(settling), m.heldSince.Add(gateHolds))
	if !m.heldUntil.IsZero() {
		at = earliest(at, m.heldUntil)
	}
	switch {
	case now.Before(at):
		return m, at
	case stale > 0:
		m.openedAt = now
		m.say(answer{reason: ReasonHeldLongEnough, message: longEnough + number(stale)}, now)
	default:
		m.openedAt = now
		m.say(nothing, now)
	}
	return m, time.Time{}
}

// open lets upgrades through although steps would hold them.
func (m memory) open(words string, now time.Time) (memory, time.Time) {
	m.openedAt, m.openUntil = now, now.Add(opensFor)
	if m.said.reason != ReasonHeldLongEnough {
		m.say(answer{reason: ReasonHeldLongEnough, message: longEnough + words}, now)
	}
	return m, m.openUntil
}

const longEnough = "Upgrades have been held for long enough, and a step survives one: "

func (m *memory) say(a answer, now time.Time) { m.said, m.saidAt = a, now }

// holders sums up the steps that hold.
type holders struct {
	count int
	// first is the one that began first, then the first by name.
	first step
	// until is when the last of them stops.
	until time.Time
}

func holding(steps []step, now time.Time) holders {
	var h holders
	for _, s := range steps {
		until := s.since.Add(stepHolds)
		if !now.Before(until) {
			continue
		}
		if h.count == 0 || s.before(h.first) {
			h.first = s
		}
		if until.After(h.until) {
			h.until = until
		}
		h.count++
	}
	return h
}

func (s step) before(other step) bool {
	if !s.since.Equal(other.since) {
		return s.since.Before(other.since)
	}
	return s.scaler.String() < other.scaler.String()
}

func (h holders) words() string {
	if h.count == 1 {
		return number(1) + ", of scaler " + h.first.scaler.String()
	}
	return number(h.count) + ", the first of scaler " + h.first.scaler.String()
}

func number(steps int) string {
	if steps == 1 {
		return "a step is under way"
	}
	return fmt.Sprintf("%d steps are under way", steps)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
