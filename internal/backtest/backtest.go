// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backtest replays recorded usage against policies that size containers, and measures the
// resources that each of them would have reserved, and where they would have been short.
//
// It promises two things. The same traces and policies lead to the same report, byte for byte,
// on any number of processors. A policy never knows an interval in advance: its answer takes
// effect with the next interval.
//
// The model, which is the same for all policies:
//
//   - A trace holds, for each interval, the average CPU and the peak of memory that a
//     container needs. It does not depend on what is reserved.
//   - A policy reserves a request of each resource. The memory limit equals the memory
//     request. There is no CPU limit, unless Assumptions have one.
//   - Memory above the limit is an OOM kill. The policy sees the kill and memory at the
//     limit. The next interval needs the memory of the trace: if the policy does nothing, the
//     container is killed again.
//   - A change of either request is one resize. It always succeeds, and restarts nothing.
//   - A trace is one pod. Assumptions make several uneven pods of it, and noisy minutes of its
//     intervals. All pods have the same requests, and figures of CPU are means over pods.
//
// The package reads no clock and opens no files: traces come from readers, reports go to
// writers.
package backtest

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Rule is a way of sizing containers.
type Rule struct {
	// Name is short, and unique within a report.
	Name string
	// About describes the rule in one sentence.
	About string
	// New returns the policy for a container without history.
	New func(Container) Policy
}

// Container is a policy's knowledge of a container before its first interval.
type Container struct {
	Name string
	// Step is the length of the intervals.
	Step time.Duration
	// HasMemory is true if the trace includes memory. If false, only CPU is sized.
	HasMemory bool
	// Requests are the requests of the template; 0 means none.
	Requests quantity.Amounts
	// CPULimit is the CPU limit divided by the request; 0 without a CPU limit.
	CPULimit float64
	// HeapBytes is the heap of the trace.
	HeapBytes int64
}

// Policy sizes one container. One goroutine calls it with every interval, in order.
type Policy interface {
	// Next receives an interval and returns the requests from the next interval on, and
	// whether they are new. Memory is ignored if the trace includes none.
	Next(Observation) (quantity.Amounts, bool)
}

// Recommender is a policy that also recommends requests for a container without it, where nothing changes requests.
type Recommender interface {
	Policy
	// Recommend returns the requests that suit the usage and the need so far. ok is false while the policy knows
	// too little.
	Recommend() (requests quantity.Amounts, ok bool)
}

// Observation is a policy's knowledge at the end of an interval.
type Observation struct {
	// Start is the beginning of the interval. Gaps between intervals are possible.
	Start time.Time
	// Step is its length.
	Step time.Duration
	// CPUMillis is the average CPU used, in fractional millicores, at most the limit. With several pods, it is the
	// mean over them.
	CPUMillis float64
	// PodCPUMillis is the CPU of each pod, in a constant order; nil for a single pod.
	PodCPUMillis []float64
	// MemoryBytes is the peak of memory, at most the limit. With several pods, it is the largest
	// pod's.
	MemoryBytes int64
	// NeededBytes is the peak that was needed, for a Recommender only: kills follow from requests. 0 without
	// Options.Recommend.
	NeededBytes int64
	// OOMKilled is true if the container needed more memory than its limit.
	OOMKilled bool
	// Requests are the requests during the interval.
	Requests quantity.Amounts
}

// Pods is the CPU of each pod, in fractional millicores: one element for a single pod.
func (o Observation) Pods() []float64 {
	if len(o.PodCPUMillis) == 0 {
		return []float64{o.CPUMillis}
	}
	return o.PodCPUMillis
}

// Static is the rule that leaves the requests as they are.
func Static() Rule {
	return Rule{
		Name:  "static",
		About: "the current requests, never changed",
		New:   func(Container) Policy { return static{} },
	}
}

type static struct{}

func (static) Next(o Observation) (quantity.Amounts, bool) { return o.Requests, false }

// Trace is the need of one container over time.
type Trace struct {
	Name string
	// Table is the name of the table with the first sample; empty if the trace was not read from a
	// table.
	Table string
	// Step is the length of the intervals.
	Step time.Duration
	// Requests are the current requests of the container.
	Requests quantity.Amounts
	// HeapBytes is the heap that a flag sets, if any. VerticalScaler lowers no memory request below it.
	HeapBytes int64
	// HasMemory is true if memory was recorded: it is not 0 throughout.
	HasMemory bool
	// Samples are in the order of time, at least two, no two of them at the same time.
	Samples []Sample
}

// Sample is the need in one interval.
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
