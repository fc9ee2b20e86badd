// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// seed makes a record reproducible.
const seed = 20110502

// bootstrap repeatedly draws as many clusters as there are, with replacement, and returns how
// often each series was drawn. Series of a cluster are siblings, such as the tasks of one job: they
// are much alike, and count as one piece of evidence, not as many. It is paired. All rules are
// measured on the same draw, so that properties of a series that affect all rules cancel out of
// their ratios. Each group contains its part of the same draw.
//
// With s a series and u a draw, the ratio of a measure between two rules a and b is
//
//	ratio(u) = (Σ part(a,s) / Σ whole(a,s)) / (Σ part(b,s) / Σ whole(b,s)), sums over s in u
//
// and its interval of 95 % runs from the 2.5th to the 97.5th percentile of ratio(u):
// Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13. Clusters are
// drawn whole: Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8.
//
// cluster holds the number of the cluster of each series, counted from 0.
func bootstrap(cluster []int, draws int, told func(times []float64)) {
	random := rand.New(rand.NewPCG(seed, 0))
	drawn, times := make([]float64, slices.Max(cluster)+1), make([]float64, len(cluster))
	for range draws {
		clear(drawn)
		for range drawn {
			drawn[random.IntN(len(drawn))]++
		}
		for i, c := range cluster {
			times[i] = drawn[c]
		}
		told(times)
	}
}

// numbered numbers equal keys alike, from 0 in the order in which they come.
func numbered(keys []string) []int {
	numbers, known := make([]int, len(keys)), map[string]int{}
	for i, key := range keys {
		if _, ok := known[key]; !ok {
			known[key] = len(known)
		}
		numbers[i] = known[key]
	}
	return numbers
}

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

// drawn are the values of a group in all draws.
type drawn struct {
	// values and ratios to VPA, by rule and measure.
	values, ratios [][measureCount][]float64
}

func newDrawn(rules int) drawn {
	return drawn{make([][measureCount][]float64, rules), make([][measureCount][]float64, rules)}
}

func (d drawn) add(of []values) {
	for r := range of {
		for m := range measures {
			d.values[r][m] = append(d.values[r][m], of[r][m])
			d.ratios[r][m] = append(d.ratios[r][m], ratio(of[r][m], of[0][m]))
		}
	}
}

// folds returns the values without each source in turn: by source and rule. There are none of a
// single source.
func (s sample) folds(members []float64, source []int) [][]values {
	var of [][]values
	sources := map[int]bool{}
	for i, n := range members {
		if n > 0 {
			sources[source[i]] = true
		}
	}
	if len(sources) < 2 {
		return nil
	}
	for left := range slices.Max(source) + 1 {
		if sources[left] {
			of = append(of, s.of(masked(members, func(i int) bool { return source[i] != left })))
		}
	}
	return of
}

// masked is the weights of the series that are kept, and 0 for others.
func masked(weights []float64, isKept func(i int) bool) []float64 {
	out := make([]float64, len(weights))
	for i, n := range weights {
		if isKept(i) {
			out[i] = n
		}
	}
	return out
}
