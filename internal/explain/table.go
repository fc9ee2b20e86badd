// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Column is a column of a table.
type Column struct {
	Name string
	// Cells may have colors.
	Cells []string
	// Rank orders the columns that are left out if the table is too wide, the highest first. 0 is never left out.
	Rank int
	// IsNumber aligns right.
	IsNumber bool
	// ShrinksTo is the width to which names are cut before a column is left out; 0 for never. KeepsEnd cuts them at their
	// beginning.
	ShrinksTo int
	KeepsEnd  bool
}

// shrunk is the column with shorter names.
func (c Column) shrunk(width int) Column {
	c.Cells = slices.Clone(c.Cells)
	for i, cell := range c.Cells {
		if over := ansi.StringWidth(cell) - width; over > 0 && c.KeepsEnd {
			c.Cells[i] = ansi.TruncateLeft(cell, over+1, "…")
		} else {
			c.Cells[i] = ansi.Truncate(cell, width, "…")
		}
	}
	return c
}

func (c Column) width() (width int) {
	width = ansi.StringWidth(c.Name)
	for _, cell := range c.Cells {
		width = max(width, ansi.StringWidth(cell))
	}
	return width
}

// Fitting are the columns that fit into a width, with gaps between them. Names are cut before columns are left out, and get
// the room that is left. A width of 0 fits all.
func Fitting(columns []Column, width, gap int) []Column {
	if width <= 0 || TableWidth(columns, gap) <= width {
		return columns
	}
	whole := map[string]Column{}
	var kept []Column
	for _, c := range columns {
		whole[c.Name] = c
		if c.ShrinksTo > 0 {
			c = c.shrunk(c.ShrinksTo)
		}
		kept = append(kept, c)
	}
	for TableWidth(kept, gap) > width {
		last := slices.MaxFunc(kept, func(a, b Column) int { return cmp.Compare(a.Rank, b.Rank) })
		if last.Rank == 0 {
			break
		}
		kept = slices.DeleteFunc(kept, func(c Column) bool { return c.Rank == last.Rank })
	}
	for i, c := range kept {
		if room := width - TableWidth(kept, gap); room > 0 && c.ShrinksTo > 0 {
			kept[i] = whole[c.Name].shrunk(c.width() + room)
		}
	}
	return kept
}

// TableWidth is the width of a table.
func TableWidth(columns []Column, gap int) (width int) {
	for _, c := range columns {
		width += c.width() + gap
	}
	return width - gap
}

// Table aligns columns of the same number of cells. The first line has their names.
func Table(columns []Column, gap int) []string {
	if len(columns) == 0 {
		return nil
	}
	lines := make([]string, len(columns[0].Cells)+1)
	for i, c := range columns {
		width := c.width()
		for row, cell := range append([]string{c.Name}, c.Cells...) {
			if i > 0 {
				lines[row] += strings.Repeat(" ", gap)
			}
			pad := strings.Repeat(" ", width-ansi.StringWidth(cell))
			if c.IsNumber {
				cell = pad + cell
			} else {
				cell += pad
			}
			lines[row] += cell
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// Columns selects the columns of the tables of an overview.
type Columns struct {
	// Namespace and Wide add columns; Bare leaves the header out.
	Namespace, Wide, Bare bool
	// Width is the width of the terminal; 0 for any.
	Width int
	// Since, if set, leaves out rows that are also in this earlier overview.
	Since *Overview
}

// Table is the overview as tables. Ages are relative to now.
func (o Overview) Table(now time.Time, columns Columns) string {
	var b strings.Builder
	last := Overview{}
	if columns.Since != nil {
		last = *columns.Since
	}
	section(&b, columns, "NAMESPACE NAME DEPLOYMENT MODE CPU MEMORY PODS READY REASON", "CHANGED SAVED-CORES SAVED-GIB OWNER PROFILE ADVICE", o.Scalers, last.Scalers,
		func(r Row) []string {
			changed, cores, gib := "", "", ""
			if r.Changed != nil {
				changed = Age(now, r.Changed.Time)
			}
			if r.Saved != nil {
				cores, gib = decimal(r.Saved.Cores), decimal(r.Saved.GiB)
			}
			return []string{r.Namespace, r.Name, r.Deployment, r.mode(), r.CPU, r.Memory, r.Pods, string(r.Ready), r.Reason, changed, cores, gib, cmp.Or(r.Owner, r.Policy), r.Profile, r.Advice}
		})
	section(&b, columns, "NAMESPACE SCALEDDEPLOYMENT DEPLOYMENT AVAILABLE READY REASON SIZED", "ADVICE", o.ScaledDeployments, last.ScaledDeployments,
		func(r OwnedRow) []string {
			return []string{r.Namespace, r.Name, r.Deployment, r.Available, string(r.Ready), r.Reason, r.Sized, r.Advice}
		})
	section(&b, columns, "NAMESPACE POLICY MODE DEPLOYMENTS PROMOTED READY REASON", "ADVICE", o.Policies, last.Policies,
		func(r PolicyRow) []string {
			return []string{r.Namespace, r.ID(), r.Mode, r.Deployments, r.Promoted, string(r.Ready), r.Reason + r.withoutUsage(), r.Advice}
		})
	return b.String()
}

// leftOut are the columns to leave out of a table that is too wide, the last one first.
var leftOut = []string{"NAMESPACE", "CPU", "MEMORY", "PODS", "DEPLOYMENTS", "AVAILABLE", "PROMOTED", "SIZED", "MODE", "DEPLOYMENT"}

const (
	gapOfColumns = 3
	// leastName is the number of characters that a name keeps in a table that is too wide.
	leastName = 16
)

// section writes the table of rows of one kind, after an empty line if it is not the first. The header has all columns, the
// namespace first.
func section[R any](b *strings.Builder, columns Columns, header, wide string, rows, last []R, cellsOf func(R) []string) {
	names := strings.Fields(header)
	if columns.Wide {
		names = append(names, strings.Fields(wide)...)
	}
	all := make([]Column, len(names))
	for i, name := range names {
		all[i] = Column{Name: name, Rank: slices.Index(leftOut, name) + 1}
	}
	all[1].ShrinksTo = leastName
	known := map[string]bool{}
	for _, r := range last {
		known[identity(r)] = true
	}
	var shown []bool
	for _, r := range rows {
		cells := cellsOf(r)
		for i := range all {
			all[i].Cells = append(all[i].Cells, cmp.Or(Printable(cells[i]), "-"))
		}
		shown = append(shown, len(known) == 0 || !known[identity(r)])
	}
	if !slices.Contains(shown, true) {
		return
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	if !columns.Namespace {
		all = all[1:]
	}
	for i, line := range Table(Fitting(all, columns.Width, gapOfColumns), gapOfColumns) {
		if i == 0 && !columns.Bare || i > 0 && shown[i-1] {
			b.WriteString(line + "\n")
		}
	}
}

// identity is a row without its advice, which follows from the reason, except for a time.
func identity(row any) string {
	fields := fieldsOf(row)
	delete(fields, "advice")
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err) // it holds only text and numbers
	}
	return string(text)
}

// decimal has two digits after the point.
func decimal(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100+0, 'f', 2, 64) }

// mode is the update mode, and whether changes are stopped: the reason may be a graver one.
func (r Row) mode() string {
	if r.isOff && r.Reason != v1beta1.ReasonSuspended && r.Reason != v1beta1.ReasonPaused {
		return r.Mode + ", suspended"
	}
	return r.Mode
}
