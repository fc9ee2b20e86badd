// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// cell identifies a row of the table.
type cell struct{ scenario, fault string }

// sums are what a row of the table shows.
type sums struct{ runs, faults, violations int }

// table sums up the runs. A violation is reported with the name of its run.
type table struct {
	mu     sync.Mutex
	began  time.Time
	rows   map[cell]sums
	failed []string
	total  sums
}

// add adds a run, and prints its line.
func (t *table) add(name string, c cell, s sums, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows, t.began = map[cell]sums{}, time.Now()
	}
	t.rows[c] = t.rows[c].plus(s)
	t.total = t.total.plus(s)
	if s.violations > 0 {
		t.failed = append(t.failed, name)
	}
	fmt.Printf("%4d  %-60s %3d faults, %d violations, %.1f s\n", t.total.runs, name, s.faults, s.violations, took.Seconds())
}

func (s sums) plus(o sums) sums {
	return sums{s.runs + o.runs, s.faults + o.faults, s.violations + o.violations}
}

// print prints the table and the names of the failed runs.
func (t *table) print(out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSCENARIO\tFAULT\tRUNS\tINJECTED\tVIOLATIONS")
	line := func(scenario, fault string, s sums) {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", scenario, fault, s.runs, s.faults, s.violations)
	}
	for _, c := range slices.SortedFunc(maps.Keys(t.rows), func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.fault, b.fault))
	}) {
		line(c.scenario, c.fault, t.rows[c])
	}
	line("all", "all", t.total)
	_ = w.Flush() // nothing can be done
	slices.Sort(t.failed)
	for _, name := range t.failed {
		fmt.Fprintf(out, "violated: make test-faults ARGS='-run ^TestFaults/%s$$'\n", name)
	}
}
