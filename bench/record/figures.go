// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
)

// measure is a line of the record. For a group of series, it is the sum of parts over the sum of
// wholes; or only the sum of parts; or a percentile over series of part over whole. A whole of 0
// leaves a series out.
type measure struct {
	name, about string
	// format prints a value.
	format string
	// of returns the part and the whole of a series under a rule, and under VPA's.
	of func(m, vpa backtest.Measures) (part, whole float64)
	// isTotal is the sum of parts.
	isTotal bool
	// percentile is from 0 to 1, by nearest rank; 0 for none.
	percentile float64
	// isOfVPA is true if the value is about VPA's, so that VPA's own tells nothing.
	isOfVPA bool
	// isPlain is true if a ratio to VPA's value tells little: the interval is that of the value.
	isPlain bool
	// unit is for sentences.
	unit string
}

// The measures, by their place in measures.
const (
	cores = iota
	medianCores
	moreCores
	starved
	starvedMeans
	unserved
	gib
	oomDays
	oomKills
	resizes
	resizesP90
	measureCount
)

var measures = [measureCount]measure{
	cores: {
		name: "cores", about: "reserved per series on average, weighted by time", format: "%.3f",
		of: func(m, _ backtest.Measures) (float64, float64) { return m.RequestedCPU, m.Hours },
	},
	medianCores: {
		name: "median ratio", about: "the median over series of cores reserved, as a share of VPA's", format: "x%.3f",
		of:         func(m, vpa backtest.Measures) (float64, float64) { return m.RequestedCPU, vpa.RequestedCPU },
		percentile: 0.5, isOfVPA: true, isPlain: true,
	},
	moreCores: {
		name: "above VPA", about: "the share of series that reserve more cores than with VPA", format: "%.1f%%",
		of: func(m, vpa backtest.Measures) (float64, float64) {
			if m.RequestedCPU > vpa.RequestedCPU {
				return 100, 1
			}
			return 0, 1
		},
		isOfVPA: true, isPlain: true,
	},
	starved: {
		name: "starved", about: "share of time with more CPU wanted than reserved, the mean over series", format: "%.2f%%",
		of: func(m, _ backtest.Measures) (float64, float64) { return 100 * m.StarvedHours / m.Hours, 1 },
	},
	starvedMeans: {
		name: "starved 5 min", about: "the same of means over 5 minutes", format: "%.2f%%",
		of: func(m, _ backtest.Measures) (float64, float64) { return 100 * m.StarvedMeanHours / m.Hours, 1 },
	},
	unserved: {
		name: "unserved", about: "share of the CPU wanted that is above what is reserved, the mean over series", format: "%.2f%%",
		of: func(m, _ backtest.Measures) (float64, float64) {
			if m.WantedCPU == 0 {
				return 0, 1
			}
			return 100 * m.UnservedCPU / m.WantedCPU, 1
		},
	},
	gib: {
		name: "GiB", about: "of memory reserved per series on average, weighted by time", format: "%.3f",
		of: ofMemory(func(m backtest.Measures) (float64, float64) { return m.RequestedMemory, m.Hours }),
	},
	oomDays: {
		name: "OOM days", about: "share of container-days with an OOM kill", format: "%.2f%%",
		of: ofMemory(func(m backtest.Measures) (float64, float64) { return 100 * float64(m.KillDays), float64(m.Days) }),
	},
	oomKills: {
		name: "OOM kills", about: "of all series", format: "%.0f",
		of:      ofMemory(func(m backtest.Measures) (float64, float64) { return float64(m.Kills), 1 }),
		isTotal: true,
	},
	resizes: {
		name: "resizes", about: "a day", format: "%.2f", unit: " a day",
		of:      func(m, _ backtest.Measures) (float64, float64) { return float64(m.Resizes), m.Hours / 24 },
		isPlain: true,
	},
	resizesP90: {
		name: "resizes p90", about: "a day, the 90th percentile over series", format: "%.2f", unit: " a day",
		of:         func(m, _ backtest.Measures) (float64, float64) { return float64(m.Resizes), m.Hours / 24 },
		percentile: 0.9, isPlain: true,
	},
}

// ofMemory leaves out series without memory.
func ofMemory(of func(backtest.Measures) (float64, float64)) func(m, vpa backtest.Measures) (float64, float64) {
	return func(m, _ backtest.Measures) (part, whole float64) {
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
	// order are the series in the order of part over whole, without those left out, for percentiles.
	order [][measureCount][]int
}

// newSample expects VPA's outcomes first.
func newSample(outcomes [][]backtest.Outcome, rules int) sample {
	s := sample{
		series: len(outcomes), part: make([][measureCount][]float64, rules), whole: make([][measureCount][]float64, rules),
		order: make([][measureCount][]int, rules),
	}
	for r := range rules {
		for m, measure := range measures {
			for i, of := range outcomes {
				part, whole := measure.of(of[r].Measures, of[0].Measures)
				s.part[r][m], s.whole[r][m] = append(s.part[r][m], part), append(s.whole[r][m], whole)
				if measure.percentile > 0 && whole > 0 {
					s.order[r][m] = append(s.order[r][m], i)
				}
			}
			slices.SortFunc(s.order[r][m], func(a, b int) int {
				return cmp.Compare(s.part[r][m][a]/s.whole[r][m][a], s.part[r][m][b]/s.whole[r][m][b])
			})
		}
	}
	return s
}

// of is the value of every measure under each rule, where times is the weight of each
// series. It is NaN for a measure that no series has.
func (s sample) of(times []float64) []values {
	out := make([]values, len(s.part))
	for r := range out {
		for m, measure := range measures {
			if measure.percentile > 0 {
				out[r][m] = s.percentile(r, m, times)
			} else {
				out[r][m] = s.sum(r, m, times)
			}
		}
	}
	return out
}

func (s sample) sum(r, m int, times []float64) float64 {
	part, whole := 0.0, 0.0
	for i, n := range times {
		part += n * s.part[r][m][i]
		whole += n * s.whole[r][m][i]
	}
	switch {
	case whole == 0:
		return math.NaN()
	case measures[m].isTotal:
		return part
	}
	return part / whole
}

// percentile is the smallest value such that at least that share of the weight is not above it.
func (s sample) percentile(r, m int, times []float64) float64 {
	total := 0.0
	for _, i := range s.order[r][m] {
		total += times[i]
	}
	if total == 0 {
		return math.NaN()
	}
	sum, value := 0.0, 0.0
	for _, i := range s.order[r][m] {
		if times[i] == 0 {
			continue
		}
		sum += times[i]
		value = s.part[r][m][i] / s.whole[r][m][i]
		if sum >= measures[m].percentile*total-1e-9 {
			break
		}
	}
	return value
}

// ratio is a over b. It is NaN where both are 0, and infinite where only b is.
func ratio(a, b float64) float64 { return a / b }

// show prints a value of a measure.
func (m measure) show(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf(m.format, v)
}
