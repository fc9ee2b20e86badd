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

	"github.com/verticalscaler/verticalscaler-operator/internal/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// The resources, as the API spells them.
const (
	CPU    = "cpu"
	Memory = "memory"
)

// The codes of reasons, as the API spells them.
const (
	// Percentile is the 95th percentile of CPU usage, recent usage weighing more.
	Percentile = "Percentile"
	// RecentUsage is the 90th percentile of the CPU usage of about the last hour. It
	// stands in Percentile's place where it is higher.
	RecentUsage = "RecentUsage"
	// Peak is the highest memory usage in the memory window.
	Peak = "Peak"
	// SafetyMargin is what the policy adds to usage.
	SafetyMargin = "SafetyMargin"
	// OOMFloor is memory that an OOM kill has proven necessary. It has a margin of
	// its own, and gets no other.
	OOMFloor = "OOMFloor"
	// Minimum is the least that is ever recommended.
	Minimum = "Minimum"
	// Kept is a target that would be lower by a history with less evidence than the
	// one that it was made from.
	Kept = "Kept"
	// MinAllowed is the policy's lower end.
	MinAllowed = "MinAllowed"
	// MaxAllowed is the policy's upper end.
	MaxAllowed = "MaxAllowed"
)

// Policy is what the user wants for one container.
type Policy struct {
	// MarginPercent is added to usage. 0 to 500.
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

	// ConfidenceUnit is the observed time at which the upper bound is twice what
	// usage asks for. Default 24 h: a whole day has been seen.
	ConfidenceUnit time.Duration

	// PublishTolerancePercent is the difference up to which a target stays as it is.
	// From 0 to 20. Default 7: neighbours in the histogram differ by up to 6.7 %,
	// and usage at the edge of a bucket must not be published back and forth.
	PublishTolerancePercent int

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
		History:                 history.DefaultParams(),
		MinEvidence:             2 * time.Minute,
		FullEvidence:            8 * 24 * time.Hour,
		ConfidenceUnit:          24 * time.Hour,
		PublishTolerancePercent: 7,
		BoundsTolerancePercent:  20,
		MinCPUMillis:            10,
		MinMemoryBytes:          16 << 20,
	}
}

const (
	lowerQuantile     = 0.50
	recentQuantile    = 0.90
	targetQuantile    = 0.95
	toleratedQuantile = 0.98
	upperQuantile     = 0.99

	// maxMarginPercent keeps absurd margins from overflowing.
	maxMarginPercent = 1000
)

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
	evidence := min(h.Observed(), p.FullEvidence).Truncate(time.Second)
	isEnough := !h.IsEmpty() && h.Observed() >= p.MinEvidence
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
		if isEnough {
			now = cpuEstimate(h, policy, confidence(evidence, p), p)
		}
		cpu := settle(CPU, now, before.of(CPU), policy.limits(CPU), evidence, before.Observed, p)
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
	// tolerated is what an old target may be without being lowered. Where it is less
	// than the target, that tells nothing.
	tolerated int64
	reasons   []Reason
}

// step moves an estimate's target up to an amount, if it is not there yet.
func (e *estimate) step(resource, code string, amount int64) {
	if amount > e.target || len(e.reasons) == 0 {
		e.target = amount
		e.reasons = append(e.reasons, Reason{Resource: resource, Code: code, Value: amount})
	}
}

// cpuEstimate asks for the 95th percentile of the long distribution, or the 90th of
// the recent one where that is higher, and the margin. The bounds are the median and
// the 99th percentile, both with the margin, and moved apart as far as there is
// little evidence:
//
//	usage                            margin   target   bounds after 8 days
//	200m, 5 min at 600m each hour    15 %      680m     233m..800m
//	200m all the time                15 %      234m     218m..276m
//
// An old target is lowered only when the 98th percentile would ask for less, too.
// Spikes that make up about a 20th of the time would otherwise move the 95th up and
// down with each of them.
func cpuEstimate(h *history.Container, policy Policy, c float64, p Params) estimate {
	long, recent := h.CPUQuantile(targetQuantile), h.RecentCPUQuantile(recentQuantile)

	var e estimate
	if recent > long {
		e.step(CPU, RecentUsage, recent)
	} else {
		e.step(CPU, Percentile, long)
	}
	e.step(CPU, SafetyMargin, withMargin(e.target, policy))
	e.target = min(e.target, quantity.MaxCPUMillis)
	e.step(CPU, Minimum, p.MinCPUMillis)

	// A target may stay PublishTolerancePercent too low, and must then still be
	// above the lower bound; hence the second term.
	e.lower = min(
		narrowed(withMargin(h.CPUQuantile(lowerQuantile), policy), c),
		e.target*100/(100+int64(p.PublishTolerancePercent)))
	e.lower = max(e.lower, min(p.MinCPUMillis, e.target))
	e.tolerated = withMargin(h.CPUQuantile(toleratedQuantile), policy)
	e.upper = widened(max(withMargin(h.CPUQuantile(upperQuantile), policy), e.target), c, quantity.MaxCPUMillis)
	return e
}

// memoryEstimate asks for the peak of the memory window and the margin, and for the
// OOM floor as it is. A percentile would not do: a container that lacks memory for a
// moment is dead, and a fading one forgets a peak after two days.
//
// Below the peak or the floor, the container is known to fail. The lower bound is a
// little above that, so that a slow growth does not move it each time:
//
//	peak      floor      margin   target    bounds after 8 days
//	400 MiB   -          15 %     460 MiB   428..541 MiB
//	400 MiB   1200 MiB   15 %    1200 MiB  1200..1411 MiB
func memoryEstimate(h *history.Container, oomFloor int64, policy Policy, c float64, p Params) estimate {
	peak := h.Peak()

	var e estimate
	if !h.IsEmpty() {
		e.step(Memory, Peak, quantity.RoundMemory(peak))
		e.step(Memory, SafetyMargin, quantity.RoundMemory(withMargin(peak, policy)))
	}
	e.step(Memory, OOMFloor, quantity.RoundMemory(oomFloor))
	e.target = min(e.target, quantity.MaxMemoryBytes)
	e.step(Memory, Minimum, quantity.RoundMemory(p.MinMemoryBytes))

	e.needed = max(peak, oomFloor)
	e.lower = quantity.RoundMemory(max(peak+peak*int64(p.PublishTolerancePercent)/100, oomFloor))
	e.lower = min(max(e.lower, p.MinMemoryBytes), e.target)
	e.upper = quantity.RoundMemory(widened(e.target, c, quantity.MaxMemoryBytes))
	return e
}

func withMargin(amount int64, policy Policy) int64 {
	percent := int64(min(max(policy.MarginPercent, 0), maxMarginPercent))
	return (amount*(100+percent) + 99) / 100
}

// confidence is the number of times that the evidence would fit into the confidence
// unit. Evidence counts by its doublings: 1, 2, 4, 8, ... minutes. The bounds
// then move when it has doubled, and not with every sample.
//
//	evidence   counts as   confidence   upper bound × (1 + c)   lower bound × (1 + c/1000)^-2
//	   2 min       2 min          720                     721                           0.338
//	   1 h        32 min           45                      46                           0.916
//	   1 d      1024 min          1.4                     2.4                           0.997
//	   8 d      8192 min         0.18                    1.18                           1.000
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
