// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheTableOfNewPodsHasARowForEachKind(t *testing.T) {
	results, err := parse("BenchmarkPodCreation-2 1 5.611 baseline:p50-ms 21.8 baseline:p99-ms 5.62 unrelated:p50-ms -0.034 unrelated:added-p50-ms\n")
	if err != nil {
		t.Fatal(err)
	}
	got := newPodsTable(results)
	for _, want := range []string{
		"| Baseline: the policy does not select the pod | 5.61 |  | 21.80 |  |  |\n",
		"| Pod of a Deployment, namespace without sizes | 5.62 |  |  | -0.03 |  |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no row %q in:\n%s", want, got)
		}
	}
}

// The rows are the kinds of pods of the benchmark, and the page has a place for the table.
func TestTheBenchmarkOfNewPodsExists(t *testing.T) {
	root := filepath.Join("..", "..")
	source, err := os.ReadFile(filepath.Join(root, newPodsSuite.pkg, "newpods_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range podKinds {
		if !strings.Contains(string(source), `"`+kind.name+`"`) {
			t.Errorf("the benchmark has no %s", kind.name)
		}
	}
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replace(string(content), "make bench-new-pods", ""); err != nil {
		t.Error(err)
	}
}
