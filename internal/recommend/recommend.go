// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recommend turns the history of a container into a recommendation: a target, a lower and
// an upper bound, and the steps that led to the target.
//
// The promises:
//
//   - LowerBound <= Target <= UpperBound, all within the policy's bounds, without overflow for
//     any input.
//   - Evidence only grows: a target is not lowered with less observed usage than it was
//     published with. A lost history can raise a workload, but never shrink it.
//   - Memory is never below the peak or the OOM floor, except because of maxAllowed, or once raises did not help
//     (history.Container.ClimbEnd).
//   - A request that a user has raised in the pod template is a floor, for a day of usage with it.
//   - Steady usage changes nothing: while usage stays the same, every field of the result stays
//     the same, except when the evidence has doubled.
//
// The last promise requires the previous result, which is therefore an argument. It may come from a
// status that another client wrote or wiped. The other promises hold for any content.
package recommend

import (
	"math"
	"math/bits"
	"slices"
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
	// RecentPeak is the highest CPU usage of the last quarter of an hour to three hours.
	RecentPeak = "RecentPeak"
	// RecentUsage is the mean CPU usage of about the last half-hour plus its usual
	// deviation.
	RecentUsage = "RecentUsage"
	// DayPeak is the highest CPU usage of a day, with or without rare spikes; WeekPeak the highest
	// of eight days.
	DayPeak  = "DayPeak"
	WeekPeak = "WeekPeak"
	// SameTime is the highest CPU usage around the same time of the last days.
	SameTime = "SameTime"
	// Peak is the highest memory usage in the memory window.
	Peak = "Peak"
	// Volatility is the memory margin that follows from changes of usage.
	Volatility = "Volatility"
	// LimitedHistory is the CPU margin in the first days of usage, if the policy adds less.
	LimitedHistory = "LimitedHistory"
	// SafetyMargin is the margin of the policy.
	SafetyMargin = "SafetyMargin"
	// OOMFloor is the memory that an OOM kill has proven necessary. It includes its own margin
	// and gets no other.
	OOMFloor = "OOMFloor"
	// TemplateRaised is the request in the pod template that a user has raised, for a day of usage with it.
	TemplateRaised = "TemplateRaised"
	// Minimum is the smallest recommendation.
	Minimum = "Minimum"
	// NotLowered is a published target that the current history would lower, but with less
	// evidence than the target was published with.
	NotLowered = "NotLowered"
	// RaiseDidNotHelp is the request of a container that was OOM-killed at all sizes up to the largest allowed.
	// UsageFollowsLimit is the largest request of one whose usage grows with its memory limit.
	RaiseDidNotHelp   = "RaiseDidNotHelp"
	UsageFollowsLimit = "UsageFollowsLimit"
	// MinAllowed is the policy's minAllowed.
	MinAllowed = "MinAllowed"
	// MaxAllowed is the policy's maxAllowed.
	MaxAllowed = "MaxAllowed"
)

// Policy is the user's policy for one container.
type Policy struct {
	// Profile selects the memory margin. The prices of CPU are in the history's Params.
	Profile profile.Profile
	// MarginPercent is added to the level of CPU, and is the smallest margin of memory. 0 to
	// 500.
	MarginPercent int
	// CPU and Memory select the recommended resources.
	CPU, Memory bool
	// LimitsCPU is true if the CPU limit is the request, so that a container cannot use more than it requests.
	LimitsCPU bool
	// MinAllowed and MaxAllowed bound the result; 0 means no bound. If they contradict each other,
	// MaxAllowed wins.
	MinAllowed, MaxAllowed quantity.Amounts
	// Phase spreads the doublings of evidence of many scalers: the evidence of this one counts from 2^Phase
	// minutes on, then twice that, and so on. From 0 to less than 1.
	Phase float64
	// Requests are compared with the bounds: they are decided, or from the pods. Narrower bounds that do
	// not reach any of them need not be published again. Nil if unknown.
	Requests []quantity.Amounts
}

// Container is the recommendation for one container. Amounts of a resource that is not controlled
// or not known yet are 0.
type Container struct {
	Name string
	// Target is the recommended request.
	Target quantity.Amounts
	// LowerBound is the request below which the container is likely to lack resources.
	LowerBound quantity.Amounts
	// UpperBound is the most that the container is likely to need.
	UpperBound quantity.Amounts
	// Uncapped is the target before MinAllowed and MaxAllowed.
	Uncapped quantity.Amounts
	// Observed is the evidence for the target, in whole seconds. It is updated when another
	// field changes or when it has doubled. While all requests are close to their target, doublings count
	// only from 256 to 512 minutes on, by the phase.
	Observed time.Duration
	// Phase is the policy's: when evidence counts as doubled.
	Phase float64
	// Reasons are the steps from usage to target, CPU first.
	Reasons []Reason
	// OOMFloor is the memory below which the container is known to be OOM-killed, in bytes; 0
	// without a kill.
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

// ClimbEnd is the request of memory at which a climb has ended, in bytes, and the code of the reason; 0 if none has.
func (c Container) ClimbEnd() (request int64, code string) {
	for _, r := range c.Reasons {
		if r.Code == RaiseDidNotHelp || r.Code == UsageFollowsLimit {
			return r.Value, r.Code
		}
	}
	return 0, ""
}

// Recompute computes the target from its steps, in order. The target that For returns is always
// the result of its own steps.
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
	return min(amount, mostOf(r.Resource))
}

// Params set the required evidence.
type Params struct {
	// History are the parameters of the history.
	History history.Params

	// MinEvidence is the observed time before the first recommendation. From 0 to hours.
	// Default 2 min: three samples at one a minute. An OOM kill does not wait for it.
	MinEvidence time.Duration

	// FullEvidence is the observed time from which on more time adds no evidence, because the
	// history forgets older usage. It is also the longest time for which a lost history keeps
	// a target from being lowered. Default 8 days, the memory window.
	FullEvidence time.Duration

	// ConfidenceUnit is the observed time that certainly covers a day. After a quarter of it, the upper bound of
	// memory is twice the target. Until it has passed, the margin of memory is higher, because a higher peak is still
	// likely; for CPU, it fades until four times as much has passed. Default 24 h.
	ConfidenceUnit time.Duration
}

const (
	// raiseCPUPercent and raiseMemoryPercent are the distance above the published target from
	// which on it is raised. CPU is also raised as soon as usage exceeds the target.
	raiseCPUPercent, raiseMemoryPercent = 12, 2
	// lowerPercent is the distance below the published target from which on it is lowered.
	lowerPercent = 10
	// boundsPercent is the same for the bounds, both ways.
	boundsPercent = 20

	// MinCPUMillis is the least CPU recommended, in millicores.
	MinCPUMillis = 10
	// minMemoryBytes is the least memory recommended.
	minMemoryBytes = 16 << 20
)

// DefaultParams are the defaults.
func DefaultParams() Params {
	return Params{
		History:        history.DefaultParams(),
		MinEvidence:    2 * time.Minute,
		FullEvidence:   8 * 24 * time.Hour,
		ConfidenceUnit: 24 * time.Hour,
	}
}

// MaxPerMille is the highest margin of a step, in thousandths. It prevents overflow.
const MaxPerMille = 5_000

// MaxContainers is the largest number of containers of one Deployment that get a recommendation.
const MaxContainers = history.MaxContainers

// For returns the recommendation for a container. The history may be nil if it was lost. previous
// is the last result, or nil. ok is false while there is no recommendation yet.
//
// With less than MinEvidence, an OOM kill is enough to recommend memory, and a previous result
// stays within the policy's bounds. The first recommendation of memory waits for CPU that a restart
// has lost and the next sample shows again: one after the other would be two resizes, or rollouts.
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
	out := Container{Name: name, Observed: before.Observed, Phase: policy.Phase}
	isSame := true
	if policy.CPU {
		var now estimate
		if isEnoughCPU && h.KnowsCPU() {
			now = cpuEstimate(h, policy, confidence(evidenceCPU, policy.Phase, p))
		}
		cpu := settle(CPU, now, before.of(CPU), policy.limits(CPU), policy.notes(CPU, evidenceCPU, before.Observed))
		out.put(CPU, cpu)
		isSame = isSame && cpu.isOld
	}
	if policy.Memory {
		var now estimate
		waitsForCPU := policy.CPU && h.LostCPU() && previous == nil
		if isEnough && !waitsForCPU || oomFloor > 0 {
			now = memoryEstimate(h, oomFloor, policy, confidence(evidence, policy.Phase, p))
		}
		l := policy.limits(Memory).endedAt(h.ClimbEnd(p.History))
		memory := settle(Memory, now, before.of(Memory), l, policy.notes(Memory, evidence, before.Observed))
		out.put(Memory, memory)
		isSame = isSame && memory.isOld

		// The floor fades with every sample; keep the old value until another field changes.
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

// estimate is the recommendation from usage alone, before the previous result and the policy's
// bounds count. The zero value means that there is not enough evidence.
type estimate struct {
	target, lower, upper int64
	// needed is the least that an old target must have, even if it is close.
	needed int64
	// proven is the least that an old lower bound must have: memory without which the container
	// is known to fail.
	proven int64
	// raise is the percentage by which an old target may be below this one without a change.
	raise   int64
	reasons []Reason
}

// step raises an estimate's target to an amount, if it is lower.
func (e *estimate) step(resource, code string, amount int64) {
	if amount > e.target || len(e.reasons) == 0 {
		e.target = amount
		e.reasons = append(e.reasons, Reason{Resource: resource, Code: code, Value: amount})
	}
}

// add raises an estimate's target by a margin.
func (e *estimate) add(resource, code string, perMille int64) {
	step := Reason{Resource: resource, Code: code, PerMille: perMille}
	if step.Value = step.after(e.target); step.Value > e.target {
		e.target = step.Value
		e.reasons = append(e.reasons, step)
	}
}

// codeOf is the reason code of a basis of CPU.
func codeOf(b ensemble.Basis) string {
	switch b {
	case ensemble.Mean, ensemble.Mean2:
		return RecentUsage
	case ensemble.Day, ensemble.Usual:
		return DayPeak
	case ensemble.Week, ensemble.UsualWeek:
		return WeekPeak
	case ensemble.SameTime2, ensemble.SameTime7:
		return SameTime
	default:
		return RecentPeak
	}
}

// cpuEstimate is the level of the ensemble's cheapest candidate plus the policy's margin. The level
// already rises at once with usage and falls slowly. The bounds limit the distance of a request
// from it:
//
//	level   margin   target   bounds after 8 days
//	200m         -     200m     177m..203m
//	200m      15 %     230m     204m..234m
//
// The upper bound narrows sooner than for memory: CPU that is lowered too far is raised within minutes, but too
// little memory is an OOM kill. Where the CPU limit is the request, a container lacks CPU until then, so the bound is
// four times as wide.
//
// A request below current usage is always too small. The lower bound is then the target.
func cpuEstimate(h *history.Container, policy Policy, c float64) estimate {
	need, floor := h.CPU(), h.TemplateFloor().CPUMillis
	e := estimate{raise: raiseCPUPercent, needed: max(need.Urgent, need.Capped, floor), reasons: make([]Reason, 0, maxSteps)}
	e.step(CPU, codeOf(need.Basis), min(need.Millis, quantity.MaxCPUMillis))
	if margin, least := policy.perMille(), limitedPerMille(c); margin < least {
		e.add(CPU, LimitedHistory, least)
	} else {
		e.add(CPU, SafetyMargin, margin)
	}
	e.step(CPU, RecentPeak, min(need.Capped, quantity.MaxCPUMillis))
	e.step(CPU, TemplateRaised, floor)
	e.step(CPU, Minimum, MinCPUMillis)

	e.lower = narrowed(e.target*100/(100+raiseCPUPercent), c/4)
	e.lower = max(e.lower, min(MinCPUMillis, e.target))
	width := c / 12
	if policy.LimitsCPU {
		width = c / 3
	}
	e.upper = widened(e.target, width, quantity.MaxCPUMillis)
	return e
}

// memoryEstimate is the peak of the memory window plus a margin, or the OOM floor if it is higher. A
// percentile is not enough: a container that lacks memory for a moment is OOM-killed, and a fading
// percentile forgets a peak after two days.
//
// The margin is the profile's margin for the workload's volatility, or the growth of the last slot
// if that is more, but at least the policy's margin. Growth is typical of a leak or a filling cache
// and is likely to continue. The profile's margin is doubled while the history is limited.
//
// A peak that rises slowly changes nothing while it uses less than a third of the margin, or half of it
// while it is doubled.
//
// Below the peak or the floor, the container is known to fail. The lower bound is just below the
// target, so that rising usage raises the request at once:
//
//	peak      floor      volatility   margin   target    bounds after 8 days
//	400 MiB   -                0.02      8 %   432 MiB   424..451 MiB
//	400 MiB   -                0.10     20 %   480 MiB   471..501 MiB
//	400 MiB   1200 MiB         0.02     10 %  1200 MiB  1200..1253 MiB
func memoryEstimate(h *history.Container, oomFloor int64, policy Policy, c float64) estimate {
	peak, floor := h.Peak(), h.TemplateFloor().MemoryBytes

	e := estimate{raise: raiseMemoryPercent, needed: max(peak, oomFloor, floor), reasons: make([]Reason, 0, maxSteps)}
	e.proven = max(peak, oomFloor)
	if !h.IsEmpty() {
		e.step(Memory, Peak, quantity.RoundMemory(peak))
		m := profile.Of(policy.Profile).Memory
		share := max(m.PerChange*h.Volatility(), h.Growth())
		volatility := int64(math.Round(1000 * min(max(share, m.Least), m.Most)))
		if isLimited(c) {
			volatility *= 2
		}
		if margin := policy.perMille(); margin > volatility {
			e.add(Memory, SafetyMargin, margin)
			e.raise = max(e.raise, spent(margin, c))
		} else {
			e.add(Memory, Volatility, volatility)
			e.raise = max(e.raise, spent(volatility, c))
		}
	}
	e.step(Memory, OOMFloor, quantity.RoundMemory(oomFloor))
	e.step(Memory, TemplateRaised, quantity.RoundMemory(floor))
	e.step(Memory, Minimum, quantity.RoundMemory(minMemoryBytes))

	e.lower = quantity.RoundMemory(max(e.target*100/(100+raiseMemoryPercent), e.needed))
	e.lower = min(max(e.lower, minMemoryBytes), e.target)
	e.upper = quantity.RoundMemory(widened(e.target, c/4, quantity.MaxMemoryBytes))
	return e
}

// spent is the percentage by which a peak may rise into its margin before the target is raised. It
// is a third of the margin, or half of it while it is doubled.
//
//	margin 120 ‰: 1120 / 1080 → 3 %   doubled to 240 ‰: 1240 / 1120 → 10 %
func spent(perMille int64, c float64) int64 {
	used := perMille / 3
	if isLimited(c) {
		used = perMille / 2
	}
	return 100 * used / (1000 + perMille - used)
}

// limitedPerMille is the smallest margin of CPU while the history is limited. It is 15 % until 6 to 13 hours are known,
// 1 % at the end, and none after four to eight days.
func limitedPerMille(confidence float64) int64 {
	if confidence <= 1.0/4 {
		return 0
	}
	return min(150, int64(40*confidence))
}

// isLimited reports whether the history may cover less than a day. That is the case until 24 to 48 hours
// have been observed, by the phase, when the bounds change anyway. A request that was raised because of it is
// lowered when it is above the upper bound, which may take until twice as much has been observed.
func isLimited(confidence float64) bool { return confidence > 1 }

func (p Policy) perMille() int64 {
	return 10 * int64(min(max(p.MarginPercent, 0), MaxPerMille/10))
}

// raised is an amount plus a margin, rounded up.
func raised(amount, perMille int64) int64 {
	return (amount*(1000+perMille) + 999) / 1000
}

// confidence is the confidence unit divided by the evidence. Evidence counts in doublings: 1, 2, 4,
// 8, ... minutes, each times 2^phase. The bounds thus change when it has doubled, and not with every sample.
//
//	                                    upper bound of memory        of CPU
//	evidence   counts as   confidence             × (1 + c/4)   × (1 + c/12)   lower bound × (1 + c/4000)^-2
//	   2 min       2 min          720                     181             61                           0.718
//	   1 h        32 min           45                    12.2            4.8                           0.978
//	   1 d      1024 min          1.4                    1.35           1.12                           0.999
//	   8 d      8192 min         0.18                    1.04           1.01                           1.000
func confidence(evidence time.Duration, phase float64, p Params) float64 {
	return float64(p.ConfidenceUnit) / counted(doublings(evidence, phase), phase)
}

// doublings is the number of doublings of 2^phase minutes that reach the evidence.
func doublings(evidence time.Duration, phase float64) int {
	n := max(bits.Len64(uint64(max(evidence, 0)/time.Minute))-2, 0) // at most the result: a phase is less than 1
	for float64(evidence) >= counted(n+1, phase) {
		n++
	}
	return n
}

// NextNote is the evidence that is recorded next, at the latest, after this much.
func NextNote(evidence time.Duration, phase float64) time.Duration {
	return time.Duration(counted(max(doublings(evidence, phase)+1, notedDoublings), phase))
}

// counted is the evidence of n doublings, in nanoseconds.
func counted(n int, phase float64) float64 {
	return float64(time.Minute) * math.Exp2(float64(n)+phase)
}

// EvidenceToLower estimates the usage to observe until the upper bound falls below the request of a resource, if usage
// stays the same. It is 0 if the request is above the bound already or not above the target. It is also 0 if maxAllowed or
// the end of a climb cuts the bound, or after a history was lost. No evidence may be enough, because the history forgets
// usage that is older than the default of FullEvidence: then it is 0, too.
func (c Container) EvidenceToLower(resource string, request, maxAllowed int64) time.Duration {
	target, upperBound := *amountOf(&c.Target, resource), *amountOf(&c.UpperBound, resource)
	isCut := maxAllowed > 0 && maxAllowed <= upperBound || slices.ContainsFunc(c.Reasons, func(r Reason) bool {
		return r.Resource == resource && (r.Code == NotLowered || r.Code == RaiseDidNotHelp || r.Code == UsageFollowsLimit)
	})
	if isCut || target <= 0 || request <= target || request > upperBound || c.Observed < time.Minute {
		return 0
	}
	now := doublings(c.Observed, c.Phase)
	share := (float64(upperBound)/float64(target) - 1) * counted(now, c.Phase)
	for n := now + 1; n <= doublings(DefaultParams().FullEvidence, c.Phase); n++ {
		if float64(target)*(1+share/counted(n, c.Phase)) < float64(request) {
			return time.Duration(counted(n, c.Phase))
		}
	}
	return 0
}

func widened(amount int64, c float64, most int64) int64 {
	return int64(min(math.Ceil(float64(amount)*(1+c)), float64(most)))
}

func narrowed(amount int64, c float64) int64 {
	return int64(float64(amount) * math.Pow(1+c/1000, -2))
}
