// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Engine sizes one container by usage that it is told line by line, with the code that
// the operator runs. It lets recorded usage be replayed against the product.
//
// It reads JSON lines and writes exactly one answer for each sample:
//
//	> {"type":"init","series":"x","step_s":300,"has_mem":true,"init_cpu":2,"init_mem":4294967296}
//	> {"type":"sample","t":86400,"cpu":0.42,"mem":1073741824,"oom":false,"cur_cpu":2,"cur_mem":4294967296}
//	< {"apply":true,"cpu":0.5,"mem":1200000000}
//	> {"type":"end"}
//
// t is when the sample's interval begins, in seconds; cpu is its mean in cores, mem its
// peak in bytes, and cur_cpu and cur_mem are the applied requests. oom reports that the
// container was OOM-killed at cur_mem.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

func main() {
	name := flag.String("profile", string(profile.Balanced), "the profile: Balanced, Frugal, Safe or Calm")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, profile.Profile(*name)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type message struct {
	Type   string  `json:"type"`
	StepS  int64   `json:"step_s"`
	HasMem bool    `json:"has_mem"`
	T      int64   `json:"t"`
	CPU    float64 `json:"cpu"`
	Mem    float64 `json:"mem"`
	OOM    bool    `json:"oom"`
	CurCPU float64 `json:"cur_cpu"`
	CurMem float64 `json:"cur_mem"`
}

type answer struct {
	Apply bool    `json:"apply"`
	CPU   float64 `json:"cpu,omitempty"`
	Mem   float64 `json:"mem,omitempty"`
}

func run(in io.Reader, out io.Writer, name profile.Profile) error {
	if !slices.Contains(profile.All(), name) {
		return fmt.Errorf("there is no profile %q", name)
	}
	decoder, writer := json.NewDecoder(bufio.NewReader(in)), bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	var e *engine
	for {
		var m message
		switch err := decoder.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading a line: %w", err)
		}
		switch m.Type {
		case "init":
			e = newEngine(name, m)
		case "sample":
			if e == nil {
				return errors.New("a sample came before init")
			}
			if err := errors.Join(encoder.Encode(e.step(m)), writer.Flush()); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		case "end":
			return nil
		default:
			return fmt.Errorf("there is no message %q", m.Type)
		}
	}
}

// cooldown is the default cooldown of a scaler.
const cooldown = 5 * time.Minute

// start is the time of t = 0: a midnight.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// engine is the operator's state for one container.
type engine struct {
	params    recommend.Params
	policy    recommend.Policy
	interval  time.Duration
	history   history.Container
	published *recommend.Container
	moved     time.Time
}

func newEngine(name profile.Profile, m message) *engine {
	e := &engine{
		params:   recommend.DefaultParams(),
		policy:   recommend.Policy{Profile: name, CPU: true, Memory: m.HasMem},
		interval: time.Duration(m.StepS) * time.Second,
	}
	e.params.History.MaxGap = max(e.params.History.MaxGap, 3*e.interval)
	e.params.History.Prices = profile.Of(name).Prices
	return e
}

// step processes one interval.
func (e *engine) step(m message) answer {
	now := start.Add(time.Duration(m.T)*time.Second + e.interval)
	e.history.Add(usage.Sample{
		Container: "app", Time: now, Window: e.interval,
		CPUMillis: int64(math.Round(m.CPU * 1000)), MemoryBytes: int64(m.Mem),
	}, e.params.History)
	if m.OOM {
		e.history.RecordOOM(now, int64(m.CurMem), e.params.History)
	}
	rec, ok := recommend.For("app", &e.history, e.policy, e.published, e.params)
	if !ok {
		return answer{}
	}
	e.published = &rec
	current := quantity.Amounts{CPUMillis: int64(math.Round(m.CurCPU * 1000)), MemoryBytes: int64(m.CurMem)}
	next := plan.Follow(current, rec, cooldown, now.Sub(e.moved))
	if next == current {
		return answer{}
	}
	e.moved = now
	return answer{Apply: true, CPU: float64(next.CPUMillis) / 1000, Mem: float64(next.MemoryBytes)}
}
