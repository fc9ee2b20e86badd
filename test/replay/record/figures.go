// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
)

// measure is a line of the record: for a group of series, the sum of parts over the sum
// of wholes. A whole of 0 leaves a series out.
type measure struct {
	name, about string
	// format prints a value.
	format string
	of     func(backtest.Measures) (part, whole float64)
}

// The measures, by their place in measures.
const (
	cores = iota
	starved
	unserved
	gib
	oomDays
	oomKills
	resizes
	measureCount
)

var measures = [measureCount]measure{
	cores: {
		"cores", "reserved per series on average, weighted by time", "%.3f",
		func(m backtest.Measures) (float64, float64) { return m.RequestedCPU, m.Hours },
	},
	starved: {
		"starved", "share of time with more CPU wanted than reserved, the mean over series", "%.2f%%",
		func(m backtest.Measures) (float64, float64) { return 100 * m.StarvedHours / m.Hours, 1 },
	},
	unserved: {
		"unserved", "share of the CPU wanted that is above what is reserved, the mean over series", "%.2f%%",
		func(m backtest.Measures) (float64, float64) {
			if m.WantedCPU == 0 {
				return 0, 1
			}
			return 100 * m.UnservedCPU / m.WantedCPU, 1
		},
	},
	gib: {
		"GiB", "of memory reserved per series on average, weighted by time", "%.3f",
		ofMemory(func(m backtest.Measures) (float64, float64) { return m.RequestedMemory, m.Hours }),
	},
	oomDays: {
		"OOM days", "share of container-days with an OOM kill", "%.2f%%",
		ofMemory(func(m backtest.Measures) (float64, float64) { return 100 * float64(m.KillDays), float64(m.Days) }),
	},
	oomKills: {
		"OOM kills", "in 1000 container-days", "%.1f",
		ofMemory(func(m backtest.Measures) (float64, float64) { return 1000 * float64(m.Kills), float64(m.Days) }),
	},
	resizes: {
		"resizes", "a day", "%.2f",
		func(m backtest.Measures) (float64, float64) { return float64(m.Resizes), m.Hours / 24 },
	},
}

// ofMemory leaves out series without memory.
func ofMemory(of func(backtest.Measures) (float64, float64)) func(backtest.Measures) (float64, float64) {
	return func(m backtest.Measures) (part, whole float64) {
		if !m.HasMemory {
			return 0, 0
		}
		return of(m)
	}
}

// values are those of all measures.
type values [measureCount]float64

// sample holds the parts and wholes of all series: by rule, measure and series.
type sample struct {
	series      int
	part, whole [][measureCount][]float64
}

func newSample(outcomes [][]backtest.Outcome, rules int) sample {
	s := sample{series: len(outcomes), part: make([][measureCount][]float64, rules), whole: make([][measureCount][]float64, rules)}
	for r := range rules {
		for m, measure := range measures {
			for _, of := range outcomes {
				part, whole := measure.of(of[r].Measures)
				s.part[r][m], s.whole[r][m] = append(s.part[r][m], part), append(s.whole[r][m], whole)
			}
		}
	}
	return s
}

// of is the value of every measure under each rule, where times is the weight of each
// series. It is NaN for a measure that no series has.
func (s sample) of(times []float64) []values {
	out := make([]values, len(s.part))
	for r := range out {
		for m := range measures {
			part, whole := 0.0, 0.0
			for i, n := range times {
				part += n * s.part[r][m][i]
				whole += n * s.whole[r][m][i]
			}
			out[r][m] = part / whole
		}
	}
	return out
}

// seed makes a record reproducible.
const seed = 20110502

// bootstrap repeatedly draws as many series as there are, with replacement, and returns how
// often each series was drawn. It is paired. All rules are measured on the same draw, so
// that properties of a series that affect all rules cancel out of their ratios. Each group
// contains its part of the same draw.
//
// With s a series and u a draw, the ratio of a measure between two rules a and b is
//
//	ratio(u) = (Σ part(a,s) / Σ whole(a,s)) / (Σ part(b,s) / Σ whole(b,s)), sums over s in u
//
// and its interval of 95 % runs from the 2.5th to the 97.5th percentile of ratio(u):
// Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13.
func (s sample) bootstrap(draws int, told func(times []float64)) {
	random := rand.New(rand.NewPCG(seed, 0))
	times := make([]float64, s.series)
	for range draws {
		clear(times)
		for range s.series {
			times[random.IntN(s.series)]++
		}
		told(times)
	}
}

// ratio is a over b. It is NaN where both are 0, and infinite where only b is.
func ratio(a, b float64) float64 { return a / b }

// interval returns the percentiles 2.5 and 97.5 of the values that are numbers, by nearest
// rank: of 1000, the 25th and the 975th. It is NaN without any.
func interval(of []float64) (low, high float64) {
	of = slices.DeleteFunc(slices.Clone(of), math.IsNaN)
	if len(of) == 0 {
		return math.NaN(), math.NaN()
	}
	slices.Sort(of)
	rank := func(share float64) float64 {
		return of[max(int(math.Ceil(share*float64(len(of))-1e-9)), 1)-1]
	}
	return rank(0.025), rank(0.975)
}

// show prints a value of a measure.
func (m measure) show(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf(m.format, v)
}
