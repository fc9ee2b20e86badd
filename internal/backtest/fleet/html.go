// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// pageView is the content of the page.
type pageView struct {
	Title   string
	WarmUp  string // in days; empty without past usage
	Unknown string // why figures are unknown, if any is
	Header  []string
	Rules   []ruleView
	Groups  [][]string // of the table by group, with its header
	Prices  string     // a line about prices; empty without prices
	Columns []string
	Rows    []rowView
	Rest    string
	Skipped []string
}

type ruleView struct {
	Name, About, Class string
	Cells              []cellView
}

// cellView is a cell with a bar.
type cellView struct {
	Text    string
	Percent float64 // of the most in its column; 0 draws no bar
}

type rowView struct {
	Names []string
	Cells []string
	Plots []backtest.Plot
}

// WriteHTML writes one self-contained page, with the first containers, at most top.
func (r *Report) WriteHTML(w io.Writer, top int) error {
	view := pageView{
		Title: r.title(), Header: r.totalHeader()[1:], Skipped: r.skippedLines(), Groups: r.groupTable(), Prices: r.pricesLine(),
		Columns: []string{"Namespace", "Workload", "Container", "Pods", "CPU", "Memory", "Cost per month", "Starved", "OOM days"},
	}
	if !r.hasCost() {
		view.Columns = append(view.Columns[:6], view.Columns[7:]...)
	}
	if r.Usage == nil {
		view.Unknown = r.unknownLine()
	} else {
		view.WarmUp = fmt.Sprintf("%g", float64(r.WarmUpSeconds)/hourSeconds/24)
	}
	for i, rule := range r.Rules {
		view.Rules = append(view.Rules, ruleView{rule.Rule, r.about[rule.Rule], backtest.ClassOf(i), r.totalViews(i)})
	}
	for i := range r.Containers[:min(top, len(r.Containers))] {
		view.Rows = append(view.Rows, r.rowView(&r.Containers[i]))
	}
	if rest := len(r.Containers) - len(view.Rows); rest > 0 {
		view.Rest = count(rest, "more container")
	}
	return page.Execute(w, view)
}

const hourSeconds = 60 * 60

// totalViews are the sums of a rule, with bars that compare it with the others.
func (r *Report) totalViews(rule int) (cells []cellView) {
	values := r.values(r.Rules[rule])
	for i, text := range r.totalCells(rule)[1:] {
		most := 0.0
		for _, other := range r.Rules {
			most = max(most, r.values(other)[i])
		}
		cell := cellView{Text: text}
		if most > 0 {
			cell.Percent = math.Round(values[i] / most * 100)
		}
		cells = append(cells, cell)
	}
	return cells
}

// values are the values of the bars, by column; 0 draws none.
func (r *Report) values(t Total) []float64 {
	if t.Sum == nil {
		return make([]float64, len(r.totalHeader()))
	}
	values := []float64{t.Cores, t.GiB}
	if t.CostPerMonth != nil {
		values = append(values, *t.CostPerMonth)
	}
	if t.Harm == nil {
		return append(values, 0, 0, 0, 0, 0)
	}
	return append(values, 0, 0, t.StarvedPercent, float64(t.OOMDays), t.ResizesPerDay)
}

func (r *Report) rowView(row *Row) rowView {
	cells := r.rowCells(row)
	numbers := cells[4:6]
	if r.hasCost() {
		numbers = cells[4:7]
	}
	return rowView{Names: cells[:4], Cells: append(append([]string{}, numbers...), cells[len(cells)-2:]...), Plots: row.plots}
}
