// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

// record is the result of a run.
type record struct {
	// Draws is how often the bootstrap drew clusters of series.
	Draws     int              `json:"draws"`
	Scenarios []scenarioRecord `json:"scenarios"`
	// Targets are the targets of the measured groups.
	Targets []targetRecord `json:"targets"`
}

type scenarioRecord struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// WarmUpSeconds is the time at the beginning of each series that is not measured.
	WarmUpSeconds int64         `json:"warmUpSeconds"`
	Groups        []groupRecord `json:"groups"`
	// Sources are the same for each source, without intervals, if there are several.
	Sources []groupRecord `json:"sources,omitempty"`
	// Unmeasured are the series that end before the warm-up does.
	Unmeasured []string `json:"unmeasured,omitempty"`
}

type groupRecord struct {
	Name          string `json:"name"`
	Series        int    `json:"series"`
	Sources       int    `json:"sources"`
	Clusters      int    `json:"clusters"`
	WithMemory    int    `json:"withMemory"`
	ContainerDays int    `json:"containerDays"`
	Lines         []line `json:"lines"`
}

// line is a measure under all rules, VPA first.
type line struct {
	Measure string `json:"measure"`
	About   string `json:"about"`
	Cells   []cell `json:"cells"`
}

type cell struct {
	Rule  string `json:"rule"`
	Value number `json:"value"`
	// OfVPA is the ratio to VPA's value, with its interval; VPA has none.
	OfVPA *estimate `json:"ofVPA,omitempty"`
	// Interval is that of the value, where a ratio tells little.
	Interval *span `json:"interval,omitempty"`
}

// estimate is a value with its 95 % confidence interval.
type estimate struct {
	Value number `json:"value"`
	span
}

// span is from one value to another. Both are NaN if there is none.
type span struct {
	Low  number `json:"low"`
	High number `json:"high"`
}

type targetRecord struct {
	Profile  string `json:"profile"`
	Scenario string `json:"scenario"`
	Group    string `json:"group"`
	Target   string `json:"target"`
	VPA      number `json:"vpa"`
	Ours     number `json:"verticalScaler"`
	// IsAbsolute is true if Estimate and Folds are about the value, and not about its ratio to VPA's.
	IsAbsolute bool     `json:"isAbsolute"`
	Estimate   estimate `json:"estimate"`
	// Folds is the range of the same without each source in turn.
	Folds     *span `json:"folds,omitempty"`
	IsReached bool  `json:"isReached"`
	// DrawsPercent is the share of draws that reach it; NaN without draws.
	DrawsPercent number `json:"drawsPercent"`

	target target
}

// number is rounded, so that a record is the same on every machine; null in JSON for NaN.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if v := float64(n); !math.IsNaN(v) && !math.IsInf(v, 0) {
		return json.Marshal(math.Round(v*1e6) / 1e6)
	}
	return []byte("null"), nil
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

// ruleOf is the place of a profile's rule in rules.
func ruleOf(p profile.Profile) int { return 1 + slices.Index(profile.All(), p) }

// measured are the outcomes of a scenario, without series that were not measured.
type measured struct {
	scenario scenario
	sample   sample
	outcomes [][]backtest.Outcome
	// source and cluster number those of each series, as they come; sources are the names.
	source, cluster []int
	sources         []string
	groups          []group
	members         [][]float64 // by group: 1 for a series of the group, otherwise 0
}

// add adds the outcomes of a scenario.
func (r *record) add(s scenario, traces []backtest.Trace, outcomes [][]backtest.Outcome, o options) error {
	m := measured{scenario: s, groups: s.groups(traces, o)}
	m.members = make([][]float64, len(m.groups))
	out := scenarioRecord{Name: s.name, About: s.about, WarmUpSeconds: int64(s.warmUp(o).Seconds())}
	var sources, clusters []string
	for i, t := range traces {
		if outcomes[i][0].Measures.Hours == 0 {
			out.Unmeasured = append(out.Unmeasured, t.Name)
			continue
		}
		m.outcomes = append(m.outcomes, outcomes[i])
		sources, clusters = append(sources, sourceOf(t)), append(clusters, o.siblings.clusterOf(t))
		for g, group := range m.groups {
			isMember := 0.0
			if group.match(t) {
				isMember = 1
			}
			m.members[g] = append(m.members[g], isMember)
		}
	}
	if len(m.outcomes) == 0 {
		return fmt.Errorf("no series is longer than the warm-up of %s", o.warmUp)
	}
	m.source, m.cluster = numbered(sources), numbered(clusters)
	for i, number := range m.source {
		if number == len(m.sources) {
			m.sources = append(m.sources, sources[i])
		}
	}
	m.sample = newSample(m.outcomes, len(rules()))
	if err := r.measure(m, &out); err != nil {
		return err
	}
	r.Scenarios = append(r.Scenarios, out)
	return nil
}

// measure measures the groups and targets of a scenario.
func (r *record) measure(m measured, out *scenarioRecord) error {
	drawn, reached := m.draw(r.Draws)
	for g, group := range m.groups {
		if !slices.Contains(m.members[g], 1) {
			return fmt.Errorf("no series is in the group %s", group.name)
		}
		of := m.sample.of(m.members[g])
		record := m.record(group.name, m.members[g], of, drawn[g])
		out.Groups = append(out.Groups, record)
		folds := m.sample.folds(m.members[g], m.source)
		for i, t := range targets() {
			if t.scenario != m.scenario.name || t.group != group.name {
				continue
			}
			share := percent(reached[i], r.Draws)
			if record.Clusters < 2 {
				share = number(math.NaN())
			}
			r.Targets = append(r.Targets, newTargetRecord(t, of, drawn[g], record.Clusters, folds, share))
		}
	}
	if len(m.sources) < 2 {
		return nil
	}
	everything := make([]float64, len(m.source))
	for i := range everything {
		everything[i] = 1
	}
	for number, name := range m.sources {
		members := masked(everything, func(i int) bool { return m.source[i] == number })
		out.Sources = append(out.Sources, m.record(name, members, m.sample.of(members), newDrawn(len(rules()))))
	}
	return nil
}

// draw returns the values of all draws, by group, and how many reach each target.
func (m measured) draw(draws int) (of []drawn, reached []int) {
	list := targets()
	reached = make([]int, len(list))
	for range m.groups {
		of = append(of, newDrawn(len(m.sample.part)))
	}
	bootstrap(m.cluster, draws, func(times []float64) {
		for g, group := range m.groups {
			values := m.sample.of(masked(times, func(i int) bool { return m.members[g][i] > 0 }))
			of[g].add(values)
			for i, t := range list {
				if t.scenario == m.scenario.name && t.group == group.name && t.isReached(values[0], values[ruleOf(t.profile)]) {
					reached[i]++
				}
			}
		}
	})
	return of, reached
}

// record describes a group, or a source.
func (m measured) record(name string, members []float64, of []values, draws drawn) groupRecord {
	g := groupRecord{Name: name}
	sources, clusters := map[int]bool{}, map[int]bool{}
	for i, outcomes := range m.outcomes {
		if members[i] == 0 {
			continue
		}
		first := outcomes[0].Measures
		g.Series++
		g.ContainerDays += first.Days
		if first.HasMemory {
			g.WithMemory++
		}
		sources[m.source[i]], clusters[m.cluster[i]] = true, true
	}
	g.Sources, g.Clusters = len(sources), len(clusters)
	for n, measure := range measures {
		l := line{Measure: measure.name, About: measure.about}
		for i, rule := range rules() {
			c := cell{Rule: rule.Name, Value: number(of[i][n])}
			switch {
			case measure.isOfVPA && i == 0:
				c.Value = number(math.NaN())
			case measure.isPlain:
				interval := newSpan(draws.values[i][n], g.Clusters)
				c.Interval = &interval
			case i > 0:
				c.OfVPA = &estimate{number(ratio(of[i][n], of[0][n])), newSpan(draws.ratios[i][n], g.Clusters)}
			}
			l.Cells = append(l.Cells, c)
		}
		g.Lines = append(g.Lines, l)
	}
	return g
}

// newSpan is the interval of draws. A single cluster has none.
func newSpan(draws []float64, clusters int) span {
	if clusters < 2 {
		draws = nil
	}
	low, high := interval(draws)
	return span{number(low), number(high)}
}

func newTargetRecord(t target, of []values, draws drawn, clusters int, folds [][]values, share number) targetRecord {
	rule, m := ruleOf(t.profile), t.measure
	value := func(of []values) float64 {
		if t.isAbsolute {
			return of[rule][m]
		}
		return ratio(of[rule][m], of[0][m])
	}
	all := draws.ratios
	if t.isAbsolute {
		all = draws.values
	}
	out := targetRecord{
		Profile: string(t.profile), Scenario: t.scenario, Group: t.group, Target: t.String(), target: t,
		VPA: number(of[0][m]), Ours: number(of[rule][m]), IsAbsolute: t.isAbsolute,
		Estimate:     estimate{number(value(of)), newSpan(all[rule][m], clusters)},
		IsReached:    t.isReached(of[0], of[rule]),
		DrawsPercent: share,
	}
	for _, fold := range folds {
		if t.isOfFolds && !t.isReached(fold[0], fold[rule]) {
			out.IsReached = false
		}
		v := number(value(fold))
		switch {
		case math.IsNaN(float64(v)): // a ratio of 0 to 0
		case out.Folds == nil:
			out.Folds = &span{v, v}
		default:
			out.Folds.Low, out.Folds.High = min(out.Folds.Low, v), max(out.Folds.High, v)
		}
	}
	return out
}

// sortTargets sorts by profile; within one, the order stays that of targets.
func (r *record) sortTargets() {
	all := targets()
	slices.SortStableFunc(r.Targets, func(a, b targetRecord) int {
		return slices.Index(all, a.target) - slices.Index(all, b.target)
	})
}

func percent(part, of int) number { return number(100 * float64(part) / float64(of)) }

// missed returns an error if a target is missed.
func (r *record) missed() error {
	var missed []error
	for _, t := range r.Targets {
		if !t.IsReached {
			missed = append(missed, fmt.Errorf("%s misses a target of %s, %s: %s", t.Profile, t.Scenario, t.Group, t.Target))
		}
	}
	return errors.Join(missed...)
}

func (r *record) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
