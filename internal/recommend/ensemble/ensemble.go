// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ensemble finds the best level for a container's CPU request.
//
// No single rule suits every workload. For smooth usage, the highest usage of the last quarter
// of an hour is enough; other workloads need the peak of the same time yesterday. The ensemble
// simulates many simple rules at once and follows the one that would have been the cheapest.
//
// Usage is averaged over intervals of 5 minutes for each pod, with any interval and window of its
// source. A CPU request is a share, not a cap: short bursts of a pod use idle CPU of the node.
// Where a CPU limit caps a pod, its highest sample counts as well:
//
//	usage of a pod = max(mean of the interval, highest sample ÷ (limit ÷ request) ÷ 0.9)
//
// Above 90 % of the limit, usage may be capped. Two such samples in a row request 1.25 times the usage, and then two more, and
// each one after that, three times the usage. Noise hardly ever follows the first raise. No level learns these requests.
//
// A candidate is a Basis, a margin and a hold policy. The basis and the margin propose a level for
// the mean of the pods, and the usual spread of the pods raises it. The hold policy decides how the
// held level follows the proposals. Each candidate is charged for the level that it would have
// held, not for its proposals. The charge is the mean over the pods:
//
//	cost = ∫ mean of (level - usage)⁺ + worth·(Unserved·(usage - level)⁺ + Starved·∜mean·[usage > level])  dt
//	     + Resize·mean·(number of its resizes) + the charge for resizes above the budget
//
// with a half-life of three days and amounts in cores. mean is the mean usage of the pods over
// about a day. worth is 1 up to burstFactor times that mean, and falls in proportion above it: a
// container that is nearly idle is not held at the level of its bursts.
//
// The state takes 2.6 KB at any age, and 40 B for each pod. At a sample a minute,
// adding one takes about a microsecond, nearly all of it at the end of an interval. The package reads
// no clock and is not safe for concurrent use.
package ensemble

import (
	"math"
	"slices"
	"time"
)

// Basis is the statistic that a candidate takes its level from.
type Basis uint8

// The bases. Windows are in observed time. Usage is the mean of the pods in an interval; slots are
// half-hours.
const (
	// QuarterHour, Hour, TwoHours, Day and Week are the highest usage of that time. Week covers
	// eight days.
	QuarterHour Basis = iota
	Hour
	TwoHours
	Day
	Week
	// Noise and Noise2 are QuarterHour plus once and twice the usual distance of usage
	// from its own mean of the last 24 minutes.
	Noise
	Noise2
	// Mean and Mean2 are that mean plus one and a half and two and a half such
	// distances. They exclude a spike that has just passed.
	Mean
	Mean2
	// SameTime2 and SameTime7 are the highest usage within an hour of the same time of the last 2
	// and 7 days. They are at least 80 % of the last hour's highest usage.
	SameTime2
	SameTime7
	// Usual is the highest usage of three in four half-hours of the last day. It excludes rare
	// spikes. UsualWeek is the highest of nine in ten half-hours of eight days.
	Usual
	UsualWeek
	bases
)

// proposal is a basis and a margin: an index of margins, and of the spread that it covers.
type proposal struct {
	basis  Basis
	margin uint8
}

// holdPolicy decides how a held level follows its proposals. It rises at once: to a proposal that
// is 12 % above it, or to 3 % above usage that it does not cover. Then it rises to the guide's need
// of the coming hours. It falls only to a proposal below share of it that saves a tenth of the mean
// usage. It does not fall within gap minutes of its last fall, and never below usage or the guide.
type holdPolicy struct {
	share float32
	gap   uint16
	// calm levels ignore a single interval above them.
	calm bool
}

const (
	// raiseShare is the distance above a level from which on a proposal raises it.
	raiseShare = 1.12
	// clearance is the distance above uncovered usage to which a level rises.
	clearance = 1.03
	// leastSaving is the share of the mean usage that a fall must save.
	leastSaving = 0.1

	// interval is the averaging length of CPU.
	interval = 5 * time.Minute
	// urgentAge is the age of the current interval from which on it can raise the level.
	urgentAge = time.Minute

	// burstFactor is the multiple of a day's mean usage above which lacking CPU is charged less.
	burstFactor = 10
	// leastResizeMillis is the mean usage for which a resize is charged at least.
	leastResizeMillis = 100

	ringSize = 23 // two hours, less the current interval
	slotSpan = 30 * time.Minute
	perDay   = int(24 * time.Hour / slotSpan)
	slotSize = 8 * perDay // seven whole days before the current one

	costHalfLife = 3 * 24 * time.Hour
	fastSpan     = 24 * time.Minute
	noiseSpan    = 8 * time.Hour
	meanSpan     = 24 * time.Hour

	// switchShare is the share of the cost of the candidate in use that another must reach.
	switchShare = .99

	// leastSpan is the time in days before a candidate is chosen. The cheapest candidate of a few
	// hours is cheap by chance.
	leastSpan = 12.0 / 24

	levels     = 32
	candidates = levels * 4
)

var (
	holdPolicies = [4]holdPolicy{
		{share: .9, gap: 60},
		{share: .8, gap: 180},
		{share: .7, gap: 480},
		{share: .85, gap: 180, calm: true},
	}
	margins = [spreads]float32{1, 1.05, 1.1, 1.2}
	// proposals combine each basis with some margins.
	proposals = func() (out [levels]proposal) {
		i := 0
		for basis, list := range [bases][]uint8{
			QuarterHour: {0, 1, 2, 3}, Hour: {0, 1, 2}, TwoHours: {0, 1, 2},
			Day: {0, 2}, Week: {0, 2},
			Noise: {0, 1, 2}, Noise2: {0, 1}, Mean: {0, 1}, Mean2: {0, 1, 2},
			SameTime2: {0, 2}, SameTime7: {0, 2}, Usual: {0, 2}, UsualWeek: {0, 2},
		} {
			for _, margin := range list {
				out[i] = proposal{Basis(basis), margin}
				i++
			}
		}
		return out
	}()
	// first is the candidate until then: the highest usage of the last hour, rarely lowered.
	first = uint8(4*len(holdPolicies) + 2)
)

// CPU is the state of the ensemble. The zero value has no history and is ready for use. It must not
// be copied: use Clone.
type CPU struct {
	// All amounts are in millicores. mean, fast and noise are about the mean of the pods.
	mean, fast, noise float32
	// span is the observed time in days, faded like costs.
	span float32
	// observed is the length of the history on the time scale of the short windows.
	observed time.Duration

	open open
	// lack is the highest usage read while another pod was silent in the current interval.
	lack float32
	// spread is the usual distance of some pods from their mean.
	spread spread
	// hot is the usage of a hot pod in the last intervals, 0 without one.
	hot [hotIntervals]float32

	ring  [ringSize]packed // usage of intervals, the newest one first
	slots [slotSize]packed // highest usage of half-hours
	slot  uint16           // the current one
	phase uint16           // its half-hour of the day, from 1; 0 before the first sample
	// known are the bases that change only with the slots.
	known [bases]float32

	level, cost [candidates]float32
	// resizes are counts in units of 1/256. They fade hourly.
	resizes [candidates]uint16
	// fell is the time of the last fall of each level, in minutes of observed time modulo 2^16.
	fell    [candidates]uint16
	fadeAge time.Duration
	chosen  uint8
}

// Sample is the usage of one pod.
type Sample struct {
	// Pod identifies the pod.
	Pod string
	// Millis is the average usage of the sample's window, in millicores.
	Millis int64
	// Window is the averaging length of the sample.
	Window time.Duration
	// LimitFactor is the pod's CPU limit divided by its CPU request, at least 1, or 0 without a
	// limit.
	LimitFactor float64
	// LimitMillis is the pod's CPU limit, or 0 without one, or if it is not known.
	LimitMillis int64
	// At is the time, for the time of day.
	At time.Time
}

// Add adds a sample. step is the observed time since the previous sample; it is 0 for a sample of
// another pod at the same time.
func (c *CPU) Add(s Sample, step time.Duration, p Params) {
	usage := float32(s.Millis)
	if c.phase == 0 {
		c.mean, c.fast = usage, usage
		c.phase = p.phaseOf(s.At)
		c.spread = even
		step = 0 // the first sample
	}
	if step > 0 {
		c.observed = min(c.observed+p.recent(step), longest)
		if c.open.recent >= interval {
			c.close(p)
		}
		c.open.age += step
		c.open.recent += p.recent(step)
		c.move(s.At, p)
	}
	c.open.add(s, p.recent(s.Window) >= interval)
}

// Raise adds usage of one pod, in millicores, from a moment at which other pods were silent. It
// raises the level until the end of the interval, never lowers it, and no time passes.
func (c *CPU) Raise(millis int64) {
	if usage := float32(millis); c.phase != 0 && usage > c.level[c.chosen]*raiseShare {
		c.lack = max(c.lack, usage)
	}
}

// Clone returns a deep copy.
func (c *CPU) Clone() CPU {
	clone := *c
	clone.open.pods = slices.Clone(c.open.pods)
	return clone
}

// Complete returns the observed time since the current interval began, if it is complete, and the share of the pods that
// used more than a level in it, in millicores. ok is false while it is not complete. The next sample of a later moment
// ends it.
func (c *CPU) Complete(level int64) (age time.Duration, above float64, ok bool) {
	if c.open.recent < interval || len(c.open.pods) == 0 {
		return 0, 0, false
	}
	all := c.open.usages() // in ascending order
	const half = 0.5       // levels are whole
	within := 0
	for within < len(all) && all[within] <= float32(level)+half {
		within++
	}
	return c.open.age, float64(len(all)-within) / float64(len(all)), true
}

// Closed is a copy in which the current interval has ended, if it is complete. Need includes such an
// interval, and AppendBinary does not encode the current one.
func (c *CPU) Closed(p Params) CPU {
	closed := c.Clone()
	if closed.open.recent >= interval {
		closed.close(p)
	}
	return closed
}

// close ends the current interval: it charges every candidate and moves its level.
func (c *CPU) close(p Params) {
	prices, recent, age := p.Prices, p.recent(c.open.age), p.long(c.open.age)
	all := c.open.usages()
	usage := meanOf(all)
	c.learn(usage, recent, age)
	c.spread.learn(all, usage, recent, c.observed)
	copy(c.hot[1:], c.hot[:])
	c.hot[0] = hotUsage(all)
	c.slots[c.slot] = max(c.slots[c.slot], pack(usage))
	c.refreshMaxima(usage)

	var (
		amounts  = c.amounts(usage)
		guide    = c.guide(usage)
		pods     = c.charged(all)
		hours    = float32(age.Hours())
		fade     = float32(math.Exp2(-float64(age) / float64(costHalfLife)))
		starved  = float32(prices.Starved * 1000 * math.Sqrt(math.Sqrt(float64(c.mean)/1000)))
		unserved = float32(prices.Unserved)
		now      = c.minute()
	)
	c.span = c.span*fade + hours/24
	for i, proposal := range proposals {
		margin, spread := margins[proposal.margin], c.spread[proposal.margin]
		level := amounts[proposal.basis] * margin * spread
		coming := guide.scaled(margin * spread)
		for j := range holdPolicies {
			k := i*len(holdPolicies) + j
			if held := c.level[k]; held > 0 {
				c.cost[k] = c.cost[k]*fade + chargeFor(held, pods, unserved, starved)*hours
			}
			c.follow(k, &holdPolicies[j], level, usage*spread, c.ring[0].value()*spread, coming, now)
		}
	}
	c.push(usage, recent)
	c.open.reset()
	c.lack = 0
	c.fadeResizes(age)
	if c.span >= leastSpan {
		c.chosen = c.cheapest(prices)
	} else {
		c.chosen = first
	}
}

// chargeFor is the cost of an hour at a level.
func chargeFor(level float32, pods []charged, unserved, starved float32) float32 {
	sum := float32(0)
	for _, p := range pods {
		if slack := level - p.usage; slack >= 0 {
			sum += p.weight * slack
		} else {
			sum += p.weight * p.worth * (starved - slack*unserved)
		}
	}
	return sum
}

// learn updates the means.
func (c *CPU) learn(usage float32, recent, long time.Duration) {
	first := 1.0 // a plain mean of the first samples
	if c.observed > recent {
		first = float64(recent) / float64(c.observed)
	}
	toward := func(mean *float32, value float32, age, span time.Duration) {
		share := max(1-math.Exp(-float64(age)/float64(span)), first)
		*mean += (value - *mean) * float32(share)
	}
	distance := usage - c.fast
	if distance < 0 {
		distance = -distance
	}
	toward(&c.noise, distance, recent, noiseSpan)
	toward(&c.fast, usage, recent, fastSpan)
	toward(&c.mean, usage, long, meanSpan)
}

// follow moves one level by its hold policy.
func (c *CPU) follow(k int, p *holdPolicy, proposal, usage, before float32, g guide, now uint16) {
	held := c.level[k]
	next, fell := p.next(held, proposal, usage, before, c.mean*leastSaving, g, now-c.fell[k])
	if next == held {
		return
	}
	c.level[k] = next
	if fell {
		c.fell[k] = now
	}
	if held > 0 {
		c.resizes[k] = uint16(min(uint32(c.resizes[k])+256, math.MaxUint16))
	}
}

// next is the level after a held one, and whether it fell. before is the usage of the interval
// before, and since the time since the last fall, in minutes.
func (p *holdPolicy) next(held, proposal, usage, before, saving float32, g guide, since uint16) (float32, bool) {
	if held == 0 {
		return max(proposal, usage), false
	}
	if !p.calm || before > held {
		if usage > held {
			return max(proposal, usage*clearance, g.ahead), false
		}
		proposal = max(proposal, usage)
	}
	if proposal > held*raiseShare {
		return max(proposal, g.ahead), false
	}
	share := p.share
	if g.fallsFurther(proposal) {
		share = min(share, staircaseShare)
	}
	proposal = max(proposal, g.ahead)
	if proposal < held*share && held-proposal >= saving && since >= p.gap {
		return proposal, true
	}
	return held, false
}

func (c *CPU) minute() uint16 { return uint16(c.observed / time.Minute) }

// fadeResizes lets the counts fade, once an hour.
func (c *CPU) fadeResizes(age time.Duration) {
	c.fadeAge += age
	for range min(c.fadeAge/time.Hour, 2000) { // then the counts are 0
		for k, n := range c.resizes {
			c.resizes[k] = uint16(uint32(n) * hourlyFade >> 16)
		}
		for k := range c.fell { // keep 16 bits of minutes from wrapping around
			if since := c.minute() - c.fell[k]; since > maxSince {
				c.fell[k] = c.minute() - maxSince
			}
		}
	}
	c.fadeAge %= time.Hour
}

// maxSince is a day in minutes. Longer times count as a day.
const maxSince = 24 * 60

// hourlyFade is the share of a count that is left after an hour, in units of 1/65536.
var hourlyFade = uint32(math.Round(65536 * math.Exp2(-float64(time.Hour)/float64(costHalfLife))))

// cheapest is the candidate with the lowest cost, resizes included. The candidate in use stays
// unless another costs clearly less: changing to another is often a resize.
func (c *CPU) cheapest(prices Prices) uint8 {
	var (
		mean  = max(c.mean, leastResizeMillis)
		each  = float32(prices.Resize) * mean / 256
		most  = float32(prices.ResizesPerDay) * (c.span + .5) * 256
		above = float32(prices.Excess) * c.span * mean / ((c.span + .5) * 256)
	)
	total := func(k int) float32 {
		n := float32(c.resizes[k])
		cost := c.cost[k] + each*n
		if n > most {
			cost += above * (n - most)
		}
		return cost
	}
	best := c.chosen
	least := total(int(best))
	for k := range c.cost {
		if t := total(k); t < least {
			best, least = uint8(k), t
		}
	}
	if total(int(c.chosen))*switchShare <= least {
		return c.chosen
	}
	return best
}

// Need is the current result of the ensemble.
type Need struct {
	// Millis is the level, in millicores, rounded up. 0 without history.
	Millis int64
	// Basis is the basis of the candidate that produced the level. It is QuarterHour for a hot pod
	// or a sample of Raise.
	Basis Basis
	// Urgent is the least that a request must have, in millicores: the usage of the current
	// interval once that is complete or urgent, and 0 for a calm candidate.
	Urgent int64
	// Capped is the request in millicores while the limit caps usage, to find the need; 0 while that is known.
	Capped int64
}

// Need returns the level of the cheapest candidate. It includes the current interval when that is
// complete. Before, the interval counts as soon as its mean must exceed the level, even without
// usage in the rest of it, and usage has not dropped again.
func (c *CPU) Need() Need {
	if c.IsEmpty() {
		return Need{}
	}
	k := int(c.chosen)
	if c.level[k] == 0 {
		k = int(first)
	}
	proposal, hold := proposals[k/len(holdPolicies)], &holdPolicies[k%len(holdPolicies)]
	margin, spread, basis := margins[proposal.margin], c.spread[proposal.margin], proposal.basis

	level, usage := c.level[k], float32(0)
	all := c.open.usages()
	switch mean := meanOf(all); {
	case level == 0: // no interval was completed yet, and how uneven the pods are is not known
		usage = slices.Max(all)
		level = usage * margin
	case c.open.recent >= interval || c.open.isUrgent(mean, level/spread):
		usage = mean * spread
		proposed := c.amounts(mean)[basis] * margin * spread
		level, _ = hold.next(level, proposed, usage, c.ring[0].value()*spread, c.mean*leastSaving, c.guide(mean).scaled(margin*spread), c.minute()-c.fell[k])
	}
	urgent := usage
	if hold.calm {
		urgent = 0
	}
	if floor := max(c.hotLevel(), c.lack); floor > level {
		level, urgent, basis = floor, floor, QuarterHour
	}
	return Need{
		Millis: int64(math.Ceil(float64(level))),
		Basis:  basis,
		Urgent: int64(math.Ceil(float64(min(urgent, level)))),
		Capped: int64(math.Ceil(float64(c.open.cappedNeed()))),
	}
}

// IsEmpty reports whether no usage is known: none was added yet, or all of it was lost.
func (c *CPU) IsEmpty() bool {
	return c.phase == 0 || c.IsLost()
}

// IsLost reports whether usage was added and is not known anymore: the state was encoded before its
// first interval ended. The next sample makes it known again.
func (c *CPU) IsLost() bool {
	return c.phase != 0 && c.level[first] == 0 && len(c.open.pods) == 0
}

// IsLasting reports whether the encoded state has usage in it: an interval is complete.
func (c *CPU) IsLasting() bool {
	return c.level[first] > 0 || c.open.recent >= interval
}

// Peak is the highest usage of the last eight days, the mean of the pods in an interval, in
// millicores and rounded up.
func (c *CPU) Peak() int64 {
	return int64(math.Ceil(float64(max(c.known[Week], meanOf(c.open.usages())))))
}

// longest is the upper limit of the observed time. Adding any step to it does not overflow.
const longest = time.Duration(math.MaxInt64 / 4)
