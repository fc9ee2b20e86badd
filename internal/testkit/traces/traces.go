// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package traces generates usage of typical kinds of containers. The traces are synthetic,
// and the same on every machine.
package traces

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const (
	mebi = 1 << 20
	day  = 24 * time.Hour
)

// Monday is the start of all traces.
var Monday = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// kind is a usage pattern of CPU, in millicores, and memory, in MiB.
type kind struct {
	name  string
	about string
	// requests are the initial requests of the user, which were never adjusted.
	requests quantity.Amounts
	usage    func(at time.Duration, n *noise) (cpu, memory float64)
}

// hours is the time of the day.
func hours(at time.Duration) float64 { return (at % day).Hours() }

func days(at time.Duration) float64 { return at.Hours() / 24 }

var kinds = []kind{
	{
		name: "batch", about: "nearly idle, except from 2 to 4 each night, when it uses all it can get",
		requests: quantity.Amounts{CPUMillis: 4000, MemoryBytes: 4096 * mebi},
		usage: func(at time.Duration, n *noise) (float64, float64) {
			if h := hours(at); h >= 2 && h < 4 {
				return 3200 * n.around(0.05), 2600 * n.around(0.02)
			}
			return 20 * n.around(0.2), 300 * n.around(0.02)
		},
	},
	{
		name: "diurnal", about: "a web server: quiet at night, busy in the afternoon",
		requests: quantity.Amounts{CPUMillis: 2000, MemoryBytes: 2048 * mebi},
		usage: func(at time.Duration, n *noise) (float64, float64) {
			wave := (1 - math.Cos(2*math.Pi*(hours(at)-3)/24)) / 2
			return (120 + 700*wave) * n.around(0.08), (500 + 150*wave) * n.around(0.02)
		},
	},
	{
		name: "leak", about: "memory grows by 90 MiB a day, and is released every 6 days",
		requests: quantity.Amounts{CPUMillis: 500, MemoryBytes: 512 * mebi},
		usage: func(at time.Duration, n *noise) (float64, float64) {
			return 150 * n.around(0.1), 200 + 90*math.Mod(days(at), 6) + 4*n.next()
		},
	},
	{
		name: "spike", about: "calm, except for an hour at a random time every other day",
		requests: quantity.Amounts{CPUMillis: 1500, MemoryBytes: 1024 * mebi},
		usage: func(at time.Duration, n *noise) (float64, float64) {
			pair := int64(at / (2 * day))
			begin := time.Duration(pair)*2*day + time.Duration((pair*7919+13)%47)*time.Hour
			if at >= begin && at < begin+time.Hour {
				return 1100 * n.around(0.1), 700 * n.around(0.03)
			}
			return 90 * n.around(0.15), 380 * n.around(0.02)
		},
	},
	{
		name: "weekly", about: "office hours from Monday to Friday, and nothing at the weekend",
		requests: quantity.Amounts{CPUMillis: 3000, MemoryBytes: 3072 * mebi},
		usage: func(at time.Duration, n *noise) (float64, float64) {
			h, weekday := hours(at), int64(at/day)%7
			if weekday < 5 && h >= 8 && h < 18 {
				return 1400 * n.around(0.1), 1500 * n.around(0.02)
			}
			return 60 * n.around(0.2), 700 * n.around(0.02)
		},
	},
}

// Names lists the kinds, sorted.
func Names() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Make generates traces of all kinds in turn, each different.
func Make(count int, length, step time.Duration) []backtest.Trace {
	made := make([]backtest.Trace, count)
	for i := range made {
		k := kinds[i%len(kinds)]
		made[i] = k.make(uint64(i), length, step)
		if round := i / len(kinds); round > 0 {
			made[i].Name = fmt.Sprintf("%s-%d", k.name, round+1)
		}
	}
	return made
}

// One generates the first trace of a kind. It panics if the kind is unknown.
func One(name string, length, step time.Duration) backtest.Trace {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	return kinds[i].make(uint64(i), length, step)
}

func (k kind) make(seed uint64, length, step time.Duration) backtest.Trace {
	t := backtest.Trace{Name: k.name, Step: step, Requests: k.requests, HasMemory: true}
	n := &noise{state: seed*0x9e3779b97f4a7c15 + 1}
	for at := time.Duration(0); at < length; at += step {
		cpu, memory := k.usage(at, n)
		t.Samples = append(t.Samples, backtest.Sample{
			At:          Monday.Add(at).Unix(),
			CPUMillis:   math.Round(max(cpu, 0)*10) / 10,
			MemoryBytes: int64(max(memory, 1)*16) * mebi / 16,
		})
	}
	return t
}

// noise is a pseudo-random sequence: xorshift64*.
type noise struct{ state uint64 }

// next is roughly normally distributed with a deviation of 1: the sum of three uniform
// numbers.
func (n *noise) next() float64 {
	sum := 0.0
	for range 3 {
		n.state ^= n.state >> 12
		n.state ^= n.state << 25
		n.state ^= n.state >> 27
		sum += float64(n.state*0x2545f4914f6cdd1d>>11)/(1<<53)*2 - 1
	}
	return sum
}

func (n *noise) around(deviation float64) float64 { return 1 + deviation*n.next() }
