// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backtest replays recorded usage against policies that size containers, and
// measures what each of them would have reserved, and what would have gone short.
//
// Its promises: the same traces and policies lead to the same report, byte for byte,
// on any number of processors; and nothing is measured that a policy could have known
// beforehand, since an answer takes effect with the next interval.
//
// The model, which is the same for all policies:
//
//   - A trace holds, for each interval, the average CPU and the peak of memory that a
//     container wants. It does not react to what is reserved.
//   - What is reserved is a request of each resource. The memory limit is the memory
//     request; there is no CPU limit.
//   - Memory above the limit is an OOM kill. The policy sees memory cut at the limit,
//     and that there was a kill. The next interval wants what the trace says, so that a
//     policy that does nothing is killed again.
//   - A change of either request is one resize. It always succeeds, and restarts nothing.
//
// There is no clock in here, and no file: traces are read from readers, and reports are
// written to writers.
package backtest

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Rule is a way of sizing containers.
type Rule struct {
	// Name is short, and unique within a report.
	Name string
	// About says in a sentence what the rule is.
	About string
	// New begins with a container about which nothing is known yet.
	New func(Container) Policy
}

// Container is what a policy knows of a container before its first interval.
type Container struct {
	Name string
	// Step is the length of the intervals.
	Step time.Duration
	// HasMemory says that the trace tells memory. Without, only CPU is sized.
	HasMemory bool
	// Requests are those that the container begins with.
	Requests quantity.Amounts
}

// Policy sizes one container. It is told every interval, in order, by one goroutine.
type Policy interface {
	// Next is told what happened in an interval, and answers what to request from the
	// next one on, and whether that is anything new. Memory is ignored where the trace
	// tells none.
	Next(Observation) (quantity.Amounts, bool)
}

// Observation is what a policy may know at the end of an interval.
type Observation struct {
	// Start is the beginning of the interval. Gaps between intervals are possible.
	Start time.Time
	// Step is its length.
	Step time.Duration
	// CPUMillis is the average CPU used, in millicores and parts of them.
	CPUMillis float64
	// MemoryBytes is the peak of memory, at most the limit.
	MemoryBytes int64
	// OOMKilled says that more memory was wanted than the limit.
	OOMKilled bool
	// Requests are those in force during the interval.
	Requests quantity.Amounts
}

// Static is the rule that leaves the requests as they are.
func Static() Rule {
	return Rule{
		Name:  "static",
		About: "today's requests, never changed",
		New:   func(Container) Policy { return static{} },
	}
}

type static struct{}

func (static) Next(o Observation) (quantity.Amounts, bool) { return o.Requests, false }
