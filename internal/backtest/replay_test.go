// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

const mebi = 1 << 20

// next is a policy made of a function.
type next func(backtest.Observation) (quantity.Amounts, bool)

func (n next) Next(o backtest.Observation) (quantity.Amounts, bool) { return n(o) }

func rule(n next) backtest.Rule {
	return backtest.Rule{Name: "test", New: func(backtest.Container) backtest.Policy { return n }}
}

// doubling doubles the memory after each kill.
func doubling() backtest.Rule {
	r := rule(func(o backtest.Observation) (quantity.Amounts, bool) {
		o.Requests.MemoryBytes *= 2
		return o.Requests, o.OOMKilled
	})
	r.Name = "doubling"
	return r
}

// hourly makes a trace of CPU in millicores and memory in MiB, one pair each hour from a
// midnight on. A request of 1000m and 1 GiB is applied.
func hourly(pairs ...[2]float64) backtest.Trace {
	t := backtest.Trace{Name: "app", Step: time.Hour, Requests: quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1024 * mebi}}
	for i, pair := range pairs {
		t.HasMemory = t.HasMemory || pair[1] > 0
		t.Samples = append(t.Samples, backtest.Sample{At: int64(i) * 3600, CPUMillis: pair[0], MemoryBytes: int64(pair[1] * mebi)})
	}
	return t
}

func TestReplay(t *testing.T) {
	gap := hourly([2]float64{500, 512}, [2]float64{500, 512}, [2]float64{500, 512})
	gap.Samples[2].At += 100 * 3600
	nearly := hourly([2]float64{500, 512}, [2]float64{500, 512})
	nearly.Samples[1].At += 1800

	half, killed := hourly([2]float64{500, 512}, [2]float64{500, 512}), hourly([2]float64{0, 2048}, [2]float64{0, 2048}, [2]float64{0, 2048})
	always := func(cpu, memory int64) backtest.Rule {
		return rule(func(backtest.Observation) (quantity.Amounts, bool) {
			return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory}, true
		})
	}
	cases := map[string]struct {
		trace  backtest.Trace
		rule   backtest.Rule
		warmUp time.Duration
		want   backtest.Measures
	}{
		"half of what is requested is used": {half, backtest.Static(), 0, backtest.Measures{Hours: 2, RequestedCPU: 2, WantedCPU: 1, HasMemory: true, RequestedMemory: 2, Days: 1}},
		"what is wanted beyond the request is unserved, and starves": {
			hourly([2]float64{1500, 0}, [2]float64{1000, 0}), backtest.Static(), 0,
			backtest.Measures{Hours: 2, RequestedCPU: 2, WantedCPU: 2.5, UnservedCPU: 0.5, StarvedHours: 1, StarvedMeanHours: 1, Days: 1},
		},
		"an interval above the limit is a kill": {
			hourly([2]float64{0, 2048}, [2]float64{0, 1024}, [2]float64{0, 1025}), backtest.Static(), 0,
			backtest.Measures{Hours: 3, RequestedCPU: 3, HasMemory: true, RequestedMemory: 3, KillDays: 1, Days: 1},
		},
		"an answer takes effect with the next interval": {killed, doubling(), 0, backtest.Measures{Hours: 3, RequestedCPU: 3, HasMemory: true, RequestedMemory: 5, KillDays: 1, Days: 1, Resizes: 1}},
		"the warm-up is replayed, but not measured":     {killed, doubling(), 2 * time.Hour, backtest.Measures{Hours: 1, RequestedCPU: 1, HasMemory: true, RequestedMemory: 2, Days: 1}},
		"a gap counts as one interval":                  {gap, backtest.Static(), 0, backtest.Measures{Hours: 3, RequestedCPU: 3, WantedCPU: 1.5, HasMemory: true, RequestedMemory: 3, Days: 2}},
		"a late sample makes its interval longer":       {nearly, backtest.Static(), 0, backtest.Measures{Hours: 2.5, RequestedCPU: 2.5, WantedCPU: 1.25, HasMemory: true, RequestedMemory: 2.5, Days: 1}},
		"a tiny change is none, and neither is one of memory that was not recorded": {
			hourly([2]float64{500, 0}, [2]float64{500, 0}), always(1001, 1), 0, backtest.Measures{Hours: 2, RequestedCPU: 2, WantedCPU: 1, Days: 1},
		},
		"a request is never nothing": {hourly([2]float64{0, 0}, [2]float64{0, 0}), always(-5, 0), 0, backtest.Measures{Hours: 2, RequestedCPU: 1.001, Days: 1, Resizes: 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := backtest.Replay(tc.trace, tc.rule, backtest.Options{WarmUp: tc.warmUp})
			assert.Equal(t, "outcome", backtest.Outcome{Measures: tc.want}, got, cmpopts.EquateApprox(0, 1e-12))
		})
	}
}

// TestObservations shows a policy's observations.
func TestObservations(t *testing.T) {
	var got []backtest.Observation
	watching := rule(func(o backtest.Observation) (quantity.Amounts, bool) {
		got = append(got, o)
		return quantity.Amounts{CPUMillis: 2000, MemoryBytes: 3072 * mebi}, true
	})
	outcome := backtest.Replay(hourly([2]float64{1500.5, 2048}, [2]float64{1, 2}), watching, backtest.Options{Record: true})

	before, after := quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1024 * mebi}, quantity.Amounts{CPUMillis: 2000, MemoryBytes: 3072 * mebi}
	want := []backtest.Observation{
		{Start: time.Unix(0, 0).UTC(), Step: time.Hour, CPUMillis: 1500.5, MemoryBytes: 1024 * mebi, OOMKilled: true, Requests: before},
		{Start: time.Unix(3600, 0).UTC(), Step: time.Hour, CPUMillis: 1, MemoryBytes: 2 * mebi, Requests: after},
	}
	assert.Equal(t, "observations", want, got)
	assert.Equal(t, "changes", []backtest.Change{{0, before}, {3600, after}}, outcome.Changes)
	assert.Equal(t, "kills", []int64{0}, outcome.Kills)
}

// A plot is XML, and it does not grow with a sample a minute, nor with a hundred resizes a day.
func TestPlots(t *testing.T) {
	trace := traces.One("diurnal", 30*24*time.Hour, time.Minute)
	restless := rule(nil)
	restless.New = func(backtest.Container) backtest.Policy { return &wobbling{} }
	plots := backtest.Plots(trace, backtest.Run([]backtest.Trace{trace}, []backtest.Rule{restless, backtest.Static()}, backtest.Options{Record: true})[0], 24*time.Hour)
	if text := fmt.Sprint(plots); len(plots) != 2 || len(text) > 100<<10 || strings.Contains(text, "NaN") {
		t.Errorf("%d plots of %d KiB", len(plots), len(text)>>10)
	}
	if cpu := plots[0]; cpu.WarmUp != 24 || len(cpu.Lines) != 2 || cpu.Lines[1].Class != "p1" || len(cpu.Days) == 0 || !strings.HasPrefix(cpu.Usage, "M0 ") {
		t.Errorf("the plot of CPU is %+v", cpu)
	}
}

// TestRunIsTheSameAsOneReplayAfterTheOther on any number of processors.
func TestRunIsTheSameAsOneReplayAfterTheOther(t *testing.T) {
	made, rules, o := traces.Make(12, 5*24*time.Hour, time.Hour), []backtest.Rule{backtest.Static(), doubling()}, backtest.Options{Record: true}
	for i, outcomes := range backtest.Run(made, rules, o) {
		for j, got := range outcomes {
			if diff := cmp.Diff(backtest.Replay(made[i], rules[j], o), got); diff != "" || math.IsNaN(got.Measures.UnservedCPU) {
				t.Errorf("%s by %s (-replay +run):\n%s", made[i].Name, rules[j].Name, diff)
			}
		}
	}
}

// wobbling doubles and halves its requests in turn.
type wobbling struct{ isUp bool }

func (w *wobbling) Next(o backtest.Observation) (quantity.Amounts, bool) {
	w.isUp = !w.isUp
	if w.isUp {
		return quantity.Amounts{CPUMillis: o.Requests.CPUMillis * 2, MemoryBytes: o.Requests.MemoryBytes * 2}, true
	}
	return quantity.Amounts{CPUMillis: o.Requests.CPUMillis / 2, MemoryBytes: o.Requests.MemoryBytes / 2}, true
}
