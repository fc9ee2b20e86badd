// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench holds what benchmarks share. The operator's own results are named Operator; all other names are of what it is
// compared with.
package bench

import (
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

// InTurns runs a benchmark of each contender.
func InTurns(b *testing.B, contenders ...Contender) {
	b.Helper()
	for _, c := range contenders {
		b.Run(c.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Run()
			}
		})
	}
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
