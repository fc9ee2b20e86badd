// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// constant is a trace of a constant 1000m, of which as much is requested.
func constant(step time.Duration, count int) backtest.Trace {
	t := backtest.Trace{Name: "app", Step: step, HasMemory: true, Requests: quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1024 * mebi}}
	for i := range count {
		t.Samples = append(t.Samples, backtest.Sample{At: int64(i) * int64(step/time.Second), CPUMillis: 1000, MemoryBytes: 512 * mebi})
	}
	return t
}

// observed replays a trace in a world with its requests, and returns what a policy is told.
func observed(t backtest.Trace, w backtest.World) (all []backtest.Observation, m backtest.Measures) {
	outcome := backtest.Replay(t, rule(func(o backtest.Observation) (quantity.Amounts, bool) {
		all = append(all, o)
		return o.Requests, false
	}), backtest.Options{World: w})
	return all, outcome.Measures
}

// moments are the mean and the standard deviation of a series, and its correlation with itself one
// interval later.
func moments(of []float64) (mean, deviation, correlation float64) {
	n := float64(len(of))
	for _, v := range of {
		mean += v / n
	}
	for i, v := range of {
		deviation += (v - mean) * (v - mean) / n
		if i > 0 {
			correlation += (v - mean) * (of[i-1] - mean) / n
		}
	}
	return mean, math.Sqrt(deviation), correlation / deviation
}

func TestPodsWanderAroundTheSeries(t *testing.T) {
	const pods, spread = 10, 0.15
	all, _ := observed(constant(5*time.Minute, 20_000), backtest.World{Pods: pods, Spread: spread})
	for pod := range pods {
		var multiples, logs []float64
		for _, o := range all {
			if len(o.PodCPUMillis) != pods {
				t.Fatalf("%d pods were told, want %d", len(o.PodCPUMillis), pods)
			}
			multiples = append(multiples, o.PodCPUMillis[pod]/1000)
			logs = append(logs, math.Log(o.PodCPUMillis[pod]/1000))
		}
		mean, _, _ := moments(multiples)
		_, deviation, correlation := moments(logs)
		if math.Abs(mean-1) > 0.02 || math.Abs(deviation-spread) > 0.01 || math.Abs(correlation-0.8) > 0.02 {
			t.Errorf("pod %d is %.3f of the series, with a deviation of %.3f and a correlation of %.3f", pod, mean, deviation, correlation)
		}
	}
	for _, o := range all {
		sum := 0.0
		for _, cpu := range o.PodCPUMillis {
			sum += cpu
		}
		if math.Abs(o.CPUMillis-sum/pods) > 1e-9 || o.MemoryBytes != 512*mebi {
			t.Fatalf("the pods' mean is told as %g, and memory as %d: %v", o.CPUMillis, o.MemoryBytes, o.PodCPUMillis)
		}
	}
}

func TestMinutesStrayAroundTheirMean(t *testing.T) {
	const jitter = 0.25
	all, _ := observed(constant(5*time.Minute, 20_000), backtest.World{Minutes: true, Jitter: jitter})
	if len(all) != 100_000 {
		t.Fatalf("%d minutes, want 100000", len(all))
	}
	var minutes []float64
	for i, o := range all {
		if o.Step != time.Minute || o.Start.Unix() != int64(i)*60 || o.PodCPUMillis != nil {
			t.Fatalf("minute %d is %+v", i, o)
		}
		minutes = append(minutes, o.CPUMillis)
	}
	for i := 0; i < len(minutes); i += 5 {
		if mean, _, _ := moments(minutes[i : i+5]); math.Abs(mean-1000) > 1e-9 {
			t.Fatalf("the mean of minutes %d to %d is %g", i, i+4, mean)
		}
	}
	// Keeping the mean of five correlated minutes takes a part of the deviation.
	if _, deviation, _ := moments(minutes); deviation < 0.15*1000 || deviation > jitter*1000 {
		t.Errorf("the deviation is %.0fm", deviation)
	}
	plain, _ := observed(constant(5*time.Minute, 10), backtest.World{Minutes: true})
	for _, o := range plain {
		if o.CPUMillis != 1000 {
			t.Errorf("without jitter, a minute is %g", o.CPUMillis)
		}
	}
}

// TestAWorldLeavesTheRestAlone: other steps have no minutes, one pod is the series, an interval
// that ends early has fewer minutes, and everything follows from the name.
func TestAWorldLeavesTheRestAlone(t *testing.T) {
	hours := hourly([2]float64{500, 512}, [2]float64{600, 512})
	want, _ := observed(hours, backtest.World{})
	got, _ := observed(hours, backtest.World{Pods: 1, Spread: 1, Minutes: true, Jitter: 1})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hours of one pod (-plain +world):\n%s", diff)
	}

	early := constant(5*time.Minute, 3)
	early.Samples[1].At, early.Samples[2].At = 130, 1000
	all, _ := observed(early, backtest.World{Minutes: true, Jitter: 0.25})
	var starts []int64
	for _, o := range all {
		starts = append(starts, o.Start.Unix())
	}
	if diff := cmp.Diff([]int64{0, 60, 120, 130, 190, 250, 310, 370, 1000, 1060, 1120, 1180, 1240}, starts); diff != "" {
		t.Errorf("minutes (-want +got):\n%s", diff)
	}

	world := backtest.World{Pods: 3, Spread: 0.1, Minutes: true, Jitter: 0.25}
	first, _ := observed(constant(5*time.Minute, 50), world)
	second, _ := observed(constant(5*time.Minute, 50), world)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("a second replay differs (-first +second):\n%s", diff)
	}
	other := constant(5*time.Minute, 50)
	other.Name = "other"
	if different, _ := observed(other, world); cmp.Equal(first, different) {
		t.Error("two series have the same pods")
	}
}

// TestStarvedMeans: a peak of a minute is starved time, but not of the 5 minutes around it.
func TestStarvedMeans(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu           []float64 // of each minute; 1000m are requested
		minutes, mean float64   // starved
	}{
		"a short peak":                         {[]float64{900, 900, 1200, 900, 900}, 1, 0},
		"a higher one":                         {[]float64{900, 900, 1500, 900, 900}, 1, 5},
		"two spans are two":                    {[]float64{900, 900, 900, 900, 1500, 900, 900, 900, 900, 900}, 1, 5},
		"one that falls between two":           {[]float64{900, 900, 900, 900, 1300, 1300, 900, 900, 900, 900}, 2, 0},
		"the last span may be short":           {[]float64{900, 900, 900, 900, 900, 1500, 900}, 1, 2},
		"exactly what is requested is enough":  {[]float64{900, 1100, 1000, 1000, 1000}, 1, 0},
		"several starved minutes in one span":  {[]float64{1100, 1100, 900, 1100, 1100}, 4, 5},
		"nothing is starved where nothing was": {[]float64{0, 0, 0, 0, 0, 0}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			trace := constant(time.Minute, len(tc.cpu))
			for i, cpu := range tc.cpu {
				trace.Samples[i].CPUMillis = cpu
			}
			_, m := observed(trace, backtest.World{})
			if math.Abs(m.StarvedHours*60-tc.minutes) > 1e-9 || math.Abs(m.StarvedMeanHours*60-tc.mean) > 1e-9 {
				t.Errorf("%g minutes are starved, and %g of the means", m.StarvedHours*60, m.StarvedMeanHours*60)
			}
		})
	}
}
