// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command picture draws the picture of the README: a backtest of one container of generated
// usage.
//
//	make picture
package main

import (
	"fmt"
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

func draw(w io.Writer) error {
	usage := traces.One(container, length, interval)
	rules := []backtest.Rule{engine.Rule(), vpa.Rule(), backtest.Static()}
	report, err := backtest.Evaluate([]backtest.Trace{usage}, rules, nil, backtest.Options{WarmUp: warmUp, Record: true})
	if err != nil {
		return err
	}
	return report.WritePicture(w, container)
}
