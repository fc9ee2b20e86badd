// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	plotWidth, plotHeight = 720, 150
	// plotColumns is the number of parts of time that a plot can show.
	plotColumns = 480
)

// Plot is a picture of one resource of a trace, for a template of SVG: an area of usage, and a line for the requests
// of each rule. Its size does not depend on the number of samples.
type Plot struct {
	Label         string
	Width, Height int
	// Usage is an area from the least to the most of each column.
	Usage string
	// Lines has a line for each outcome, and Kills the OOM kills.
	Lines []Line
	Kills []Kill
	// Top and Half are the labels of the vertical axis, Days of the other one.
	Top, Half string
	// WarmUp is the width of the warm-up, which is not measured.
	WarmUp float64
	Days   []Day
}

// Line is a line of a plot. Its class is p0 for the first outcome, p1 for the next, and so on.
type Line struct{ Class, Path string }

// Kill is a mark of an OOM kill, with the class of its line.
type Kill struct {
	Class string
	X, Y  float64
}

// Day is a mark of a day.
type Day struct {
	X    float64
	Text string
}

// Plots are the plots of CPU and, if it was recorded, of memory. The outcomes are of replays of the trace with
// Options.Record.
func Plots(t Trace, outcomes []Outcome, warmUp time.Duration) []Plot {
	axes := []axis{cpuAxis}
	if t.HasMemory {
		axes = append(axes, memoryAxis)
	}
	var plots []Plot
	for _, a := range axes {
		plots = append(plots, a.plot(t, outcomes, warmUp))
	}
	return plots
}

// axis is the range of a plot.
type axis struct {
	label     string
	wanted    func(Sample) float64
	requested func(Change) float64
	hasKills  bool
}

var (
	cpuAxis = axis{
		label:     "CPU, cores",
		wanted:    func(s Sample) float64 { return s.CPUMillis / 1000 },
		requested: func(c Change) float64 { return float64(c.Requests.CPUMillis) / 1000 },
	}
	memoryAxis = axis{
		label:     "Memory, GiB",
		wanted:    func(s Sample) float64 { return float64(s.MemoryBytes) / gibi },
		requested: func(c Change) float64 { return float64(c.Requests.MemoryBytes) / gibi },
		hasKills:  true,
	}
)

// ClassOf is the CSS class of a rule: p0 for the first one.
func ClassOf(rule int) string { return fmt.Sprintf("p%d", rule) }

func (a axis) plot(trace Trace, outcomes []Outcome, warmUp time.Duration) Plot {
	s := scale{from: trace.Samples[0].At, length: float64(trace.length() / time.Second)}
	for _, sample := range trace.Samples {
		s.top = max(s.top, a.wanted(sample))
	}
	for _, outcome := range outcomes {
		for _, change := range outcome.Changes {
			s.top = max(s.top, a.requested(change))
		}
	}
	s.top = roundTop(s.top)

	view := Plot{
		Label: a.label, Width: plotWidth, Height: plotHeight,
		Usage:  s.area(trace, a.wanted),
		Top:    axisText(s.top),
		Half:   axisText(s.top / 2),
		WarmUp: math.Round(min(warmUp.Seconds()/s.length, 1) * plotWidth),
		Days:   s.days(),
	}
	for i, outcome := range outcomes {
		view.Lines = append(view.Lines, Line{ClassOf(i), s.steps(outcome.Changes, a.requested)})
		seen := map[int]bool{}
		for _, at := range outcome.Kills {
			if column := s.column(at); a.hasKills && !seen[column] {
				seen[column] = true
				view.Kills = append(view.Kills, Kill{ClassOf(i), s.x(column), float64(6 + 9*i)})
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
func (s scale) days() (marks []Day) {
	all := int64(s.length) / daySeconds
	every := max(all/12, 1) * daySeconds
	begin := (s.from + daySeconds - 1) / daySeconds * daySeconds
	for at := begin; float64(at-s.from) < s.length; at += every {
		text := time.Unix(at, 0).UTC().Format("Jan 2")
		if s.from < 365*daySeconds {
			text = fmt.Sprintf("day %d", (at-s.from)/daySeconds+1)
		}
		marks = append(marks, Day{X: math.Round(float64(at-s.from)/s.length*plotWidth*10) / 10, Text: text})
	}
	return marks
}

// roundTop is the next higher multiple of half a digit.
func roundTop(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))) / 2
	return math.Ceil(v*1.02/unit) * unit
}

func axisText(v float64) string { return fmt.Sprintf("%.3g", v) }
