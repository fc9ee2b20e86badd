// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"sort"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

const (
	// mostPlots limits the page to the containers that use the most CPU.
	mostPlots = 100

	plotWidth, plotHeight = 720, 150
	// plotColumns is the number of parts of time that a plot can show.
	plotColumns = 480
)

// pageView is what the page shows.
type pageView struct {
	Title      string
	Header     []string
	Policies   []policyView
	Sentences  []string
	Containers []containerView
	Skipped    []Skipped
	Unplotted  int
}

type policyView struct {
	Name, About string
	Class       string // of its line
	Cells       []string
}

type containerView struct {
	Name     string
	Policies []policyView
	Plots    []plotView
}

type plotView struct {
	Label         string
	Width, Height int
	// Usage is an area from the least to the most of each column.
	Usage string
	Lines []lineView
	Kills []killView
	// Top, Half are the labels of the vertical axis; Days are those of the other one.
	Top, Half string
	WarmUp    float64
	Days      []dayView
}

type lineView struct{ Class, Path string }

type killView struct {
	Class string
	X, Y  float64
}

type dayView struct {
	X    float64
	Text string
}

// WriteHTML writes one self-contained page. The replay must have run with Options.Record.
func (r *Report) WriteHTML(w io.Writer) error {
	first := r.Policies[0]
	view := pageView{
		Title: fmt.Sprintf("%s and %s of usage, after a warm-up of %s", count(first.Containers, "container"),
			count(first.ContainerDays, "container-day"), short(time.Duration(r.WarmUpSeconds)*time.Second)),
		Header:    []string{"Policy", "Cores", "CPU slack", "Starved", "Unserved", "GiB", "Memory slack", "OOM kills", "OOM days", "Resizes a day"},
		Policies:  policyViews(r.Policies),
		Skipped:   r.Skipped,
		Unplotted: max(len(r.traces)-mostPlots, 0),
	}
	for _, c := range r.Comparisons {
		view.Sentences = append(view.Sentences, sentence(c))
	}
	for _, t := range r.largest() {
		view.Containers = append(view.Containers, containerView{
			Name:     r.traces[t].Name,
			Policies: policyViews(r.Containers[t].Policies),
			Plots:    r.plots(t),
		})
	}
	return page.Execute(w, view)
}

func policyViews(policies []PolicyReport) (views []policyView) {
	for i, p := range policies {
		views = append(views, policyView{Name: p.Name, About: p.About, Class: classOf(i), Cells: cells(p.Figures)})
	}
	return views
}

func classOf(policy int) string { return fmt.Sprintf("p%d", policy%6) }

// largest are the indexes of the containers to plot, in the order of their names.
func (r *Report) largest() []int {
	order := make([]int, len(r.traces))
	for i := range order {
		order[i] = i
	}
	wanted := func(i int) float64 {
		m := r.outcomes[i][0].Measures
		return m.WantedCPU / m.Hours
	}
	sort.SliceStable(order, func(a, b int) bool { return wanted(order[a]) > wanted(order[b]) })
	order = order[:min(len(order), mostPlots)]
	sort.Ints(order)
	return order
}

// plots are those of CPU and, where it was recorded, of memory.
func (r *Report) plots(t int) []plotView {
	trace := r.traces[t]
	views := []plotView{r.plot(t, "CPU, cores",
		func(s Sample) float64 { return s.CPUMillis / 1000 },
		func(c Change) float64 { return float64(c.Requests.CPUMillis) / 1000 }, false)}
	if trace.HasMemory {
		views = append(views, r.plot(t, "Memory, GiB",
			func(s Sample) float64 { return float64(s.MemoryBytes) / gibi },
			func(c Change) float64 { return float64(c.Requests.MemoryBytes) / gibi }, true))
	}
	return views
}

func (r *Report) plot(t int, label string, wanted func(Sample) float64, requested func(Change) float64, hasKills bool) plotView {
	trace, outcomes := r.traces[t], r.outcomes[t]
	s := scale{from: trace.Samples[0].At, length: float64(trace.length() / time.Second)}
	for _, sample := range trace.Samples {
		s.top = max(s.top, wanted(sample))
	}
	for _, outcome := range outcomes {
		for _, change := range outcome.Changes {
			s.top = max(s.top, requested(change))
		}
	}
	s.top = roundTop(s.top)

	view := plotView{
		Label: label, Width: plotWidth, Height: plotHeight,
		Usage:  s.area(trace, wanted),
		Top:    axisText(s.top),
		Half:   axisText(s.top / 2),
		WarmUp: math.Round(min(float64(r.WarmUpSeconds)/s.length, 1) * plotWidth),
		Days:   s.days(),
	}
	for i, outcome := range outcomes {
		view.Lines = append(view.Lines, lineView{classOf(i), s.steps(outcome.Changes, requested)})
		seen := map[int]bool{}
		for _, at := range outcome.Kills {
			if column := s.column(at); hasKills && !seen[column] {
				seen[column] = true
				view.Kills = append(view.Kills, killView{classOf(i), s.x(column), float64(6 + 9*i)})
			}
		}
	}
	return view
}

// scale puts times and values on a plot.
type scale struct {
	from   int64
	length float64 // seconds
	top    float64
}

func (s scale) column(at int64) int {
	return min(int(float64(at-s.from)/s.length*plotColumns), plotColumns-1)
}

func (scale) x(column int) float64 { return float64(column) * plotWidth / plotColumns }

func (s scale) y(value float64) float64 {
	return math.Round((1-value/s.top)*plotHeight*10) / 10
}

// area goes along the most of each column and back along the least, once for each part
// of time without a gap.
func (s scale) area(t Trace, wanted func(Sample) float64) string {
	var most, least [plotColumns]float64
	var isThere [plotColumns]bool
	for i, sample := range t.Samples {
		value := wanted(sample)
		for c := s.column(sample.At); c <= s.column(sample.At+t.seconds(i)-1); c++ {
			if !isThere[c] {
				most[c], least[c], isThere[c] = value, value, true
			}
			most[c], least[c] = max(most[c], value), min(least[c], value)
		}
	}
	var path strings.Builder
	for begin := 0; begin < plotColumns; begin++ {
		end := begin
		for end < plotColumns && isThere[end] {
			end++
		}
		for c := begin; c < end; c++ {
			fmt.Fprintf(&path, "%s%g %gH%g", letter(c == begin), s.x(c), s.y(most[c]), s.x(c+1))
		}
		for c := end - 1; c >= begin; c-- {
			fmt.Fprintf(&path, "V%gH%g", s.y(least[c]), s.x(c))
		}
		if end > begin {
			path.WriteString("Z")
			begin = end
		}
	}
	return path.String()
}

func letter(isFirst bool) string {
	if isFirst {
		return "M"
	}
	return "L"
}

// steps is a line that is level between changes. Of the changes in one column, the
// highest and the last are drawn.
func (s scale) steps(changes []Change, requested func(Change) float64) string {
	var path strings.Builder
	for i := 0; i < len(changes); {
		column, highest := s.column(changes[i].At), 0.0
		for ; i < len(changes) && s.column(changes[i].At) == column; i++ {
			highest = max(highest, requested(changes[i]))
		}
		last := requested(changes[i-1])
		if path.Len() == 0 {
			fmt.Fprintf(&path, "M0 %g", s.y(highest))
		} else {
			fmt.Fprintf(&path, "H%gV%g", s.x(column), s.y(highest))
		}
		if last != highest {
			fmt.Fprintf(&path, "V%g", s.y(last))
		}
	}
	fmt.Fprintf(&path, "H%d", plotWidth)
	return path.String()
}

// days are marks at midnight, at most a dozen. Traces that begin in 1970 count days.
func (s scale) days() (marks []dayView) {
	all := int64(s.length) / daySeconds
	every := max(all/12, 1) * daySeconds
	begin := (s.from + daySeconds - 1) / daySeconds * daySeconds
	for at := begin; float64(at-s.from) < s.length; at += every {
		text := time.Unix(at, 0).UTC().Format("Jan 2")
		if s.from < 365*daySeconds {
			text = fmt.Sprintf("day %d", (at-s.from)/daySeconds+1)
		}
		marks = append(marks, dayView{X: math.Round(float64(at-s.from)/s.length*plotWidth*10) / 10, Text: text})
	}
	return marks
}

// roundTop is the next higher value of one digit.
func roundTop(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10} {
		if digit*unit >= v*1.02 {
			return digit * unit
		}
	}
	return 15 * unit
}

func axisText(v float64) string { return fmt.Sprintf("%.3g", v) }
