// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
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
	if err := p.to.Encode(m); err != nil {
		p.t.Fatal(err)
	}
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
	if err := p.from.Decode(&a); err != nil {
		p.t.Fatal(err)
	}
	return quantity.Amounts{CPUMillis: int64(math.Round(a.CPU * 1000)), MemoryBytes: int64(a.Mem)}, a.Apply
}

// TestABacktestGivesTheSameResult compares the replay line by line with "kubectl vscaler
// backtest", with one pod and with several.
func TestABacktestGivesTheSameResult(t *testing.T) {
	for _, name := range profile.All() {
		for _, pods := range []int{1, 3} {
			o := backtest.Options{Record: true, World: backtest.World{Pods: pods, Spread: 0.15}}
			for _, trace := range traces.Make(5, 5*24*time.Hour, 15*time.Minute) {
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

// TestPodsAreTold: several pods lead to another size than their mean.
func TestPodsAreTold(t *testing.T) {
	last := func(pods string) answer {
		var in strings.Builder
		fmt.Fprintf(&in, `{"type":"init","step_s":300,"init_cpu":2}`+"\n")
		for i := range 3 * 288 {
			fmt.Fprintf(&in, `{"type":"sample","t":%d,"cpu":0.4%s,"cur_cpu":2}`+"\n", i*300, pods)
		}
		list := answers(t, profile.Balanced, in.String())
		return list[len(list)-1]
	}
	one, same, uneven := last(""), last(`,"pods":[0.4,0.4,0.4]`), last(`,"pods":[0.1,0.4,0.7]`)
	if same != one {
		t.Errorf("three equal pods are answered by %+v, and one of them by %+v", same, one)
	}
	if uneven.CPU <= one.CPU {
		t.Errorf("uneven pods are answered by %+v, and their mean by %+v", uneven, one)
	}
}
