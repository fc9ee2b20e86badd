// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const (
	interval = 5 * time.Minute
	perDay   = int(24 * time.Hour / interval)
	gibi     = 1 << 30

	// replicas is the number of pods of each Deployment.
	replicas = 4

	// meanCPU is the mean CPU of a pod over the series of a table, in millicores, which keep their proportions. sizeSpread is
	// the standard deviation of the logarithm of a Deployment's own multiple.
	meanCPU, sizeSpread = 500, 0.5
	// A pod that needs more than this at its peak is scaled down: 30 % of a node of 8 CPUs and 32 GiB.
	mostCPU, mostMemory = 2400, 9.6 * gibi

	// podSpread and podMemory describe how a pod's CPU strays from the series: see backtest.Assumptions.
	podSpread, podMemory = 0.10, 0.8
	// lessMemory is the share of memory by which each pod needs less than the pod before it.
	lessMemory = 0.03
	// jitter is the standard deviation of the logarithm of a minute's CPU around the mean of its interval. Pods stray
	// independently.
	jitter = 0.3

	// dayRatio is the least peak of an hour of the day, as a multiple of the mean, of a series that has a day.
	dayRatio = 1.4
	// memoryPerCore is the memory of a series in an environment that scales it: the peak in bytes per millicore of the mean CPU.
	memoryPerCore = 3 * gibi / 1000

	// rolloutEvery is the mean time between two rollouts of a Deployment, in intervals.
	rolloutEvery = 3 * 288
)

// series is usage in intervals from midnight on, in whole days.
type series struct {
	// scale is the factor from the usage of the series to the mean CPU of a pod.
	scale                        float64
	cpu, memory                  []float64 // millicores, bytes
	meanCPU, peakCPU, peakMemory float64
	// peakHourByMean is the CPU of the busiest hour of the day by the mean.
	peakHourByMean float64
}

// newSeries averages CPU over intervals, and takes the peak of memory. An interval without samples is like the one before. The
// part before the first midnight and after the last is left out. ok is false without memory or without a whole day.
func newSeries(t backtest.Trace) (s series, ok bool) {
	const day, each = 24 * 60 * 60, int64(interval / time.Second)
	first, last := t.Samples[0].At, t.Samples[len(t.Samples)-1].At+int64(t.Step/time.Second)
	first = (first + day - 1) / day * day
	if !t.HasMemory || last-first < day {
		return s, false
	}
	n := int((last - first) / day * day / each)
	s.cpu, s.memory = make([]float64, n), make([]float64, n)
	counts := make([]float64, n)
	for _, sample := range t.Samples {
		if i := (sample.At - first) / each; sample.At >= first && int(i) < n {
			s.cpu[i], s.memory[i] = s.cpu[i]+sample.CPUMillis, max(s.memory[i], float64(sample.MemoryBytes))
			counts[i]++
		}
	}
	var hours [24]float64
	for i := range n {
		if counts[i] > 0 {
			s.cpu[i] /= counts[i]
		} else if i > 0 {
			s.cpu[i], s.memory[i] = s.cpu[i-1], s.memory[i-1]
		}
		hours[i%perDay*24/perDay] += s.cpu[i] / float64(n/24)
		s.meanCPU += s.cpu[i] / float64(n)
	}
	s.peakCPU, s.peakMemory = slices.Max(s.cpu), slices.Max(s.memory)
	s.peakHourByMean = slices.Max(hours[:]) / s.meanCPU
	return s, s.meanCPU > 0 && s.peakMemory > 0
}

// newSeriesOf are the series of traces, without those that newSeries rejects.
func newSeriesOf(traces []backtest.Trace) (all []series) {
	var sources []string // of the series
	sum, count := map[string]float64{}, map[string]float64{}
	for _, t := range traces {
		if s, ok := newSeries(t); ok {
			all, sources = append(all, s), append(sources, t.Table)
			sum[t.Table] += s.meanCPU
			count[t.Table]++
		}
	}
	for i, source := range sources {
		all[i].scale = meanCPU / (sum[source] / count[source])
	}
	return all
}

// deployment is a Deployment of pods that use what a series says, in some proportion.
type deployment struct {
	id                    int
	series                series
	cpuScale, memoryScale float64
	// shift is how far its day is ahead, in intervals.
	shift    int
	template quantity.Amounts
	// lowersLimits is true if memory limits equal requests. Otherwise a limit only rises, and is at least the template's.
	lowersLimits bool
	pods         []*pod
	sizer        sizer

	random *rand.Rand
	logs   [replicas]float64 // of each pod's multiple
	// revision is the number of rollouts.
	revision int
	// isChanged is true if a pod has changed since the last plan.
	isChanged bool
}

// newFleet draws the Deployments of an environment. The same seed leads to the same fleet, whatever sizes it.
func newFleet(all []series, w environment, count int, seed uint64) (fleet []*deployment) {
	random := rand.New(rand.NewPCG(seed, 1))
	var order []int
	for id := range count {
		if len(order) == 0 {
			order = random.Perm(len(all))
		}
		d := &deployment{id: id, series: all[order[0]], random: rand.New(rand.NewPCG(seed, uint64(id)+2))}
		order = order[1:]
		d.cpuScale = d.series.scale * math.Exp(sizeSpread*random.NormFloat64())
		d.shift = random.IntN(37) - 18 // up to 90 minutes
		d.cpuScale = min(d.cpuScale, mostCPU/d.series.peakCPU)
		if w.scalesMemory {
			d.memoryScale = memoryPerCore * d.cpuScale * d.series.meanCPU / d.series.peakMemory
		} else {
			d.cpuScale = min(d.cpuScale, mostMemory/d.series.peakMemory)
			d.memoryScale = d.cpuScale
		}
		d.template = quantity.Amounts{
			CPUMillis:   max(1, int64(2*d.cpuScale*d.series.meanCPU)),
			MemoryBytes: max(4<<20, int64(1.3*d.memoryScale*d.series.peakMemory)),
		}
		for i := range d.logs {
			d.logs[i] = podSpread * d.random.NormFloat64()
		}
		fleet = append(fleet, d)
	}
	return fleet
}

// want sets what the pods want in an interval.
func (d *deployment) want(step int) {
	n := len(d.series.cpu)
	at := ((step+d.shift)%n + n) % n
	for i, p := range d.pods {
		p.average = d.cpuScale * d.series.cpu[at] * math.Exp(d.logs[i]-podSpread*podSpread/2)
		p.minute = p.average * math.Exp(jitter*d.random.NormFloat64()-jitter*jitter/2)
		p.needs = int64(d.memoryScale * d.series.memory[at] * (1 - lessMemory*float64(i)))
		d.logs[i] = podMemory*d.logs[i] + podSpread*math.Sqrt(1-podMemory*podMemory)*d.random.NormFloat64()
	}
}
