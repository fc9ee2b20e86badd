// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

var header = []string{
	"POLICY", "CORES", "CPU SLACK", "STARVED", "UNSERVED", "GIB", "MEMORY SLACK", "OOM KILLS", "OOM DAYS", "RESIZES/DAY",
}

// WriteTable writes the report as a table: a line for each policy and, if isWide, for each
// container and policy.
func (r *Report) WriteTable(w io.Writer, isWide bool) error {
	var b strings.Builder
	first := r.Policies[0]
	fmt.Fprintf(&b, "%s and %s of usage, after a warm-up of %s\n\n",
		count(first.Containers, "container"), count(first.ContainerDays, "container-day"),
		short(time.Duration(r.WarmUpSeconds)*time.Second))
	table(&b, func(line func(...string)) {
		line(header...)
		for _, p := range r.Policies {
			line(append([]string{p.Name}, cells(p.Figures)...)...)
		}
	})
	if len(r.Comparisons) > 0 {
		b.WriteString("\n")
	}
	for _, c := range r.Comparisons {
		fmt.Fprintln(&b, sentence(c))
	}
	if isWide {
		b.WriteString("\n")
		table(&b, func(line func(...string)) {
			line(append([]string{"CONTAINER"}, header...)...)
			for _, c := range r.Containers {
				for _, p := range c.Policies {
					line(append([]string{printable(c.Name), p.Name}, cells(p.Figures)...)...)
				}
			}
		})
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "\nSkipped %s: %s\n", printable(s.Name), s.Why)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table aligns columns, without spaces at the end of lines.
func table(b *strings.Builder, write func(line func(...string))) {
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 3, ' ', 0)
	write(func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) })
	_ = w.Flush() // to a string
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// cells are the columns behind the policy's name.
func cells(f Figures) []string {
	out := []string{
		amount(f.CPU.RequestedCores),
		fmt.Sprintf("%.1f%%", f.CPU.SlackPercent),
		fmt.Sprintf("%.2f%%", f.CPU.StarvedPercent),
		fmt.Sprintf("%.2f%%", f.CPU.UnservedPercent),
	}
	if m := f.Memory; m != nil {
		out = append(out,
			amount(m.RequestedGiB),
			fmt.Sprintf("%.1f%%", m.SlackPercent),
			fmt.Sprint(m.OOMKills),
			fmt.Sprintf("%.2f%%", m.OOMContainerDaysPercent))
	} else {
		out = append(out, "-", "-", "-", "-")
	}
	return append(out, fmt.Sprintf("%.2f", f.ResizesPerDay))
}

// sentence is a comparison in words.
func sentence(c Comparison) string {
	parts := []string{moreOrLess(c.CPURequestedPercent) + " CPU"}
	if c.MemoryRequestedPercent != nil {
		parts = append(parts, moreOrLess(*c.MemoryRequestedPercent)+" memory")
	}
	text := fmt.Sprintf("Compared with %s, %s requests %s", c.Against, c.Policy, strings.Join(parts, " and "))
	if c.OOMKills == nil {
		return text
	}
	switch kills := *c.OOMKills; {
	case kills < 0:
		return text + fmt.Sprintf(", and has %s", count(-kills, "fewer OOM kill"))
	case kills > 0:
		return text + fmt.Sprintf(", and has %s", count(kills, "more OOM kill"))
	}
	return text + ", and has as many OOM kills"
}

func moreOrLess(percent float64) string {
	switch text := fmt.Sprintf("%.1f%%", math.Abs(percent)); {
	case text == "0.0%":
		return "as much"
	case percent < 0:
		return text + " less"
	default:
		return text + " more"
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// short prints whole days as such.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	if d == 0 || d%day != 0 {
		return d.String()
	}
	return count(int(d/day), "day")
}

// printable keeps a name from moving the cursor or the columns.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, name)
}
