// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

var (
	midnight = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	params   = Params{Recent: 1, Long: 1, Prices: Prices{Unserved: 24, Starved: 9, Resize: 0.02, ResizesPerDay: 9, Excess: 6}}
)

// sampleAt is a sample of the only pod, some minutes after midnight.
func sampleAt(minute int, millis float64) Sample {
	return Sample{Pod: "web-0", Millis: int64(millis), At: midnight.Add(time.Duration(minute) * time.Minute)}
}

// feed adds a sample a minute.
func feed(c *CPU, from, minutes int, usage func(minute int) float64, p Params) {
	for m := from; m < from+minutes; m++ {
		c.Add(sampleAt(m, usage(m)), time.Minute, p)
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
		"noise of a minute evens out in five":           {usage: func(int) float64 { return 500 + 50*r.NormFloat64() }, minutes: 3 * day, least: 540, most: 650},
		"a rise is followed within two intervals":       {usage: func(m int) float64 { return 100 + 900*float64(m/day) }, minutes: day + 11, least: 1000, most: 1300},
		"after a busy day, the level falls":             {usage: office, minutes: 8*day - 60, least: 100, most: 130},
		"in the busy hours, usage is covered":           {usage: office, minutes: 7*day + 12*60, least: 1000, most: 1030},
		"spikes that come each quarter are not dropped": {usage: func(m int) float64 { return 100 + 900*float64(b2i(m%15 < 5)) }, minutes: 3 * day, least: 800, most: 1300},
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

// replay applies the ensemble's levels, and returns the mean level, the share of time below usage
// and the resizes a day, from the third day on.
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
		c.Add(sampleAt(m, float64(u)), time.Minute, p)
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

// Dearer starving starves less, and dearer resizes are fewer.
func TestPrices(t *testing.T) {
	for name := range loads() {
		cheap, dear, calm := params, params, params
		cheap.Prices.Unserved, cheap.Prices.Starved = 5, 1
		dear.Prices.Unserved, dear.Prices.Starved = 300, 60
		calm.Prices.Resize, calm.Prices.ResizesPerDay, calm.Prices.Excess = 1, 1, 12
		low, often, _ := replay(loads()[name], 10, cheap)
		high, seldom, _ := replay(loads()[name], 10, dear)
		_, _, many := replay(loads()[name], 10, params)
		_, _, few := replay(loads()[name], 10, calm)
		if high < low || seldom > often || few > many || few > 5 {
			t.Errorf("%s: from cheap to dear, the level goes from %.0fm to %.0fm, starved time from %.4f to %.4f, and resizes from %.1f to %.1f a day",
				name, low, high, often, seldom, many, few)
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

// A workload gets the same size from a source of any interval and window. Examples are
// metrics-server at 15, 30 and 60 s, and Prometheus with a rate over 5 minutes each minute.
func TestTheIntervalOfTheSourceDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	const finest = 15 // seconds
	usage := make([]float64, 4*day*60/finest)
	jitter := 0.0
	for i := range usage {
		jitter = 0.8*jitter + 0.15*r.NormFloat64()
		usage[i] = (500 - 300*math.Cos(float64(i)*finest/86400*2*math.Pi)) * math.Exp(jitter)
	}
	first := 0.0
	for _, source := range []struct{ seconds, window int }{{15, 15}, {30, 30}, {60, 60}, {300, 300}, {60, 300}} {
		var c CPU
		mean := 0.0
		n, window := source.seconds/finest, source.window/finest
		for i := 0; i+n <= len(usage); i += n {
			sum := 0.0
			covered := usage[max(i+n-window, 0) : i+n]
			for _, u := range covered {
				sum += u / float64(len(covered))
			}
			c.Add(Sample{Pod: "web-0", Window: time.Duration(source.window) * time.Second, Millis: int64(sum), At: midnight.Add(time.Duration(i+n) * finest * time.Second)}, time.Duration(source.seconds)*time.Second, params)
			mean += float64(c.Need().Millis) * float64(n) / float64(len(usage))
		}
		if first == 0 {
			first = mean
		}
		if math.Abs(mean/first-1) > 0.03 {
			t.Errorf("samples each %d s over %d s lead to %.0fm on average, those of 15 s to %.0fm", source.seconds, source.window, mean, first)
		}
	}
}

// fleet feeds the usage of several pods, a round each minute, in a random order.
func fleet(c *CPU, pods, minutes int, usage func(pod, minute int) float64) {
	r := rand.New(rand.NewPCG(8, 9))
	names := make([]string, pods)
	for i := range names {
		names[i] = "web-" + strconv.Itoa(i)
	}
	for m := range minutes {
		step := time.Minute
		for _, i := range r.Perm(pods) {
			s := sampleAt(m, usage(i, m))
			s.Pod = names[i]
			c.Add(s, step, params)
			step = 0
		}
	}
}

func TestUnevenPodsAreChargedForTheirMean(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	log := make([]float64, 10)
	wandering := func(i, m int) float64 {
		if m%5 == 0 {
			log[i] = 0.8*log[i] + 0.15*0.6*r.NormFloat64()
		}
		return 500 * math.Exp(log[i])
	}
	var c CPU
	fleet(&c, 10, 4*day, wandering)
	// The mean is 500m, and the highest of ten pods is usually at 630m.
	if n := c.Need(); n.Millis < 520 || n.Millis > 720 {
		t.Errorf("ten pods that differ by 15 %% need %+v, want 520m to 720m", n)
	}
}

// One pod with permanently more load than the others must not starve, with any number of others and
// any prices. A pod that is busy for a moment raises nothing.
func TestAHotPodDoesNotStarve(t *testing.T) {
	for _, pods := range []int{2, 3, 10, 100} {
		var c CPU
		fleet(&c, pods, day, func(i, _ int) float64 { return 50 })
		hot := func(i, m int) float64 {
			if i == 0 {
				return 1000 + float64(m%7)
			}
			return 50
		}
		fleet(&c, pods, 20, hot)
		if n := c.Need(); n.Millis < 1000 {
			t.Errorf("of %d pods, one is hot for 20 minutes: Need() = %+v, want 1000m or more", pods, n)
		}
		fleet(&c, pods, 2*day, hot)
		if n := c.Need(); n.Millis < 1000 || n.Millis > 1300 {
			t.Errorf("of %d pods, one is hot for two days: Need() = %+v, want 1000m to 1300m", pods, n)
		}
	}
	var c CPU
	leader := func(i, m int) float64 { // works for five minutes an hour
		if i == 0 && m%60 < 5 {
			return 1000
		}
		return 50
	}
	fleet(&c, 100, 2*day, leader)
	if n := c.Need(); n.Millis > 100 {
		t.Errorf("of 100 pods, one is busy for five minutes an hour: Need() = %+v, want at most 100m", n)
	}
}

// Samples read while a pod is silent raise the level at once and never lower it, and add no time.
func TestRaiseOnlyRaises(t *testing.T) {
	var c CPU
	fleet(&c, 3, 2*day, func(i, _ int) float64 { return 300 + 50*float64(i) })
	before, observed, saved := c.Need().Millis, c.observed, c.AppendBinary(nil)
	for range 1000 {
		c.Raise(5)
	}
	if n := c.Need(); n.Millis != before || c.observed != observed || !slices.Equal(c.AppendBinary(nil), saved) {
		t.Errorf("low usage of a part of the pods: Need() = %+v, want %dm", n, before)
	}
	if c.Raise(2000); c.Need().Millis != 2000 || c.Need().Urgent != 2000 {
		t.Errorf("high usage of a part of the pods: Need() = %+v, want 2000m", c.Need())
	}
	fleet(&c, 3, 60, func(i, _ int) float64 { return 300 + 50*float64(i) })
	if n := c.Need(); n.Millis > before*11/10 {
		t.Errorf("an hour after the silence: Need() = %+v, want about %dm", n, before)
	}
}

// With a CPU limit close to the request, a peak of a minute is throttled. Without one, it is
// borrowed from idle CPU.
func TestALimitMakesShortPeaksCount(t *testing.T) {
	for _, tc := range []struct {
		factor      float64
		least, most int64
	}{{0, 280, 400}, {4, 280, 400}, {2, 500, 620}, {1, 1000, 1250}} {
		var c CPU
		for m := range 3 * day {
			s := sampleAt(m, 100+900*float64(b2i(m%5 == 2)))
			s.LimitFactor = tc.factor
			c.Add(s, time.Minute, params)
		}
		if n := c.Need(); n.Millis < tc.least || n.Millis > tc.most {
			t.Errorf("with a limit of %g times the request, Need() = %+v, want %dm to %dm", tc.factor, n, tc.least, tc.most)
		}
	}
}

// A morning that was seen before is climbed in a few steps, and a burst that ends before a resize
// takes effect is not followed.
func TestResizesAreForSomething(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	for name, tc := range map[string]struct {
		usage func(m int) float64
		most  float64
	}{
		"office hours": {func(m int) float64 {
			load, h := 0.08, float64(m%day)/60
			if h >= 7 && h < 19 {
				load += math.Sin(math.Pi * (h - 7) / 12)
			}
			return 1500 * load * math.Exp(0.1*r.NormFloat64())
		}, 12},
		"six bursts of two minutes a day": {func(m int) float64 {
			if m%240 < 2 {
				return 800
			}
			return 5
		}, 1},
	} {
		if _, _, resizes := replay(tc.usage, 14, params); resizes > tc.most {
			t.Errorf("%s: %.1f resizes a day, want at most %g", name, resizes, tc.most)
		}
	}
}

// A restart loses the current interval. Before the first one has ended, that is all there is.
func TestARestartWithinTheFirstIntervalKnowsNothing(t *testing.T) {
	var c CPU
	feed(&c, 0, 3, func(int) float64 { return 300 }, params)
	if n := c.Need(); n.Millis != 300 {
		t.Errorf("after three minutes: Need() = %+v, want 300m", n)
	}
	again, _, err := DecodeBinary(c.AppendBinary(nil))
	if err != nil || !again.IsEmpty() || again.Need() != (Need{}) {
		t.Errorf("after a restart: Need() = %+v, is empty %v, error %v; want nothing", again.Need(), again.IsEmpty(), err)
	}
	feed(&again, 3, 1, func(int) float64 { return 200 }, params)
	if n := again.Need(); n.Millis != 200 {
		t.Errorf("a minute after a restart: Need() = %+v, want 200m", n)
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

// The selected amount is the same as after sorting: for lists of any length, with many and few different
// amounts.
func TestSelectedIsWhatSortingPutsThere(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		list, kinds := make([]packed, 1+r.IntN(slotSize)), 1+r.IntN(math.MaxUint16+1)
		for i := range list {
			list[i] = packed(math.MaxUint16 - r.IntN(kinds))
		}
		index := r.IntN(len(list))
		if found := selected(list, index); found != slices.Sorted(slices.Values(list))[index] {
			t.Fatalf("selected(%v, %d) = %d", list, index, found)
		}
	}
}

// After any samples, the answer covers the newest usage unless the candidate is a calm one, and the
// encoded state can be read.
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
		pods := []string{"web-0", "web-1", "web-2", "web-3"}
		at := midnight
		for range 500 {
			step := time.Duration(r.Int64N(int64(5 * time.Minute)))
			at = at.Add(step)
			c.Add(Sample{Pod: pods[r.IntN(len(pods))], Millis: int64(math.Exp(r.Float64() * 16)), LimitFactor: float64(r.IntN(4)), At: at}, step, p)
			n := c.Need()
			if n.Millis < n.Urgent || n.Millis < 0 || n.Millis > 1<<30 {
				t.Fatalf("seed %d: Need() = %+v", seed, n)
			}
		}
		b := c.AppendBinary(nil)
		again, rest, err := DecodeBinary(b)
		again.Need()
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
		"costs that have not faded":    {fadeAge: time.Hour},
		"a cost that is no number":     {cost: [candidates]float32{float32(math.NaN())}},
		"a peak above all CPU":         {ring: [ringSize]packed{math.MaxUint16}},
		"a slot above all CPU":         {slots: [slotSize]packed{math.MaxUint16}},
		"usage below zero":             {mean: -1},
		"usage that is no number":      {mean: float32(math.NaN())},
		"more observed than possible":  {observed: longest + 1},
	} {
		if got, _, err := DecodeBinary(c.AppendBinary(nil)); err == nil {
			t.Errorf("%s: DecodeBinary() = %+v, want an error", name, got.Need())
		}
	}
	// Values that have grown too large are encoded as the greatest.
	for _, c := range []CPU{{cost: [candidates]float32{float32(math.Inf(1))}}, {level: [candidates]float32{math.MaxFloat32}}, {mean: greatest * 2}} {
		if _, _, err := DecodeBinary(c.AppendBinary(nil)); err != nil {
			t.Error(err)
		}
	}
}
