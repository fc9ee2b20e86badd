// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pressure_test

import (
	"context"
	"errors"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage/pressure"
)

type answer struct {
	millis int64
	at     time.Time
	err    error
}

func (a *answer) NodeCPU(context.Context, string) (int64, time.Time, error) {
	return a.millis, a.at, a.err
}

// A node is busy after two different readings of 90 % in a row, which an eviction uses up, and a gap and a reading below end.
func TestABusyNode(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	const busy, idle = 3600, 3599 // of 4 CPUs
	type step struct {
		after  time.Duration
		answer answer
		want   string // busy, not busy, or the error
	}
	// Each reading is of another minute, by a clock that is a quarter of an hour late.
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute-15) * time.Minute) }
	tests := map[string][]step{
		"two readings":             {{0, answer{busy, at(0), nil}, "not busy"}, {time.Minute, answer{busy, at(1), nil}, "busy"}},
		"the same reading twice":   {{0, answer{busy, at(0), nil}, "not busy"}, {time.Minute, answer{busy, at(0), nil}, "not busy"}},
		"one reading below":        {{0, answer{busy, at(0), nil}, "not busy"}, {time.Minute, answer{idle, at(1), nil}, "not busy"}, {time.Minute, answer{busy, at(2), nil}, "not busy"}},
		"one that ends":            {{0, answer{busy, at(0), nil}, "not busy"}, {time.Minute, answer{busy, at(1), nil}, "busy"}, {time.Minute, answer{idle, at(2), nil}, "not busy"}},
		"asked again at once":      {{0, answer{busy, at(0), nil}, "not busy"}, {29 * time.Second, answer{busy, at(1), nil}, "not busy"}, {time.Second, answer{busy, at(1), nil}, "busy"}},
		"a gap":                    {{0, answer{busy, at(0), nil}, "not busy"}, {90 * time.Second, answer{busy, at(0), nil}, "not busy"}, {time.Minute, answer{busy, at(6), nil}, "not busy"}},
		"an eviction uses them up": {{0, answer{busy, at(0), nil}, "not busy"}, {time.Minute, answer{busy, at(1), nil}, "busy"}, {0, answer{busy, at(1), nil}, "not busy"}, {time.Minute, answer{busy, at(2), nil}, "not busy"}, {time.Minute, answer{busy, at(3), nil}, "busy"}},
		"readings that have aged":  {{0, answer{busy, at(0), nil}, "not busy"}, {90 * time.Second, answer{busy, at(0), nil}, "not busy"}, {time.Minute, answer{busy, at(0), nil}, "no current usage, or no size, of the node is known"}},
		"no answer":                {{0, answer{err: errors.New("down")}, "down"}, {time.Minute, answer{busy, at(1), nil}, "not busy"}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			clock, source := testingclock.NewFakePassiveClock(noon), &answer{}
			nodes := &pressure.Nodes{Source: source, Allocatable: func(string) int64 { return 4000 }, Clock: clock}
			for i, step := range steps {
				clock.SetTime(clock.Now().Add(step.after))
				*source = step.answer
				is, err := nodes.IsBusy(t.Context(), "node-1")
				if took := nodes.Take("node-1"); took != is {
					t.Errorf("step %d: busy %t, and its readings are taken: %t", i+1, is, took)
				}
				got := map[bool]string{true: "busy", false: "not busy"}[is]
				if err != nil {
					got = err.Error()
				}
				if got != step.want {
					t.Errorf("step %d: the node is %q, not %q", i+1, got, step.want)
				}
			}
		})
	}
}

// Without the node's size, nothing is known.
func TestANodeThatIsNotRead(t *testing.T) {
	nodes := &pressure.Nodes{Source: &answer{}, Allocatable: func(string) int64 { return 0 }, Clock: testingclock.NewFakePassiveClock(time.Now())}
	if _, err := nodes.IsBusy(t.Context(), "node-1"); err == nil {
		t.Error("a node of unknown size is judged")
	}
}
