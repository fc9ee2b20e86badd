// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package terminal draws how scalers are doing as lines of text, for a terminal of any
// width.
//
// It is pure. No line is wider than the terminal, whatever its content. Colors only repeat
// what the text says, so that they can be left out.
package terminal

import (
	"cmp"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/live"
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
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && ansi.StringWidth(line)+1+ansi.StringWidth(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		parts := strings.Split(ansi.Hardwrap(line+word, width, true), "\n")
		lines, line = append(lines, parts[:len(parts)-1]...), parts[len(parts)-1]
	}
	return append(lines, line)
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

// column is a column of a table.
type column struct {
	name  string
	cells []string
	// rank orders the columns that are left out if the table is too wide, the highest
	// first. 0 is never left out.
	rank int
	// isText aligns left. Numbers are aligned right.
	isText bool
	// shrinksTo is the width to which names are cut before a column is left out; 0 for never.
	// keepsEnd cuts them at their beginning.
	shrinksTo int
	keepsEnd  bool
}

// shrunk is the column with shorter names.
func (c column) shrunk(width int) column {
	c.cells = slices.Clone(c.cells)
	for i, cell := range c.cells {
		if over := ansi.StringWidth(cell) - width; over > 0 && c.keepsEnd {
			c.cells[i] = ansi.TruncateLeft(cell, over+1, "…")
		} else {
			c.cells[i] = ansi.Truncate(cell, width, "…")
		}
	}
	return c
}

func (c column) width() (width int) {
	width = ansi.StringWidth(c.name)
	for _, cell := range c.cells {
		width = max(width, ansi.StringWidth(cell))
	}
	return width
}

const gapOfColumns = "  "

// fitting are the columns that fit into a width. Names are cut before columns are left out,
// and get the room that is left.
func fitting(columns []column, width int) []column {
	if tableWidth(columns) <= width {
		return columns
	}
	whole := map[string]column{}
	var kept []column
	for _, c := range columns {
		whole[c.name] = c
		if c.shrinksTo > 0 {
			c = c.shrunk(c.shrinksTo)
		}
		kept = append(kept, c)
	}
	for tableWidth(kept) > width {
		last := slices.MaxFunc(kept, func(a, b column) int { return cmp.Compare(a.rank, b.rank) })
		if last.rank == 0 {
			break
		}
		kept = slices.DeleteFunc(kept, func(c column) bool { return c.rank == last.rank })
	}
	for i, c := range kept {
		if room := width - tableWidth(kept); room > 0 && c.shrinksTo > 0 {
			kept[i] = whole[c.name].shrunk(c.width() + room)
		}
	}
	return kept
}

func tableWidth(columns []column) (width int) {
	for _, c := range columns {
		width += c.width() + len(gapOfColumns)
	}
	return width - len(gapOfColumns)
}

// table aligns columns of the same number of cells. The first line has their names.
func table(columns []column) []string {
	if len(columns) == 0 {
		return nil
	}
	lines := make([]string, len(columns[0].cells)+1)
	for i, c := range columns {
		width := c.width()
		for row, cell := range append([]string{strong.Render(c.name)}, c.cells...) {
			if i > 0 {
				lines[row] += gapOfColumns
			}
			pad := strings.Repeat(" ", width-ansi.StringWidth(cell))
			if c.isText {
				cell += pad
			} else {
				cell = pad + cell
			}
			lines[row] += cell
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// bar shows a part of a whole. What is above the whole fills the bar.
func bar(percent float64, width int) string {
	n := min(width, max(0, int(percent*float64(width)/100+0.5)))
	style := lipgloss.NewStyle()
	if percent > 100 {
		style = bad
	}
	return style.Render(strings.Repeat("█", n)) + faint.Render(strings.Repeat("·", width-n))
}

// strip shows amounts as columns of up to 8 eighths. What is unknown is blank, and 0 is
// the lowest line.
func strip(amounts []int64, most int64, isHigh func(i int) bool) string {
	const eighths = "▁▂▃▄▅▆▇█"
	glyphs := []rune(eighths)
	var b strings.Builder
	for i, amount := range amounts {
		if amount == live.Unknown {
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
