// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// layout is how tables are written.
type layout interface {
	// title is above a table.
	title(b *strings.Builder, text string)
	table(b *strings.Builder, rows [][]string)
	sentence(b *strings.Builder, text string)
}

func (r *record) writeTable(w io.Writer) error    { return r.write(w, plain{}) }
func (r *record) writeMarkdown(w io.Writer) error { return r.write(w, markdown{}) }

func (r *record) write(w io.Writer, l layout) error {
	var b strings.Builder
	for _, g := range r.Groups {
		l.title(&b, fmt.Sprintf("%s: %d series, %d of them with memory, %d container-days after a warm-up of %g days",
			g.Name, g.Series, g.WithMemory, g.ContainerDays, float64(r.WarmUpSeconds)/(24*60*60)))
		rows := [][]string{{"measure"}}
		for _, c := range g.Lines[0].Cells {
			rows[0] = append(rows[0], c.Rule)
		}
		for m, line := range g.Lines {
			row := []string{line.Measure}
			for _, c := range line.Cells {
				text := measures[m].show(float64(c.Value))
				if c.OfVPA != nil && c.OfVPA.exists() {
					text += ", " + c.OfVPA.String()
				}
				row = append(row, text)
			}
			rows = append(rows, row)
		}
		l.table(&b, rows)
	}

	l.title(&b, "targets")
	rows := [][]string{{"profile", "group", "target", "vpa", "verticalscaler", "of vpa's", "reached", "of draws"}}
	for _, t := range r.Targets {
		rows = append(rows, []string{
			t.Profile, t.Group, t.Target, t.measure.show(float64(t.VPA)), t.measure.show(float64(t.Ours)),
			t.OfVPA.String(), yesOrNo(t.IsReached), fmt.Sprintf("%.1f%%", t.DrawsPercent),
		})
	}
	l.table(&b, rows)
	for _, all := range r.Together {
		l.sentence(&b, fmt.Sprintf("%s reaches %d of %d targets, and all of them at once in %.1f%% of %d draws.",
			all.Profile, all.Reached, all.Targets, all.DrawsPercent, r.Draws))
	}
	if len(r.Unmeasured) > 0 {
		l.sentence(&b, fmt.Sprintf("Not measured, since they end before the warm-up does: %s.", strings.Join(r.Unmeasured, ", ")))
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

// exists reports whether there is a ratio to compare.
func (e estimate) exists() bool { return !math.IsNaN(float64(e.Value)) }

func (e estimate) String() string {
	if !e.exists() {
		return "-"
	}
	return fmt.Sprintf("x%s [%s, %s]", e.Value, e.Low, e.High)
}

func (n number) String() string { return measure{format: "%.3f"}.show(float64(n)) }

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
