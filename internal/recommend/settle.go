// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// maxSteps bounds the reasons taken from a previous result for one resource: at most these precede
// the policy's.
const maxSteps = 5

// settled is the result for one resource.
type settled struct {
	target, lower, upper, uncapped int64
	reasons                        []Reason
	// isOld is true if everything was published before, except for the policy's bounds.
	isOld bool
}

// limits are the policy's bounds of one resource; 0 means no bound.
type limits struct {
	min, max int64
	// end is the reason for the end of a climb at max, if one has ended.
	end string
}

// endedAt are the limits once a climb has ended at a request.
func (l limits) endedAt(request int64, byUsage bool) limits {
	most := l.clamp(request)
	switch {
	case request == 0:
		return l
	case byUsage:
		return limits{min: l.min, max: most, end: UsageFollowsLimit}
	}
	return limits{min: most, max: most, end: RaiseDidNotHelp}
}

func (p Policy) limits(resource string) limits {
	most := mostOf(resource)
	return limits{min: min(*amountOf(&p.MinAllowed, resource), most), max: min(*amountOf(&p.MaxAllowed, resource), most)}
}

// settle decides between the current estimate and the published result.
//
//	the estimate is            the evidence is    target
//	about the same             any                the old one
//	more                       any                the new one
//	less                       as much or more    the new one
//	less                       less               the old one, NotLowered
//	missing: too little usage                     the old one
//
// About the same means less than raiseCPUPercent or raiseMemoryPercent above the old target, or
// less than lowerPercent below it, unless the old target is below needed. The policy's bounds apply
// last and to either target, so that a changed bound takes effect at once.
func settle(resource string, now estimate, before settled, l limits, n notes) settled {
	var (
		isKnown = now.target > 0
		isLess  = n.evidence < n.before
		isSame  = now.allows(before.uncapped)
		isWorse = isLess && now.target < before.uncapped
	)
	if before.uncapped == 0 || isKnown && !isSame && !isWorse {
		if before.uncapped > 0 && before.uncapped < now.needed {
			now.lower = now.target // the old target is too small, even if close
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
	// NotLowered stays while there is less evidence. Otherwise usage close to the old target would
	// set and clear it with each sample.
	if isKnown && isWorse && !isSame || before.has(NotLowered) && (isLess || !isKnown) {
		out.reasons = append(out.reasons, Reason{Resource: resource, Code: NotLowered, Value: out.uncapped})
	}
	if isKnown && !isLess && !now.confirms(before, l, n) {
		out.lower, out.upper = now.lower, now.upper
		out.isOld = false
	}
	if out.lower < l.clamp(now.proven) {
		out.lower = now.lower
	}
	return out.within(resource, l)
}

// allows reports whether an old target may stay although the estimate differs slightly.
func (e estimate) allows(target int64) bool {
	return e.needed <= target &&
		e.target <= target+target/100*e.raise+target%100*e.raise/100 &&
		e.target >= target-target/100*lowerPercent-target%100*lowerPercent/100
}

// confirms reports whether the published bounds are still good enough. They are while they are close. A lower
// bound closer to the target is: it was set when the old target was too small. If all requests are known,
// bounds that more evidence has narrowed are, too, as long as no request comes to lie beyond them.
func (e estimate) confirms(before settled, l limits, n notes) bool {
	lower, upper := l.clamp(e.lower), l.clamp(e.upper)
	if len(n.requests) > 0 && !IsWorthSaving(n.evidence, n.before, n.phase) {
		published, fresh := before.within("", l), settled{uncapped: before.uncapped, lower: e.lower, upper: e.upper}.within("", l)
		return (upper <= before.upper || isClose(upper, before.upper)) && !slices.ContainsFunc(n.requests, func(request int64) bool {
			return request < fresh.lower != (request < published.lower) || request > fresh.upper != (request > published.upper)
		})
	}
	return doublings(n.evidence, n.phase) == doublings(n.before, n.phase) &&
		(isClose(lower, before.lower) || lower < before.lower) && isClose(upper, before.upper)
}

// notes decide when evidence is published.
type notes struct {
	// evidence is the current evidence, before the published one.
	evidence, before time.Duration
	phase            float64
	// requests are the requests of the resource, if known.
	requests []int64
}

// notes are the notes of one resource.
func (p Policy) notes(resource string, evidence, before time.Duration) notes {
	n := notes{evidence: evidence, before: before, phase: p.Phase}
	for i := range p.Requests {
		if amount := *amountOf(&p.Requests[i], resource); amount > 0 {
			n.requests = append(n.requests, amount)
		}
	}
	return n
}

// notedDoublings is the number of doublings after which evidence alone is recorded: 256 minutes. A crash loses that much
// of it, or half.
const notedDoublings = 8

// IsWorthSaving reports whether a crash would lose much evidence: half of it, and more than four hours.
func IsWorthSaving(evidence, saved time.Duration, phase float64) bool {
	return doublings(evidence, phase) >= max(doublings(saved, phase)+1, notedDoublings)
}

// isClose reports whether a bound is about the previous one.
func isClose(amount, before int64) bool {
	return max(amount-before, before-amount)*100 <= before*boundsPercent
}

func (l limits) clamp(amount int64) int64 {
	amount = max(amount, l.min)
	if l.max > 0 {
		amount = min(amount, l.max)
	}
	return amount
}

// within caps the target by the policy's bounds and sets the bounds around it.
func (s settled) within(resource string, l limits) settled {
	if s.uncapped == 0 {
		return s
	}
	s.target = l.clamp(s.uncapped)
	s.lower = min(l.clamp(s.lower), s.target)
	s.upper = max(l.clamp(s.upper), s.target)
	switch {
	case l.end == RaiseDidNotHelp, l.end != "" && s.target < s.uncapped:
		s.reasons = append(s.reasons, Reason{Resource: resource, Code: l.end, Value: s.target})
	case s.target > s.uncapped:
		s.reasons = append(s.reasons, Reason{Resource: resource, Code: MinAllowed, Value: s.target})
	case s.target < s.uncapped:
		s.reasons = append(s.reasons, Reason{Resource: resource, Code: MaxAllowed, Value: s.target})
	}
	return s
}

// steps are the reasons that depend on usage alone.
func (s settled) steps() []Reason {
	const added = 2 // at most: NotLowered, and MinAllowed or MaxAllowed
	steps := make([]Reason, 0, min(len(s.reasons), maxSteps)+added)
	for _, r := range s.reasons {
		switch r.Code {
		case NotLowered, MinAllowed, MaxAllowed, RaiseDidNotHelp, UsageFollowsLimit:
		default:
			if len(steps) < maxSteps {
				steps = append(steps, r)
			}
		}
	}
	return steps
}

func (s settled) has(code string) bool {
	return slices.ContainsFunc(s.reasons, func(r Reason) bool { return r.Code == code })
}

// of returns the part of a result for one resource. Amounts out of range are moved to the nearest
// valid ones, because a status may contain anything.
func (c *Container) of(resource string) settled {
	most := mostOf(resource)
	amount := func(a *quantity.Amounts) int64 { return min(max(*amountOf(a, resource), 0), most) }
	s := settled{
		target: amount(&c.Target), uncapped: amount(&c.Uncapped),
		lower: amount(&c.LowerBound), upper: amount(&c.UpperBound),
	}
	if s.uncapped == 0 {
		s.uncapped = s.target
	}
	s.reasons = make([]Reason, 0, len(c.Reasons))
	for _, r := range c.Reasons {
		if r.Resource == resource {
			s.reasons = append(s.reasons, r)
		}
	}
	return s
}

// put is the inverse of of.
func (c *Container) put(resource string, s settled) {
	*amountOf(&c.Target, resource), *amountOf(&c.Uncapped, resource) = s.target, s.uncapped
	*amountOf(&c.LowerBound, resource), *amountOf(&c.UpperBound, resource) = s.lower, s.upper
	c.Reasons = append(c.Reasons, s.reasons...)
}

// amountOf is a resource's amount.
func amountOf(a *quantity.Amounts, resource string) *int64 {
	if resource == CPU {
		return &a.CPUMillis
	}
	return &a.MemoryBytes
}

// mostOf is the largest valid amount of a resource.
func mostOf(resource string) int64 {
	if resource == CPU {
		return quantity.MaxCPUMillis
	}
	return quantity.MaxMemoryBytes
}
