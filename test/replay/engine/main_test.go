// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	backtested "github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

func TestInvalidInputIsRejected(t *testing.T) {
	const begin = `{"type":"init","step_s":60}` + "\n"
	for lines, name := range map[string]profile.Profile{
		``:                                "Bold",
		`{"type":"sample"}`:               profile.Balanced,
		`{"type":"hello"}`:                profile.Balanced,
		begin + "{":                       profile.Balanced,
		begin + begin:                     profile.Balanced,
		`{"type":"init"}`:                 profile.Balanced,
		`{"type":"init","step_s":100000}`: profile.Balanced,
		`{"type":"init","step_s":60,"init_cpu":-1}`:         profile.Balanced,
		begin + `{"type":"sample","t":-60}`:                 profile.Balanced,
		begin + `{"type":"sample","cpu":-0.1}`:              profile.Balanced,
		begin + `{"type":"sample","cpu":1e9}`:               profile.Balanced,
		begin + `{"type":"sample","mem":-1}`:                profile.Balanced,
		begin + `{"type":"sample","mem":1e300}`:             profile.Balanced,
		begin + `{"type":"sample","cur_cpu":-1}`:            profile.Balanced,
		begin + `{"type":"sample","pods":[1,-1]}`:           profile.Balanced,
		begin + `{"type":"sample","pods":0.5}`:              profile.Balanced,
		begin + `{"type":"sample","t":60}{"type":"sample"}`: profile.Balanced,
	} {
		if err := run(strings.NewReader(lines), &strings.Builder{}, name); err == nil {
			t.Errorf("%q with profile %s: no error", lines, name)
		}
	}
	if err := run(strings.NewReader(begin+`{"type":"sample","t":5,"cpu":0.1,"cur_cpu":1}`), &strings.Builder{}, profile.Balanced); err != nil {
		t.Errorf("valid lines: %v", err)
	}
}

// lines uses the command, with its protocol, as the rule of a backtest.
func lines(t *testing.T, name profile.Profile) backtest.Rule {
	t.Helper()
	return backtest.Rule{Name: "lines", New: func(c backtest.Container) backtest.Policy {
		in, toCommand := io.Pipe()
		fromCommand, out := io.Pipe()
		go func() { out.CloseWithError(run(in, out, name)) }()
		t.Cleanup(func() { _ = toCommand.Close() })
		p := protocol{t, json.NewEncoder(toCommand), json.NewDecoder(fromCommand)}
		p.send(message{
			Type: "init", Series: c.Name, StepS: int64(c.Step.Seconds()), HasMem: c.HasMemory,
			InitCPU: float64(c.Requests.CPUMillis) / 1000, InitMem: float64(c.Requests.MemoryBytes),
		})
		return p
	}}
}

type protocol struct {
	t    *testing.T
	to   *json.Encoder
	from *json.Decoder
}

func (p protocol) send(m message) {
	must.Succeed(p.t, p.to.Encode(m))
}

func (p protocol) Next(o backtest.Observation) (quantity.Amounts, bool) {
	m := message{
		Type: "sample", T: o.Start.Unix(), CPU: o.CPUMillis / 1000, Mem: float64(o.MemoryBytes), OOM: o.OOMKilled,
		CurCPU: float64(o.Requests.CPUMillis) / 1000, CurMem: float64(o.Requests.MemoryBytes),
	}
	for _, millis := range o.PodCPUMillis {
		m.Pods = append(m.Pods, millis/1000)
	}
	p.send(m)
	var a answer
	must.Succeed(p.t, p.from.Decode(&a))
	return quantity.Amounts{CPUMillis: int64(math.Round(a.CPU * 1000)), MemoryBytes: int64(a.Mem)}, a.Apply
}

// TestABacktestGivesTheSameResult compares the replay line by line with "kubectl vscaler
// backtest": CPU of one pod, and CPU and memory of several.
func TestABacktestGivesTheSameResult(t *testing.T) {
	for _, name := range profile.All() {
		for _, pods := range []int{1, 3} {
			o := backtest.Options{Record: true, Assumptions: backtest.Assumptions{Pods: pods, Spread: 0.15}}
			for _, trace := range traces.Make(5, 5*24*time.Hour, 15*time.Minute) {
				trace.HasMemory = pods > 1
				trace.Requests.MemoryBytes /= 2 // causes some OOM kills
				for i := range trace.Samples {
					trace.Samples[i].At -= traces.Monday.Unix()
				}
				if diff := cmp.Diff(backtest.Replay(trace, backtested.Of(name), o), backtest.Replay(trace, lines(t, name), o)); diff != "" {
					t.Errorf("%s, %s, %d pods (-backtest +lines):\n%s", trace.Name, name, pods, diff)
				}
			}
		}
	}
}
