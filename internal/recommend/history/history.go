// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history holds the usage history of a container, merged over all pods of its
// Deployment.
//
// Time in this package is *observed* time: it advances only between samples, and by at most MaxGap
// from one sample to the next. Six hours without metrics thus count as MaxGap. A restart or an
// outage ages nothing; a peak is forgotten only after enough other usage has been observed.
//
//	samples at 10:00, 10:01 and 16:01, MaxGap 2 min → 3 min observed
//
// A container's history takes 3.2 KB of memory at any age, and less than 2 KB when encoded. The
// package is not safe for concurrent use.
package history

import (
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/ensemble"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// slotCount is the number of slots of the memory window. The window is exact to one slot:
	// with 8 days, a peak is forgotten after 7.75 to 8 days.
	slotCount = 32
)

// Params set how fast usage is forgotten. All are in observed time, and above 0.
type Params struct {
	// CPUHalfLife is the time after which the cost of a CPU level counts half. The long windows
	// of CPU, half an hour to eight days, scale with it: a tenth of it makes them a tenth as
	// long. From an hour to weeks. A smaller value follows a changed workload sooner; a larger
	// one is less sensitive to chance. Default 72 h.
	CPUHalfLife time.Duration

	// RecentHalfLife is the same for the short windows, of 5 minutes to three hours at
	// the default of 20 min, and for the time between two falls of a level.
	RecentHalfLife time.Duration

	// MemoryWindow is the time for which a peak of memory is remembered. From a day to weeks.
	// Default 8 days, so that a weekly peak is never forgotten. The need proven by an OOM kill is
	// remembered 4.5 times as long.
	MemoryWindow time.Duration

	// OOMHalfLife is the time after which an OOM floor has halved, down to the container's proven
	// need. From hours to weeks. Default 4 days: a floor 20 % above the exceeded limit is back near
	// that limit after one day.
	OOMHalfLife time.Duration

	// MaxGap is the most that time advances from one sample to the next. It should be about
	// twice the interval of the source. If it is smaller, time runs slow; if it is much larger,
	// outages age the history. Default 2 min.
	MaxGap time.Duration

	// Prices are the costs of levels of CPU.
	Prices ensemble.Prices
}

const (
	usualCPUHalfLife    = 72 * time.Hour
	usualRecentHalfLife = 20 * time.Minute
)

// DefaultParams are the defaults.
func DefaultParams() Params {
	return Params{
		CPUHalfLife:    usualCPUHalfLife,
		RecentHalfLife: usualRecentHalfLife,
		MemoryWindow:   8 * 24 * time.Hour,
		OOMHalfLife:    4 * 24 * time.Hour,
		MaxGap:         2 * time.Minute,
		Prices:         profile.Of(profile.Balanced).Prices,
	}
}

// forCPU returns the ensemble's parameters.
func (p Params) forCPU() ensemble.Params {
	return ensemble.Params{
		Prices: p.Prices,
		Recent: float64(usualRecentHalfLife) / float64(p.RecentHalfLife),
		Long:   float64(usualCPUHalfLife) / float64(p.CPUHalfLife),
	}
}

// Container is the usage history of one container. The zero value has no history and is ready for
// use. It must not be copied: use Clone.
type Container struct {
	observed time.Duration
	newest   int64 // time of the newest sample in ns since 1970; 0 without one
	samples  int64

	cpu ensemble.CPU
	// cpuFrom is the observed time before the ensemble began: the time of an older version.
	cpuFrom time.Duration

	// peaks are the peaks of memory by slot, the current slot first.
	peaks   [slotCount]int64
	slotAge time.Duration // observed time since the current slot began
	// changes is the mean |ln(peak / peak before)| of successive slots, and counted their number.
	changes float32
	counted int64

	oom       oomFloor
	climb     climb
	start     start
	templates [2]template // of CPU and memory

	coverage coverage
}

// Add takes a sample into account. Samples of the same moment may come in any order. A sample that
// is older than the newest counts like a new one, but does not turn time back.
func (c *Container) Add(s usage.Sample, p Params) {
	step := c.advanceTo(nanos(s.Time), p)
	c.samples++
	if !s.NoCPU && !c.useStart(s) {
		if step > 0 {
			c.endInterval()
		}
		cpu := min(max(s.CPUMillis, 0), quantity.MaxCPUMillis)
		c.cpu.Add(ensemble.Sample{Pod: s.Pod, Millis: cpu, Window: s.Window, LimitFactor: s.LimitFactor, LimitMillis: s.CPULimitMillis, At: fromNanos(c.newest)}, step, p.forCPU())
	}
	c.addMemory(s, p)
}

// Raise takes a sample into account that was read while another running pod was silent. The other
// pods show nothing about the silent one: such a sample may raise a recommendation, never lower
// one, and adds no observed time.
func (c *Container) Raise(s usage.Sample, p Params) {
	if at := nanos(s.Time); at > c.newest {
		c.newest = at
	}
	if !s.NoCPU && !c.useStart(s) {
		cpu := min(max(s.CPUMillis, 0), quantity.MaxCPUMillis)
		c.coverage.raiseCPU(cpu)
		c.cpu.Raise(cpu)
	}
	c.addMemory(s, p)
}

func (c *Container) addMemory(s usage.Sample, p Params) {
	bytes := min(s.MemoryBytes, quantity.MaxMemoryBytes)
	shared := c.sharedNeed(s.Pod, bytes)
	if shared == bytes {
		c.useLimit(bytes, s.MemoryLimit, s.MemoryRequest, p)
	}
	c.coverage.useMemory(bytes, c.newest)
	c.peaks[0] = max(c.peaks[0], shared)
	c.oom.use(shared, c.observed)
}

// advanceTo advances observed time, and returns the step.
func (c *Container) advanceTo(at int64, p Params) time.Duration {
	before := c.newest
	if at <= before {
		return 0
	}
	c.newest = at
	if before == 0 {
		return 0 // the first sample: no older data could have aged
	}
	step := max(min(time.Duration(at-before), p.MaxGap), 0)
	c.observed = min(c.observed+step, longest)
	c.slotAge = min(c.slotAge+step, longest)
	for i := range c.templates {
		c.templates[i].advance(step)
	}
	for range due(&c.slotAge, p.MemoryWindow/slotCount, slotCount) {
		c.countChange()
		copy(c.peaks[1:], c.peaks[:])
		c.peaks[0] = 0
	}
	return step
}

const (
	// firstChange is the expected change of a peak while no two are known; it weighs like
	// firstCounted of them. mostCounted makes older ones fade: a week of slots.
	firstChange  = 0.07
	firstCounted = 2
	mostCounted  = 28
)

// countChange takes the change to the slot that ends into account.
func (c *Container) countChange() {
	if c.peaks[0] <= 0 || c.peaks[1] <= 0 {
		return
	}
	mean := c.Volatility()
	c.counted = min(c.counted+1, mostCounted-firstCounted)
	change := math.Abs(math.Log(float64(c.peaks[0]) / float64(c.peaks[1])))
	c.changes = float32(mean + (change-mean)/float64(c.counted+firstCounted))
}

// Volatility is the change of the memory peak from one slot to the next. A slot is a 32nd of the
// memory window. Volatility is the mean of |ln(peak / peak before)|, over about a week.
//
//	peaks 400, 400, 440, 400 MiB, and so on → 0.095   nothing known yet → 0.07
func (c *Container) Volatility() float64 {
	if c.counted == 0 {
		return firstChange
	}
	return float64(c.changes)
}

// Growth is the share by which the current slot's peak exceeds the peak of the slot before it. It
// is 0 if it does not, or if the current peak is not the highest of the window.
func (c *Container) Growth() float64 {
	if c.peaks[1] <= 0 || c.peaks[0] < c.Peak() || c.peaks[0] <= c.peaks[1] {
		return 0
	}
	return float64(c.peaks[0])/float64(c.peaks[1]) - 1
}

// due takes whole periods out of age and returns their number, at most most: more repetitions have
// no effect. This also bounds the work for absurd parameters.
func due(age *time.Duration, period time.Duration, most int) int {
	periods := *age / period
	*age -= periods * period //nolint:durationcheck // periods is a count
	return int(min(periods, time.Duration(most)))
}

// Observed is the length of the history in observed time.
func (c *Container) Observed() time.Duration { return c.observed }

// ObservedCPU is the length of the CPU history. It is shorter than Observed only after reading a
// checkpoint of an older version.
func (c *Container) ObservedCPU() time.Duration { return c.observed - c.cpuFrom }

// Samples is the number of samples added.
func (c *Container) Samples() int64 { return c.samples }

// IsEmpty reports whether no sample was added yet.
func (c *Container) IsEmpty() bool { return c.newest == 0 }

// Peak is the highest usage of memory within the memory window, in bytes.
func (c *Container) Peak() int64 {
	peak := int64(0)
	for _, slot := range c.peaks {
		peak = max(peak, slot)
	}
	return peak
}

// CPU is the result of the ensemble.
func (c *Container) CPU() ensemble.Need { return c.cpu.Need() }

// KnowsCPU reports whether any usage of CPU is known.
func (c *Container) KnowsCPU() bool { return !c.cpu.IsEmpty() }

// LostCPU reports whether usage of CPU was added, but was lost in a restart. The next sample ends that.
func (c *Container) LostCPU() bool { return c.cpu.IsLost() }

// IsCPULasting reports whether usage of CPU outlasts a restart: not before the first interval is complete.
func (c *Container) IsCPULasting() bool { return c.cpu.IsLasting() }

// CPUPeak is the highest usage of CPU of about eight days, in millicores.
func (c *Container) CPUPeak() int64 { return c.cpu.Peak() }

// LimitTo sets times after now, which another clock has recorded, to now. Until then, the history would take no samples.
func (c *Container) LimitTo(now time.Time) {
	latest := max(nanos(now), int64(c.observed))
	c.newest, c.oom.kill, c.coverage.at = min(c.newest, latest), min(c.oom.kill, latest), min(c.coverage.at, latest)
	c.oom.counted.until = min(c.oom.counted.until, secondsOf(latest))
}

// NewestSample is the time of the newest sample; zero without one.
func (c *Container) NewestSample() time.Time { return fromNanos(c.newest) }

// Clone returns a deep copy.
func (c *Container) Clone() *Container {
	clone := *c
	clone.cpu = c.cpu.Clone()
	return &clone
}

// Closed is a deep copy to encode: in it, a complete interval of CPU usage, which counts for the
// recommendation, has ended. Encode leaves out the current interval.
func (c *Container) Closed(p Params) *Container {
	closed := c.Clone()
	closed.cpu = c.cpu.Closed(p.forCPU())
	return closed
}

// longest is the upper limit of the observed time: 73 years. Adding any step to it does not
// overflow.
const longest = time.Duration(math.MaxInt64 / 4)

// nanos converts to ns since 1970. A time out of range, such as the zero time, is 0: its sample
// counts, but time does not advance.
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
