// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// rows are the rows of the table: the name of a measure, what it is, and how it is written.
var rows = []struct {
	name, title string
	format      func(float64) string
}{
	{"start seconds", "Start until all have a recommendation", Seconds},
	{"start cpu", "– CPU", Seconds},
	{"start writes", "– writes", Count},
	{"idle rss", "Idle: memory (RSS)", MiB},
	{"idle cpu", "– CPU per minute", Seconds},
	{"idle writes", "– writes per minute, except of leases", Count},
	{"oom answered", "OOM kill, nothing else to do: answered in time", Percent},
	{"oom p50", "– until the first pod has more: median", Seconds},
	{"oom p99", "– 99th percentile", Seconds},
	{"wave changes", "Wave: pods changed", Count},
	{"wave share", "– share of what the budget allows", Percent},
	{"wave cpu", "– CPU", Seconds},
	{"oom in wave answered", "OOM kill in the wave: answered in time", Percent},
	{"oom in wave p50", "– until the first pod has more: median", Seconds},
	{"oom in wave p99", "– 99th percentile", Seconds},
	{"peak rss", "Whole run: largest memory (RSS)", MiB},
	{"total cpu", "– CPU", Seconds},
}

// Table is the results as a table in Markdown. VPA has no budget, so its share of it means nothing.
func (r Results) Table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d scalers or VPAs, %d pods of %d containers; a budget of %d changes a minute, which VPA does not have.\n\n",
		r.Scalers, r.Scalers*Pods, Containers, r.ChangesPerMinute)
	out.WriteString("| What | Operator | VPA: recommender and updater | Operator / VPA |\n|---|---|---|---|\n")
	for _, row := range rows {
		ours, ok := r.Operator[row.name]
		if !ok {
			continue
		}
		theirs, has := r.VPA[row.name]
		switch {
		case !has:
			fmt.Fprintf(&out, "| %s | %s | | |\n", row.title, row.format(ours))
		case theirs == 0:
			fmt.Fprintf(&out, "| %s | %s | %s | |\n", row.title, row.format(ours), row.format(theirs))
		default:
			fmt.Fprintf(&out, "| %s | %s | %s | %.2g |\n", row.title, row.format(ours), row.format(theirs), ours/theirs)
		}
	}
	return out.String()
}

// Count writes a number.
func Count(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// Percent writes a share.
func Percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }

// MiB writes an amount of memory.
func MiB(v float64) string {
	if v >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", v/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", v/(1<<20))
}

// Seconds writes a time.
func Seconds(v float64) string {
	switch {
	case v < 1:
		return fmt.Sprintf("%.0f ms", v*1000)
	case v < 10:
		return fmt.Sprintf("%.2f s", v)
	}
	return fmt.Sprintf("%.0f s", v)
}
