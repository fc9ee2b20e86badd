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

// Report reports a result of a contender, with a unit of the form "name:unit".
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
