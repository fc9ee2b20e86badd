// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package krr

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// trace has an interval of five minutes for each amount of CPU, in the order given.
func trace(memory int64, cpus ...float64) backtest.Trace {
	t := backtest.Trace{Name: "app", Step: 5 * time.Minute, HasMemory: true, Requests: quantity.Amounts{CPUMillis: 500, MemoryBytes: 4096 * mebi}}
	for i, cpu := range cpus {
		t.Samples = append(t.Samples, backtest.Sample{At: int64(i) * 300, CPUMillis: cpu, MemoryBytes: memory})
	}
	return t
}

func upTo(n int) (values []float64) {
	for i := range n {
		values = append(values, float64(i))
	}
	return values
}

// The expected values are from numpy.percentile(values, 95) and max × 1.15.
func TestRecommend(t *testing.T) {
	for name, c := range map[string]struct {
		trace backtest.Trace
		want  quantity.Amounts
		ok    bool
	}{
		"a percentile between two ranks":           {trace(1000*mebi, upTo(50)...), quantity.Amounts{CPUMillis: 47, MemoryBytes: 1150 * mebi}, true}, // 46.55
		"a percentile on a rank":                   {trace(1001*mebi, upTo(101)...), quantity.Amounts{CPUMillis: 95, MemoryBytes: 1152 * mebi}, true},
		"the least":                                {trace(10*mebi, make([]float64, 40)...), quantity.Amounts{CPUMillis: 10, MemoryBytes: 100 * mebi}, true},
		"three hours":                              {trace(1000*mebi, make([]float64, 36)...), quantity.Amounts{CPUMillis: 10, MemoryBytes: 1150 * mebi}, true},
		"less than three hours":                    {trace(1000*mebi, make([]float64, 35)...), quantity.Amounts{}, false},
		"usage older than two weeks is forgotten":  {trace(1000*mebi, append(upTo(2), make([]float64, 14*288)...)...), quantity.Amounts{CPUMillis: 10, MemoryBytes: 1150 * mebi}, true},
		"many intervals, of which few use nothing": {trace(1000*mebi, append(make([]float64, 10), repeat(700, 500)...)...), quantity.Amounts{CPUMillis: 700, MemoryBytes: 1150 * mebi}, true},
	} {
		t.Run(name, func(t *testing.T) {
			policy := Policy{hasMemory: true}
			for _, s := range c.trace.Samples {
				policy.Next(backtest.Observation{Start: time.Unix(s.At, 0), Step: c.trace.Step, CPUMillis: s.CPUMillis, MemoryBytes: s.MemoryBytes})
			}
			if got, ok := policy.recommend(); got != c.want || ok != c.ok {
				t.Errorf("recommended %+v, %t; want %+v, %t", got, ok, c.want, c.ok)
			}
		})
	}
}

func repeat(value float64, n int) (values []float64) {
	for range n {
		values = append(values, value)
	}
	return values
}

// The recommendation is applied once a day, and not before three hours.
func TestOnceADay(t *testing.T) {
	var cpus []float64
	for i := range 3 * 288 {
		cpus = append(cpus, 100+float64(i))
	}
	outcome := backtest.Replay(trace(300*mebi, cpus...), Rule(), backtest.Options{Record: true})
	var at []int64
	for _, change := range outcome.Changes {
		at = append(at, change.At/60)
	}
	if len(at) != 4 || at[1] != 180 || at[2] != 180+24*60 || at[3] != 180+48*60 {
		t.Errorf("requests change after %v minutes", at)
	}
}
