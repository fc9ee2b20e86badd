// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

const mebi = 1 << 20

func constant(request quantity.Amounts) backtest.Trace {
	t := backtest.Trace{Name: "app", Step: 5 * time.Minute, HasMemory: true, Requests: request}
	for i := range int64(5 * 24 * 12) {
		t.Samples = append(t.Samples, backtest.Sample{At: i * 300, CPUMillis: 300, MemoryBytes: 400 * mebi})
	}
	return t
}

// TestSteadyUsageIsFitted: from any initial request, the request ends at the usage, for memory with
// a margin, and then stays.
func TestSteadyUsageIsFitted(t *testing.T) {
	for name, request := range map[string]quantity.Amounts{
		"too much":   {CPUMillis: 4000, MemoryBytes: 8192 * mebi},
		"too little": {CPUMillis: 50, MemoryBytes: 100 * mebi},
	} {
		t.Run(name, func(t *testing.T) {
			m := backtest.Replay(constant(request), engine.Rule(), backtest.Options{WarmUp: 3 * 24 * time.Hour}).Measures
			if cores := m.RequestedCPU / m.Hours; cores < 0.3 || cores > 0.6 {
				t.Errorf("%.2f cores are requested", cores)
			}
			if mib := m.RequestedMemory / m.Hours * 1024; mib < 420 || mib > 800 {
				t.Errorf("%.0f MiB are requested", mib)
			}
			if m.KillDays > 0 || m.StarvedHours > 0 || m.Resizes > 6 {
				t.Errorf("not calm: %+v", m)
			}
		})
	}
}

// TestTheBeginningDoesNotMatter: traces from an arbitrary midnight, which count their seconds from
// 0, lead to the same as those with real times.
func TestTheBeginningDoesNotMatter(t *testing.T) {
	early := traces.One("spike", 6*24*time.Hour, 5*time.Minute)
	late := early
	late.Samples = append([]backtest.Sample(nil), early.Samples...)
	for i := range early.Samples {
		early.Samples[i].At -= traces.Monday.Unix()
	}
	if diff := cmp.Diff(
		backtest.Replay(late, engine.Rule(), backtest.Options{}),
		backtest.Replay(early, engine.Rule(), backtest.Options{}),
	); diff != "" {
		t.Errorf("(-real times +from 0):\n%s", diff)
	}
}

// TestMemoryMayBeUnknown: only CPU is sized then.
func TestMemoryMayBeUnknown(t *testing.T) {
	trace := constant(quantity.Amounts{CPUMillis: 4000})
	trace.HasMemory = false
	outcome := backtest.Replay(trace, engine.Rule(), backtest.Options{Record: true})
	last := outcome.Changes[len(outcome.Changes)-1].Requests
	if last.CPUMillis < 300 || last.CPUMillis > 600 || last.MemoryBytes != outcome.Changes[0].Requests.MemoryBytes {
		t.Errorf("requests were %+v in the end", last)
	}
}

// TestRaises: the engine knows the template, the limits and the most that is allowed, as the operator does.
func TestRaises(t *testing.T) {
	cores := func(request int64, cpu float64) backtest.Trace {
		trace := constant(quantity.Amounts{CPUMillis: request, MemoryBytes: 512 * mebi})
		for i := range trace.Samples {
			trace.Samples[i].CPUMillis = cpu
		}
		return trace
	}
	killed := constant(quantity.Amounts{CPUMillis: 300, MemoryBytes: 4096 * mebi})
	killed.Samples[len(killed.Samples)-2].MemoryBytes = 1024 * mebi
	for name, tc := range map[string]struct {
		trace      backtest.Trace
		assumed    backtest.Assumptions
		cpu, bytes [2]int64 // the least and the most in the end
	}{
		"usage at a limit asks for more":               {trace: cores(100, 700), assumed: backtest.Assumptions{CPULimit: 1}, cpu: [2]int64{700, 1500}},
		"usage below a limit does not":                 {trace: cores(1000, 700), assumed: backtest.Assumptions{CPULimit: 2}, cpu: [2]int64{700, 1000}},
		"at most a multiple of the template":           {trace: cores(200, 3000), cpu: [2]int64{1600, 1600}},
		"a container without a request has none":       {trace: cores(0, 3000), cpu: [2]int64{3000, 6000}},
		"a kill leads to the template's request first": {trace: killed, bytes: [2]int64{4096 * mebi, 4096 * mebi}},
	} {
		changes := backtest.Replay(tc.trace, engine.Rule(), backtest.Options{Assumptions: tc.assumed, Record: true}).Changes
		got := changes[len(changes)-1].Requests
		for _, is := range [][3]int64{{got.CPUMillis, tc.cpu[0], tc.cpu[1]}, {got.MemoryBytes, tc.bytes[0], tc.bytes[1]}} {
			if is[1] > 0 && (is[0] < is[1] || is[0] > is[2]) {
				t.Errorf("%s: %v in the end, want %d to %d", name, got, is[1], is[2])
			}
		}
	}
}
