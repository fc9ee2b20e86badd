// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

// The scenarios that targets name.
const (
	recorded   = "recorded"
	tenPods    = "10-pods-15"
	jittered   = "minutes-25"
	firstDay   = "first-day"
	patterned  = "patterns"
	day        = 24 * time.Hour
	officeWeek = "office-hours" // a pattern
)

// scenario is how series are replayed.
type scenario struct {
	name, about string
	world       backtest.World
	// from returns the series to replay, of those that were read; nil for all of them.
	from func(read []backtest.Trace, o options) []backtest.Trace
	// isFromStart is true if there is no warm-up.
	isFromStart bool
	// isByName is true if each series is its own group.
	isByName bool
}

func scenarios() []scenario {
	pods := func(count int, percent float64) scenario {
		return scenario{
			name:  fmt.Sprintf("%d-pods-%g", count, percent),
			about: fmt.Sprintf("%d pods that differ by %g %%", count, percent),
			world: backtest.World{Pods: count, Spread: percent / 100},
		}
	}
	return []scenario{
		{name: recorded, about: "one pod, as recorded"},
		pods(3, 5), pods(3, 15), pods(10, 5), pods(10, 15),
		{name: "minutes", about: "one pod, each 5 minutes repeated as minutes", world: backtest.World{Minutes: true}},
		{name: jittered, about: "one pod, minutes with 25 % jitter around each 5 minutes", world: backtest.World{Minutes: true, Jitter: 0.25}},
		{
			name: firstDay, about: "the first day, from half of the CPU and 60 % of the memory needed",
			from:        func(read []backtest.Trace, _ options) []backtest.Trace { return firstDays(read) },
			isFromStart: true,
		},
		{
			name: patterned, about: "generated patterns at a minute",
			from: func(_ []backtest.Trace, o options) []backtest.Trace {
				return traces.Patterns(time.Duration(o.patternDays) * day)
			},
			isByName: true,
		},
	}
}

// parseScenarios returns the named scenarios, in their usual order.
func parseScenarios(text string) ([]scenario, error) {
	all, names := scenarios(), strings.Split(text, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no scenario %q: %s", name, strings.Join(scenarioNames(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(names, s.name) }), nil
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// traces returns the series to replay.
func (s scenario) traces(read []backtest.Trace, o options) []backtest.Trace {
	if s.from == nil {
		return read
	}
	return s.from(read, o)
}

func (s scenario) warmUp(o options) time.Duration {
	if s.isFromStart {
		return 0
	}
	return o.warmUp
}

// groups returns the groups to measure.
func (s scenario) groups(of []backtest.Trace, o options) []group {
	if !s.isByName {
		return o.groups
	}
	var groups []group
	for _, t := range of {
		groups = append(groups, group{name: t.Name, patterns: patterns{t.Name}})
	}
	return groups
}

// firstDays are the first days of series, whose requests are too small: half of the day's median
// CPU, but 10m at least, and 60 % of its peak of memory.
func firstDays(of []backtest.Trace) []backtest.Trace {
	days := slices.Clone(of)
	for i, t := range days {
		end := t.Samples[0].At + int64(day/time.Second)
		length, _ := slices.BinarySearchFunc(t.Samples, end, func(s backtest.Sample, at int64) int { return int(s.At - at) })
		t.Samples = t.Samples[:length]
		var (
			cpu    []float64
			memory int64
		)
		for _, s := range t.Samples {
			cpu = append(cpu, s.CPUMillis)
			memory = max(memory, s.MemoryBytes)
		}
		slices.Sort(cpu)
		t.Requests = quantity.Amounts{CPUMillis: max(int64(cpu[len(cpu)/2]/2), 10), MemoryBytes: memory * 6 / 10}
		days[i] = t
	}
	return days
}
