// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

// constant is a trace of a constant 1000m with the same request.
func constant(step time.Duration, count int) backtest.Trace {
	t := backtest.Trace{Name: "app", Step: step, HasMemory: true, Requests: quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1024 * mebi}}
	for i := range count {
		t.Samples = append(t.Samples, backtest.Sample{At: int64(i) * int64(step/time.Second), CPUMillis: 1000, MemoryBytes: 512 * mebi})
	}
	return t
}

// observed replays a trace with its requests under assumptions, and returns a policy's observations.
func observed(t backtest.Trace, w backtest.Assumptions) (all []backtest.Observation, m backtest.Measures) {
	outcome := backtest.Replay(t, rule(func(o backtest.Observation) (quantity.Amounts, bool) {
		all = append(all, o)
		return o.Requests, false
	}), backtest.Options{Assumptions: w})
	return all, outcome.Measures
}

// TestAssumptionsLeaveTheRestAlone: other steps have no minutes, one pod is the series, an interval
// that ends early has fewer minutes, and everything follows from the name.
func TestAssumptionsLeaveTheRestAlone(t *testing.T) {
	hours := hourly([2]float64{500, 512}, [2]float64{600, 512})
	want, _ := observed(hours, backtest.Assumptions{})
	got, _ := observed(hours, backtest.Assumptions{Pods: 1, Spread: 1, Minutes: true, Jitter: 1})
	assert.Equal(t, "hours of one pod, with assumptions", want, got)

	early := constant(5*time.Minute, 3)
	early.Samples[1].At, early.Samples[2].At = 130, 1000
	all, _ := observed(early, backtest.Assumptions{Minutes: true, Jitter: 0.25})
	var starts []int64
	for _, o := range all {
		starts = append(starts, o.Start.Unix())
	}
	assert.Equal(t, "minutes", []int64{0, 60, 120, 130, 190, 250, 310, 370, 1000, 1060, 1120, 1180, 1240}, starts)

	assumed := backtest.Assumptions{Pods: 3, Spread: 0.1, Minutes: true, Jitter: 0.25}
	first, _ := observed(constant(5*time.Minute, 50), assumed)
	second, _ := observed(constant(5*time.Minute, 50), assumed)
	assert.Equal(t, "a second replay", first, second)
	other := constant(5*time.Minute, 50)
	other.Name = "other"
	if different, _ := observed(other, assumed); cmp.Equal(first, different) {
		t.Error("two series have the same pods")
	}
}

// TestPodsUseNoMoreThanTheirLimit: a policy sees the limit, and measures count the wanted CPU.
func TestPodsUseNoMoreThanTheirLimit(t *testing.T) {
	trace := hourly([2]float64{5000, 512}, [2]float64{800, 512})
	for pods, want := range map[int]string{0: "[1500] [800]", 2: "[1500 1500] [800 800]"} {
		all, m := observed(trace, backtest.Assumptions{Pods: pods, CPULimit: 1.5})
		if got := fmt.Sprintf("%v %v", all[0].Pods(), all[1].Pods()); got != want || m.UnservedCPU != 4 {
			t.Errorf("%d pods used %s, and lacked %g cores, want %s", pods, got, m.UnservedCPU, want)
		}
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
			_, m := observed(trace, backtest.Assumptions{})
			if math.Abs(m.StarvedHours*60-tc.minutes) > 1e-9 || math.Abs(m.StarvedMeanHours*60-tc.mean) > 1e-9 {
				t.Errorf("%g minutes are starved, and %g of the means", m.StarvedHours*60, m.StarvedMeanHours*60)
			}
		})
	}
}
