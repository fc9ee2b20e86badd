// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ensemble finds the level at which a container's CPU is best held.
//
// No single rule is right for every workload: the highest usage of the last quarter
// of an hour is enough for a smooth one, another needs the peak of the same time
// yesterday. So many simple rules are tried at once, on paper, and the one that would
// have been the cheapest so far is followed.
//
// A Candidate is a Basis, a margin and a Habit. The basis and the margin propose a
// level; the habit says how a held level follows its proposals. Each candidate pays
// for the level that it would really have held, not for what it proposed:
//
//	cost = ∫ (level - usage)⁺ + Unserved·(usage - level)⁺ + Starved·√usage·[usage > level]  dt
//	     + Resize·usage·(number of its resizes) + what it is above the budget of resizes
//
// with a half-life of three days. Usage is that of the hottest pod, in cores; √usage
// and usage in the prices are the mean of about a day. A level is thus charged for what
// it reserves in vain, and for what it does not give.
//
// The state takes 2.6 KB whatever its age, and an added sample one to two microseconds.
// There is no clock in here, and nothing is safe for use by several goroutines.
package ensemble

import (
	"math"
	"slices"
	"time"
)

// Basis is what a candidate takes its level from.
type Basis uint8

// The bases. Windows are in observed time, and maxima are those of 5 minutes or of
// half-hours, whole ones.
const (
	// QuarterHour, Hour, TwoHours, Day and Week are the highest usage of the time that
	// they name; Week that of eight days.
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
	// distances: a spike that has just passed is not in them.
	Mean
	Mean2
	// SameTime2 and SameTime7 are the highest usage within an hour of the same time of
	// the last 2 and 7 days, and at least 80 % of the last hour's.
	SameTime2
	SameTime7
	// Usual is the highest usage of three in four half-hours of the last day: rare
	// spikes are not in it.
	Usual
	bases
)

// Candidate names a rule.
type Candidate struct {
	Basis Basis
	// MarginPercent is added to the basis.
	MarginPercent int
	Habit         Habit
}

// Habit is how a held level follows its proposals. It rises at once: by a proposal
// that is 12 % above it, or to 3 % above usage that it does not cover. It falls only to
// a proposal below Share of it, not within Gap of its last fall, and not below usage.
type Habit struct {
	Share float64
	Gap   time.Duration
	// Calm levels do not follow a single sample above them: proposals alone move them.
	Calm bool
}

const (
	// raiseShare is how far a proposal must be above a level to raise it.
	raiseShare = 1.12
	// clearance is how far above usage a level rises that did not cover it.
	clearance = 1.03

	// tickLength is the least time that candidates are charged for at once. Usage
	// within a tick counts with its highest.
	tickLength = 30 * time.Second

	ringSpan = 5 * time.Minute
	ringSize = 24
	slotSpan = 30 * time.Minute
	perDay   = int(24 * time.Hour / slotSpan)
	slotSize = 8 * perDay // of these, seven whole days are behind the current one

	costHalfLife = 3 * 24 * time.Hour
	fastSpan     = 24 * time.Minute
	noiseSpan    = 8 * time.Hour
	meanSpan     = 24 * time.Hour

	// leastSpan is the time in days before any candidate is chosen: the cheapest of
	// some hours is a lucky one, and another in the next.
	leastSpan = 12.0 / 24

	levels     = 34
	candidates = levels * 4
)

var (
	habits = [4]Habit{
		{Share: .9, Gap: time.Hour},
		{Share: .8, Gap: 3 * time.Hour},
		{Share: .7, Gap: 8 * time.Hour},
		{Share: .85, Gap: 3 * time.Hour, Calm: true},
	}
	// proposals are the bases with the margins that are tried with them.
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
	// first is followed until then: the highest of the last hour, and hardly ever lowered.
	first = uint8(4*len(habits) + 2)
)

// CPU is what is remembered. Its zero value knows nothing and is ready for use. It may
// be copied.
type CPU struct {
	// All amounts are in millicores.
	mean, fast, noise float32
	// tick is the highest usage since candidates were charged last, and tickAge the
	// observed time since then.
	tick    float32
	tickAge time.Duration
	// span is the observed time, faded like costs. In days.
	span float32
	// observed is the length of time that this is about, as the short windows see it.
	observed time.Duration

	ring    [ringSize]packed // highest of 5 minutes each, the current one first
	ringAge time.Duration
	slots   [slotSize]packed // highest of half-hours
	slot    uint16           // the current one
	phase   uint16           // its half-hour of the day, from 1; 0 before the first sample
	// known are the bases that change with the ring and the slots only.
	known [bases]float32

	level, cost [candidates]float32
	// resizes are counted in 256ths and fade hourly.
	resizes [candidates]uint16
	// fell is when a level fell last, in minutes of observed time, as far as 16 bits
	// tell.
	fell    [candidates]uint16
	fadeAge time.Duration
	chosen  uint8
}

// Add takes usage into account: millicores of one pod at a time of day, and the
// observed time since the sample before it, which is 0 for another pod's at the same
// moment.
func (c *CPU) Add(millis int64, at time.Time, step time.Duration, p Params) {
	usage := float32(millis)
	if c.phase == 0 {
		c.mean, c.fast = usage, usage
		c.phase = p.phaseOf(at)
		step = 0 // whatever came before, this is the first that is known
	}
	if step > 0 {
		c.observed = min(c.observed+p.recent(step), longest)
		if c.tickAge += step; c.tickAge >= tickLength {
			c.close(p)
		}
		c.move(at, step, p)
	}
	c.tick = max(c.tick, usage)
	c.see(usage)
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

// move makes room in the ring and in the slots. The ring goes by observed time. Slots
// go by the time of day, so that what was seen at nine stays at nine after an outage,
// but whole days without samples take no room.
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
		c.survey()
	}
}

// see raises the maxima that are still going on.
func (c *CPU) see(usage float32) {
	p := pack(usage)
	usage = p.value()
	c.ring[0] = max(c.ring[0], p)
	c.slots[c.slot] = max(c.slots[c.slot], p)
	for b := range Noise {
		c.known[b] = max(c.known[b], usage)
	}
}

// survey makes all known bases anew.
func (c *CPU) survey() {
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

// usualSlot is the highest usage of three in four slots of the last day, of those with
// any.
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

// highestSlot is the highest usage of n slots, the first of them so many ago.
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

// basis is the amount that a basis stands for now.
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

// close charges every candidate for the tick and lets its level follow.
func (c *CPU) close(p Params) {
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
		for j := range habits {
			k := i*len(habits) + j
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

// learn moves the means.
func (c *CPU) learn(usage float32, recent, long time.Duration) {
	first := 1.0 // the first samples make a plain mean
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

// table is a habit in the units of levels.
type table struct {
	share float32
	gap   uint16 // minutes
	calm  bool
}

var (
	tables = func() (out [len(habits)]table) {
		for i, h := range habits {
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

// follow moves one level by its habit.
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

// next is the level that follows a held one, and whether it fell. since is the time since
// it fell last, in minutes.
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
	for range min(c.fadeAge/time.Hour, 2000) { // which leaves nothing
		for k, n := range c.resizes {
			c.resizes[k] = uint16(uint32(n) * hourlyFade >> 16)
		}
		for k := range c.fell { // keep 16 bits of minutes from coming round again
			if since := c.minute() - c.fell[k]; since > maxSince {
				c.fell[k] = c.minute() - maxSince
			}
		}
	}
	c.fadeAge %= time.Hour
}

// maxSince is a day in minutes: longer ago is as long ago.
const maxSince = 24 * 60

// hourlyFade is how much of a count is left after an hour, of 65536.
var hourlyFade = uint32(math.Round(65536 * math.Exp2(-float64(time.Hour)/float64(costHalfLife))))

// cheapest is the candidate with the lowest cost, resizes included; the one in use before
// another that is no better.
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

// Need is what the ensemble asks for now.
type Need struct {
	// Millis is the level, in millicores, rounded up. 0 while nothing is known.
	Millis int64
	// Candidate is the rule that has led there.
	Candidate Candidate
	// Usage is the highest usage since about tickLength, in millicores.
	Usage int64
	// Urgent is what a request must not be below: Usage, or 0 where the candidate is a
	// calm one.
	Urgent int64
}

// Need tells the level of the cheapest candidate, with the newest samples already taken
// into account.
func (c *CPU) Need() Need {
	if c.phase == 0 {
		return Need{}
	}
	k := int(c.chosen)
	if c.level[k] == 0 {
		k = int(first)
	}
	p := proposals[k/len(habits)]
	p.Habit = habits[k%len(habits)]
	proposal := c.basis(p.Basis) * factors[k/len(habits)]
	level, _ := tables[k%len(habits)].next(c.level[k], proposal, c.tick, c.minute()-c.fell[k])
	n := Need{
		Millis:    int64(math.Ceil(float64(level))),
		Candidate: p,
		Usage:     int64(math.Ceil(float64(c.tick))),
	}
	if !p.Habit.Calm {
		n.Urgent = n.Usage
	}
	return n
}

// IsEmpty tells whether no usage was added yet.
func (c *CPU) IsEmpty() bool { return c.phase == 0 }

// Peak is the highest usage of the last eight days, in millicores, rounded up.
func (c *CPU) Peak() int64 { return int64(math.Ceil(float64(c.known[Week]))) }

// Observed is the length of time that this is about, as the short windows see it.
func (c *CPU) Observed() time.Duration { return c.observed }

// longest is the most observed time that is counted. It leaves room for any step.
const longest = time.Duration(math.MaxInt64 / 4)
