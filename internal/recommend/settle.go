// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// maxSteps bounds the reasons taken over for one resource from a previous answer:
// there are no more steps before the policy's.
const maxSteps = 4

// settled is the part of an answer that is about one resource.
type settled struct {
	target, lower, upper, uncapped int64
	reasons                        []Reason
	// isOld tells that all of it was published before, but for the policy's bounds.
	isOld bool
}

// limits are the policy's bounds of one resource; 0 is none.
type limits struct{ min, max int64 }

func (p Policy) limits(resource string) limits {
	value, most := valueOf(resource)
	return limits{min: min(*value(&p.MinAllowed), most), max: min(*value(&p.MaxAllowed), most)}
}

// settle decides between what usage asks for now and what was published before.
//
//	usage asks for             the evidence is    target
//	about the same             any                the old one
//	more                       any                the new one
//	less                       as much or more    the new one
//	less                       less               the old one, Kept
//	nothing, not enough is known                  the old one
//
// About the same is less than RaiseCPUPercent or RaiseMemoryPercent above the old
// target, or less than LowerPercent below it, unless the old target is less than what
// is needed. The policy's bounds are applied last and to either target, so that a
// change of theirs takes effect at once.
func settle(resource string, now estimate, before settled, l limits, evidence, evidenceBefore time.Duration, p Params) settled {
	var (
		isKnown = now.target > 0
		isLess  = evidence < evidenceBefore
		isSame  = now.allows(before.uncapped)
		isWorse = isLess && now.target < before.uncapped
	)
	if before.uncapped == 0 || isKnown && !isSame && !isWorse {
		if before.uncapped > 0 && before.uncapped < now.needed {
			now.lower = now.target // the old target is too small however close it is
		}
		return settled{
			uncapped: now.target, lower: now.lower, upper: now.upper,
			reasons: now.reasons,
			isOld:   !isKnown,
		}.within(resource, l)
	}

	out := settled{
		uncapped: before.uncapped, lower: before.lower, upper: before.upper,
		reasons: before.steps(),
		isOld:   true,
	}
	// Kept stays as long as there is less evidence, for usage next to the old target
	// would else bring and take it with each sample.
	if isKnown && isWorse && !isSame || before.has(NotLowered) && (isLess || !isKnown) {
		out.reasons = append(out.reasons, Reason{Resource: resource, Code: NotLowered, Value: out.uncapped})
	}
	if isKnown && !isLess && !now.confirms(before, l, evidence, evidenceBefore, p) {
		out.lower, out.upper = now.lower, now.upper
		out.isOld = false
	}
	if out.lower < l.clamp(now.proven) {
		out.lower = now.lower
	}
	return out.within(resource, l)
}

// allows tells whether an old target may stay, though usage asks for a slightly
// different one.
func (e estimate) allows(target int64) bool {
	return e.needed <= target &&
		e.target <= target+target/100*e.raise+target%100*e.raise/100 &&
		e.target >= target-target/100*e.fall-target%100*e.fall/100
}

// confirms tells whether the bounds published before are still good enough. A lower
// bound nearer to the target is: it was put there when the old target did not suffice.
func (e estimate) confirms(before settled, l limits, evidence, evidenceBefore time.Duration, p Params) bool {
	return doublings(evidence) == doublings(evidenceBefore) &&
		(isClose(l.clamp(e.lower), before.lower, p.BoundsTolerancePercent) || l.clamp(e.lower) < before.lower) &&
		isClose(l.clamp(e.upper), before.upper, p.BoundsTolerancePercent)
}

// isClose tells whether an amount is within a percentage of the one before.
func isClose(amount, before int64, percent int) bool {
	return max(amount-before, before-amount)*100 <= before*int64(percent)
}

func (l limits) clamp(amount int64) int64 {
	amount = max(amount, l.min)
	if l.max > 0 {
		amount = min(amount, l.max)
	}
	return amount
}

// within makes the target from the uncapped one, and puts the bounds around it.
func (s settled) within(resource string, l limits) settled {
	if s.uncapped == 0 {
		return s
	}
	s.target = l.clamp(s.uncapped)
	s.lower = min(l.clamp(s.lower), s.target)
	s.upper = max(l.clamp(s.upper), s.target)
	switch {
	case s.target > s.uncapped:
		s.reasons = append(s.reasons, Reason{Resource: resource, Code: MinAllowed, Value: s.target})
	case s.target < s.uncapped:
		s.reasons = append(s.reasons, Reason{Resource: resource, Code: MaxAllowed, Value: s.target})
	}
	return s
}

// steps are the reasons without those that depend on more than usage.
func (s settled) steps() []Reason {
	var steps []Reason
	for _, r := range s.reasons {
		switch r.Code {
		case NotLowered, MinAllowed, MaxAllowed:
		default:
			if len(steps) < maxSteps {
				steps = append(steps, r)
			}
		}
	}
	return steps
}

func (s settled) has(code string) bool {
	for _, r := range s.reasons {
		if r.Code == code {
			return true
		}
	}
	return false
}

// of takes one resource out of an answer. Amounts that cannot be are moved to the
// nearest that can: the answer may come from a status that anybody may have written.
func (c *Container) of(resource string) settled {
	value, most := valueOf(resource)
	amount := func(a *quantity.Amounts) int64 { return min(max(*value(a), 0), most) }
	s := settled{
		target: amount(&c.Target), uncapped: amount(&c.Uncapped),
		lower: amount(&c.LowerBound), upper: amount(&c.UpperBound),
	}
	if s.uncapped == 0 {
		s.uncapped = s.target
	}
	for _, r := range c.Reasons {
		if r.Resource == resource {
			s.reasons = append(s.reasons, r)
		}
	}
	return s
}

// put is the opposite of of.
func (c *Container) put(resource string, s settled) {
	value, _ := valueOf(resource)
	*value(&c.Target), *value(&c.Uncapped) = s.target, s.uncapped
	*value(&c.LowerBound), *value(&c.UpperBound) = s.lower, s.upper
	c.Reasons = append(c.Reasons, s.reasons...)
}

// valueOf finds a resource's value in amounts, and tells the most that it can be.
func valueOf(resource string) (value func(*quantity.Amounts) *int64, most int64) {
	if resource == CPU {
		return func(a *quantity.Amounts) *int64 { return &a.CPUMillis }, quantity.MaxCPUMillis
	}
	return func(a *quantity.Amounts) *int64 { return &a.MemoryBytes }, quantity.MaxMemoryBytes
}
