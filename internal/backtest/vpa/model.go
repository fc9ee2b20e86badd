// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package vpa

import (
	"math"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// The recommender's defaults.
const (
	lowerPart, targetPart, upperPart = 0.5, 0.9, 0.95

	margin = 0.15

	minCPUMillis   = 25
	minMemoryBytes = 250 << 20

	// memoryInterval is the time with one peak of memory.
	memoryInterval = 24 * 60 * 60 // seconds
	// confidenceInterval is the history that counts as a confidence of 1: a day with a
	// sample a minute.
	confidenceInterval = 24 * 60 * 60 // seconds
	samplesAMinute     = 1.0

	oomRatio    = 1.2
	oomLeastAdd = 100 << 20

	// most is the largest amount.
	most = 1e14
)

// Recommendation is the target of a container, and the range outside of which its request is
// changed at once.
type Recommendation struct{ Target, Lower, Upper quantity.Amounts }

// Model is the state of VPA's recommender for one container. Several pods share the distribution of
// CPU. Their memory is taken as one pod's: the largest.
type Model struct {
	cpu, memory histogram

	first, last int64 // the times of the first and the last CPU sample
	samples     int

	// The current interval of memory ends at windowEnd. It counts with one peak: the larger of
	// usage and the need shown by a kill.
	windowEnd         int64
	peak, oomPeak     int64
	hasWindow, hasCPU bool
}

// NewModel returns a model without history.
func NewModel() *Model {
	return &Model{cpu: newHistogram(cpuScheme), memory: newHistogram(memoryScheme)}
}

// AddCPU adds a sample of a pod that begins at a time, in seconds since 1970. Samples must come in
// order; several pods may have samples of the same time.
func (m *Model) AddCPU(at, millis int64) {
	m.cpu.add(float64(millis)/1000, cpuSampleWeight, at)
	if !m.hasCPU {
		m.first, m.hasCPU = at, true
	}
	m.last = at
	m.samples++
}

// AddMemory does the same for memory.
func (m *Model) AddMemory(at, bytes int64) { m.addPeak(at, bytes, false) }

// AddOOMKill records that the container was OOM-killed with this memory request. It counts as a
// peak above the request, but not above the peak of an earlier kill.
func (m *Model) AddOOMKill(at, request int64) {
	used := max(request, m.peak)
	m.addPeak(at, max(used+oomLeastAdd, amount(float64(used)*oomRatio)), true)
}

// addPeak keeps one peak for each interval in the histogram, as of the interval's end.
func (m *Model) addPeak(at, bytes int64, isKill bool) {
	if !m.hasWindow {
		m.windowEnd, m.hasWindow = at, true
	}
	if at < m.windowEnd {
		before := max(m.peak, m.oomPeak)
		if before == 0 || bytes <= before {
			return
		}
		m.memory.remove(float64(before), peakSampleWeight, m.windowEnd)
	} else {
		m.windowEnd += ((at-m.windowEnd)/memoryInterval + 1) * memoryInterval
		m.peak, m.oomPeak = 0, 0
	}
	m.memory.add(float64(bytes), peakSampleWeight, m.windowEnd)
	if isKill {
		m.oomPeak = bytes
	} else {
		m.peak = bytes
	}
}

// Recommend returns the recommendation.
func (m *Model) Recommend() Recommendation {
	c := m.confidence()
	lower, upper := math.Pow(1+0.001/c, -2), 1+1/c

	var r Recommendation
	for _, of := range []struct {
		histogram *histogram
		unit      float64 // amounts in one of the histogram's unit
		least     int64
		// lower, target and upper receive the result.
		lower, target, upper *int64
	}{
		{&m.cpu, 1000, minCPUMillis, &r.Lower.CPUMillis, &r.Target.CPUMillis, &r.Upper.CPUMillis},
		{&m.memory, 1, minMemoryBytes, &r.Lower.MemoryBytes, &r.Target.MemoryBytes, &r.Upper.MemoryBytes},
	} {
		values := of.histogram.quantiles([3]float64{lowerPart, targetPart, upperPart})
		*of.lower = max(scaled(withMargin(values[0]*of.unit), lower), of.least)
		*of.target = max(withMargin(values[1]*of.unit), of.least)
		*of.upper = max(scaled(withMargin(values[2]*of.unit), upper), of.least)
	}
	return r
}

// confidence is about the number of days that the history is about.
func (m *Model) confidence() float64 {
	span := float64(m.last-m.first) / confidenceInterval
	return min(span, float64(m.samples)/(confidenceInterval/60*samplesAMinute))
}

func withMargin(value float64) int64 {
	base := amount(value)
	return base + scaled(base, margin)
}

// scaled multiplies. Without history, 0 times infinity is 0.
func scaled(v int64, factor float64) int64 {
	if v == 0 {
		return 0
	}
	return amount(float64(v) * factor)
}

// amount cuts off the fraction.
func amount(v float64) int64 { return int64(min(max(v, 0), most)) }
