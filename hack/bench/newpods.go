// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

var newPodsSuite = suite{".", "./test/benchmark", "^BenchmarkPodCreation$", true, "integration"}

// podKinds are the rows of the table of new pods, in their order.
var podKinds = []struct{ name, title string }{
	{"baseline", "Baseline: the policy does not select the pod"},
	{"control", "– the same pod again, to show what is chance"},
	{"unrelated", "Pod of a Deployment, namespace without sizes"},
	{"no-entry-in-100", "Pod of a Deployment without a size, namespace with 100 sizes"},
	{"sized-in-100", "Sized pod, namespace with 100 sizes"},
	{"sized-in-500", "Sized pod, namespace with 500 sizes"},
	{"former-baseline", "Baseline, beside 5,000 bindings of the former policy"},
	{"former-unrelated", "– unrelated pod, the former policy"},
	{"former-sized", "– sized pod, the former policy"},
}

// runNewPods runs the benchmark of the policy for new pods.
func runNewPods(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench new-pods", flag.ContinueOnError)
	record := flags.Bool("record", false, "keep the table in "+page)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	facts, err := factsOf(ctx)
	if err != nil {
		return err
	}
	output, err := newPodsSuite.run(ctx, time.Second, progress)
	if err != nil {
		return err
	}
	results, err := parse(output)
	if err != nil {
		return fmt.Errorf("reading the results of %s: %w", newPodsSuite.pkg, err)
	}
	facts.loadAfter = load()
	text := newPodsTable(results) + "\n" + facts.String()
	fmt.Fprint(out, text)
	if !*record {
		return nil
	}
	return keep(page, "make bench-new-pods", text)
}

// newPodsTable is a table of the results in Markdown: a row for each kind of pods.
func newPodsTable(results []result) string {
	values := map[string]string{}
	for _, r := range results {
		values[r.by+" "+r.unit] = fmt.Sprintf("%.2f", r.value)
	}
	var out strings.Builder
	out.WriteString("| Creation of a pod, in ms | p50 | p90 | p99 | Added, p50 | Added, p99 |\n|---|---|---|---|---|---|\n")
	for _, kind := range podKinds {
		fmt.Fprintf(&out, "| %s |", kind.title)
		for _, unit := range []string{"p50-ms", "p90-ms", "p99-ms", "added-p50-ms", "added-p99-ms"} {
			fmt.Fprintf(&out, " %s |", values[kind.name+" "+unit])
		}
		out.WriteString("\n")
	}
	return out.String()
}
