// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

const (
	plotWidth, plotHeight = 720, 150
	// mostTicks is the number of times on the horizontal axis.
	mostTicks = 6
	// tickMargin is half of the width of a time: one closer to an end would not fit.
	tickMargin = 30
	// mostTableRows limits the table of a plot, for those who cannot see the plot.
	mostTableRows = 12
	// farAbove is the ratio of a limit to everything else from which on the plot leaves the limit out.
	farAbove = 3
)

// plot shows usage of a resource against request and limit. Paths are in the coordinates of
// an area of plotWidth by plotHeight.
type plot struct {
	ID string
	// Title and Description say in words what the plot shows.
	Title, Description string
	IsEmpty            bool
	Usage, UsageTop    string
	Request, Limit     string
	// LimitAbove is the highest limit that is too far above to be drawn.
	LimitAbove  string
	Target      *float64
	Band        *band
	Marks       []float64
	Top, Middle string
	Ticks       []tick
	Rows        []plotRow
}

type band struct{ Y, Height float64 }

type tick struct {
	X    float64
	Text string
}

type plotRow struct{ At, Used, Request, Limit string }

type plotInput struct {
	id, resource         string
	span                 Span
	points               []snapshot.Point
	marks                []time.Time
	at                   time.Time
	target, lower, upper int64
}

func plotOf(in plotInput) plot {
	length, column := in.span.Length()
	if in.span == Live {
		length = liveLength(in.points, in.at)
	}
	from := in.at.Add(-length)
	columns := snapshot.Columns(in.points, from, in.at, int(length/column))
	s := scale{from: from, to: in.at, resource: in.resource}
	_, mostUsed := bounds(columns, usedIn)
	_, mostRequest := bounds(columns, requestIn)
	most := max(in.target, mostUsed, mostRequest)
	mostLimit, limitAbove := limitsOf(columns, most)
	s.top = roundTop(in.resource, max(most, mostLimit))

	out := plot{ID: in.id, IsEmpty: mostUsed == snapshot.Unknown}
	out.UsageTop, out.Usage = s.area(columns)
	out.Request = s.steps(columns, requestIn)
	out.Limit = s.steps(columns, func(p snapshot.Point) int64 {
		if p.Limit > mostLimit {
			return snapshot.Unknown
		}
		return p.Limit
	})
	if limitAbove > 0 {
		out.LimitAbove = explain.Format(in.resource, limitAbove)
	}
	if in.target > 0 {
		y := s.y(in.target)
		out.Target = &y
	}
	if in.lower > 0 && in.upper > 0 {
		top, bottom := s.y(min(in.upper, s.top)), s.y(min(in.lower, s.top))
		out.Band = &band{Y: top, Height: max(bottom-top, 1)}
	}
	for _, at := range in.marks {
		if at.After(from) && !at.After(in.at) {
			out.Marks = append(out.Marks, s.x(at))
		}
	}
	out.Top, out.Middle, out.Ticks = explain.Format(in.resource, s.top), explain.Format(in.resource, s.top/2), s.ticks()
	out.Title, out.Description, out.Rows = words(in, columns, length)
	return out
}

// limitsOf are the highest limit that is drawn, and the highest one that is far above everything
// else; 0 or less if there is none.
func limitsOf(columns []snapshot.Point, most int64) (drawn, above int64) {
	for _, p := range columns {
		if most > 0 && p.Limit > farAbove*most {
			above = max(above, p.Limit)
		} else {
			drawn = max(drawn, p.Limit)
		}
	}
	return drawn, above
}

// liveLength is the time since the first known usage, within bounds. It is a whole number of
// columns.
func liveLength(points []snapshot.Point, at time.Time) time.Duration {
	length := leastLength
	for _, p := range points {
		if p.Used != snapshot.Unknown {
			length = max(length, at.Sub(p.At))
			break
		}
	}
	return min((length + liveColumn - 1).Truncate(liveColumn), LiveLength)
}

// words are the plot for those who do not see it.
func words(in plotInput, columns []snapshot.Point, length time.Duration) (title, description string, rows []plotRow) {
	title = fmt.Sprintf("Usage of %s against request and limit, last %s", word(in.resource), duration.HumanDuration(length))
	format := func(n int64) string { return explain.Format(in.resource, n) }
	description = "No usage is known yet."
	if least, most := bounds(columns, usedIn); most != snapshot.Unknown {
		description = fmt.Sprintf("The pod that used most used %s to %s.", format(least), format(most))
	}
	description += history("request", columns, requestIn, format) + history("limit", columns, limitIn, format)
	if in.target > 0 {
		description += fmt.Sprintf(" The target is %s.", format(in.target))
	}
	cell := func(n, none int64) string {
		switch n {
		case snapshot.Unknown:
			return "unknown"
		case none:
			return "none"
		}
		return format(n)
	}
	every := max(1, (len(columns)+mostTableRows-1)/mostTableRows)
	for i := every - 1; i < len(columns); i += every {
		_, used := bounds(columns[i+1-every:i+1], usedIn)
		p := columns[i]
		rows = append(rows, plotRow{At: p.At.Local().Format(timeFormat(length)), Used: cell(used, snapshot.Unknown), Request: cell(p.Request, snapshot.None), Limit: cell(p.Limit, snapshot.None)})
	}
	return title, description, rows
}

func usedIn(p snapshot.Point) int64 { return p.Used }

// requestIn and limitIn are Unknown where there is none.
func requestIn(p snapshot.Point) int64 { return cmp.Or(p.Request, snapshot.Unknown) }
func limitIn(p snapshot.Point) int64   { return cmp.Or(p.Limit, snapshot.Unknown) }

// bounds are the least and the most of the known amounts; Unknown if none is known.
func bounds(columns []snapshot.Point, amount func(snapshot.Point) int64) (least, most int64) {
	least, most = snapshot.Unknown, snapshot.Unknown
	for _, p := range columns {
		n := amount(p)
		if n != snapshot.Unknown && (n < least || least == snapshot.Unknown) {
			least = n
		}
		most = max(most, n)
	}
	return least, most
}

// history is the known past of a request or a limit.
func history(what string, columns []snapshot.Point, amount func(snapshot.Point) int64, format func(int64) string) (text string) {
	if least, most := bounds(columns, amount); least != most {
		text = fmt.Sprintf(" The %s was %s to %s.", what, format(least), format(most))
	}
	if now := amount(columns[len(columns)-1]); now > 0 {
		text += fmt.Sprintf(" The %s is %s now.", what, format(now))
	}
	return text
}

// scale puts times and amounts on a plot.
type scale struct {
	from, to time.Time
	top      int64
	resource string
}

func (s scale) x(at time.Time) float64 {
	return rounded(float64(at.Sub(s.from)) / float64(s.to.Sub(s.from)) * plotWidth)
}

func (s scale) y(amount int64) float64 {
	return rounded((1 - float64(amount)/float64(s.top)) * plotHeight)
}

func rounded(v float64) float64 { return math.Round(v*10) / 10 }

// area is usage: the line on top, and the area below it. Each has one part for each time
// without a gap.
func (s scale) area(columns []snapshot.Point) (line, area string) {
	width := plotWidth / float64(len(columns))
	for begin := 0; begin < len(columns); begin++ {
		end := begin
		for end < len(columns) && columns[end].Used != snapshot.Unknown {
			end++
		}
		if end == begin {
			continue
		}
		first, y := rounded(float64(begin)*width), s.y(columns[begin].Used)
		var path strings.Builder
		for c := begin; c < end; c++ {
			fmt.Fprintf(&path, "V%gH%g", s.y(columns[c].Used), rounded(float64(c+1)*width))
		}
		line += fmt.Sprintf("M%g %g%s", first, y, path.String())
		area += fmt.Sprintf("M%g %dV%g%sV%dH%gZ", first, plotHeight, y, path.String(), plotHeight, first)
		begin = end
	}
	return line, area
}

// steps is a line that is level between changes, and absent where the amount is unknown.
func (s scale) steps(columns []snapshot.Point, amount func(snapshot.Point) int64) string {
	var path strings.Builder
	width := plotWidth / float64(len(columns))
	isDrawing := false
	for c, p := range columns {
		n := amount(p)
		if n <= 0 {
			isDrawing = false
			continue
		}
		if isDrawing {
			fmt.Fprintf(&path, "V%g", s.y(n))
		} else {
			fmt.Fprintf(&path, "M%g %g", rounded(float64(c)*width), s.y(n))
		}
		isDrawing = true
		fmt.Fprintf(&path, "H%g", rounded(float64(c+1)*width))
	}
	return path.String()
}

// tickSteps are the distances of times on the axis that read well.
var tickSteps = []time.Duration{
	30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 24 * time.Hour, 48 * time.Hour,
}

// ticks are whole minutes, hours or days of the local time.
func (s scale) ticks() (ticks []tick) {
	length := s.to.Sub(s.from)
	step := tickSteps[len(tickSteps)-1]
	for _, candidate := range tickSteps {
		if length/candidate <= mostTicks {
			step = candidate
			break
		}
	}
	_, offset := s.from.Local().Zone()
	shift := time.Duration(offset) * time.Second
	for at := s.from.Add(shift).Truncate(step).Add(step).Add(-shift); at.Before(s.to); at = at.Add(step) {
		if s.x(at) < tickMargin || s.x(at) > plotWidth-tickMargin {
			continue
		}
		format := timeFormat(length)
		if step >= 24*time.Hour {
			format = "Jan 2"
		}
		ticks = append(ticks, tick{s.x(at), at.Local().Format(format)})
	}
	return ticks
}

// timeFormat is precise enough to tell the times of a plot apart.
func timeFormat(length time.Duration) string {
	switch {
	case length <= LiveLength:
		return "15:04:05"
	case length <= 48*time.Hour:
		return "15:04"
	}
	return "Jan 2 15:04"
}

// roundTop is the next higher amount that reads well. Memory is rounded in MiB.
func roundTop(resource string, amount int64) int64 {
	unit := int64(1)
	if resource != recommend.CPU {
		unit = 1 << 20
	}
	v := float64(amount) / float64(unit) * 1.02
	if v <= 1 {
		return unit
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, digit := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if digit*power >= v {
			return int64(math.Ceil(digit*power)) * unit
		}
	}
	return int64(10*power) * unit
}
