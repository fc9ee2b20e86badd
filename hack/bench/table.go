// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
)

// result is one number of a benchmark.
type result struct {
	benchmark string // "Lookup"
	scenario  string // "scalers=100/found=1"
	by        string // who was measured
	unit      string // "cpu-ns"
	value     float64
}

// procs is what go test appends to the name of a benchmark.
var procs = regexp.MustCompile(`-\d+$`)

// parse reads the results that go test prints, in the format of https://go.dev/design/14313-benchmark-format.
// Units without a name are left out.
func parse(text string) (out []result, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(procs.ReplaceAllString(words[0], ""), "Benchmark")
		benchmark, scenario, _ := strings.Cut(name, "/")
		for pair := range slices.Chunk(words[2:], 2) {
			if len(pair) != 2 {
				return nil, fmt.Errorf("a value without a unit: %q", line)
			}
			by, unit, ok := strings.Cut(pair[1], ":")
			if !ok {
				continue
			}
			value, err := strconv.ParseFloat(pair[0], 64)
			if err != nil {
				return nil, fmt.Errorf("reading %q: %w", line, err)
			}
			out = append(out, result{benchmark, scenario, by, unit, value})
		}
	}
	return out, nil
}

// titles are what the benchmarks measure. "CPU" is the CPU time of the process.
var titles = map[string]string{
	"Lookup cpu-ns":          "Scalers of a Deployment, looked up: CPU",
	"NoOpReconcile cpu-ns":   "Reconcile that finds nothing to do: CPU",
	"Queue cpu-ns":           "5,000 requests, queued and served: CPU",
	"Order kill":             "Of 5,000 routine requests, served before an OOM kill",
	"Order starved":          "Of 100 routine requests, not served among 2,000 urgent ones",
	"Order unfair":           "Of 5,000 requests of a namespace, served before one of another",
	"Budget cpu-ns":          "Call of a full change budget: CPU",
	"Slot cpu-ns":            "Slot of the change budget that is freed and used: CPU",
	"Memory B/scaler":        "Scaler, Deployment and 3 pods of 2 containers: live heap",
	"Memory B/foreign-pod":   "Pod that no scaler names: live heap",
	"Heap B/container":       "History of a container: live heap",
	"CPU µs/minute":          "A sample and a recommendation of a container: CPU",
}

// names are whom the operator is compared with.
var names = map[string]string{
	"indexed-list":    "`client.List` with a field index",
	"list-and-filter": "`client.List` of the namespace, filtered",
	"stock-cache":     "cache of controller-runtime, without a history",
	"scan":            "a scan of all that wait, once",
	"vpa":             "VPA's packages",
}

// table is a table of the results in Markdown: a row for each value of the operator and each way that it
// is compared with.
func table(results []result) string {
	var out strings.Builder
	out.WriteString("| What | Case | Operator | Beside the first case | Compared with | Its value | Its value / operator's |\n|---|---|---|---|---|---|---|\n")
	first := map[string]float64{}
	for _, ours := range results {
		title, ok := titles[ours.benchmark+" "+ours.unit]
		if ours.by != bench.Operator || !ok {
			continue
		}
		growth := "1"
		if f, ok := first[title]; ok {
			growth = ratio(ours.value, f)
		} else {
			first[title] = ours.value
		}
		scenario := strings.ReplaceAll(strings.ReplaceAll(ours.scenario, "/", ", "), "=", " ")
		left := fmt.Sprintf("| %s | %s | %s | %s |", title, scenario, quantity(ours.value, ours.unit), growth)
		compared := 0
		for _, theirs := range results {
			if theirs.by == bench.Operator || theirs.benchmark != ours.benchmark || theirs.scenario != ours.scenario || theirs.unit != ours.unit {
				continue
			}
			compared++
			fmt.Fprintf(&out, "%s %s | %s | %s |\n", left, cmp.Or(names[theirs.by], theirs.by), quantity(theirs.value, theirs.unit), ratio(theirs.value, ours.value))
		}
		if compared == 0 {
			fmt.Fprintf(&out, "%s | | |\n", left)
		}
	}
	return out.String()
}

// ratio is a/b with two digits; empty if there is none.
func ratio(a, b float64) string {
	if b == 0 {
		return ""
	}
	return strconv.FormatFloat(round2(a/b), 'f', -1, 64)
}

// round2 keeps two digits.
func round2(v float64) float64 {
	text := strconv.FormatFloat(v, 'e', 1, 64)
	out, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return v
	}
	return out
}

// quantity is a value with three digits and a unit that people read.
func quantity(value float64, unit string) string {
	steps := []string{"ns", "µs", "ms", "s"}
	switch {
	case !strings.Contains(unit, "ns") && !strings.Contains(unit, "/"):
		return strconv.FormatFloat(value, 'f', -1, 64)
	case strings.HasPrefix(unit, "B/"):
		steps = []string{"B", "kB", "MB", "GB"}
	case strings.HasPrefix(unit, "µs"):
		steps = steps[1:]
	}
	i := 0
	for ; value >= 999.5 && i < len(steps)-1; i++ {
		value /= 1000
	}
	return fmt.Sprintf("%.3g %s", value, steps[i])
}
