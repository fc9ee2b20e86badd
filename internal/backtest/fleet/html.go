// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

const (
	// barWidth and barHeight are the size of the longest bar.
	barWidth, barHeight = 320, 16
	barStep             = 24
)

// pageView is what the page shows.
type pageView struct {
	Title   string
	WarmUp  string // in days; empty if no past usage is known
	Unknown string // why figures are unknown; empty if none is
	Header  []string
	Rules   []ruleView
	Charts  []chartView
	Columns []string
	Rows    []rowView
	Rest    string
	Skipped []string
}

type ruleView struct {
	Name, About, Class string
	Cells              []string
}

// chartView is a bar for each rule.
type chartView struct {
	Title  string
	Height int
	Bars   []barView
}

type barView struct {
	Name, Class, Text string
	Width             float64
	Y, TextY          int
	TextX             float64
}

type rowView struct {
	Names []string
	Cells []string
	Plots []backtest.Plot
}

// WriteHTML writes one self-contained page, with the first containers, at most top.
func (r *Report) WriteHTML(w io.Writer, top int) error {
	view := pageView{
		Title: r.title(), Header: r.totalHeader()[1:], Skipped: r.skippedLines(),
		Columns: []string{"Namespace", "Deployment", "Container", "Pods", "CPU", "Memory", "Cost per month", "Starved", "OOM days"},
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
		view.Rules = append(view.Rules, ruleView{rule.Rule, r.about[rule.Rule], classOf(i), r.totalCells(i)[1:]})
	}
	view.Charts = r.charts()
	for i := range r.Containers[:min(top, len(r.Containers))] {
		view.Rows = append(view.Rows, r.rowView(&r.Containers[i]))
	}
	if rest := len(r.Containers) - len(view.Rows); rest > 0 {
		view.Rest = count(rest, "more container")
	}
	return page.Execute(w, view)
}

const hourSeconds = 60 * 60

func classOf(rule int) string { return fmt.Sprintf("p%d", rule) }

// charts compare the rules.
func (r *Report) charts() []chartView {
	charts := []chartView{
		r.chart("Cores requested", amount, func(t Total) float64 { return t.Cores }),
		r.chart("GiB requested", amount, func(t Total) float64 { return t.GiB }),
	}
	if r.Usage != nil {
		charts = append(charts,
			r.chart("Time starved of CPU", func(v float64) string { return fmt.Sprintf("%.2f%%", v) }, func(t Total) float64 { return t.StarvedPercent }),
			r.chart("OOM days", func(v float64) string { return fmt.Sprintf("%d of %d", int(v), r.ContainerDays) }, func(t Total) float64 { return float64(t.OOMDays) }))
	}
	if r.hasCost() {
		title := strings.TrimSpace("Cost per month " + r.Currency)
		charts = append(charts, r.chart(title, money, func(t Total) float64 { return *t.CostPerMonth }))
	}
	return charts
}

// chart has no bar for a rule that is unknown.
func (r *Report) chart(title string, text func(float64) string, value func(Total) float64) chartView {
	chart, most := chartView{Title: title, Height: len(r.Rules) * barStep}, 0.0
	for _, rule := range r.Rules {
		if rule.Sum != nil {
			most = max(most, value(rule))
		}
	}
	for i, rule := range r.Rules {
		if rule.Sum == nil {
			continue
		}
		width := 0.0
		if most > 0 {
			width = math.Round(value(rule)/most*barWidth*10) / 10
		}
		chart.Bars = append(chart.Bars, barView{
			Name: rule.Rule, Class: classOf(i), Text: text(value(rule)), Width: width, Y: i * barStep, TextY: i*barStep + 13, TextX: width + 6,
		})
	}
	return chart
}

func (r *Report) rowView(row *Row) rowView {
	cells := r.rowCells(row)
	numbers := cells[4:6]
	if r.hasCost() {
		numbers = cells[4:7]
	}
	return rowView{Names: cells[:4], Cells: append(append([]string{}, numbers...), cells[len(cells)-2:]...), Plots: row.plots}
}
