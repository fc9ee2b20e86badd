// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/bench/tables"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

const (
	// warmUp is the time at the beginning of each series that is replayed, but not measured.
	warmUp = 3 * 24 * time.Hour
	// seed makes a record reproducible.
	seed = 20110502
)

// scenarios are the ways of replaying series. The first one is measured in full.
var scenarios = []struct {
	name    string
	assumed backtest.Assumptions
}{
	{"recorded", backtest.Assumptions{}},
	{"10-pods-15", backtest.Assumptions{Pods: 10, Spread: 0.15}},
	{"minutes-25", backtest.Assumptions{Minutes: true, Jitter: 0.25}},
	{"limit-1", backtest.Assumptions{Minutes: true, Jitter: 0.25, CPULimit: 1}},
	{"limit-2", backtest.Assumptions{Minutes: true, Jitter: 0.25, CPULimit: 2}},
}

// rules are VPA's, and one for each profile.
func rules() []backtest.Rule {
	list := []backtest.Rule{vpa.Rule()}
	for _, p := range profile.All() {
		rule := engine.Of(p)
		rule.Name = string(p)
		list = append(list, rule)
	}
	return list
}

// measures are the lines of the record. For a group of series, each is the sum of parts over the sum of wholes.
var measures = []struct {
	name, format string
	of           func(m backtest.Measures) (part, whole float64)
	// isPlain is true if a ratio to VPA's value means little: the interval of the value is printed.
	isPlain bool
}{
	{name: "cores", format: "%.3f", of: func(m backtest.Measures) (float64, float64) { return m.RequestedCPU, m.Hours }},
	{name: "starved", format: "%.2f%%", of: func(m backtest.Measures) (float64, float64) { return 100 * m.StarvedHours / m.Hours, 1 }},
	{name: "starved 5 min", format: "%.2f%%", of: func(m backtest.Measures) (float64, float64) {
		return 100 * m.StarvedMeanHours / m.Hours, 1
	}},
	{name: "unserved", format: "%.2f%%", of: func(m backtest.Measures) (float64, float64) {
		if m.WantedCPU == 0 {
			return 0, 1
		}
		return 100 * m.UnservedCPU / m.WantedCPU, 1
	}},
	{name: "GiB", format: "%.3f", of: func(m backtest.Measures) (float64, float64) {
		if !m.HasMemory {
			return 0, 0
		}
		return m.RequestedMemory, m.Hours
	}},
	{name: "OOM days", format: "%.2f%%", of: func(m backtest.Measures) (float64, float64) {
		if !m.HasMemory {
			return 0, 0
		}
		return 100 * float64(m.KillDays), float64(m.Days)
	}},
	{name: "resizes", format: "%.2f", isPlain: true, of: func(m backtest.Measures) (float64, float64) {
		return float64(m.Resizes), m.Hours / 24
	}},
}

// cores and starvedMeans are the places of two measures.
const cores, starvedMeans = 0, 2

// series is a series under all rules, VPA's first.
type series struct {
	source, cluster string
	under           []backtest.Measures
}

// result has the groups of a scenario, in their order.
type result []groupResult

type groupResult struct {
	name                            string
	series, clusters, sources, days int
	values                          values
	// low and high are the 95 % confidence intervals of the ratios to VPA's values, or of the values.
	low, high values
}

// values are by rule and measure.
type values [][]float64

// valuesOf are the values where times is how often each series counts. A value is NaN if no series has it.
func valuesOf(all []series, times []float64) values {
	out := make(values, len(all[0].under))
	for rule := range out {
		for _, m := range measures {
			part, whole := 0.0, 0.0
			for i, s := range all {
				p, w := m.of(s.under[rule])
				part, whole = part+times[i]*p, whole+times[i]*w
			}
			out[rule] = append(out[rule], part/whole)
		}
	}
	return out
}

// measure measures the groups of a scenario. Series that end before the warm-up are left out.
func measure(traces []backtest.Trace, outcomes [][]backtest.Outcome, o options) (out result, err error) {
	for _, g := range o.groups {
		var members []series
		for i, t := range traces {
			if !g.Match(t) || outcomes[i][0].Measures.Hours == 0 {
				continue
			}
			s := series{source: tables.Source(t), cluster: o.clusterOf(t)}
			for _, outcome := range outcomes[i] {
				s.under = append(s.under, outcome.Measures)
			}
			members = append(members, s)
		}
		if len(members) == 0 {
			return nil, fmt.Errorf("no series of the group %s is longer than %s", g.name, warmUp)
		}
		out = append(out, measureGroup(g.name, members, o.draws))
	}
	return out, nil
}

func measureGroup(name string, members []series, draws int) groupResult {
	g := groupResult{name: name, series: len(members)}
	sources, once := map[string]bool{}, make([]float64, len(members))
	for i, s := range members {
		g.days += s.under[0].Days
		sources[s.source], once[i] = true, 1
	}
	clusters := clustersOf(members)
	g.sources, g.clusters = len(sources), slices.Max(clusters)+1
	g.values = valuesOf(members, once)
	drawn := make([][][]float64, len(g.values)) // by rule and measure
	for rule := range drawn {
		drawn[rule] = make([][]float64, len(measures))
	}
	bootstrap(clusters, draws, func(times []float64) {
		for rule, of := range ratios(valuesOf(members, times)) {
			for m, value := range of {
				drawn[rule][m] = append(drawn[rule][m], value)
			}
		}
	})
	for _, of := range drawn {
		var low, high []float64
		for _, all := range of {
			from, to := interval(all)
			low, high = append(low, from), append(high, to)
		}
		g.low, g.high = append(g.low, low), append(g.high, high)
	}
	return g
}

// ratios are the ratios to VPA's values, and the plain values as they are.
func ratios(of values) values {
	out := make(values, len(of))
	for rule := range of {
		for m, value := range of[rule] {
			if !measures[m].isPlain {
				value /= of[0][m]
			}
			out[rule] = append(out[rule], value)
		}
	}
	return out
}

// clustersOf numbers the clusters of series, from 0.
func clustersOf(all []series) []int {
	numbers, known := make([]int, len(all)), map[string]int{}
	for i, s := range all {
		if _, ok := known[s.cluster]; !ok {
			known[s.cluster] = len(known)
		}
		numbers[i] = known[s.cluster]
	}
	return numbers
}

// bootstrap repeatedly draws as many clusters as there are, with replacement, and returns how often each series was
// drawn. All rules are measured on the same draw, so that properties of a series that affect all rules cancel out of
// their ratios. See Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13. Clusters are drawn
// whole: Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8.
func bootstrap(clusters []int, draws int, told func(times []float64)) {
	random := rand.New(rand.NewPCG(seed, 0))
	drawn, times := make([]float64, slices.Max(clusters)+1), make([]float64, len(clusters))
	for range draws {
		clear(drawn)
		for range drawn {
			drawn[random.IntN(len(drawn))]++
		}
		for i, c := range clusters {
			times[i] = drawn[c]
		}
		told(times)
	}
}

// interval returns the percentiles 2.5 and 97.5 of the values that are numbers, by nearest rank. It is NaN without any.
func interval(of []float64) (low, high float64) {
	of = slices.DeleteFunc(of, math.IsNaN)
	if len(of) == 0 {
		return math.NaN(), math.NaN()
	}
	slices.Sort(of)
	rank := func(share float64) float64 { return of[max(int(math.Ceil(share*float64(len(of))-1e-9)), 1)-1] }
	return rank(0.025), rank(0.975)
}

// write writes the record in Markdown: all measures as recorded, and cores and starved time in all scenarios.
func write(out io.Writer, of []result) error {
	var b strings.Builder
	names := ""
	for _, rule := range rules() {
		names += " | " + rule.Name
	}
	names += " |\n|---" + strings.Repeat("|---", len(rules())) + "|\n"
	for _, g := range of[0] {
		fmt.Fprintf(&b, "### %s, one pod, as recorded: %d series in %d clusters of siblings and %d sources, %d container-days after a warm-up of %g days\n\n",
			titled(g.name), g.series, g.clusters, g.sources, g.days, warmUp.Hours()/24)
		b.WriteString("| measure" + names)
		for m := range measures {
			b.WriteString("| " + measures[m].name)
			for rule := range g.values {
				b.WriteString(" | " + g.cell(rule, m))
			}
			b.WriteString(" |\n")
		}
		b.WriteString("\n")
	}
	for i := range of[0] {
		fmt.Fprintf(&b, "### %s, in uneven pods, in minutes, and with CPU limits\n\nVPA: cores. Profiles: cores as a ratio to VPA's. Then, for all: starved 5 min.\n\n", titled(of[0][i].name))
		b.WriteString("| scenario" + names)
		for s, scenario := range scenarios {
			g := of[s][i]
			b.WriteString("| " + scenario.name)
			for rule := range g.values {
				text := g.value(rule, cores)
				if rule > 0 {
					text = g.ratio(rule, cores)
				}
				b.WriteString(" | " + text + ", " + g.value(rule, starvedMeans))
			}
			b.WriteString(" |\n")
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(out, strings.TrimSuffix(b.String(), "\n"))
	return err
}

func titled(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// cell is a value with its ratio to VPA's, or with its own interval.
func (g groupResult) cell(rule, m int) string {
	text := g.value(rule, m)
	switch {
	case measures[m].isPlain:
		return text + g.bracket(rule, m, measures[m].format)
	case rule == 0 || math.IsNaN(g.values[rule][m]/g.values[0][m]):
		return text
	}
	return text + ", " + g.ratio(rule, m)
}

func (g groupResult) value(rule, m int) string {
	if math.IsNaN(g.values[rule][m]) {
		return "-"
	}
	return fmt.Sprintf(measures[m].format, g.values[rule][m])
}

func (g groupResult) ratio(rule, m int) string {
	return fmt.Sprintf("x%.3f", g.values[rule][m]/g.values[0][m]) + g.bracket(rule, m, "%.3f")
}

// bracket is the interval of a value. A single cluster has none.
func (g groupResult) bracket(rule, m int, format string) string {
	if g.clusters < 2 || math.IsNaN(g.low[rule][m]) {
		return ""
	}
	return fmt.Sprintf(" ["+format+", "+format+"]", g.low[rule][m], g.high[rule][m])
}
