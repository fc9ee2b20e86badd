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
	// WarmUpSeconds is the time at the beginning of each series that is not measured.
	WarmUpSeconds int64 `json:"warmUpSeconds"`
	// Draws is how often the bootstrap drew series.
	Draws  int           `json:"draws"`
	Groups []groupRecord `json:"groups"`
	// Targets are the targets of the measured groups.
	Targets []targetRecord `json:"targets"`
	// Together is the result for all targets of a profile at once.
	Together []together `json:"together"`
	// Unmeasured is the number of series that end before the warm-up does.
	Unmeasured []string `json:"unmeasured,omitempty"`
}

type groupRecord struct {
	Name          string `json:"name"`
	Series        int    `json:"series"`
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
	// OfVPA is the ratio to VPA's value; VPA has none.
	OfVPA *estimate `json:"ofVPA,omitempty"`
}

// estimate is a value with its 95 % confidence interval.
type estimate struct {
	Value number `json:"value"`
	Low   number `json:"low"`
	High  number `json:"high"`
}

type targetRecord struct {
	Profile string `json:"profile"`
	Group   string `json:"group"`
	Target  string `json:"target"`
	VPA     number `json:"vpa"`
	Ours    number `json:"verticalScaler"`
	// OfVPA is the ratio of the two.
	OfVPA     estimate `json:"ofVPA"`
	IsReached bool     `json:"isReached"`
	// DrawsPercent is the share of draws that reach it.
	DrawsPercent number `json:"drawsPercent"`

	measure measure
}

type together struct {
	Profile string `json:"profile"`
	Targets int    `json:"targets"`
	Reached int    `json:"reached"`
	// DrawsPercent is the share of draws that reach all of them.
	DrawsPercent number `json:"drawsPercent"`
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

func newRecord(traces []backtest.Trace, rules []backtest.Rule, outcomes [][]backtest.Outcome, o options) (*record, error) {
	r := &record{WarmUpSeconds: int64(o.warmUp.Seconds()), Draws: o.draws}
	var measured [][]backtest.Outcome
	members := make([][]float64, len(o.groups)) // 1 for a series of the group, otherwise 0
	for i, t := range traces {
		if outcomes[i][0].Measures.Hours == 0 {
			r.Unmeasured = append(r.Unmeasured, t.Name)
			continue
		}
		measured = append(measured, outcomes[i])
		for g, group := range o.groups {
			isMember := 0.0
			if group.match(t) {
				isMember = 1
			}
			members[g] = append(members[g], isMember)
		}
	}
	if len(measured) == 0 {
		return nil, fmt.Errorf("no series is longer than the warm-up of %s", o.warmUp)
	}
	sample := newSample(measured, len(rules))
	drawn := draw(sample, members, o)
	for g, group := range o.groups {
		if !slices.Contains(members[g], 1) {
			return nil, fmt.Errorf("no series is in the group %s", group.name)
		}
		of := sample.of(members[g])
		r.Groups = append(r.Groups, r.group(group.name, members[g], measured, rules, of, drawn.ratios[g]))
		for i, t := range drawn.targets {
			if t.group == group.name {
				r.addTarget(t, rules, of, drawn.ratios[g], drawn.reached[i])
			}
		}
	}
	// By profile, and then by group.
	slices.SortStableFunc(r.Targets, func(a, b targetRecord) int {
		place := func(t targetRecord) int { return slices.Index(profile.All(), profile.Profile(t.Profile)) }
		return place(a) - place(b)
	})
	r.addTogether(drawn)
	return r, nil
}

// drawn holds the results of all bootstrap draws.
type drawn struct {
	draws int
	// ratios to VPA, by group, rule and measure.
	ratios [][][measureCount][]float64
	// targets are the targets of the groups at hand. reached counts the draws that reach each
	// target; together counts, by profile, the draws that reach all of its targets.
	targets  []target
	reached  []int
	together map[profile.Profile]int
	place    map[string]int // of a group, by its name
}

func draw(s sample, members [][]float64, o options) drawn {
	d := drawn{draws: o.draws, together: map[profile.Profile]int{}, place: map[string]int{}}
	for g, group := range o.groups {
		d.place[group.name] = g
		d.ratios = append(d.ratios, make([][measureCount][]float64, len(s.part)))
	}
	for _, t := range targets() {
		if _, ok := d.place[t.group]; ok {
			d.targets = append(d.targets, t)
		}
	}
	d.reached = make([]int, len(d.targets))

	counted := make([]float64, s.series)
	s.bootstrap(o.draws, func(times []float64) {
		of := make([][]values, len(members))
		for g := range members {
			for i := range counted {
				counted[i] = times[i] * members[g][i]
			}
			of[g] = s.of(counted)
			d.addRatios(g, of[g])
		}
		d.countReached(of)
	})
	return d
}

// addRatios adds one draw of a group, by rule.
func (d *drawn) addRatios(group int, of []values) {
	for r := range of {
		for m := range measures {
			d.ratios[group][r][m] = append(d.ratios[group][r][m], ratio(of[r][m], of[0][m]))
		}
	}
}

// countReached counts the targets that one draw reaches.
func (d *drawn) countReached(of [][]values) {
	missed := map[profile.Profile]bool{}
	for i, t := range d.targets {
		g := d.place[t.group]
		if t.isReached(of[g][0], of[g][ruleOf(t.profile)]) {
			d.reached[i]++
		} else {
			missed[t.profile] = true
		}
	}
	for _, p := range profile.All() {
		if !missed[p] {
			d.together[p]++
		}
	}
}

// ruleOf is the place of a profile's rule in rules.
func ruleOf(p profile.Profile) int { return 1 + slices.Index(profile.All(), p) }

func (r *record) group(name string, members []float64, measured [][]backtest.Outcome, rules []backtest.Rule,
	of []values, ratios [][measureCount][]float64,
) groupRecord {
	g := groupRecord{Name: name}
	for i, outcomes := range measured {
		if members[i] == 0 {
			continue
		}
		m := outcomes[0].Measures
		g.Series++
		g.ContainerDays += m.Days
		if m.HasMemory {
			g.WithMemory++
		}
	}
	for m, measure := range measures {
		l := line{Measure: measure.name, About: measure.about}
		for i, rule := range rules {
			c := cell{Rule: rule.Name, Value: number(of[i][m])}
			if i > 0 {
				e := newEstimate(of[i][m], of[0][m], ratios[i][m])
				c.OfVPA = &e
			}
			l.Cells = append(l.Cells, c)
		}
		g.Lines = append(g.Lines, l)
	}
	return g
}

func newEstimate(ours, vpa float64, ratios []float64) estimate {
	low, high := interval(ratios)
	return estimate{number(ratio(ours, vpa)), number(low), number(high)}
}

func (r *record) addTarget(t target, rules []backtest.Rule, of []values, ratios [][measureCount][]float64, reached int) {
	i, m := ruleOf(t.profile), t.measure
	r.Targets = append(r.Targets, targetRecord{
		Profile: rules[i].Name, Group: t.group, Target: t.String(), measure: measures[m],
		VPA: number(of[0][m]), Ours: number(of[i][m]), OfVPA: newEstimate(of[i][m], of[0][m], ratios[i][m]),
		IsReached:    t.isReached(of[0], of[i]),
		DrawsPercent: percent(reached, r.Draws),
	})
}

func (r *record) addTogether(d drawn) {
	for _, p := range profile.All() {
		all := together{Profile: string(p), DrawsPercent: percent(d.together[p], d.draws)}
		for _, t := range r.Targets {
			if t.Profile != string(p) {
				continue
			}
			all.Targets++
			if t.IsReached {
				all.Reached++
			}
		}
		if all.Targets > 0 {
			r.Together = append(r.Together, all)
		}
	}
}

func percent(part, of int) number { return number(100 * float64(part) / float64(of)) }

// missed returns an error if a target is missed.
func (r *record) missed() error {
	var missed []error
	for _, t := range r.Targets {
		if !t.IsReached {
			missed = append(missed, fmt.Errorf("%s misses a target of %s: %s", t.Profile, t.Group, t.Target))
		}
	}
	return errors.Join(missed...)
}

func (r *record) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}
