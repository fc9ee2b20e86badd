// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Trace is what one container needed over time.
type Trace struct {
	Name string
	// Table is the name of the table with the first sample, which tells where a trace is from.
	// Empty if the trace was not read from a table.
	Table string
	// Step is the length of the intervals.
	Step time.Duration
	// Requests are those that the container has today.
	Requests quantity.Amounts
	// HasMemory is true if memory was recorded: it is not 0 throughout.
	HasMemory bool
	// Samples are in the order of time, at least two, no two of them at the same time.
	Samples []Sample
}

// Sample is what was needed in one interval.
type Sample struct {
	// At is the beginning of the interval, in seconds since 1970.
	At int64
	// CPUMillis is the average, in fractional millicores.
	CPUMillis float64
	// MemoryBytes is the peak.
	MemoryBytes int64
}

// seconds is the time that the sample with an index stands for: up to the next one,
// but no more than one step where samples are missing.
func (t Trace) seconds(i int) int64 {
	step := int64(t.Step / time.Second)
	if i+1 < len(t.Samples) {
		if gap := t.Samples[i+1].At - t.Samples[i].At; gap < 2*step {
			return gap
		}
	}
	return step
}

// length is the time from the first sample to the end of the last.
func (t Trace) length() time.Duration {
	if len(t.Samples) == 0 {
		return 0
	}
	last := len(t.Samples) - 1
	return time.Duration(t.Samples[last].At-t.Samples[0].At+t.seconds(last)) * time.Second
}
