// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
)

//go:embed picture.svg
var pictureText string

var picture = template.Must(template.New("picture").Parse(pictureText))

const (
	pictureTop  = 24  // above the first plot
	pictureStep = 200 // from plot to plot
	keyStep     = 20  // from line to line of the legend
)

// pictureView is what the picture shows: the plots above each other, and a legend.
type pictureView struct {
	Title      string
	Height     int
	Plots      []placedPlot
	Policies   []keyView
	Usage      string
	UsageY     int
	UsageTextY int
}

type placedPlot struct {
	Top  int
	Plot plotView
}

type keyView struct {
	Class, Text string
	Y, TextY    int
}

// WritePicture writes the plots of one container as an SVG image that follows the viewer's light or
// dark theme. The legend has the figures of at most three policies. The replay must have run with
// Options.Record. It fails if the report has no such container.
func (r *Report) WritePicture(w io.Writer, container string) error {
	t := slices.IndexFunc(r.traces, func(t Trace) bool { return t.Name == container })
	if t < 0 {
		return fmt.Errorf("the report has no container %q", container)
	}
	view := pictureView{
		Title: fmt.Sprintf("Usage and requests of the container %s in %s", printable(container), count(int(r.traces[t].length().Hours()/24), "day")),
		Usage: "usage",
	}
	top := pictureTop
	for _, plot := range r.plots(t) {
		view.Plots = append(view.Plots, placedPlot{top, plot})
		top += pictureStep
	}
	for i, p := range r.Containers[t].Policies {
		view.Policies = append(view.Policies, keyView{Class: classOf(i), Text: keyText(p), Y: top, TextY: top + 4})
		top += keyStep
	}
	view.UsageY, view.UsageTextY, view.Height = top-4, top+4, top+keyStep
	return picture.Execute(w, view)
}

func keyText(p PolicyReport) string {
	text := fmt.Sprintf("%s requests %s cores", p.Name, amount(p.CPU.RequestedCores))
	if p.Memory == nil {
		return text + " on average"
	}
	return text + fmt.Sprintf(" and %s GiB on average, with %s", amount(p.Memory.RequestedGiB), count(p.Memory.OOMKills, "OOM kill"))
}
