// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/ensemble"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const mebi = 1 << 20

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	params = DefaultParams()

	// exported lets cmp read all our types.
	exported = cmp.Exporter(func(t reflect.Type) bool {
		return strings.HasPrefix(t.PkgPath(), reflect.TypeFor[Container]().PkgPath()) || t.PkgPath() == reflect.TypeFor[ensemble.CPU]().PkgPath()
	})
)

// sample is one of the container, a while after noon.
func sample(after time.Duration, cpuMillis, memoryBytes int64) usage.Sample {
	return usage.Sample{Container: "app", Time: noon.Add(after), Window: time.Minute, CPUMillis: cpuMillis, MemoryBytes: memoryBytes}
}

// feed adds a sample each minute, up to and including the last.
func feed(c *Container, from, to time.Duration, cpuMillis, memoryBytes int64) {
	for at := from; at <= to; at += time.Minute {
		c.Add(sample(at, cpuMillis, memoryBytes), params)
	}
}

func TestObservedTime(t *testing.T) {
	cases := map[string]struct {
		at   []time.Duration
		want time.Duration
	}{
		"nothing was observed before the first sample": {},
		"one sample is a moment":                       {at: []time.Duration{0}},
		"time passes from sample to sample":            {at: []time.Duration{0, time.Minute, 2 * time.Minute}, want: 2 * time.Minute},
		"a gap counts as MaxGap":                       {at: []time.Duration{0, time.Minute, 6 * time.Hour}, want: 3 * time.Minute},
		"samples of the same moment take no time":      {at: []time.Duration{0, time.Minute, time.Minute, time.Minute}, want: time.Minute},
		"an old sample does not turn time back":        {at: []time.Duration{0, time.Minute, 0, 2 * time.Minute}, want: 2 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var c Container
			for _, at := range tc.at {
				c.Add(sample(at, 100, mebi), params)
			}
			if got := c.Observed(); got != tc.want {
				t.Errorf("Observed() = %v, want %v", got, tc.want)
			}
			if got, want := c.Samples(), int64(len(tc.at)); got != want || c.IsEmpty() != (want == 0) {
				t.Errorf("there are %d samples, want %d", got, want)
			}
		})
	}
}

// The CPU of a start that has more CPU than ever does not count; its memory does.
func TestTheCPUOfABoostedStartCountsForNothing(t *testing.T) {
	var with, without Container
	for at := time.Duration(0); at < time.Hour; at += time.Minute {
		without.Add(sample(at, 100, 300*mebi), params)
		starts := sample(at, 100, 300*mebi)
		if at >= 30*time.Minute && at < 33*time.Minute {
			starts.CPUMillis, starts.MemoryBytes, starts.NoCPU = 4000, 700*mebi, true
		}
		with.Add(starts, params)
	}
	if with, without := with.CPU(), without.CPU(); with != without {
		t.Errorf("of CPU %+v is known, and without the start %+v", with, without)
	}
	if got := with.Peak(); got != 700*mebi {
		t.Errorf("the peak of memory is %d", got)
	}
	if with.Observed() != without.Observed() || with.Samples() != without.Samples() {
		t.Errorf("%s and %d samples, not %s and %d", with.Observed(), with.Samples(), without.Observed(), without.Samples())
	}
}

func TestTimesThatCannotBeMoveNothing(t *testing.T) {
	var c Container
	c.Add(sample(0, 100, mebi), params)
	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(math.MaxInt64, 0)} {
		s := sample(0, 100, mebi)
		s.Time = at
		c.Add(s, params)
		if c.RecordOOM(at, mebi, params) {
			t.Errorf("a kill at %v counted", at)
		}
	}
	if c.Observed() != 0 || !c.NewestSample().Equal(noon) || !c.NewestKill().IsZero() {
		t.Errorf("observed %v up to %v, newest kill %v; want 0, %v, none", c.Observed(), c.NewestSample(), c.NewestKill(), noon)
	}
}

func TestCPUFollowsAChange(t *testing.T) {
	var c Container
	between := func(when string, least, most int64) {
		t.Helper()
		if got := c.CPU().Millis; got < least || got > most {
			t.Errorf("%s: %dm, want %dm to %dm", when, got, least, most)
		}
	}
	feed(&c, 0, 24*time.Hour, 100, mebi)
	between("after a day of 100m", 100, 110)
	feed(&c, 24*time.Hour+time.Minute, 24*time.Hour+time.Minute, 1000, mebi)
	between("with the first sample of 1000m", 1000, 1300)
	feed(&c, 24*time.Hour+2*time.Minute, 26*time.Hour, 1000, mebi)
	between("2 hours after the rise", 1000, 1300)
	feed(&c, 26*time.Hour+time.Minute, 30*time.Hour, 100, mebi)
	between("4 hours after the fall", 100, 1300)
	feed(&c, 30*time.Hour+time.Minute, 6*24*time.Hour, 100, mebi)
	between("5 days after the fall", 100, 110)
}

func TestVolatilityFollowsThePeaks(t *testing.T) {
	p := params
	p.MemoryWindow = slotCount * time.Hour // slots of an hour
	grow := func(share float64) *Container {
		c, bytes := &Container{}, 400.0*mebi
		for m := range 48 * 60 {
			if m%60 == 0 {
				bytes *= 1 + share
			}
			c.Add(sample(time.Duration(m)*time.Minute, 100, int64(bytes)), p)
		}
		return c
	}
	for share, want := range map[float64]float64{0: 0, 0.02: 0.02, 0.1: 0.095} {
		c := grow(share)
		if got := c.Volatility(); math.Abs(got-want) > 0.01 {
			t.Errorf("growing by %g each slot: Volatility() = %g, want about %g", share, got, want)
		}
		if got := c.Growth(); math.Abs(got-share) > 1e-6 {
			t.Errorf("growing by %g each slot: Growth() = %g", share, got)
		}
	}
	if got := (&Container{}).Volatility(); got != 0.07 {
		t.Errorf("knowing nothing: Volatility() = %g, want 0.07", got)
	}
}

func TestAPeakIsRememberedForTheWindow(t *testing.T) {
	var c Container
	c.Add(sample(0, 100, 900*mebi), params)
	day := 24 * time.Hour
	feed(&c, time.Minute, 7*day+17*time.Hour, 100, 400*mebi)
	if got := c.Peak(); got != 900*mebi {
		t.Errorf("Peak() after 7.7 days = %d MiB, want 900", got/mebi)
	}
	feed(&c, 7*day+17*time.Hour+time.Minute, 8*day, 100, 400*mebi)
	if got := c.Peak(); got != 400*mebi {
		t.Errorf("Peak() after 8 days = %d MiB, want 400", got/mebi)
	}
}

func TestAGapAgesNothing(t *testing.T) {
	var c Container
	feed(&c, 0, time.Hour, 100, 900*mebi)
	c.RecordOOM(noon.Add(time.Hour), 1000*mebi, params)
	before := c.Clone()
	c.Add(sample(365*24*time.Hour, 1, mebi), params)
	if c.Peak() != before.Peak() || c.CPU().Millis != before.CPU().Millis || c.CPUPeak() != before.CPUPeak() || c.OOMFloor(params) < before.OOMFloor(params)*999/1000 {
		t.Errorf("a year without metrics: peak %d → %d, CPU %d → %d, OOM floor %d → %d; want no change",
			before.Peak(), c.Peak(), before.CPU().Millis, c.CPU().Millis, before.OOMFloor(params), c.OOMFloor(params))
	}
}

func TestNegativeAndAbsurdAmountsAreCut(t *testing.T) {
	var c Container
	c.Add(sample(0, -5, -5), params)
	if c.CPUPeak() != 0 || c.Peak() != 0 {
		t.Errorf("negative usage: CPU %d, memory %d; want 0", c.CPUPeak(), c.Peak())
	}
	c.Add(sample(0, math.MaxInt64, math.MaxInt64), params)
	if c.CPUPeak() > 10_400_000 || c.Peak() != 1<<50 {
		t.Errorf("absurd usage: CPU %d, memory %d; want about 10,000,000 and 1 PiB", c.CPUPeak(), c.Peak())
	}
}

func TestACloneSharesNothing(t *testing.T) {
	histories := Histories{}
	histories.Add(sample(0, 100, mebi), params)
	clone := histories.Clone()
	before := histories["app"].Clone()
	clone.Add(sample(time.Hour, 5000, 5*mebi), params)
	clone["app"].RecordOOM(noon, mebi, params)
	assert.Equal(t, "the original after a change of its clone", before, histories["app"], exported)
}

func TestBook(t *testing.T) {
	histories := Histories{}
	s := sample(0, 100, mebi)
	for i := range MaxContainers {
		s.Container = fmt.Sprintf("c%02d", i)
		if !histories.Add(s, params) {
			t.Fatalf("there was no room for container %d", i)
		}
	}
	s.Container = "one-too-many"
	if histories.Add(s, params) || len(histories) != MaxContainers {
		t.Errorf("the histories holds %d containers, want at most %d", len(histories), MaxContainers)
	}
	histories.Retain([]string{"c07", "unknown"})
	if len(histories) != 1 || histories["c07"] == nil {
		t.Errorf("Retain() left %d containers, want c07 only", len(histories))
	}
}

// random makes a history as random as fuzzing wants it.
func random(seed uint64) *Container {
	r := rand.New(rand.NewPCG(seed, 1))
	c, at := &Container{}, time.Duration(0)
	for range r.IntN(300) {
		at += time.Duration(r.Int64N(int64(10*time.Minute))) - time.Minute
		s := sample(at, int64(math.Exp(r.Float64()*18)), int64(math.Exp(r.Float64()*35)))
		s.MemoryLimit = min(s.MemoryBytes+r.Int64N(1<<35), quantity.MaxMemoryBytes)
		s.MemoryRequest = s.MemoryLimit / 2
		c.Add(s, params)
		switch r.IntN(50) {
		case 0:
			floor := c.OOMFloor(params)
			c.RecordKill(Kill{
				At: noon.Add(at), HitBytes: max(floor, r.Int64N(1<<40)), Name: fmt.Sprint(r.IntN(3)), Pods: r.IntN(5), Request: r.Int64N(1 << 40),
				TemplateRequest: r.Int64N(1 << 30), TemplateSize: r.Int64N(1 << 30), MostBytes: 1 << 42,
			}, noon.Add(at), params)
		case 4:
			c.NoteTemplate(quantity.Amounts{CPUMillis: r.Int64N(100), MemoryBytes: r.Int64N(1 << 30)}, quantity.Amounts{}, r.IntN(2) == 0)
		case 1, 2:
			c.Expect(quantity.Amounts{CPUMillis: r.Int64N(5000), MemoryBytes: r.Int64N(1 << 45)}, Goal{Time: time.Duration(r.Int64N(int64(10 * time.Hour))), MaxStarvedPercent: r.IntN(101)})
		case 3:
			c.Pause()
		}
	}
	return c
}

func FuzzEncode(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		c := random(seed)
		encoded := c.Encode()
		decoded, err := Decode(encoded)
		if err != nil || len(encoded) > 2<<10 {
			t.Fatalf("Decode() of %d bytes: %v", len(encoded), err)
		}
		if again := decoded.Encode(); !bytes.Equal(encoded, again) {
			t.Errorf("encoding does not round-trip (-want +got):\n%s", cmp.Diff(encoded, again))
		}
		// Of the ensemble, only its level stays.
		before, after := *c, decoded
		before.cpu, after.cpu = ensemble.CPU{}, ensemble.CPU{}
		// Coverage has an encoding of its own.
		before.coverage = coverage{}
		assert.Equal(t, "encoding loses what is known", before, after, exported)
		if decoded.cpu.IsEmpty() && c.Observed() < 15*time.Minute {
			return // the first interval, which ends with the first sample after 5 minutes, is lost in a restart
		}
		a, b := c.CPU(), decoded.CPU()
		if a.Urgent != b.Urgent {
			return // the usage of the last interval, which no later sample has ended, is not encoded
		}
		if a.Basis != b.Basis || b.Millis < a.Millis || b.Millis > a.Millis+a.Millis/1000+1 {
			t.Errorf("the ensemble asks for %+v, and once it was read for %+v", a, b)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add((&Container{}).Encode())
	f.Add(random(1).Encode())
	for seed := range uint64(300) {
		r, b := rand.New(rand.NewPCG(seed, 17)), random(seed).Encode()
		for range 1 + r.IntN(4) {
			b[r.IntN(len(b))] = byte(r.UintN(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		if again, err := Decode(c.Encode()); err != nil || !bytes.Equal(again.Encode(), c.Encode()) {
			t.Errorf("what was decoded does not round-trip: %v", err)
		}
		before := c.Observed()
		c.Add(sample(time.Hour, 100, mebi), params)
		c.RecordOOM(noon.Add(time.Hour), mebi, params)
		if c.Observed() < before || c.Peak() < mebi || c.OOMFloor(params) < 0 || len(c.Encode()) > MaxEncoded {
			t.Errorf("what was decoded is not usable: %+v", c)
		}
		for range 12 {
			c.Add(usage.Sample{Time: c.NewestSample().Add(time.Minute), CPUMillis: 4000, MemoryBytes: mebi}, params)
		}
		if _, err := Decode(c.Encode()); err != nil {
			t.Errorf("what was decoded is not readable after more usage: %v", err)
		}
	})
}

// first is an encoding of version 1, with some of its eight numbers.
func first(numbers ...byte) []byte {
	b := append([]byte{1}, numbers...)
	return append(b, make([]byte, 8+slotCount+4-len(numbers))...)
}

func TestDecodeRefusesEverythingElse(t *testing.T) {
	valid := random(1).Encode()
	future := append([]byte{}, valid...)
	future[0] = Version + 1
	cases := map[string][]byte{
		"nothing":                  nil,
		"another version":          future,
		"the version alone":        valid[:1],
		"a missing end":            valid[:len(valid)-1],
		"a byte too many":          append(append([]byte{}, valid...), 0),
		"more than 8 KiB":          make([]byte, MaxEncoded+1),
		"a number above 63 bits":   append([]byte{Version, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, valid...),
		"usage without a sample":   first(60),
		"an age above all time":    first(0, 0, 0, 0, 60),
		"a kill before Kubernetes": first(0, 0, 0, 0, 0, 0, 0, 60),

		"usage without a sample, today":   (&Container{observed: time.Minute}).Encode(),
		"an age above all time, today":    (&Container{slotAge: time.Minute}).Encode(),
		"a kill before Kubernetes, today": (&Container{oom: oomFloor{kill: 60}}).Encode(),
		"more changes than are counted":   (&Container{counted: mostCounted}).Encode(),
		"a need shown after all time":     (&Container{oom: oomFloor{shown: time.Minute}}).Encode(),
		"a need above all memory":         (&Container{oom: oomFloor{need: 1 << 51}}).Encode(),
		"a longer row than there are":     (&Container{oom: oomFloor{row: 3}}).Encode(),
		"more observed than time passed":  (&Container{newest: nanos(noon), observed: 60 * 365 * 24 * time.Hour}).Encode(),
		"more observed than there can be": (&Container{newest: nanos(noon.AddDate(150, 0, 0)), observed: longest + 1}).Encode(),
		"a sample before Kubernetes":      (&Container{newest: 60}).Encode(),
		"CPU from after all time":         (&Container{cpuFrom: time.Minute}).Encode(),
		"a floor set after all time":      (&Container{newest: nanos(noon), observed: time.Minute, oom: oomFloor{set: math.MaxInt64, shown: 1}}).Encode(),
		"a need shown in no time":         (&Container{newest: nanos(noon), observed: time.Minute, oom: oomFloor{set: 1, shown: math.MaxInt64}}).Encode(),
		"a need shown later than now":     (&Container{newest: nanos(noon), observed: time.Minute, oom: oomFloor{set: time.Minute, shown: time.Minute}}).Encode(),
		"a peak above all memory":         (&Container{peaks: [slotCount]int64{3: 1 << 51}}).Encode(),
		"a floor above all memory":        (&Container{oom: oomFloor{bytes: 1 << 51}}).Encode(),
		"changes below zero":              (&Container{changes: -1}).Encode(),
		"changes above all memory":        (&Container{changes: greatestChange + 1}).Encode(),
		"changes that are no number":      (&Container{changes: float32(math.NaN())}).Encode(),
		"a start above all CPU":           (&Container{start: start{need: 1 << 51}}).Encode(),
		"a start after all time":          (&Container{start: start{need: 1, at: time.Minute}}).Encode(),
		"version 2 without its changes":   append([]byte{2}, make([]byte, 9+slotCount+3)...),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			if c, err := Decode(b); err == nil {
				t.Errorf("Decode() = %+v, want an error", c)
			}
		})
	}
}

// TestTheFirstVersionStaysReadable holds bytes written by version 1.
func TestTheFirstVersionStaysReadable(t *testing.T) {
	text := "01" + // version
		"80e0ba84bf03" + "80e094a3dabeadcc18" + // observed, newest sample
		"80e0ba84bf03" + "80e0ba84bf03" + "80e0ba84bf03" + // ages: CPU, recent CPU, slot of memory
		"808080ac02" + "80e0ba84bf03" + "8080da9e9bbbadcc18" + // OOM floor: bytes, set, newest kill
		"808080c801" + strings.Repeat("00", slotCount-1) + // peaks
		"4f01c001" + // CPU: 1 bucket from 79 on
		"4f01c901" // recent CPU
	b, err := hex.DecodeString(text)
	must.Succeed(t, err)
	c, err := Decode(b)
	must.Succeed(t, err)
	if c.Peak() != 400*mebi || c.OOMFloor(params) != 600*mebi || !c.NewestKill().Equal(noon) || !c.NewestSample().Equal(noon.Add(2*time.Minute)) {
		t.Errorf("peak %d, OOM floor %d, kill %v, newest sample %v", c.Peak(), c.OOMFloor(params), c.NewestKill(), c.NewestSample())
	}
	if c.Observed() != 2*time.Minute || c.ObservedCPU() != 0 || c.CPU() != (ensemble.Need{}) {
		t.Errorf("observed %v, CPU for %v: %+v; want the evidence of CPU to start over", c.Observed(), c.ObservedCPU(), c.CPU())
	}
}

// TestTheSecondVersionStaysReadable holds bytes written by version 2, but for most of the ensemble,
// which is not read.
func TestTheSecondVersionStaysReadable(t *testing.T) {
	text := "02" + // version
		"80c080cb87d20a" + "80c0dae9a28db8cc18" + "8d06" + // observed, newest sample, samples
		"00" + "80c0e285e368" + "01" + // CPU from, age of the slot, changes counted
		"808080ac02" + "80c080cb87d20a" + "80c0dae9a28db8cc18" + // OOM floor: bytes, set, newest kill
		strings.Repeat("808080c801", 3) + strings.Repeat("00", slotCount-3) + // peaks
		"8c253f3d" + // mean of changes
		"80c080cb87d20a0000000000c8420000c842" // CPU
	b, err := hex.DecodeString(text)
	must.Succeed(t, err)
	c, err := Decode(b)
	must.Succeed(t, err)
	kill := noon.Add(13 * time.Hour)
	if c.Peak() != 400*mebi || c.OOMFloor(params) != 600*mebi || !c.NewestKill().Equal(kill) || !c.NewestSample().Equal(kill) || c.Samples() != 781 {
		t.Errorf("peak %d, OOM floor %d, kill %v, newest sample %v, %d samples", c.Peak(), c.OOMFloor(params), c.NewestKill(), c.NewestSample(), c.Samples())
	}
	if got := c.Volatility(); math.Abs(got-0.0467) > 0.001 {
		t.Errorf("Volatility() = %g, want 0.0467", got)
	}
	if c.Observed() != 13*time.Hour || c.ObservedCPU() != 0 || c.CPU() != (ensemble.Need{}) {
		t.Errorf("observed %v, CPU for %v: %+v; want the evidence of CPU to start over", c.Observed(), c.ObservedCPU(), c.CPU())
	}
	for _, at := range []time.Time{kill, kill.Add(-time.Hour)} {
		if c.RecordKill(Kill{At: at, HitBytes: 600 * mebi, Pod: "a"}, kill, params) {
			t.Errorf("the kill of %v counts again", at)
		}
	}
	if !c.Clone().RecordKill(Kill{At: kill.Add(time.Minute), HitBytes: 600 * mebi, Pod: "a"}, kill.Add(time.Minute), params) {
		t.Error("the next kill does not count")
	}
	feed(&c, 13*time.Hour, 13*time.Hour+9*aDay, 100, 100*mebi)
	if got := c.OOMFloor(params); got < 500*mebi {
		t.Errorf("nine days later the floor is %d MiB, but 500 were hit", got/mebi)
	}
}

func TestTheWorstContainerStillEncodes(t *testing.T) {
	r, c := rand.New(rand.NewPCG(1, 2)), &Container{}
	for m := range 10 * 1440 {
		c.Add(sample(time.Duration(m)*time.Minute, int64(50*math.Exp(r.ExpFloat64())), int64(400+r.IntN(100))*mebi), params)
	}
	c.newest, c.observed, c.samples, c.slotAge = math.MaxInt64/2, longest, math.MaxInt64, longest
	c.oom = oomFloor{bytes: 1 << 50, set: longest, kill: math.MaxInt64 / 2, need: 1 << 50}
	for i := range c.oom.counted.newest {
		c.oom.counted.newest[i] = countedKill{id: math.MaxUint32, at: math.MaxUint32}
	}
	for i := range c.peaks {
		c.peaks[i] = 1 << 50
	}
	if got := len(c.Encode()); got > 2<<10 {
		t.Errorf("%d B encoded, want at most 2 KiB", got)
	}
}

// TestHeapOfAContainer is the promise of 3.4 KB, for all containers together and with their
// histories.
func TestHeapOfAContainer(t *testing.T) {
	const n = 10_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	books := make([]Histories, n)
	for i := range books {
		books[i] = Histories{}
		for m := range 10 {
			books[i].Add(sample(time.Duration(m)*time.Minute, int64(100+i%7*m), int64(m)*mebi), params)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	runtime.KeepAlive(books)
	t.Logf("%d B a container", each)
	if each > 3_532 { // which is rounded to 3.4 KB
		t.Errorf("a container and its histories take %d B of heap, want at most 3.4 KB", each)
	}
	// One byte more, and the allocator takes 128 B more.
	if size := unsafe.Sizeof(Container{}); size > 3200 {
		t.Errorf("a container takes %d B, want at most 3200 B", size)
	}
}
