// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ensemble finds the best level for a container's CPU request.
//
// No single rule suits every workload. For smooth usage, the highest usage of the last quarter
// of an hour is enough; other workloads need the peak of the same time yesterday. The ensemble
// simulates many simple rules at once and follows the one that would have been the cheapest.
//
// A Candidate is a Basis, a margin and a HoldPolicy. The basis and the margin propose a level. The
// hold policy says how the held level follows the proposals. Each candidate is charged for the
// level that it would have held, not for its proposals:
//
//	cost = ∫ (level - usage)⁺ + Unserved·(usage - level)⁺ + Starved·√usage·[usage > level]  dt
//	     + Resize·usage·(number of its resizes) + the charge for resizes above the budget
//
// with a half-life of three days. Usage is the usage of the hottest pod, in cores. √usage and usage
// in the prices are means over about a day. A level is thus charged for unused reservation and for
// unserved demand.
//
// The state takes 2.6 KB at any age. Adding a sample takes one to two microseconds. The package
// reads no clock and is not safe for concurrent use.
package ensemble

import (
	"math"
	"slices"
	"time"
)

// Basis is the statistic that a candidate takes its level from.
type Basis uint8

// The bases. Windows are in observed time. Maxima cover whole intervals of 5 minutes or of half an
// hour.
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
	// SameTime2 and SameTime7 are the highest usage within an hour of the same time of
	// the last 2 and 7 days, and at least 80 % of the last hour's highest usage.
	SameTime2
	SameTime7
	// Usual is the highest usage of three in four half-hours of the last day. It excludes
	// rare spikes.
	Usual
	bases
)

// Candidate names a rule.
type Candidate struct {
	Basis Basis
	// MarginPercent is added to the basis.
	MarginPercent int
	Hold          HoldPolicy
}

// HoldPolicy says how a held level follows its proposals. It rises at once: to a proposal that is
// 12 % above it, or to 3 % above usage that it does not cover. It falls only to a proposal below
// Share of it, not within Gap of its last fall, and never below usage.
type HoldPolicy struct {
	Share float64
	Gap   time.Duration
	// Calm levels ignore a single sample above them; only proposals move them.
	Calm bool
}

const (
	// raiseShare is the distance above a level from which on a proposal raises it.
	raiseShare = 1.12
	// clearance is the distance above uncovered usage to which a level rises.
	clearance = 1.03

	// tickLength is the shortest time that candidates are charged for at once. The highest
	// usage within a tick counts.
	tickLength = 30 * time.Second

	ringSpan = 5 * time.Minute
	ringSize = 24
	slotSpan = 30 * time.Minute
	perDay   = int(24 * time.Hour / slotSpan)
	slotSize = 8 * perDay // seven whole days before the current one

	costHalfLife = 3 * 24 * time.Hour
	fastSpan     = 24 * time.Minute
	noiseSpan    = 8 * time.Hour
	meanSpan     = 24 * time.Hour

	// leastSpan is the time in days before a candidate is chosen. The cheapest candidate of a few
	// hours is cheap by chance.
	leastSpan = 12.0 / 24

	levels     = 34
	candidates = levels * 4
)

var (
	holdPolicies = [4]HoldPolicy{
		{Share: .9, Gap: time.Hour},
		{Share: .8, Gap: 3 * time.Hour},
		{Share: .7, Gap: 8 * time.Hour},
		{Share: .85, Gap: 3 * time.Hour, Calm: true},
	}
	// proposals are the combinations of bases and margins.
	proposals = func() (out [levels]Candidate) {
		margins := [bases][]int{
			QuarterHour: {0, 5, 10, 20}, Hour: {0, 5, 10, 20}, TwoHours: {0, 5, 10, 20},
			Day: {0, 10}, Week: {0, 10},
			Noise: {0, 5, 10}, Noise2: {0, 5, 10}, Mean: {0, 5, 10}, Mean2: {0, 5, 10},
			SameTime2: {0, 10}, SameTime7: {0, 10}, Usual: {0, 10},
		}
		i := 0
		for basis, list := range margins {
			for _, m := range list {
				out[i] = Candidate{Basis: Basis(basis), MarginPercent: m}
				i++
			}
		}
		return out
	}()
	// first is the candidate until then: the highest usage of the last hour, rarely lowered.
	first = uint8(4*len(holdPolicies) + 2)
)

// CPU is the state of the ensemble. The zero value has no history and is ready for use. It may be
// copied.
type CPU struct {
	// All amounts are in millicores.
	mean, fast, noise float32
	// tick is the highest usage since candidates were last charged; tickAge is the observed
	// time since then.
	tick    float32
	tickAge time.Duration
	// span is the observed time in days, faded like costs.
	span float32
	// observed is the length of the history on the time scale of the short windows.
	observed time.Duration

	ring    [ringSize]packed // highest usage of 5 minutes each, the current one first
	ringAge time.Duration
	slots   [slotSize]packed // highest usage of half-hours
	slot    uint16           // the current one
	phase   uint16           // its half-hour of the day, from 1; 0 before the first sample
	// known are the bases that change only with the ring and the slots.
	known [bases]float32

	level, cost [candidates]float32
	// resizes are counts in units of 1/256. They fade hourly.
	resizes [candidates]uint16
	// fell is the time of the last fall of each level, in minutes of observed time modulo 2^16.
	fell    [candidates]uint16
	fadeAge time.Duration
	chosen  uint8
}

// Add adds usage of one pod, in millicores, at a time of day. step is the observed time since the
// previous sample; it is 0 for a sample of another pod at the same time.
func (c *CPU) Add(millis int64, at time.Time, step time.Duration, p Params) {
	usage := float32(millis)
	if c.phase == 0 {
		c.mean, c.fast = usage, usage
		c.phase = p.phaseOf(at)
		step = 0 // the first sample
	}
	if step > 0 {
		c.observed = min(c.observed+p.recent(step), longest)
		if c.tickAge += step; c.tickAge >= tickLength {
			c.closeTick(p)
		}
		c.move(at, step, p)
	}
	c.tick = max(c.tick, usage)
	c.observe(usage)
}

// Raise adds usage of one pod, in millicores, from a moment at which other pods were silent. It may
// raise the level and never lowers it, and no time passes.
func (c *CPU) Raise(millis int64) {
	if c.phase != 0 {
		c.tick = max(c.tick, float32(millis))
		c.observe(float32(millis))
	}
}

// phaseOf is the half-hour of the day, from 1. A day is as long as Long makes it.
func (p Params) phaseOf(at time.Time) uint16 {
	seconds := at.Unix() % (1 << 32)
	if p.Long != 1 {
		seconds = int64(float64(seconds) * p.Long)
	}
	seconds %= 86400
	if seconds < 0 {
		seconds += 86400
	}
	return uint16(seconds/int64(slotSpan/time.Second)) + 1
}

// move advances the ring and the slots. The ring follows observed time. The slots follow the time
// of day, so that usage at nine stays at nine after an outage. Whole days without samples take no
// slots.
func (c *CPU) move(at time.Time, step time.Duration, p Params) {
	moved := false
	c.ringAge += p.recent(step)
	for range min(c.ringAge/ringSpan, ringSize) {
		copy(c.ring[1:], c.ring[:])
		c.ring[0] = 0
		moved = true
	}
	c.ringAge %= ringSpan
	for phase := p.phaseOf(at); c.phase != phase; {
		c.phase = c.phase%uint16(perDay) + 1
		c.slot = (c.slot + 1) % uint16(slotSize)
		c.slots[c.slot] = 0
		moved = true
	}
	if moved {
		c.refresh()
	}
}

// observe raises the maxima of the current interval.
func (c *CPU) observe(usage float32) {
	p := pack(usage)
	usage = p.value()
	c.ring[0] = max(c.ring[0], p)
	c.slots[c.slot] = max(c.slots[c.slot], p)
	for b := range Noise {
		c.known[b] = max(c.known[b], usage)
	}
}

// refresh recomputes the known bases.
func (c *CPU) refresh() {
	c.known[QuarterHour] = highest(c.ring[:3])
	c.known[Hour] = highest(c.ring[:12])
	c.known[TwoHours] = highest(c.ring[:])
	c.known[Day] = c.highestSlot(0, perDay)
	c.known[Week] = c.highestSlot(0, slotSize)
	same := float32(0)
	for day := 1; day <= 7; day++ {
		same = max(same, c.highestSlot(day*perDay-2, 4))
		if day == 2 {
			c.known[SameTime2] = same
		}
	}
	c.known[SameTime7] = same
	c.known[Usual] = c.usualSlot()
}

// usualSlot is the highest usage of three in four slots of the last day. Empty slots do not
// count.
func (c *CPU) usualSlot() float32 {
	var day [perDay]packed
	n := 0
	for i := range day {
		if p := c.slots[(int(c.slot)+slotSize-i)%slotSize]; p > 0 {
			day[n] = p
			n++
		}
	}
	if n == 0 {
		return 0
	}
	slices.Sort(day[:n])
	return day[n-1-n/4].value()
}

// highestSlot is the highest usage of n slots, beginning a number of slots ago.
func (c *CPU) highestSlot(ago, n int) float32 {
	most := packed(0)
	for i := ago; i < min(ago+n, slotSize); i++ {
		most = max(most, c.slots[(int(c.slot)+slotSize-i)%slotSize])
	}
	return most.value()
}

func highest(list []packed) float32 {
	most := packed(0)
	for _, p := range list {
		most = max(most, p)
	}
	return most.value()
}

// basis is the current amount of a basis.
func (c *CPU) basis(b Basis) float32 {
	switch b {
	case Noise:
		return c.known[QuarterHour] + c.noise
	case Noise2:
		return c.known[QuarterHour] + 2*c.noise
	case Mean:
		return c.fast + 1.5*c.noise
	case Mean2:
		return c.fast + 2.5*c.noise
	case SameTime2, SameTime7:
		return max(c.known[b], c.known[Hour]*.8)
	default:
		return c.known[b]
	}
}

// closeTick charges every candidate for the tick and moves its level.
func (c *CPU) closeTick(p Params) {
	prices, age, usage := p.Prices, p.long(c.tickAge), c.tick
	c.learn(usage, p.recent(c.tickAge), age)
	c.tickAge, c.tick = 0, 0

	var amounts [bases]float32
	for b := range amounts {
		amounts[b] = c.basis(Basis(b))
	}
	hours := float32(age.Hours())
	fade := float32(math.Exp2(-float64(age) / float64(costHalfLife)))
	starved := float32(prices.Starved * math.Sqrt(float64(c.mean)*1000))
	unserved := float32(prices.Unserved)
	c.span = c.span*fade + hours/24
	now := c.minute()
	for i := range proposals {
		level := amounts[proposals[i].Basis] * factors[i]
		for j := range holdPolicies {
			k := i*len(holdPolicies) + j
			held := c.level[k]
			charge := held - usage
			if charge < 0 {
				charge = starved - charge*unserved
			}
			if held > 0 {
				c.cost[k] = c.cost[k]*fade + charge*hours
			}
			c.follow(k, &tables[j], level, usage, now)
		}
	}
	c.fadeResizes(age)
	if c.span >= leastSpan {
		c.chosen = c.cheapest(prices)
	} else {
		c.chosen = first
	}
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

// table is a hold policy in the units of levels.
type table struct {
	share float32
	gap   uint16 // minutes
	calm  bool
}

var (
	tables = func() (out [len(holdPolicies)]table) {
		for i, h := range holdPolicies {
			out[i] = table{share: float32(h.Share), gap: uint16(h.Gap / time.Minute), calm: h.Calm}
		}
		return out
	}()
	// factors are the margins of the proposals.
	factors = func() (out [levels]float32) {
		for i, p := range proposals {
			out[i] = 1 + float32(p.MarginPercent)/100
		}
		return out
	}()
)

// follow moves one level by its hold policy.
func (c *CPU) follow(k int, t *table, proposal, usage float32, now uint16) {
	held := c.level[k]
	next, fell := t.next(held, proposal, usage, now-c.fell[k])
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

// next is the level after a held one, and whether it fell. since is the time since the last fall,
// in minutes.
func (t *table) next(held, proposal, usage float32, since uint16) (float32, bool) {
	if held == 0 {
		return max(proposal, usage), false
	}
	if !t.calm {
		if usage > held {
			return max(proposal, usage*clearance), false
		}
		proposal = max(proposal, usage)
	}
	if proposal > held*raiseShare {
		return proposal, false
	}
	if proposal < held*t.share && since >= t.gap {
		return proposal, true
	}
	return held, false
}

func (c *CPU) minute() uint16 { return uint16(c.observed / time.Minute) }

// fadeResizes lets the counts fade, once an hour.
func (c *CPU) fadeResizes(age time.Duration) {
	c.fadeAge += age
	for range min(c.fadeAge/time.Hour, 2000) { // after which nothing is left
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

// cheapest is the candidate with the lowest cost, resizes included. On a tie, the candidate in use
// stays.
func (c *CPU) cheapest(prices Prices) uint8 {
	var (
		each  = float32(prices.Resize) * c.mean / 256
		most  = float32(prices.ResizesPerDay) * (c.span + .5) * 256
		above = float32(prices.Excess) * c.span * c.mean / ((c.span + .5) * 256)
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
	return best
}

// Need is the current result of the ensemble.
type Need struct {
	// Millis is the level, in millicores, rounded up. 0 without history.
	Millis int64
	// Candidate is the rule that produced the level.
	Candidate Candidate
	// Usage is the highest usage within about tickLength, in millicores.
	Usage int64
	// Urgent is the least that a request must have: Usage, or 0 for a calm candidate.
	Urgent int64
}

// Need returns the level of the cheapest candidate. It includes the newest samples.
func (c *CPU) Need() Need {
	if c.phase == 0 {
		return Need{}
	}
	k := int(c.chosen)
	if c.level[k] == 0 {
		k = int(first)
	}
	p := proposals[k/len(holdPolicies)]
	p.Hold = holdPolicies[k%len(holdPolicies)]
	proposal := c.basis(p.Basis) * factors[k/len(holdPolicies)]
	level, _ := tables[k%len(holdPolicies)].next(c.level[k], proposal, c.tick, c.minute()-c.fell[k])
	n := Need{
		Millis:    int64(math.Ceil(float64(level))),
		Candidate: p,
		Usage:     int64(math.Ceil(float64(c.tick))),
	}
	if !p.Hold.Calm {
		n.Urgent = n.Usage
	}
	return n
}

// IsEmpty says whether no usage was added yet.
func (c *CPU) IsEmpty() bool { return c.phase == 0 }

// Peak is the highest usage of the last eight days, in millicores, rounded up.
func (c *CPU) Peak() int64 { return int64(math.Ceil(float64(c.known[Week]))) }

// Observed is the length of the history on the time scale of the short windows.
func (c *CPU) Observed() time.Duration { return c.observed }

// longest is the upper limit of the observed time. Adding any step to it does not overflow.
const longest = time.Duration(math.MaxInt64 / 4)
