// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

// layout is how tables are written.
type layout interface {
	// title is above a table.
	title(b *strings.Builder, text string)
	table(b *strings.Builder, rows [][]string)
	sentence(b *strings.Builder, text string)
	// end is after sentences.
	end(b *strings.Builder)
}

func (r *record) writeTable(w io.Writer) error    { return r.write(w, plain{}) }
func (r *record) writeMarkdown(w io.Writer) error { return r.write(w, markdown{}) }

// The parts of a record, in the order in which they are read: what was promised, what was measured
// as recorded, in other worlds, by source, on the first day, and on patterns.
func (r *record) write(w io.Writer, l layout) error {
	var b strings.Builder
	r.writeTargets(&b, l)
	for _, s := range r.Scenarios {
		if s.Name == recorded {
			s.writeGroups(&b, l)
		}
	}
	r.writeWorlds(&b, l)
	for _, s := range r.Scenarios {
		switch s.Name {
		case recorded:
			s.writeSources(&b, l)
		case firstDay:
			l.title(&b, s.About)
			s.writeCompact(&b, l, "group", oomKills, cores, starvedMeans)
		case patterned:
			l.title(&b, fmt.Sprintf("%s, after a warm-up of %s", s.About, inDays(s.WarmUpSeconds)))
			s.writeCompact(&b, l, "pattern", cores, starved, oomKills, resizes)
		}
	}
	r.writeUnmeasured(&b, l)
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

func (r *record) writeTargets(b *strings.Builder, l layout) {
	l.title(b, "targets")
	if len(r.Targets) == 0 {
		l.sentence(b, "These groups and scenarios have none.")
		return
	}
	rows := [][]string{{"profile", "scenario", "group", "target", "vpa", "ours", "ratio or value", "without each source", "of draws", "reached"}}
	for _, t := range r.Targets {
		m := measures[t.target.measure]
		rows = append(rows, []string{
			t.Profile, t.Scenario, t.Group, t.Target, m.show(float64(t.VPA)), m.show(float64(t.Ours)),
			t.estimate(), t.folds(), shareOf(t.DrawsPercent), yesOrNo(t.IsReached),
		})
	}
	l.table(b, rows)
	for _, p := range profile.All() {
		all, reached := 0, 0
		for _, t := range r.Targets {
			if t.Profile != string(p) {
				continue
			}
			all++
			if t.IsReached {
				reached++
			}
		}
		if all > 0 {
			l.sentence(b, fmt.Sprintf("%s reaches %d of %d targets.", p, reached, all))
		}
	}
	l.end(b)
}

// show prints a ratio, or a value if the target is absolute.
func (t targetRecord) show(n number) string {
	if t.IsAbsolute {
		return measures[t.target.measure].show(float64(n))
	}
	return ratioOf(n)
}

func (t targetRecord) estimate() string {
	if t.IsAbsolute {
		return t.show(t.Estimate.Value) + t.Estimate.suffix(t.show)
	}
	return t.Estimate.String()
}

func (t targetRecord) folds() string {
	if t.Folds == nil {
		return "-"
	}
	return t.show(t.Folds.Low) + " to " + t.show(t.Folds.High)
}

// writeGroups writes every measure of each group.
func (s scenarioRecord) writeGroups(b *strings.Builder, l layout) {
	for _, g := range s.Groups {
		l.title(b, fmt.Sprintf("%s, %s: %d series in %d clusters of siblings and %d sources, %d with memory, %d container-days after a warm-up of %s",
			g.Name, s.About, g.Series, g.Clusters, g.Sources, g.WithMemory, g.ContainerDays, inDays(s.WarmUpSeconds)))
		rows := [][]string{append([]string{"measure"}, g.rules()...)}
		for m, line := range g.Lines {
			row := []string{line.Measure}
			for _, c := range line.Cells {
				row = append(row, measures[m].cell(c))
			}
			rows = append(rows, row)
		}
		l.table(b, rows)
	}
}

// cell is a value with its doubt.
func (m measure) cell(c cell) string {
	text := m.show(float64(c.Value))
	switch {
	case c.Interval != nil:
		text += c.Interval.suffix(func(n number) string { return m.show(float64(n)) })
	case c.OfVPA != nil && c.OfVPA.exists():
		text += ", " + c.OfVPA.String()
	}
	return text
}

// writeWorlds compares the scenarios of all series, for each group.
func (r *record) writeWorlds(b *strings.Builder, l layout) {
	worlds := slices.DeleteFunc(slices.Clone(r.Scenarios), func(s scenarioRecord) bool { return s.Name == firstDay || s.Name == patterned })
	if len(worlds) < 2 {
		return
	}
	for g, group := range worlds[0].Groups {
		l.title(b, group.Name+", in uneven pods and in minutes")
		l.sentence(b, "VPA: cores. Profiles: cores as a ratio to VPA's. Then, for all: starved 5 min.")
		l.end(b)
		rows := [][]string{append([]string{"scenario"}, group.rules()...)}
		for _, s := range worlds {
			row := []string{s.Name}
			for rule, c := range s.Groups[g].Lines[cores].Cells {
				text := measures[cores].show(float64(c.Value))
				if c.OfVPA != nil {
					text = c.OfVPA.String()
				}
				row = append(row, text+", "+s.Groups[g].show(starvedMeans, rule))
			}
			rows = append(rows, row)
		}
		l.table(b, rows)

		balanced := ruleOf(profile.Balanced)
		l.sentence(b, "VPA, and then Balanced:")
		l.end(b)
		chosen := []int{cores, starved, starvedMeans, unserved, oomDays, resizes, resizesP90}
		rows = [][]string{{"scenario", measures[medianCores].name, measures[moreCores].name}}
		for _, m := range chosen {
			rows[0] = append(rows[0], measures[m].name)
		}
		for _, s := range worlds {
			of := s.Groups[g]
			row := []string{s.Name, of.show(medianCores, balanced), of.show(moreCores, balanced)}
			for _, m := range chosen {
				row = append(row, of.show(m, 0)+", "+of.show(m, balanced))
			}
			rows = append(rows, row)
		}
		l.table(b, rows)
	}
}

// show prints the value of a measure under a rule.
func (g groupRecord) show(m, rule int) string {
	return measures[m].show(float64(g.Lines[m].Cells[rule].Value))
}

// writeSources compares the sources.
func (s scenarioRecord) writeSources(b *strings.Builder, l layout) {
	if len(s.Sources) == 0 {
		return
	}
	l.title(b, "each source, "+s.About)
	l.sentence(b, "VPA: cores and resizes. Profiles: cores as a ratio to VPA's, the median of it over series, and resizes.")
	l.end(b)
	rows := [][]string{append([]string{"source", "series"}, s.Sources[0].rules()...)}
	for _, g := range s.Sources {
		row := []string{g.Name, fmt.Sprint(g.Series)}
		for rule, c := range g.Lines[cores].Cells {
			parts := []string{measures[cores].show(float64(c.Value))}
			if c.OfVPA != nil {
				parts = []string{ratioOf(c.OfVPA.Value), g.show(medianCores, rule)}
			}
			row = append(row, strings.Join(append(parts, g.show(resizes, rule)), ", "))
		}
		rows = append(rows, row)
	}
	l.table(b, rows)
}

// writeCompact writes a line for each group, with the values of some measures.
func (s scenarioRecord) writeCompact(b *strings.Builder, l layout, what string, chosen ...int) {
	var names []string
	for _, m := range chosen {
		names = append(names, measures[m].name+measures[m].unit)
	}
	l.sentence(b, "In this order: "+strings.Join(names, ", ")+".")
	l.end(b)
	rows := [][]string{append([]string{what}, s.Groups[0].rules()...)}
	for _, g := range s.Groups {
		row := []string{g.Name}
		for rule := range g.rules() {
			var parts []string
			for _, m := range chosen {
				parts = append(parts, g.show(m, rule))
			}
			row = append(row, strings.Join(parts, ", "))
		}
		rows = append(rows, row)
	}
	l.table(b, rows)
}

func (r *record) writeUnmeasured(b *strings.Builder, l layout) {
	for _, s := range r.Scenarios {
		if len(s.Unmeasured) > 0 {
			l.sentence(b, fmt.Sprintf("Not measured in %s, since they end before the warm-up does: %s.", s.Name, strings.Join(s.Unmeasured, ", ")))
		}
	}
}

func (g groupRecord) rules() []string {
	var names []string
	for _, c := range g.Lines[cores].Cells {
		names = append(names, c.Rule)
	}
	return names
}

func inDays(seconds int64) string { return fmt.Sprintf("%g days", float64(seconds)/day.Seconds()) }

func shareOf(percent number) string {
	if math.IsNaN(float64(percent)) {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", float64(percent))
}

// exists reports whether there is a ratio to compare.
func (e estimate) exists() bool { return !math.IsNaN(float64(e.Value)) }

func (e estimate) String() string { return ratioOf(e.Value) + e.suffix(number.String) }

// suffix is an interval behind a value; nothing if there is none.
func (s span) suffix(show func(number) string) string {
	if math.IsNaN(float64(s.Low)) {
		return ""
	}
	bare := func(n number) string { return strings.TrimPrefix(show(n), "x") }
	return " [" + bare(s.Low) + ", " + bare(s.High) + "]"
}

func (n number) String() string { return measure{format: "%.3f"}.show(float64(n)) }

func ratioOf(n number) string {
	if math.IsNaN(float64(n)) {
		return "-"
	}
	return "x" + n.String()
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// plain is for a terminal.
type plain struct{}

func (plain) title(b *strings.Builder, text string) { b.WriteString(text + "\n\n") }

func (plain) table(b *strings.Builder, rows [][]string) {
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 3, ' ', 0)
	for i, row := range rows {
		text := strings.Join(row, "\t")
		if i == 0 {
			text = strings.ToUpper(text)
		}
		fmt.Fprintln(w, text)
	}
	_ = w.Flush() // to a string
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	b.WriteString("\n")
}

func (plain) sentence(b *strings.Builder, text string) { b.WriteString(text + "\n") }
func (plain) end(b *strings.Builder)                   { b.WriteString("\n") }

// markdown is for a document.
type markdown struct{}

func (markdown) title(b *strings.Builder, text string) {
	b.WriteString("### " + strings.ToUpper(text[:1]) + text[1:] + "\n\n")
}

func (markdown) table(b *strings.Builder, rows [][]string) {
	for i, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	b.WriteString("\n")
}

func (markdown) sentence(b *strings.Builder, text string) { b.WriteString("* " + text + "\n") }
func (markdown) end(b *strings.Builder)                   { b.WriteString("\n") }

// The lines of a document around a record.
const (
	recordBegins = "<!-- The record begins. -->\n"
	recordEnds   = "<!-- The record ends. -->\n"
)

// replaceRecord replaces the record and the date between those lines of a document.
func replaceRecord(path string, r *record, now time.Time) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, hasBegin := bytes.Cut(document, []byte(recordBegins))
	_, after, hasEnd := bytes.Cut(rest, []byte(recordEnds))
	if !hasBegin || !hasEnd {
		return fmt.Errorf("%s has no lines %q and %q", path, recordBegins, recordEnds)
	}
	var b bytes.Buffer
	b.Write(before)
	fmt.Fprintf(&b, "%sRun on %s.\n\n", recordBegins, now.Format("2 January 2006"))
	if err := r.writeMarkdown(&b); err != nil {
		return err
	}
	b.WriteString(recordEnds)
	b.Write(after)
	return os.WriteFile(path, b.Bytes(), 0o644)
}
