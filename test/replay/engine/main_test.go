// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	backtested "github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

// answers feeds lines to the engine.
func answers(t *testing.T, name profile.Profile, lines string) []answer {
	t.Helper()
	var out strings.Builder
	if err := run(strings.NewReader(lines), &out, name); err != nil {
		t.Fatal(err)
	}
	var list []answer
	for line := range strings.Lines(out.String()) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, a)
	}
	return list
}

const gibi = 1 << 30

func TestEachSampleGetsARecommendation(t *testing.T) {
	for _, name := range profile.All() {
		var in strings.Builder
		fmt.Fprintf(&in, `{"type":"init","series":"x","step_s":300,"has_mem":true,"init_cpu":2,"init_mem":%d}`+"\n", 4*gibi)
		const samples = 3 * 288
		for i := range samples {
			fmt.Fprintf(&in, `{"type":"sample","t":%d,"cpu":0.4,"mem":%d,"oom":false,"cur_cpu":2,"cur_mem":%d}`+"\n", i*300, gibi, 4*gibi)
		}
		in.WriteString(`{"type":"end"}` + "\n")
		list := answers(t, name, in.String())
		if len(list) != samples {
			t.Fatalf("%s: %d answers to %d samples", name, len(list), samples)
		}
		last := list[samples-1]
		if !last.Apply || last.CPU < 0.4 || last.CPU > 0.5 || last.Mem < 1.04*gibi || last.Mem > 1.3*gibi {
			t.Errorf("%s: after 3 days of 0.4 cores and 1 GiB the answer is %+v", name, last)
		}
	}
}

func TestAnOOMKillTakesEffectAtOnce(t *testing.T) {
	list := answers(t, profile.Balanced, fmt.Sprintf(`{"type":"init","series":"x","step_s":300,"has_mem":true,"init_cpu":1,"init_mem":%[1]d}
{"type":"sample","t":0,"cpu":0.4,"mem":%[1]d,"oom":true,"cur_cpu":1,"cur_mem":%[1]d}
`, gibi))
	if len(list) != 1 || !list[0].Apply || list[0].Mem < 1.2*gibi {
		t.Errorf("a kill at 1 GiB is answered by %+v, want 1.2 GiB or more", list)
	}
}

func TestInvalidInputIsRejected(t *testing.T) {
	for lines, name := range map[string]profile.Profile{
		``:                        "Bold",
		`{"type":"sample"}`:       profile.Balanced,
		`{"type":"hello"}`:        profile.Balanced,
		`{"type":"init"}` + "\n{": profile.Balanced,
	} {
		if err := run(strings.NewReader(lines), &strings.Builder{}, name); err == nil {
			t.Errorf("%q with profile %s: no error", lines, name)
		}
	}
}

// lines uses the engine, with its protocol, as the rule of a backtest.
func lines(name profile.Profile) backtest.Rule {
	return backtest.Rule{Name: "lines", New: func(c backtest.Container) backtest.Policy {
		return protocol{newEngine(name, message{StepS: int64(c.Step.Seconds()), HasMem: c.HasMemory})}
	}}
}

type protocol struct{ engine *engine }

func (p protocol) Next(o backtest.Observation) (quantity.Amounts, bool) {
	a := p.engine.step(message{
		T: o.Start.Unix(), CPU: o.CPUMillis / 1000, Mem: float64(o.MemoryBytes), OOM: o.OOMKilled,
		CurCPU: float64(o.Requests.CPUMillis) / 1000, CurMem: float64(o.Requests.MemoryBytes),
	})
	return quantity.Amounts{CPUMillis: int64(math.Round(a.CPU * 1000)), MemoryBytes: int64(a.Mem)}, a.Apply
}

// TestABacktestSaysTheSame compares the replay line by line with "kubectl vscaler
// backtest", which replays the whole plan. Both use the same engine.
func TestABacktestGivesTheSameResult(t *testing.T) {
	o := backtest.Options{Record: true}
	for _, name := range profile.All() {
		for _, trace := range traces.Make(5, 5*24*time.Hour, 15*time.Minute) {
			trace.Requests.MemoryBytes /= 2 // causes some OOM kills
			for i := range trace.Samples {
				trace.Samples[i].At -= traces.Monday.Unix()
			}
			if diff := cmp.Diff(backtest.Replay(trace, backtested.Of(name), o), backtest.Replay(trace, lines(name), o)); diff != "" {
				t.Errorf("%s, %s (-backtest +lines):\n%s", trace.Name, name, diff)
			}
		}
	}
}
