// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// projects are those whose issues the table holds, in the order of the page.
var projects = []struct{ repository, name string }{
	{"kubernetes/autoscaler", "Vertical Pod Autoscaler"},
	{"attune-io/attune", "Attune"},
	{"kubernetes/kubernetes", "Kubernetes: resize in place"},
	{"robusta-dev/krr", "KRR"},
	{"FairwindsOps/goldilocks", "Goldilocks"},
	{"kedacore/keda", "KEDA"},
}

func keys[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

// counted says how many issues of how many projects there are.
func counted(rows []Row) string {
	repositories := map[string]bool{}
	for _, row := range rows {
		repositories[row.Issue.Repository] = true
	}
	return fmt.Sprintf("%d issues of %d projects", len(rows), len(repositories))
}

const introduction = `# Issues of other projects, and the tests that would have caught them here

<!-- This page is generated from test/rivals/rivals.yaml. Run "make golden" after a change. -->

Every project in this field solves hard problems in public, and everyone can learn from its issue tracker. This page lists %s.
For each one it says in our own words what went wrong, and which of our tests would fail if our code did the same.

` + "`make test-rivals`" + ` runs exactly these tests and prints the table. A row fails if one of its tests does not exist, is skipped, does not
run or fails. The tests with the level *integration* need an API server, which is built from source the first time. The others need only Go.

* The issues are closed or open, and some were never confirmed. Many are fixed. A row says nothing about a current version.
* A row shows that a test covers the defect, and not that there are no other defects.
* *Ruled out* means that the design has no place for the defect. The test shows the part of the design that matters.
`

// page is docs/rivals.md.
func page(root string, rows []Row) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, introduction, counted(rows))
	for _, project := range projects {
		fmt.Fprintf(&out, "\n## %s\n\n| Issue | What went wrong | Our tests | Level |\n|---|---|---|---|\n", project.name)
		for _, row := range ofRepository(rows, project.repository) {
			line, err := lineOf(root, row)
			if err != nil {
				return "", err
			}
			out.WriteString(line)
		}
	}
	return out.String(), nil
}

func ofRepository(rows []Row, repository string) (of []Row) {
	for _, row := range rows {
		if row.Issue.Repository == repository {
			of = append(of, row)
		}
	}
	slices.SortFunc(of, func(a, b Row) int { return cmp.Compare(a.Issue.Number, b.Issue.Number) })
	return of
}

// lineOf is the line of a row in the table of its project.
func lineOf(root string, row Row) (string, error) {
	var tests, levels []string
	for _, t := range row.Tests {
		at, err := locate(root, t)
		if err != nil {
			return "", fmt.Errorf("%s: %w", row.Issue, err)
		}
		tests = append(tests, fmt.Sprintf("[`%s`](../%s)", strings.ReplaceAll(t.name(), "|", `\|`), at.file))
		if !slices.Contains(levels, at.level()) {
			levels = append(levels, at.level())
		}
	}
	what := row.What
	if row.Reason != "" {
		what += " *Ruled out*: " + row.Reason
	}
	return fmt.Sprintf("| [#%d](%s) | %s | %s | %s |\n",
		row.Issue.Number, row.Issue.URL(), what, strings.Join(tests, "<br>"), strings.Join(levels, ", ")), nil
}
