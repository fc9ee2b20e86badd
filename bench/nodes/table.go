// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// counts are sums over the measured intervals.
type counts struct {
	nodeHours, coreHours, gibHours     float64 // of nodes, and requested
	wanted, lost                       float64 // CPU
	pods, below, kills                 int     // intervals of pods: all, those with less than decided, those with an OOM kill
	pressed                            int     // pods that kubelets would evict for memory
	evictions, consolidations, resizes int
}

// note adds an interval of a pod.
func (c *counts) note(p *pod) {
	c.pods++
	c.coreHours += float64(p.has.CPUMillis) / 1000 * interval.Hours()
	c.gibHours += float64(p.has.MemoryBytes) / gibi * interval.Hours()
	c.wanted += p.average
	c.lost += p.average - p.used
	if p.lacks {
		c.below++
	}
	if p.isKilled {
		c.kills++
	}
}

// columns are the columns of a table.
var columns = []struct {
	name, format string
	of           func(c counts) float64
	// isRatio shows the value as a ratio to the first policy's, paired by seed.
	isRatio bool
}{
	{"node-hours", "%.3f", func(c counts) float64 { return c.nodeHours }, true},
	{"core-hours", "%.3f", func(c counts) float64 { return c.coreHours }, true},
	{"GiB-hours", "%.3f", func(c counts) float64 { return c.gibHours }, true},
	{"own evictions", "%.2f", func(c counts) float64 { return float64(c.evictions) / c.podDays() }, false},
	{"consolidation's", "%.2f", func(c counts) float64 { return float64(c.consolidations) / c.podDays() }, false},
	{"below size", "%.1f %%", func(c counts) float64 { return 100 * float64(c.below) / float64(c.pods) }, false},
	{"CPU lost", "%.2f %%", func(c counts) float64 { return 100 * c.lost / c.wanted }, false},
	{"OOM kills", "%.2f", func(c counts) float64 { return 100 * float64(c.kills) / c.podDays() }, false},
	{"short of memory", "%.2f", func(c counts) float64 { return 100 * float64(c.pressed) / c.podDays() }, false},
	{"resizes", "%.1f", func(c counts) float64 { return float64(c.resizes) / c.podDays() }, false},
}

func (c counts) podDays() float64 { return float64(c.pods) / float64(perDay) }

// write writes the results of an environment, by policy and then by seed, in Markdown. Values are medians over seeds, and ratios
// have their range.
func write(out io.Writer, w environment, policies []policy, of [][]counts) error {
	var b strings.Builder
	first := of[0]
	fmt.Fprintf(&b, "### %s: %s\n\n| policy |", w.name, w.about)
	for _, column := range columns {
		fmt.Fprintf(&b, " %s |", column.name)
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(columns)) + "|\n")
	for i, p := range policies {
		fmt.Fprintf(&b, "| %s |", p.name)
		for _, column := range columns {
			var values []float64
			for seed, c := range of[i] {
				value := column.of(c)
				if column.isRatio && i > 0 {
					value /= column.of(first[seed])
				}
				values = append(values, value)
			}
			slices.Sort(values)
			median := (values[(len(values)-1)/2] + values[len(values)/2]) / 2
			switch {
			case !column.isRatio:
				fmt.Fprintf(&b, " "+column.format+" |", median)
			case i == 0:
				fmt.Fprintf(&b, " %.0f |", median)
			default:
				fmt.Fprintf(&b, " x%.3f [%.3f, %.3f] |", median, values[0], values[len(values)-1])
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	_, err := io.WriteString(out, b.String())
	return err
}
