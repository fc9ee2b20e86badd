// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

// BenchmarkRun replays 30 days of 50 containers.
func BenchmarkRun(b *testing.B) {
	for _, step := range []time.Duration{5 * time.Minute, time.Minute} {
		made := traces.Make(50, 30*24*time.Hour, step)
		for name, rules := range map[string][]backtest.Rule{
			"all":            {engine.Rule(), vpa.Rule(), backtest.Static()},
			"verticalscaler": {engine.Rule()},
			"vpa":            {vpa.Rule()},
			"static":         {backtest.Static()},
		} {
			b.Run(name+"/"+step.String(), func(b *testing.B) {
				for b.Loop() {
					backtest.Run(made, rules, backtest.Options{WarmUp: 3 * 24 * time.Hour})
				}
			})
		}
	}
}

// BenchmarkReader reads the same from tables, with a sample a minute.
func BenchmarkReader(b *testing.B) {
	var table bytes.Buffer
	if err := backtest.WriteUsage(&table, traces.Make(50, 30*24*time.Hour, time.Minute)...); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(table.Len()))
	for b.Loop() {
		var r backtest.Reader
		if err := r.Read("usage.csv", bytes.NewReader(table.Bytes())); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Traces(); err != nil {
			b.Fatal(err)
		}
	}
}
