// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// BenchmarkPromotion measures which share of recorded series would have enough evidence to be promoted, by
// rollout.maxStarvedPercent:
//
//	TRACES=FOLDER go test ./test/replay -run '^$' -bench Promotion -timeout 30m
//
// TRACES is a folder of tables as in docs/record.md. Series of less than 7 days and 5 hours, and generated ones, are left out.
func BenchmarkPromotion(b *testing.B) {
	folder := os.Getenv("TRACES")
	if folder == "" {
		b.Fatal("TRACES names no folder of recorded usage: see docs/record.md")
	}
	series := longSeries(b, folder)
	groups := map[string][]backtest.Trace{"all": series}
	for _, one := range series {
		if !strings.HasPrefix(one.Table, "bitbrains") && !strings.HasPrefix(one.Table, "nab") {
			groups["containers"] = append(groups["containers"], one)
		}
	}
	for _, world := range []struct {
		name  string
		world backtest.World
	}{
		{"recorded", backtest.World{}},
		{"3-pods-15", backtest.World{Pods: 3, Spread: .15}},
		{"10-pods-5", backtest.World{Pods: 10, Spread: .05}},
		{"10-pods-15", backtest.World{Pods: 10, Spread: .15}},
		{"10-pods-30", backtest.World{Pods: 10, Spread: .3}},
		{"minutes-25", backtest.World{Minutes: true, Jitter: .25}},
	} {
		for _, percent := range []int{0, 1, 2, 3, 5, 10, 100} {
			goal := history.Goal{Time: 7 * 24 * time.Hour, MaxStarvedPercent: percent}
			reached := map[string]bool{} // by name
			rule := backtest.Rule{Name: "recommending", New: func(c backtest.Container) backtest.Policy {
				return &recommending{name: c.Name, step: c.Step, hasMemory: c.HasMemory, goal: goal, reached: func() { reached[c.Name] = true }}
			}}
			backtest.Run(series, []backtest.Rule{rule}, backtest.Options{World: world.world, Workers: 1})
			for _, group := range []string{"all", "containers"} {
				n := 0
				for _, one := range groups[group] {
					if reached[one.Name] {
						n++
					}
				}
				b.Logf("%-10s %-10s maxStarvedPercent %3d: %3d of %3d series (%.0f %%)", world.name, group, percent, n, len(groups[group]), 100*float64(n)/float64(len(groups[group])))
			}
		}
	}
}

// longSeries are the recorded series of more than a week. They have so much memory that none of it is capped.
func longSeries(t testing.TB, folder string) []backtest.Trace {
	t.Helper()
	var reader backtest.Reader
	tables, err := filepath.Glob(filepath.Join(folder, "*.csv*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tables {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(reader.Read(filepath.Base(name), file), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	all, err := reader.Traces()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(one backtest.Trace) bool {
		length := time.Duration(one.Samples[len(one.Samples)-1].At-one.Samples[0].At) * time.Second
		return strings.HasPrefix(one.Table, "synthetic") || length < 7*24*time.Hour+5*time.Hour
	})
	for i := range all {
		all[i].Requests.MemoryBytes = quantity.MaxMemoryBytes
	}
	return all
}

// recommending is a scaler in the mode Recommend: nothing is ever resized.
type recommending struct {
	name      string
	step      time.Duration
	hasMemory bool
	goal      history.Goal
	reached   func()

	history     history.Container
	recommended *recommend.Container
}

func (r *recommending) Next(o backtest.Observation) (quantity.Amounts, bool) {
	params := recommend.DefaultParams()
	params.History.MaxGap = max(params.History.MaxGap, 3*r.step)
	end := o.Start.Add(r.step)
	if end.Year() < 1971 { // seconds from an arbitrary midnight
		end = end.Add(10 * 52 * 7 * 24 * time.Hour)
	}
	for i, cpu := range o.Pods() {
		r.history.Add(usage.Sample{
			Pod: fmt.Sprint(i), Time: end, Window: r.step, CPUMillis: int64(math.Round(cpu)), MemoryBytes: o.MemoryBytes,
		}, params.History)
	}
	if next, ok := recommend.For(r.name, &r.history, recommend.Policy{Profile: profile.Balanced, CPU: true, Memory: r.hasMemory}, r.recommended, params); ok {
		r.recommended = &next
		r.history.Expect(next.Target, r.goal)
	}
	if r.history.Coverage().Reaches(r.goal) {
		r.reached()
	}
	return o.Requests, false
}
