// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// root is the root of the source tree. Tests run in the folder of their package.
var root = filepath.Join("..", "..")

func table(t *testing.T) []Row {
	t.Helper()
	source, err := os.ReadFile("rivals.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The table is as large as promised, and spread over the projects. What it names exists, and runs with
// "make test-rivals".
func TestTheTable(t *testing.T) {
	rows := table(t)
	if len(rows) < 60 {
		t.Errorf("%d rows, want at least 60", len(rows))
	}
	byRepository := map[string]int{}
	for _, row := range rows {
		byRepository[row.Issue.Repository]++
	}
	for _, project := range projects {
		if byRepository[project.repository] < 4 {
			t.Errorf("%d rows about %s, want at least 4", byRepository[project.repository], project.repository)
		}
		delete(byRepository, project.repository)
	}
	if len(byRepository) > 0 {
		t.Errorf("the page has no section for %v", byRepository)
	}
	if _, err := batchesOf(root, rows); err != nil {
		t.Error(err)
	}
}

func TestThePageIsCurrent(t *testing.T) {
	want, err := page(root, table(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "docs", "rivals.md")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/rivals.md differs from rivals.yaml; make golden writes it (-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	rows, err := Parse([]byte(`
- issue: owner/some.name#12
  what: It broke.
  reason: It cannot here.
  tests:
    - internal/plan.TestBoost/A Guaranteed pod, too
    - cmd/kubectl-vscaler.FuzzIt
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{{
		Issue: Issue{"owner/some.name", 12}, What: "It broke.", Reason: "It cannot here.",
		Tests: []Test{{"internal/plan", "TestBoost", "A Guaranteed pod, too"}, {"cmd/kubectl-vscaler", "FuzzIt", ""}},
	}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("Parse() (-want +got):\n%s", diff)
	}
	if got, want := rows[0].Tests[0].reported(), "TestBoost/A_Guaranteed_pod,_too"; got != want {
		t.Errorf("reported as %q, want %q", got, want)
	}
}

// Whatever is wrong with a table, its error names the row.
func TestParseRefuses(t *testing.T) {
	const good = "- issue: a/b#1\n  what: It broke.\n  tests: [x.TestX]\n"
	cases := map[string]struct{ table, want string }{
		"no list":                    {"issue: a/b#1", "not a list of rows"},
		"no YAML":                    {"- issue: [", "not YAML"},
		"a field twice":              {"- issue: a/b#1\n  issue: a/b#2", "not YAML"},
		"an unknown field":           {good + "- issue: a/b#2\n  test: [x.TestX]", `row 2: json: unknown field "test"`},
		"no issue":                   {good + "- what: It broke.\n  tests: [x.TestX]", "row 2, #0: no issue"},
		"an issue without a number":  {good + "- issue: a/b", `row 2: "a/b" is not OWNER/NAME#NUMBER`},
		"issue 0":                    {good + "- issue: a/b#0", `row 2: "a/b#0" is not OWNER/NAME#NUMBER`},
		"an issue without an owner":  {good + "- issue: b#2", `row 2: "b#2" is not OWNER/NAME#NUMBER`},
		"nothing went wrong":         {good + "- issue: a/b#2\n  tests: [x.TestX]", "row 2, a/b#2: nothing says what went wrong"},
		"two lines":                  {good + "- issue: a/b#2\n  what: \"It\\nbroke.\"\n  tests: [x.TestX]", "row 2, a/b#2: what has a line break"},
		"a bar, which ends a cell":   {good + "- issue: a/b#2\n  what: It | broke.\n  tests: [x.TestX]", "row 2, a/b#2: what has a line break, a bar"},
		"too many words":             {good + "- issue: a/b#2\n  what: " + strings.Repeat("x", 201) + "\n  tests: [x.TestX]", "row 2, a/b#2: what has 201 bytes"},
		"no tests":                   {good + "- issue: a/b#2\n  what: It broke.", "row 2, a/b#2: no tests"},
		"a test twice":               {good + "- issue: a/b#2\n  what: It broke.\n  tests: [x.TestX, x.TestY, x.TestX]", "row 2, a/b#2: x.TestX is named twice"},
		"a test without a package":   {good + "- issue: a/b#2\n  tests: [TestX]", `row 2: "TestX" is not FOLDER.TESTNAME`},
		"a test by its import path":  {good + "- issue: a/b#2\n  tests: [example.com/x.TestX]", `row 2: "example.com/x.TestX" is not FOLDER.TESTNAME`},
		"a test of a folder above":   {good + "- issue: a/b#2\n  tests: [../x.TestX]", `row 2: "../x.TestX" is not FOLDER.TESTNAME`},
		"a benchmark":                {good + "- issue: a/b#2\n  tests: [x.BenchmarkX]", `row 2: "x.BenchmarkX" is not FOLDER.TESTNAME`},
		"the same issue twice":       {good + good, "row 2, a/b#1: row 1 is about the same issue"},
		"a number instead of a test": {good + "- issue: a/b#2\n  tests: [7]", "row 2: json: cannot unmarshal number"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(tc.table)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse() = %v, want %q", err, tc.want)
			}
		})
	}
}
