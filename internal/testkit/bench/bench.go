// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures several ways to do the same side by side, in one run. They take turns, so that
// other load on the machine affects all of them.
//
// A result has a unit of the form "name:unit", such as "operator:cpu-ns". The operator's own results are
// named Operator; all other names are of what it is compared with.
package bench

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"testing"
	"time"
)

// Operator is the name of the operator's results.
const Operator = "operator"

// Contender is one way to do something.
type Contender struct {
	// Name is Operator, or what the operator is compared with.
	Name string
	// Run does it once.
	Run func()
}

// turn is how long a turn takes, at least.
const turn = 10 * time.Millisecond

// InTurns reports the mean CPU time of each contender, in nanoseconds, with its share of the garbage
// collector's (Cost), and that of other goroutines.
func InTurns(b *testing.B, contenders ...Contender) {
	b.Helper()
	runs, costs := make([]int, len(contenders)), make([]Cost, len(contenders))
	for i, c := range contenders {
		runs[i] = runsIn(b, turn, c.Run)
	}
	turns := 0
	for b.Loop() {
		for range 5 { // A turn on its own says little.
			turns++
			for i, c := range contenders {
				costs[i].Measure(b, func() { repeat(runs[i], c.Run) })
			}
		}
	}
	perByte := CollectorPerByte(b)
	for i, c := range contenders {
		Report(b, c.Name, "cpu-ns", costs[i].CPU(perByte)/float64(turns*runs[i]))
	}
	b.ReportMetric(0, "ns/op") // It would be the time of all contenders.
}

// Cost is what one of several ways costs that share a heap. A collection of garbage would count for the way that
// happens to run then. So none runs during a measurement, and each way is charged for what it allocates:
//
//	CPU = CPU without the collector + bytes allocated * CPU of a collection / bytes between two collections
//
// With GOGC=100, those bytes are as many as are alive, and at least 4 MiB (https://go.dev/doc/gc-guide#GOGC).
type Cost struct {
	cpu   time.Duration
	bytes uint64
}

// Measure runs something once.
func (c *Cost) Measure(tb testing.TB, run func()) {
	tb.Helper()
	runtime.GC() // removes the garbage of others
	before := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(before)
	bytes, cpu := allocated(), CPUTime(tb)
	run()
	c.cpu += CPUTime(tb) - cpu
	c.bytes += allocated() - bytes
}

// CPU is the CPU time of all measurements, in nanoseconds.
func (c *Cost) CPU(collectorPerByte float64) float64 {
	return float64(c.cpu) + float64(c.bytes)*collectorPerByte
}

// CollectorPerByte is the CPU time of the garbage collector for each allocated byte, in nanoseconds.
func CollectorPerByte(tb testing.TB) float64 {
	tb.Helper()
	runtime.GC() // what is garbage already
	const collections, least = 5, 4 << 20
	began := CPUTime(tb)
	for range collections {
		runtime.GC()
	}
	spent := (CPUTime(tb) - began) / collections
	return float64(spent) / float64(max(LiveHeap(), least))
}

// allocated is how many bytes the process has allocated in its life.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// runsIn is how often run can be called in a CPU time, and at least 1.
func runsIn(tb testing.TB, d time.Duration, run func()) int {
	tb.Helper()
	for n := 1; ; n *= 2 {
		var cost Cost
		cost.Measure(tb, func() { repeat(n, run) })
		if cost.cpu >= d {
			return n
		}
	}
}

func repeat(n int, run func()) {
	for range n {
		run()
	}
}

// Report reports a result of a contender.
func Report(b *testing.B, name, unit string, value float64) {
	b.Helper()
	b.ReportMetric(value, name+":"+unit)
}

// CPUTime is the CPU time that the process has spent. Unlike the time of a clock, it says something on a
// busy machine.
func CPUTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// LiveHeap is the size of all live objects, in bytes.
func LiveHeap() uint64 {
	runtime.GC()
	runtime.GC() // finishes the sweep of the first one
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
