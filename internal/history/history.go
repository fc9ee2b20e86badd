// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history holds what is known of a container's usage, merged over all pods
// of its Deployment.
//
// Time in here is *observed* time: it advances only between samples, and by at most
// MaxGap from one to the next. Six hours without metrics are thus as long as
// MaxGap; a restart, an outage or a holiday of the collector ages nothing, and what
// was once seen is forgotten only by seeing something else for long enough.
//
//	samples at 10:00, 10:01 and 16:01, MaxGap 2 min → 3 min observed
//
// A container's history takes some 800 bytes of memory whatever its age, and half of
// that when encoded; 2 KB and 700 bytes where usage spans four decades. Nothing in here is safe for use by several goroutines at once.
package history

import (
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/histogram"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// slotCount is the number of parts that the memory window is cut into. The
	// window is kept to within one of them: with 8 days, a peak is forgotten after
	// 7.75 to 8 days.
	slotCount = 32

	// sampleWeight is the weight of a sample right after a halving. It lets a sample
	// count for 6 halvings more before it is dropped.
	sampleWeight = 64
)

// Params say how fast usage is forgotten. All are in observed time; of all but
// MaxGap, 0 or less means never.
type Params struct {
	// CPUHalfLife is the time after which CPU usage counts half in the long
	// distribution. From an hour to weeks; less follows the hours of the day, more
	// takes longer to follow a lasting change. Default 24 h: one daily cycle counts
	// about as much as all before it.
	CPUHalfLife time.Duration

	// RecentHalfLife is the same for the recent distribution, which sees a rise that
	// the long one does not see yet. From 5 minutes to an hour; less takes noise for
	// a rise. Default 20 min: with a sample a minute, a rise is a tenth of the
	// distribution after 4 samples.
	RecentHalfLife time.Duration

	// MemoryWindow is the time for which a peak of memory is remembered. From a day
	// to weeks. Default 8 days: a peak that comes once a week is never forgotten.
	MemoryWindow time.Duration

	// OOMHalfLife is the time after which an OOM floor is half as high. From hours
	// to weeks. Default 4 days: 20 % more than the limit hit are gone after one day.
	OOMHalfLife time.Duration

	// MaxGap is the most by which time advances from one sample to the next. It
	// should be about twice the interval of the source: with less, time runs slow;
	// with much more, outages age what was seen. Default 2 min. At 0, time stands
	// still, and nothing is ever forgotten or proven.
	MaxGap time.Duration
}

// DefaultParams are those used unless configured otherwise.
func DefaultParams() Params {
	return Params{
		CPUHalfLife:    24 * time.Hour,
		RecentHalfLife: 20 * time.Minute,
		MemoryWindow:   8 * 24 * time.Hour,
		OOMHalfLife:    4 * 24 * time.Hour,
		MaxGap:         2 * time.Minute,
	}
}

// Container is what is known of one container's usage. Its zero value knows
// nothing and is ready for use. It must not be copied: use Clone.
type Container struct {
	observed time.Duration
	newest   int64 // time of the newest sample in ns since 1970; 0 without one

	cpu    fading
	recent fading

	// peaks are those of memory in each slot, the current slot first.
	peaks   [slotCount]int64
	slotAge time.Duration // observed time since the current slot began

	oom oomFloor
}

// fading is a distribution and the observed time since it was last halved.
type fading struct {
	values histogram.Histogram
	age    time.Duration
}

// oomFloor is the memory below which the container is known to be killed.
type oomFloor struct {
	bytes int64         // 0 for none
	set   time.Duration // observed time when it was set
	kill  int64         // time of the newest kill in ns since 1970; 0 without one
}

// Add takes a sample into account. Samples of the same moment may come in any
// order. One that is older than the newest counts like a new one, but does not turn
// time back.
func (c *Container) Add(s usage.Sample, p Params) {
	c.advanceTo(nanos(s.Time), p)
	cpu := min(max(s.CPUMillis, 0), quantity.MaxCPUMillis)
	c.cpu.add(cpu, p.CPUHalfLife)
	c.recent.add(cpu, p.RecentHalfLife)
	c.peaks[0] = max(c.peaks[0], min(s.MemoryBytes, quantity.MaxMemoryBytes))
}

// advanceTo moves observed time on.
func (c *Container) advanceTo(at int64, p Params) {
	before := c.newest
	if at <= before {
		return
	}
	c.newest = at
	if before == 0 {
		return // the first sample: there is nothing yet that could have aged
	}
	step := max(min(time.Duration(at-before), p.MaxGap), 0)
	c.observed = min(c.observed+step, longest)
	c.cpu.advance(step, p.CPUHalfLife)
	c.recent.advance(step, p.RecentHalfLife)
	c.slotAge = min(c.slotAge+step, longest)
	for range due(&c.slotAge, p.MemoryWindow/slotCount, slotCount) {
		copy(c.peaks[1:], c.peaks[:])
		c.peaks[0] = 0
	}
}

// advance halves the distribution as often as is due.
func (f *fading) advance(step, halfLife time.Duration) {
	f.age = min(f.age+step, longest)
	for range due(&f.age, halfLife, 32) {
		f.values.Halve()
	}
}

// add counts a value. Its weight grows within a half-life, so that nothing jumps
// when all is halved at its end:
//
//	after the halving → 64   a quarter later → 80   half → 96   just before → 127
func (f *fading) add(value int64, halfLife time.Duration) {
	weight := uint32(sampleWeight)
	if halfLife > 0 {
		weight += uint32(sampleWeight * (float64(f.age) / float64(halfLife)))
	}
	f.values.Add(value, weight)
}

// due takes whole periods out of age and tells how many they were. What has
// happened most times already cannot happen to more effect, which also bounds the
// work for absurd parameters.
func due(age *time.Duration, period time.Duration, most int) int {
	if period <= 0 {
		return 0
	}
	periods := *age / period
	*age -= periods * period //nolint:durationcheck // periods is a count
	return int(min(periods, time.Duration(most)))
}

// RecordOOM takes into account that a pod's container was killed for want of memory
// at a time. hit is the memory limit that it hit in bytes, or its request if it had
// no limit, or 0 if that is unknown too.
//
// The floor then is 20 % above what was not enough: the limit hit, or the peak
// where that was higher (a limit may have been lowered, or the node been short of
// memory). It never falls by another kill.
//
// Each kill must be told once only, but is usually seen many times: in each later
// state of the pod. So only a kill newer than all before it counts, and the result
// tells whether it did. Two pods killed within the same second count as one, which
// is the same floor.
func (c *Container) RecordOOM(at time.Time, hit int64, p Params) bool {
	kill := nanos(at)
	if kill <= c.oom.kill {
		return false
	}
	short := max(min(hit, quantity.MaxMemoryBytes), c.Peak())
	floor := min(short+(short+4)/5, quantity.MaxMemoryBytes)
	c.oom = oomFloor{
		bytes: max(floor, c.OOMFloor(p)),
		set:   c.observed,
		kill:  kill,
	}
	return true
}

// OOMFloor is the memory in bytes below which the container is known to be killed;
// 0 without a kill. It fades by half each OOMHalfLife, down to the peak:
//
//	1200 MiB, peak 900 MiB, half-life 4 d:  1 d → 1009 MiB   2 d → 900 MiB
func (c *Container) OOMFloor(p Params) int64 {
	if c.oom.bytes == 0 || p.OOMHalfLife <= 0 {
		return c.oom.bytes
	}
	age := float64(c.observed-c.oom.set) / float64(p.OOMHalfLife)
	return max(int64(math.Ceil(float64(c.oom.bytes)*math.Exp2(-age))), c.Peak())
}

// Observed is the length of time that the history is about.
func (c *Container) Observed() time.Duration { return c.observed }

// IsEmpty tells whether no sample was added yet.
func (c *Container) IsEmpty() bool { return c.newest == 0 }

// Peak is the highest usage of memory within the memory window, in bytes.
func (c *Container) Peak() int64 {
	peak := int64(0)
	for _, slot := range c.peaks {
		peak = max(peak, slot)
	}
	return peak
}

// CPUQuantile tells the millicores that were enough for the part q of the time, by
// the long distribution.
func (c *Container) CPUQuantile(q float64) int64 { return c.cpu.values.Quantile(q) }

// RecentCPUQuantile tells the same by the recent distribution.
func (c *Container) RecentCPUQuantile(q float64) int64 { return c.recent.values.Quantile(q) }

// NewestSample is the time of the newest sample; zero without one.
func (c *Container) NewestSample() time.Time { return fromNanos(c.newest) }

// NewestKill is the time of the newest OOM kill that was counted; zero without one.
func (c *Container) NewestKill() time.Time { return fromNanos(c.oom.kill) }

// Clone makes a copy that shares nothing.
func (c *Container) Clone() *Container {
	clone := *c
	clone.cpu.values = c.cpu.values.Clone()
	clone.recent.values = c.recent.values.Clone()
	return &clone
}

// longest is the most observed time that is counted: 73 years. It leaves room for
// adding any step.
const longest = time.Duration(math.MaxInt64 / 4)

// nanos converts to ns since 1970. Times that have no such number, from the zero
// time to a hostile one, are 0: such a sample counts, but moves nothing.
func nanos(t time.Time) int64 {
	if t.Year() < 1971 || t.Year() > 2200 {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
