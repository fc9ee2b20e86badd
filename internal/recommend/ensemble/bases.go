// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import (
	"math"
	"time"
)

// phaseOf is the half-hour of the day, from 1. Long sets the length of a day.
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

// move advances the slots to a time of day, so that usage at nine stays at nine after an outage.
// Whole days without samples take no slots.
func (c *CPU) move(at time.Time, p Params) {
	moved := false
	for phase := p.phaseOf(at); c.phase != phase; moved = true {
		c.phase = c.phase%uint16(perDay) + 1
		c.slot = (c.slot + 1) % uint16(slotSize)
		c.slots[c.slot] = 0
	}
	if moved {
		c.refresh()
	}
}

// push adds the usage of an interval to the ring. An interval prolonged by a gap takes several
// entries; one without observed time takes none.
func (c *CPU) push(usage float32, age time.Duration) {
	n := min(int(age/interval), ringSize)
	copy(c.ring[n:], c.ring[:])
	clear(c.ring[:n])
	c.ring[0] = max(c.ring[0], pack(usage))
}

// refresh recomputes the known bases.
func (c *CPU) refresh() {
	c.known[Day] = c.highestSlot(0, perDay)
	c.known[Week] = highest(c.slots[:])
	same := float32(0)
	for day := 1; day <= 7; day++ {
		same = max(same, c.highestSlot(day*perDay-2, 4))
		if day == 2 {
			c.known[SameTime2] = same
		}
	}
	c.known[SameTime7] = same
	c.known[Usual] = c.usualSlot(perDay, .75)
	c.known[UsualWeek] = c.usualSlot(slotSize, .9)
}

// refreshMaxima raises the known maxima to the usage of an interval.
func (c *CPU) refreshMaxima(usage float32) {
	usage = pack(usage).value()
	c.known[Day] = max(c.known[Day], usage)
	c.known[Week] = max(c.known[Week], usage)
}

// usualSlot is the highest usage of a share of the last n slots. Empty slots do not count.
func (c *CPU) usualSlot(n int, share float64) float32 {
	var seen [slotSize]packed
	count := 0
	for ago := range n {
		if p := c.slots[c.slotAt(ago)]; p > 0 {
			seen[count] = p
			count++
		}
	}
	if count == 0 {
		return 0
	}
	return selected(seen[:count], min(int(float64(count)*share), count-1)).value()
}

// selected is the amount that a sorted list would have at an index. It finds the upper and then the lower eight
// bits by counting (a radix selection), which takes a tenth of the time of sorting.
func selected(list []packed, index int) (found packed) {
	for shift := 8; shift >= 0; shift -= 8 {
		var counts [1 << 8]int
		for _, p := range list {
			if p>>(shift+8) == found>>(shift+8) {
				counts[uint8(p>>shift)]++
			}
		}
		digit := 0
		for ; index >= counts[digit]; digit++ {
			index -= counts[digit]
		}
		found |= packed(digit) << shift
	}
	return found
}

// slotAt is the index of the slot a number of slots ago.
func (c *CPU) slotAt(ago int) int { return (int(c.slot) + slotSize - ago) % slotSize }

// highestSlot is the highest usage of n slots, beginning a number of slots ago.
func (c *CPU) highestSlot(ago, n int) float32 {
	most := packed(0)
	for i := ago; i < min(ago+n, slotSize); i++ {
		most = max(most, c.slots[c.slotAt(i)])
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

// amounts are the bases, if the current interval has this usage.
func (c *CPU) amounts(usage float32) (out [bases]float32) {
	out = c.known
	usage = pack(usage).value()
	out[QuarterHour] = max(usage, highest(c.ring[:2]))
	out[Hour] = max(usage, highest(c.ring[:11]))
	out[TwoHours] = max(usage, highest(c.ring[:]))
	out[Day] = max(usage, c.known[Day])
	out[Week] = max(usage, c.known[Week])
	out[Noise] = out[QuarterHour] + c.noise
	out[Noise2] = out[QuarterHour] + 2*c.noise
	out[Mean] = c.fast + 1.5*c.noise
	out[Mean2] = c.fast + 2.5*c.noise
	out[SameTime2] = max(c.known[SameTime2], out[Hour]*.8)
	out[SameTime7] = max(c.known[SameTime7], out[Hour]*.8)
	return out
}

const (
	// guideDays is the least number of similar days for a guide.
	guideDays = 2
	// guideNear is the factor within which usage was at the same time of a similar day.
	guideNear = 1.5
	// guideAhead is the number of half-hours that a guide looks ahead.
	guideAhead = 8
	// laterFrom and laterTo are the half-hours ahead in which usage may fall further.
	laterFrom, laterTo = 3, 6
	// laterShare is the share of a proposal below which usage then is.
	laterShare = .9
	// staircaseShare is the share of a level to which it falls while usage falls further, so
	// that an evening takes three resizes and not ten.
	staircaseShare = .6
)

// guide is the expected usage of the coming hours, by the time of day. It is zero unless usage was
// similar at this time of at least guideDays of the last seven days.
type guide struct {
	// ahead is the usage that all of these days reached within the next four hours.
	ahead float32
	// later is the highest usage of these days from one and a half to three hours later.
	later float32
}

// guide compares the last hour with the same hour of the last seven days, if the current interval
// has this usage.
func (c *CPU) guide(usage float32) (g guide) {
	now := max(c.highestSlot(0, 2), usage)
	days := 0
	for day := 1; day <= 7; day++ {
		at := day * perDay
		then := c.highestSlot(at, 2)
		if then == 0 || then > now*guideNear || then*guideNear < now {
			continue
		}
		reached := c.highestSlot(at-guideAhead, guideAhead+1)
		if days == 0 || reached < g.ahead {
			g.ahead = reached
		}
		g.later = max(g.later, c.highestSlot(at-laterTo, laterTo-laterFrom+1))
		days++
	}
	if days < guideDays {
		return guide{}
	}
	return g
}

// scaled is the guide for a candidate's margin and spread.
func (g guide) scaled(by float32) guide { return guide{ahead: g.ahead * by, later: g.later * by} }

// fallsFurther reports whether usage will be clearly below a level in the next hours.
func (g guide) fallsFurther(level float32) bool { return g.later > 0 && g.later < level*laterShare }

// packed is an amount in 16 bits: 5 bits of exponent and 11 bits after the leading one. Packing
// rounds up by at most 0.05 % and is exact up to 4095 millicores.
//
//	0 → 0   1 → 1   250 → 250   4097 → 4098   10,000,000 → 10,002,432
type packed uint16

const fraction = 11

func pack(v float32) packed {
	n := uint64(math.Ceil(float64(max(v, 0))))
	if n < 1<<(fraction+1) {
		return packed(n)
	}
	shift := 0
	for n >= 1<<(fraction+1) {
		n = (n + 1) >> 1
		shift++
	}
	if shift > 30 {
		return math.MaxUint16
	}
	return packed(uint64(shift)<<fraction + n)
}

func (p packed) value() float32 {
	if p < 1<<(fraction+1) {
		return float32(p)
	}
	shift := p>>fraction - 1
	return float32(uint64(p-shift<<fraction) << shift)
}
