// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures several ways to do the same side by side, in one run. They take turns, so that
// other load on the machine affects all of them. hack/bench makes a table of the results.
//
// A result has a unit of the form "name:unit", such as "operator:cpu-ns". The operator's own results are
// named Operator; all other names are of what it is compared with.
package bench

import (
	"runtime"
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
const turn = time.Millisecond

// InTurns reports the mean CPU time of each contender, in nanoseconds. It includes that of the garbage
// collector, and that of other goroutines.
func InTurns(b *testing.B, contenders ...Contender) {
	b.Helper()
	runs, spent := make([]int, len(contenders)), make([]time.Duration, len(contenders))
	for i, c := range contenders {
		runs[i] = runsIn(turn, c.Run)
	}
	turns := 0
	for b.Loop() {
		turns++
		for i, c := range contenders {
			began := CPUTime(b)
			for range runs[i] {
				c.Run()
			}
			spent[i] += CPUTime(b) - began
		}
	}
	for i, c := range contenders {
		Report(b, c.Name, "cpu-ns", float64(spent[i])/float64(turns*runs[i]))
	}
	b.ReportMetric(0, "ns/op") // It would be the time of all contenders.
}

// runsIn is how often run can be called in a time, and at least 1.
func runsIn(d time.Duration, run func()) int {
	for n := 1; ; n *= 2 {
		began := time.Now()
		for range n {
			run()
		}
		if time.Since(began) >= d {
			return n
		}
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
