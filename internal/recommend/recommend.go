// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recommend turns the history of a container into what it needs: a target,
// what it needs at least and at most, and the steps that led there.
//
// The promises:
//
//   - LowerBound <= Target <= UpperBound, all within what the policy allows, with no
//     overflow whatever the input.
//   - Evidence only grows: a target is not lowered with less observed usage than it
//     was published with. A lost history can raise a workload, never shrink it.
//   - Memory is never below the peak or the OOM floor, but for maxAllowed.
//   - What has not moved is not touched: while usage stays as it is, so does every
//     field of the answer, but for some doublings of the evidence.
//
// The last one needs the previous answer, which is therefore an argument. It may
// come from a status that somebody else wrote or wiped; whatever it holds, the other
// promises stand.
package recommend

import (
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/ensemble"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

// The resources, as the API spells them.
const (
	CPU    = "cpu"
	Memory = "memory"
)

// The codes of reasons, as the API spells them.
const (
	// RecentPeak is a level held by the highest CPU usage of the last quarter of an hour
	// to three hours.
	RecentPeak = "RecentPeak"
	// RecentUsage is one held by the mean CPU usage of about the last half-hour, and by
	// how far usage is from it as a rule.
	RecentUsage = "RecentUsage"
	// DayPeak and WeekPeak are held by the highest CPU usage of a day, without rare
	// spikes or with them, and of eight days.
	DayPeak  = "DayPeak"
	WeekPeak = "WeekPeak"
	// SameTime is held by the highest CPU usage around this time of the last days.
	SameTime = "SameTime"
	// Peak is the highest memory usage in the memory window.
	Peak = "Peak"
	// Volatility is what memory gets for changing as much as it does.
	Volatility = "Volatility"
	// LimitedHistory is what CPU gets until a day is known, where the policy adds less.
	LimitedHistory = "LimitedHistory"
	// SafetyMargin is what the policy adds to usage.
	SafetyMargin = "SafetyMargin"
	// OOMFloor is memory that an OOM kill has proven necessary. It has a margin of
	// its own, and gets no other.
	OOMFloor = "OOMFloor"
	// Minimum is the least that is ever recommended.
	Minimum = "Minimum"
	// Kept is a target that would be lower by a history with less evidence than the
	// one that it was made from.
	NotLowered = "NotLowered"
	// MinAllowed is the policy's lower end.
	MinAllowed = "MinAllowed"
	// MaxAllowed is the policy's upper end.
	MaxAllowed = "MaxAllowed"
)

// Policy is what the user wants for one container.
type Policy struct {
	// Profile chooses the margin of memory. Prices of CPU are the history's.
	Profile profile.Profile
	// MarginPercent is added to the level of CPU, and is the least that memory gets on
	// top of its peak. 0 to 500.
	MarginPercent int
	// CPU and Memory say which resources are recommended at all.
	CPU, Memory bool
	// MinAllowed and MaxAllowed bound the answer; 0 is no bound. Where they
	// contradict each other, MaxAllowed wins.
	MinAllowed, MaxAllowed quantity.Amounts
}

// Container is what one container needs. Amounts of a resource that is not
// controlled, or not known yet, are 0.
type Container struct {
	Name string
	// Target is what should be requested.
	Target quantity.Amounts
	// LowerBound is the least with which the container is likely to be well off.
	LowerBound quantity.Amounts
	// UpperBound is the most that it is likely to need.
	UpperBound quantity.Amounts
	// Uncapped is the target before MinAllowed and MaxAllowed.
	Uncapped quantity.Amounts
	// Observed is the evidence that the target rests on, in whole seconds. It is not
	// refreshed with each answer, but when something else changes or it has doubled.
	Observed time.Duration
	// Reasons are the steps from usage to target, CPU first.
	Reasons []Reason
	// OOMFloor is the memory below which the container is known to be killed, in
	// bytes; 0 without a kill.
	OOMFloor int64
}

// Reason is one step from usage to target.
type Reason struct {
	Resource string // CPU or Memory
	Code     string
	Value    int64 // the amount after the step, in millicores or bytes
	// PerMille is the margin that the step adds to the amount before it, at most
	// MaxPerMille; 0 for a step that needs none.
	PerMille int64
}

// Recompute makes the target anew from its steps, in order. What For says is always
// what its own steps lead to.
//
//	RecentPeak 200m, SafetyMargin 15 % → 230m    and MaxAllowed 220m → 220m
func Recompute(steps []Reason) int64 {
	amount := int64(0)
	for _, s := range steps {
		amount = s.after(amount)
	}
	return amount
}

// after is the amount after the step.
func (r Reason) after(amount int64) int64 {
	if r.PerMille == 0 {
		return max(r.Value, 0)
	}
	amount = raised(amount, r.PerMille)
	if r.Resource == Memory {
		amount = quantity.RoundMemory(amount)
	}
	_, most := valueOf(r.Resource)
	return min(amount, most)
}

// Params say how much evidence is wanted, and how small a change is none.
type Params struct {
	// History are those that the history was made with.
	History history.Params

	// MinEvidence is the observed time before the first answer. From 0 to hours.
	// Default 2 min: three samples at one a minute. An OOM kill does not wait for it.
	MinEvidence time.Duration

	// FullEvidence is the observed time from which on more does not prove more,
	// since the history forgets what is older. It is also the longest for which a
	// lost history keeps a target up. Default 8 days, the memory window.
	FullEvidence time.Duration

	// ConfidenceUnit is the observed time after which there is no doubt that a day was
	// seen. The upper bound is twice what usage asks for after a quarter of it. Until it
	// has passed, margins are higher: a peak that was not seen yet is likely to come.
	// Default 24 h.
	ConfidenceUnit time.Duration

	// RaiseCPUPercent and RaiseMemoryPercent are how far above the published target
	// usage must ask for more. From 0 to 20. Default 12 for CPU, which is raised for
	// less as soon as it does not suffice; and 2 for memory, which cannot wait for that.
	RaiseCPUPercent, RaiseMemoryPercent int

	// LowerPercent is how far below it usage must ask for less. From 0 to 20. Default
	// 10.
	LowerPercent int

	// BoundsTolerancePercent is the same for the bounds. Default 20: nobody acts on
	// their last digits.
	BoundsTolerancePercent int

	// MinCPUMillis is the least CPU recommended, in millicores. Default 10.
	MinCPUMillis int64

	// MinMemoryBytes is the least memory recommended. Default 16 MiB.
	MinMemoryBytes int64
}

// DefaultParams are those used unless configured otherwise.
func DefaultParams() Params {
	return Params{
		History:                history.DefaultParams(),
		MinEvidence:            2 * time.Minute,
		FullEvidence:           8 * 24 * time.Hour,
		ConfidenceUnit:         24 * time.Hour,
		RaiseCPUPercent:        12,
		RaiseMemoryPercent:     2,
		LowerPercent:           10,
		BoundsTolerancePercent: 20,
		MinCPUMillis:           10,
		MinMemoryBytes:         16 << 20,
	}
}

// MaxPerMille is the highest margin of a step, in thousandths. It keeps absurd ones from
// overflowing.
const MaxPerMille = 5_000

// For says what a container needs by its history, which may be nil where it was
// lost. previous is the last answer, or nil. The result is false while nothing can
// be said yet.
//
// With less than MinEvidence, an OOM kill is enough to recommend memory, and a
// previous answer stands, as far as the policy still allows it.
func For(name string, h *history.Container, policy Policy, previous *Container, p Params) (Container, bool) {
	if h == nil {
		h = &history.Container{}
	}
	evidenceOf := func(observed time.Duration) (evidence time.Duration, isEnough bool) {
		return min(observed, p.FullEvidence).Truncate(time.Second), !h.IsEmpty() && observed >= p.MinEvidence
	}
	evidence, isEnough := evidenceOf(h.Observed())
	evidenceCPU, isEnoughCPU := evidenceOf(h.ObservedCPU())
	oomFloor := h.OOMFloor(p.History)

	var before Container
	if previous != nil {
		before = *previous
		before.Observed = min(max(before.Observed, 0), p.FullEvidence)
	}
	out := Container{Name: name, Observed: before.Observed}
	isSame := true
	if policy.CPU {
		var now estimate
		if isEnoughCPU && h.KnowsCPU() {
			now = cpuEstimate(h, policy, confidence(evidenceCPU, p), p)
		}
		cpu := settle(CPU, now, before.of(CPU), policy.limits(CPU), evidenceCPU, before.Observed, p)
		out.put(CPU, cpu)
		isSame = isSame && cpu.isOld
	}
	if policy.Memory {
		var now estimate
		if isEnough || oomFloor > 0 {
			now = memoryEstimate(h, oomFloor, policy, confidence(evidence, p), p)
		}
		memory := settle(Memory, now, before.of(Memory), policy.limits(Memory), evidence, before.Observed, p)
		out.put(Memory, memory)
		isSame = isSame && memory.isOld

		// The floor fades with every sample; its old value serves until the rest moves.
		out.OOMFloor = oomFloor
		if memory.isOld && oomFloor > 0 && oomFloor <= before.OOMFloor {
			out.OOMFloor = before.OOMFloor
		}
	}
	if !isSame {
		out.Observed = max(before.Observed, evidence)
	}
	return out, out.Target != quantity.Amounts{}
}

// estimate is what usage asks for, before anything previous and before the policy's
// bounds. Its zero value stands for not enough evidence.
type estimate struct {
	target, lower, upper int64
	// needed is what an old target must not stay below, however close it is.
	needed int64
	// proven is what an old lower bound must not stay below: memory without which the
	// container is known to fail.
	proven int64
	// raise and fall are the shares, in percent, by which an old target may be less
	// and more than this one without being moved.
	raise, fall int64
	reasons     []Reason
}

// step moves an estimate's target up to an amount, if it is not there yet.
func (e *estimate) step(resource, code string, amount int64) {
	if amount > e.target || len(e.reasons) == 0 {
		e.target = amount
		e.reasons = append(e.reasons, Reason{Resource: resource, Code: code, Value: amount})
	}
}

// add moves it up by a margin.
func (e *estimate) add(resource, code string, perMille int64) {
	step := Reason{Resource: resource, Code: code, PerMille: perMille}
	if step.Value = step.after(e.target); step.Value > e.target {
		e.target = step.Value
		e.reasons = append(e.reasons, step)
	}
}

// codeOf says what a basis of CPU is called.
func codeOf(b ensemble.Basis) string {
	switch b {
	case ensemble.Mean, ensemble.Mean2:
		return RecentUsage
	case ensemble.Day, ensemble.Usual:
		return DayPeak
	case ensemble.Week:
		return WeekPeak
	case ensemble.SameTime2, ensemble.SameTime7:
		return SameTime
	default:
		return RecentPeak
	}
}

// cpuEstimate asks for the level that is held by the ensemble's cheapest candidate, and
// the policy's margin. The level is already one to be held: it has risen at once with
// usage, and falls slowly. The bounds say how far a request may be from it:
//
//	level   margin   target   bounds after 8 days
//	200m         -     200m     177m..209m
//	200m      15 %     230m     204m..241m
//
// A request below what is used now is too small however close it is; the lower bound
// then is the target.
func cpuEstimate(h *history.Container, policy Policy, c float64, p Params) estimate {
	need := h.CPU()
	e := estimate{raise: int64(p.RaiseCPUPercent), fall: int64(p.LowerPercent), needed: need.Urgent}
	e.step(CPU, codeOf(need.Candidate.Basis), min(need.Millis, quantity.MaxCPUMillis))
	if margin := policy.perMille(); margin < thinPerMille && isThin(c) {
		e.add(CPU, LimitedHistory, thinPerMille)
	} else {
		e.add(CPU, SafetyMargin, margin)
	}
	e.step(CPU, Minimum, p.MinCPUMillis)

	e.lower = narrowed(e.target*100/(100+int64(p.RaiseCPUPercent)), c/4)
	if isThin(c) {
		e.raise = max(e.raise, thinPerMille/10) // what the margin is for
	}
	e.lower = max(e.lower, min(p.MinCPUMillis, e.target))
	e.upper = widened(e.target, c/4, quantity.MaxCPUMillis)
	return e
}

// memoryEstimate asks for the peak of the memory window and a margin, and for the OOM
// floor as it is. A percentile would not do: a container that lacks memory for a moment
// is dead, and a fading one forgets a peak after two days.
//
// The margin is the profile's, by the workload's own volatility, or by the growth of
// the last slot where that is more; and at least the policy's. Growth is what a leak or
// a filling cache shows: it will go on. The profile's is doubled while evidence is thin.
//
// A peak that creeps up changes nothing while it leaves half of the margin: that is what
// the margin is for.
//
// Below the peak or the floor, the container is known to fail. The lower bound is right
// below the target, so that what asks for more is answered at once:
//
//	peak      floor      volatility   margin   target    bounds after 8 days
//	400 MiB   -                0.02     10 %   440 MiB   432..460 MiB
//	400 MiB   -                0.10     20 %   480 MiB   471..501 MiB
//	400 MiB   1200 MiB         0.02     10 %  1200 MiB  1200..1253 MiB
func memoryEstimate(h *history.Container, oomFloor int64, policy Policy, c float64, p Params) estimate {
	peak := h.Peak()

	e := estimate{raise: int64(p.RaiseMemoryPercent), fall: int64(p.LowerPercent), needed: max(peak, oomFloor)}
	e.proven = e.needed
	if !h.IsEmpty() {
		e.step(Memory, Peak, quantity.RoundMemory(peak))
		m := profile.Of(policy.Profile).Memory
		share := max(m.PerChange*h.Volatility(), h.Growth())
		volatility := int64(math.Round(1000 * min(max(share, m.Least), m.Most)))
		if isThin(c) {
			volatility *= 2
		}
		if margin := policy.perMille(); margin > volatility {
			e.add(Memory, SafetyMargin, margin)
			e.raise = max(e.raise, halfOf(margin))
		} else {
			e.add(Memory, Volatility, volatility)
			e.raise = max(e.raise, halfOf(volatility))
		}
	}
	e.step(Memory, OOMFloor, quantity.RoundMemory(oomFloor))
	e.step(Memory, Minimum, quantity.RoundMemory(p.MinMemoryBytes))

	e.lower = quantity.RoundMemory(max(e.target*100/(100+int64(p.RaiseMemoryPercent)), e.needed))
	e.lower = min(max(e.lower, p.MinMemoryBytes), e.target)
	e.upper = quantity.RoundMemory(widened(e.target, c/4, quantity.MaxMemoryBytes))
	return e
}

// halfOf is by how many percent an amount with a margin is above the same with half of it.
func halfOf(perMille int64) int64 { return 100 * (perMille / 2) / (1000 + perMille/2) }

// thinPerMille is the least margin of CPU while evidence is thin.
const thinPerMille = 150

// isThin tells whether so much evidence may be about less than a day: it is, until 34
// hours are known. That is when the bounds move anyway. A request that was raised by it is
// lowered when it is above the upper bound, which may take until 68 hours are known.
func isThin(confidence float64) bool { return confidence > 1 }

func (p Policy) perMille() int64 {
	return 10 * int64(min(max(p.MarginPercent, 0), MaxPerMille/10))
}

// raised is an amount and a margin on top, rounded up.
func raised(amount, perMille int64) int64 {
	return (amount*(1000+perMille) + 999) / 1000
}

// confidence is the number of times that the evidence would fit into the confidence
// unit. Evidence counts by its doublings: 1, 2, 4, 8, ... minutes. The bounds
// then move when it has doubled, and not with every sample.
//
//	evidence   counts as   confidence   upper bound × (1 + c/4)   lower bound × (1 + c/4000)^-2
//	   2 min       2 min          720                       181                           0.718
//	   1 h        32 min           45                      12.2                           0.978
//	   1 d      1024 min          1.4                      1.35                           0.999
//	   8 d      8192 min         0.18                      1.04                           1.000
func confidence(evidence time.Duration, p Params) float64 {
	return float64(p.ConfidenceUnit) / float64(time.Minute<<doublings(evidence))
}

// doublings tells how often a minute must double to get to the evidence.
func doublings(evidence time.Duration) int {
	n := 0
	for evidence >= 2*time.Minute {
		evidence /= 2
		n++
	}
	return n
}

func widened(amount int64, c float64, most int64) int64 {
	return int64(min(math.Ceil(float64(amount)*(1+c)), float64(most)))
}

func narrowed(amount int64, c float64) int64 {
	return int64(float64(amount) * math.Pow(1+c/1000, -2))
}
