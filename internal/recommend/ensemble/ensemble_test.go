// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"
)

var (
	midnight = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	params   = Params{Recent: 1, Long: 1, Prices: Prices{Unserved: 40, Starved: 5, Resize: 0.02, ResizesPerDay: 12, Excess: 0.5}}
)

// feed adds a sample a minute.
func feed(c *CPU, from, minutes int, usage func(minute int) float64, p Params) {
	for m := from; m < from+minutes; m++ {
		c.Add(int64(usage(m)), midnight.Add(time.Duration(m)*time.Minute), time.Minute, p)
	}
}

const day = 1440

func TestNeed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	office := func(m int) float64 { // busy from nine to five
		if h := m % day / 60; h >= 9 && h < 17 {
			return 1000
		}
		return 100
	}
	cases := map[string]struct {
		usage       func(int) float64
		minutes     int
		least, most int64
	}{
		"constant usage is what is needed":              {usage: func(int) float64 { return 250 }, minutes: 3 * day, least: 250, most: 250},
		"no usage needs nothing":                        {usage: func(int) float64 { return 0 }, minutes: day, least: 0, most: 0},
		"noise is covered but for its rarest":           {usage: func(int) float64 { return 500 + 50*r.NormFloat64() }, minutes: 3 * day, least: 600, most: 800},
		"a rise is followed at once":                    {usage: func(m int) float64 { return 100 + 900*float64(m/day) }, minutes: day + 1, least: 1000, most: 1300},
		"after a busy day, the level falls":             {usage: office, minutes: 8*day - 60, least: 100, most: 130},
		"in the busy hours, usage is covered":           {usage: office, minutes: 7*day + 12*60, least: 1000, most: 1030},
		"spikes that come each quarter are not dropped": {usage: func(m int) float64 { return 100 + 900*float64(b2i(m%15 == 0)) }, minutes: 3 * day, least: 1000, most: 1300},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var c CPU
			feed(&c, 0, tc.minutes, tc.usage, params)
			if n := c.Need(); n.Millis < tc.least || n.Millis > tc.most {
				t.Errorf("Need() = %+v, want %dm to %dm", n, tc.least, tc.most)
			}
		})
	}
	if n := (&CPU{}).Need(); n != (Need{}) {
		t.Errorf("knowing nothing: Need() = %+v", n)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// replay holds what the ensemble asks for, and tells the mean level, the share of time
// below usage and the resizes a day, from the third day on.
func replay(usage func(int) float64, days int, p Params) (level, starved, resizes float64) {
	var c CPU
	held, n := int64(0), 0.0
	for m := range days * day {
		u := int64(usage(m))
		if m >= 3*day {
			n++
			level += float64(held)
			starved += float64(b2i(u > held))
		}
		c.Add(u, midnight.Add(time.Duration(m)*time.Minute), time.Minute, p)
		if need := c.Need(); need.Millis != held {
			held = need.Millis
			if m >= 3*day {
				resizes++
			}
		}
	}
	return level / n, starved / n, resizes / n * day
}

func loads() map[string]func(int) float64 {
	r := rand.New(rand.NewPCG(3, 4))
	return map[string]func(int) float64{
		"diurnal": func(m int) float64 {
			return 500 - 400*math.Cos(float64(m)/day*2*math.Pi) + 30*r.NormFloat64()
		},
		"bursty": func(int) float64 { return 100 * math.Exp(r.ExpFloat64()/2) },
		"steps":  func(m int) float64 { return 200 + 300*float64(m/180%3) + 20*r.NormFloat64() },
	}
}

func TestDearerStarvingStarvesLess(t *testing.T) {
	for name := range loads() {
		cheap, dear := params, params
		cheap.Prices.Unserved, cheap.Prices.Starved = 5, 1
		dear.Prices.Unserved, dear.Prices.Starved = 300, 60
		low, often, _ := replay(loads()[name], 10, cheap)
		high, seldom, _ := replay(loads()[name], 10, dear)
		if high < low || seldom > often {
			t.Errorf("%s: from cheap to dear, the level goes from %.0fm to %.0fm and starved time from %.4f to %.4f", name, low, high, often, seldom)
		}
	}
}

func TestDearerResizesAreFewer(t *testing.T) {
	for name := range loads() {
		dear := params
		dear.Prices.Resize, dear.Prices.ResizesPerDay, dear.Prices.Excess = 1, 1, 12
		_, _, many := replay(loads()[name], 10, params)
		_, _, few := replay(loads()[name], 10, dear)
		if few > many || few > 5 {
			t.Errorf("%s: from cheap to dear, resizes go from %.1f to %.1f a day", name, many, few)
		}
	}
}

func TestAnOutageKeepsTheTimeOfDay(t *testing.T) {
	nine := func(m int) float64 {
		if m%day/60 == 9 {
			return 1000
		}
		return 100
	}
	var c CPU
	feed(&c, 0, 3*day, nine, params)
	feed(&c, 5*day, 8*60+45, nine, params) // two days later, until a quarter to nine
	if got := c.known[SameTime2]; got != 1000 {
		t.Errorf("a quarter to nine after two days without samples, %gm are known of this time, want 1000m", got)
	}
}

func TestPack(t *testing.T) {
	for _, tc := range []struct{ in, want float32 }{{0, 0}, {0.2, 1}, {1, 1}, {250, 250}, {4095, 4095}, {4096, 4096}, {4097, 4098}, {10_000_000, 10_002_432}, {-1, 0}} {
		if got := pack(tc.in).value(); got != tc.want {
			t.Errorf("%g is packed as %g, want %g", tc.in, got, tc.want)
		}
	}
	before := packed(0)
	for v := float32(1); v < 1e9; v *= 1.001 {
		p := pack(v)
		if p < before || p.value() < v || p.value() > v*1.0006+1 {
			t.Fatalf("%g is packed as %g", v, p.value())
		}
		before = p
	}
}

func TestSize(t *testing.T) {
	var c CPU
	if size := unsafe.Sizeof(c); size > 2_800 {
		t.Errorf("an ensemble takes %d B", size)
	}
}

// Whatever is added, the answer covers the newest usage unless the candidate is a calm
// one, and what is encoded is read again.
func FuzzAdd(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 5))
		p := params
		if r.IntN(3) == 0 {
			p.Recent, p.Long = math.Exp(r.Float64()*20-5), math.Exp(r.Float64()*20-5)
		}
		var c CPU
		at := midnight
		for range 500 {
			step := time.Duration(r.Int64N(int64(5 * time.Minute)))
			at = at.Add(step)
			c.Add(int64(math.Exp(r.Float64()*16)), at, step, p)
			n := c.Need()
			if n.Millis < n.Urgent || n.Millis < 0 || n.Millis > 1<<30 || n.Urgent > n.Usage {
				t.Fatalf("seed %d: Need() = %+v", seed, n)
			}
		}
		b := c.AppendBinary(nil)
		again, rest, err := DecodeBinary(b)
		if err != nil || len(rest) > 0 || !slices.Equal(again.AppendBinary(nil), b) {
			t.Errorf("seed %d: %d of %d B do not round-trip: %v", seed, len(rest), len(b), err)
		}
	})
}

func TestDecodeRefusesImpossibleStates(t *testing.T) {
	for name, c := range map[string]CPU{
		"a slot after the last":        {slot: uint16(slotSize)},
		"a time of day after the last": {phase: uint16(perDay) + 1},
		"a candidate after the last":   {chosen: candidates},
		"a tick that has ended":        {tickAge: tickLength},
		"a ring entry that has ended":  {ringAge: ringSpan},
		"costs that have not faded":    {fadeAge: time.Hour},
		"a cost that is no number":     {cost: [candidates]float32{float32(math.NaN())}},
	} {
		if got, _, err := DecodeBinary(c.AppendBinary(nil)); err == nil {
			t.Errorf("%s: DecodeBinary() = %+v, want an error", name, got.Need())
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	usage := loads()["diurnal"]
	var c CPU
	feed(&c, 0, day, usage, params)
	b.ReportAllocs()
	for m := day; b.Loop(); m++ {
		c.Add(int64(usage(m)), midnight.Add(time.Duration(m)*time.Minute), time.Minute, params)
	}
}

func BenchmarkNeed(b *testing.B) {
	var c CPU
	feed(&c, 0, day, loads()["diurnal"], params)
	b.ReportAllocs()
	for b.Loop() {
		c.Need()
	}
}
