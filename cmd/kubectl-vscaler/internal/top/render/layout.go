// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package render draws snapshots of scalers as lines of text, for a terminal of any width.
//
// It is pure. No line is wider than the terminal, whatever its content. Colors only repeat
// what the text says, so that they can be left out.
package render

import (
	"cmp"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// leastWidth is the smallest width that is drawn for. A narrower terminal cuts lines.
const leastWidth = 20

var (
	strong = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	soon   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	chosen = lipgloss.NewStyle().Reverse(true)
)

// styleOf is the color of a state.
func styleOf(end explain.End) lipgloss.Style {
	switch end {
	case explain.Fine:
		return good
	case explain.ByItself:
		return soon
	}
	return bad
}

// page collects lines of a width.
type page struct {
	width int
	lines []string
}

// add adds a line, cut to the width.
func (p *page) add(line string) {
	p.lines = append(p.lines, ansi.Truncate(line, p.width, "…"))
}

// blank adds an empty line.
func (p *page) blank() { p.lines = append(p.lines, "") }

// wrap adds text of objects as lines, of which the first begins with a label, and the
// others are indented as far.
func (p *page) wrap(label, text string) {
	indent := strings.Repeat(" ", ansi.StringWidth(label))
	room := p.width - len(indent)
	if room < leastWidth/2 {
		indent, room = "", p.width
		p.add(label)
		label = ""
	}
	for _, line := range wrapped(explain.Printable(text), room) {
		p.add(label + line)
		label = indent
	}
}

// wrapped breaks text between words, and a word only if it is wider than a line.
func wrapped(text string, width int) (lines []string) {
	for _, line := range explain.Wrapped(text, width) {
		lines = append(lines, strings.Split(ansi.Hardwrap(line, width, true), "\n")...)
	}
	return lines
}

// ends adds a line with a text at its left and one at its right end. The right one is left
// out if it does not fit.
func (p *page) ends(left, right string) {
	gap := p.width - ansi.StringWidth(left) - ansi.StringWidth(right)
	if gap < 2 || right == "" {
		p.add(left)
		return
	}
	p.add(left + strings.Repeat(" ", gap) + right)
}

// gapOfColumns is the number of spaces between columns.
const gapOfColumns = 2

// table aligns columns. The first line has their names.
func table(columns []explain.Column) []string {
	for i := range columns {
		columns[i].Name = strong.Render(columns[i].Name)
	}
	return explain.Table(columns, gapOfColumns)
}

// bar shows a part of a whole. A part above the whole fills the bar.
func bar(percent float64, width int) string {
	n := min(width, max(0, int(percent*float64(width)/100+0.5)))
	style := lipgloss.NewStyle()
	if percent > 100 {
		style = bad
	}
	return style.Render(strings.Repeat("█", n)) + faint.Render(strings.Repeat("·", width-n))
}

// strip shows amounts as columns of up to 8 eighths. An unknown amount is blank, and 0 is the lowest line.
func strip(amounts []int64, most int64, isHigh func(i int) bool) string {
	const eighths = "▁▂▃▄▅▆▇█"
	glyphs := []rune(eighths)
	var b strings.Builder
	for i, amount := range amounts {
		if amount == snapshot.Unknown {
			b.WriteByte(' ')
			continue
		}
		glyph := string(glyphs[min(7, amount*8/max(1, most))])
		if isHigh != nil && isHigh(i) {
			glyph = bad.Render(glyph)
		}
		b.WriteString(glyph)
	}
	return b.String()
}

// or is a text, or a dash for none.
func or(text string) string { return cmp.Or(text, "-") }
