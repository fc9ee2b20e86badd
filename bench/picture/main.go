// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command picture draws the picture of the README: a backtest of one container of generated
// usage.
//
//	make picture
package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

// The generated container of the picture.
const (
	container = "diurnal"
	length    = 9 * 24 * time.Hour
	interval  = 15 * time.Minute
	warmUp    = 3 * 24 * time.Hour
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: picture FILE.svg")
	}
	file, err := os.Create(args[0])
	if err != nil {
		return err
	}
	if err := draw(file); err != nil {
		return err
	}
	return file.Close()
}

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
	Plot backtest.Plot
}

type keyView struct {
	Class, Text string
	Y, TextY    int
}

func draw(w io.Writer) error {
	usage := traces.One(container, length, interval)
	rules := []backtest.Rule{engine.Rule(), vpa.Rule(), backtest.Static()}
	outcomes := backtest.Run([]backtest.Trace{usage}, rules, backtest.Options{WarmUp: warmUp, Record: true})[0]
	view := pictureView{
		Title: fmt.Sprintf("Usage and requests of the container %s in %d days", container, int(length.Hours()/24)),
		Usage: "usage",
	}
	plots, top := backtest.Plots(usage, outcomes, warmUp), pictureTop
	for _, plot := range plots {
		view.Plots = append(view.Plots, placedPlot{top, plot})
		top += pictureStep
	}
	for i, outcome := range outcomes {
		m := outcome.Measures
		text := fmt.Sprintf("%s requests %.3f cores and %.3f GiB on average, with %d OOM kills", rules[i].Name, m.RequestedCPU/m.Hours, m.RequestedMemory/m.Hours, m.Kills)
		view.Policies = append(view.Policies, keyView{Class: plots[0].Lines[i].Class, Text: text, Y: top, TextY: top + 4})
		top += keyStep
	}
	view.UsageY, view.UsageTextY, view.Height = top-4, top+4, top+keyStep
	return picture.Execute(w, view)
}
