// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Engine sizes one container by usage that it is told line by line, with the code that
// the operator runs. It lets recorded usage be replayed against the product.
//
//	go run ./test/replay/engine [-profile Balanced]
//
// # Protocol
//
// Lines of JSON on stdin and stdout, for one series per process. The caller sends one init, then
// samples in the order of time, then end, or it closes stdin. The engine writes exactly one answer
// to each sample, at once, and nothing to other lines:
//
//	> {"type":"init","series":"web","step_s":300,"has_mem":true,"init_cpu":2,"init_mem":4294967296}
//	> {"type":"sample","t":86400,"cpu":0.42,"mem":1073741824,"oom":false,"cur_cpu":2,"cur_mem":4294967296}
//	< {"apply":true,"cpu":0.5,"mem":1200000000}
//	> {"type":"sample","t":86700,"cpu":0.42,"pods":[0.40,0.44],"mem":1073741824,"cur_cpu":0.5,"cur_mem":1200000000}
//	< {"apply":false}
//	> {"type":"end"}
//
// CPU is in cores, memory in bytes; both may have a fraction, and a field that is missing is 0,
// false or empty. Fields that are not listed here are ignored.
//
//	init    series    the name of the container: any text. It changes no answer.
//	        step_s    the length of the intervals in whole seconds, 1 to 86400.
//	        has_mem   whether mem is known. If not, only CPU is sized, and the answer's mem is cur_mem.
//	        init_cpu  the requests in the Deployment's template, from which sizes start. The memory
//	        init_mem  limit equals the memory request; there is no CPU limit.
//
//	sample  t         when its interval begins, in seconds, 0 or more. It never falls from sample to
//	                  sample; gaps are possible. If the first is below one year, it counts from a
//	                  midnight, otherwise from 1970.
//	        cpu       the mean CPU of the interval. With several pods, the mean over them.
//	        pods      the mean CPU of each pod, up to 10000 of them, in a constant order. Optional:
//	                  without it, there is one pod, which uses cpu. With it, cpu is not used.
//	        mem       the peak of memory in the interval, of the largest pod; at most cur_mem.
//	        oom       whether a container was OOM-killed in the interval, at cur_mem.
//	        cur_cpu   the requests during the interval, which are the same for all pods.
//	        cur_mem
//
//	answer  apply     whether cpu and mem are new requests, from the next interval on.
//	        cpu, mem  the requests of each pod; absent if apply is false.
//
// An answer depends on all samples so far, and on cur_cpu and cur_mem, which say whether the caller
// has applied the answers. The same lines lead to the same answers.
//
// The engine writes a message to stderr and exits with 1 at the first line that is not JSON. It
// does the same at an unknown type or a value out of range, such as a negative one. So it does at a
// second init, and at a sample before init or earlier than the one before. The exit code of end, or
// of the end of stdin, is 0; that of a wrong flag is 2.
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

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	backtested "github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

func main() {
	name := flag.String("profile", string(profile.Balanced), "the profile: Balanced, Frugal or Safe")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, profile.Profile(*name)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// message is a line of the caller.
type message struct {
	Type string `json:"type"`

	Series  string  `json:"series"`
	StepS   int64   `json:"step_s"`
	HasMem  bool    `json:"has_mem"`
	InitCPU float64 `json:"init_cpu"`
	InitMem float64 `json:"init_mem"`

	T      int64     `json:"t"`
	CPU    float64   `json:"cpu"`
	Pods   []float64 `json:"pods,omitempty"`
	Mem    float64   `json:"mem"`
	OOM    bool      `json:"oom"`
	CurCPU float64   `json:"cur_cpu"`
	CurMem float64   `json:"cur_mem"`
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
	e := engine{profile: name}
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
			if err := e.begin(m); err != nil {
				return fmt.Errorf("init: %w", err)
			}
		case "sample":
			a, err := e.next(m)
			if err != nil {
				return fmt.Errorf("sample at t=%d: %w", m.T, err)
			}
			if err := errors.Join(encoder.Encode(a), writer.Flush()); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		case "end":
			return nil
		default:
			return fmt.Errorf("there is no message %q", m.Type)
		}
	}
}

// engine is the rule of the backtest, fed with lines.
type engine struct {
	profile profile.Profile
	policy  backtest.Policy // nil before init
	step    time.Duration
	hasMem  bool
	last    int64 // the time of the last sample
}

const (
	mostPods    = 10_000
	longestStep = 24 * 60 * 60
	latest      = 7_258_118_400 // the year 2200
)

func (e *engine) begin(m message) error {
	switch {
	case e.policy != nil:
		return errors.New("there was one already")
	case m.StepS < 1 || m.StepS > longestStep:
		return fmt.Errorf("step_s is %d, want 1 to %d", m.StepS, longestStep)
	}
	requests, err := amounts(m.InitCPU, m.InitMem)
	if err != nil {
		return err
	}
	e.step, e.hasMem = time.Duration(m.StepS)*time.Second, m.HasMem
	e.policy = backtested.Of(e.profile).New(backtest.Container{
		Name: "app", Step: e.step, HasMemory: e.hasMem, Requests: requests,
	})
	return nil
}

// next processes one interval.
func (e *engine) next(m message) (answer, error) {
	switch {
	case e.policy == nil:
		return answer{}, errors.New("there was no init before")
	case m.T < 0 || m.T > latest:
		return answer{}, fmt.Errorf("t is not within 0 and %d", latest)
	case m.T < e.last:
		return answer{}, fmt.Errorf("t is before that of the last sample, %d", e.last)
	case len(m.Pods) > mostPods:
		return answer{}, fmt.Errorf("%d pods are more than %d", len(m.Pods), mostPods)
	}
	e.last = m.T
	o, err := e.observation(m)
	if err != nil {
		return answer{}, err
	}
	next, isNew := e.policy.Next(o)
	if !isNew || next == o.Requests {
		return answer{}, nil
	}
	if !e.hasMem {
		next.MemoryBytes = o.Requests.MemoryBytes
	}
	return answer{Apply: true, CPU: float64(next.CPUMillis) / 1000, Mem: float64(next.MemoryBytes)}, nil
}

func (e *engine) observation(m message) (backtest.Observation, error) {
	requests, errRequests := amounts(m.CurCPU, m.CurMem)
	used, errUsed := amounts(m.CPU, m.Mem)
	errs := []error{errRequests, errUsed}
	o := backtest.Observation{
		Start: time.Unix(m.T, 0).UTC(), Step: e.step,
		CPUMillis: m.CPU * 1000, MemoryBytes: used.MemoryBytes,
		OOMKilled: m.OOM, Requests: requests,
	}
	for _, cores := range m.Pods {
		_, err := amounts(cores, 0)
		errs = append(errs, err)
		o.PodCPUMillis = append(o.PodCPUMillis, cores*1000)
	}
	return o, errors.Join(errs...)
}

// amounts are whole units of cores and bytes.
func amounts(cores, bytes float64) (quantity.Amounts, error) {
	switch {
	case !(cores >= 0 && cores*1000 <= quantity.MaxCPUMillis):
		return quantity.Amounts{}, fmt.Errorf("%g cores are not within 0 and %d", cores, quantity.MaxCPUMillis/1000)
	case !(bytes >= 0 && bytes <= quantity.MaxMemoryBytes):
		return quantity.Amounts{}, fmt.Errorf("%g bytes are not within 0 and %d", bytes, int64(quantity.MaxMemoryBytes))
	}
	return quantity.Amounts{CPUMillis: int64(math.Round(cores * 1000)), MemoryBytes: int64(bytes)}, nil
}
