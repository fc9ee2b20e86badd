// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command traces generates synthetic usage of a few kinds of containers, for examples and
// tests of "kubectl vscaler report":
//
//	go run ./traces FOLDER
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "traces:", err)
		os.Exit(1)
	}
}

func run() error {
	count := flag.Int("containers", len(traces.Names()), "how many containers; each kind in turn")
	days := flag.Int("days", 9, "how many days")
	step := flag.Duration("step", 15*time.Minute, "the length of the intervals")
	flag.Parse()
	if flag.NArg() != 1 || *count < 1 || *days < 1 || *step < time.Second {
		return fmt.Errorf("name a folder: see -help")
	}
	folder := flag.Arg(0)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	generated := traces.Make(*count, time.Duration(*days)*24*time.Hour, *step)
	for _, t := range generated {
		if err := write(filepath.Join(folder, t.Name+".csv"), backtest.WriteUsage, t); err != nil {
			return err
		}
	}
	return write(filepath.Join(folder, "series.csv"), backtest.WriteContainers, generated...)
}

func write(path string, format func(io.Writer, ...backtest.Trace) error, generated ...backtest.Trace) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := format(file, generated...); err != nil {
		return err
	}
	return file.Close()
}
