// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module writes a module of its own with these files, and returns its folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const imports = "package p\n\nimport \"testing\"\n\n"

// tests has a package with a test of each outcome, and others that are broken or need a tag.
func tests(t *testing.T) string {
	t.Helper()
	return module(t, map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"good/good_test.go": imports + `
func TestPasses(t *testing.T) {
	t.Run("in one way, too", func(*testing.T) {})
	t.Run("skipped", func(t *testing.T) { t.Skip("no node here") })
}

func TestSkipped(t *testing.T) { t.Skip("no node here") }

func TestFails(t *testing.T) {
	t.Run("well", func(*testing.T) {})
	t.Run("badly", func(t *testing.T) { t.Error("what is broken") })
}

func TestNotNamed(t *testing.T) { t.Error("it ran, and no row names it") }

func FuzzPasses(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(*testing.T, int) {})
}

func helper() {}

type T struct{}

func (T) TestMethod(*testing.T) {}

var _ = helper
`,
		"panics/panics_test.go":  imports + "func TestPanics(*testing.T) { panic(\"at once\") }\n\nfunc TestNeverRuns(*testing.T) {}\n",
		"broken/broken_test.go":  imports + "func TestX(t *testing.T) { undefined() }\n",
		"tagged/api_test.go":     "//go:build integration\n\n" + imports + "func TestX(*testing.T) {}\n",
		"tagged/cluster_test.go": "//go:build cluster\n\n" + imports + "func TestY(*testing.T) {}\n",
		"tagged/both_test.go":    "//go:build cluster && integration\n\n" + imports + "func TestZ(*testing.T) {}\n",
	})
}

// rowOf is a row that names these tests.
func rowOf(t *testing.T, number int, names ...string) Row {
	t.Helper()
	row := Row{Issue: Issue{"a/b", number}, What: "It broke."}
	for _, name := range names {
		var test Test
		if err := test.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		row.Tests = append(row.Tests, test)
	}
	return row
}

// A row passes if each of its tests has run and passed. Nothing else will do.
func TestRowsFail(t *testing.T) {
	dir := tests(t)
	rows, want := []Row{}, map[string]string{}
	for i, tc := range []struct {
		tests []string
		want  string // the lines below the row
	}{
		{tests: []string{"good.TestPasses", "good.FuzzPasses"}},
		{tests: []string{"good.TestPasses/in one way, too"}},
		{tests: []string{"tagged.TestX"}},
		{[]string{"good.TestPasses/in another way"}, "      good.TestPasses/in another way did not run\n"},
		{[]string{"good.TestPasses/skipped"}, "      good.TestPasses/skipped is skipped\n"},
		{[]string{"good.TestPasses", "good.TestSkipped"}, "      good.TestSkipped is skipped\n"},
		{[]string{"good.TestFails", "good.TestFails/badly", "good.TestFails/well"}, "      good.TestFails fails\n      good.TestFails/badly fails\n"},
		{[]string{"panics.TestPanics", "panics.TestNeverRuns"}, "      panics.TestPanics fails\n      panics.TestNeverRuns did not run\n"},
		{[]string{"broken.TestX"}, "      broken.TestX did not run\n"},
	} {
		row := rowOf(t, i+1, tc.tests...)
		rows = append(rows, row)
		want[row.Issue.String()] = tc.want
	}
	batches, err := batchesOf(dir, rows)
	if err != nil {
		t.Fatal(err)
	}
	got := results{}
	for _, b := range batches {
		if err := b.run(t.Context(), dir, got); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range rows {
		var out strings.Builder
		failed := got.print(&out, []Row{row})
		lines, outputs, _ := strings.Cut(out.String(), "\n\n")
		head, troubles, _ := strings.Cut(lines+"\n", "\n")
		wantTroubles := want[row.Issue.String()]
		if troubles != wantTroubles || strings.HasPrefix(head, "FAIL") != (wantTroubles != "") || (failed == 1) != (wantTroubles != "") {
			t.Errorf("%v: %d failed, want the lines %q:\n%s", row.Tests, failed, wantTroubles, out.String())
		}
		if strings.Contains(out.String(), "no row names it") {
			t.Errorf("a test ran that no row names:\n%s", out.String())
		}
		for name, says := range map[string]string{"good.TestFails": "what is broken", "panics.TestPanics": "panic: at once", "broken.TestX": "undefined: undefined", "good.TestSkipped": "no node here"} {
			if slices.ContainsFunc(row.Tests, func(t Test) bool { return t.String() == name }) && !strings.Contains(outputs, says) {
				t.Errorf("the output of %s does not say %q:\n%s", name, says, out.String())
			}
		}
	}
}

// What can be known before anything runs is an error that names the row.
func TestTestsThatCannotRun(t *testing.T) {
	dir := tests(t)
	for name, want := range map[string]string{
		"good.TestGone":       "a/b#1: there is no test good.TestGone",
		"good.TestMethod":     "a/b#1: there is no test good.TestMethod",
		"gone.TestPasses":     "a/b#1: there is no test gone.TestPasses",
		"tagged.TestY":        "a/b#1: tagged.TestY needs the build tag cluster, and tests with that tag are not run here",
		"tagged.TestZ/subbed": "a/b#1: tagged.TestZ/subbed: it needs the build tags cluster && integration, and one is understood",
	} {
		if _, err := batchesOf(dir, []Row{rowOf(t, 1, name)}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// Each package runs once, with the named tests of all rows, and those without a tag run first.
func TestBatches(t *testing.T) {
	batches, err := batchesOf(tests(t), []Row{
		rowOf(t, 1, "tagged.TestX", "good.TestPasses/one"),
		rowOf(t, 2, "good.FuzzPasses", "good.TestPasses/two", "broken.TestX"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range batches {
		got = append(got, strings.Join(b.arguments(), " "))
	}
	want := []string{
		"test -json -timeout 10m -run ^(TestX)$ ./broken",
		"test -json -timeout 10m -run ^(FuzzPasses|TestPasses)$ ./good",
		"test -json -timeout 10m -run ^(TestX)$ -tags integration -count=1 ./tagged",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

// The command fails with its table, and only the rows that were asked for count.
func TestRun(t *testing.T) {
	dir := tests(t)
	table := filepath.Join(dir, "test", "rivals")
	if err := os.MkdirAll(table, 0o755); err != nil {
		t.Fatal(err)
	}
	source := "- {issue: a/good#1, what: It broke., tests: [good.TestPasses]}\n- {issue: a/bad#2, what: It broke., tests: [good.TestFails]}\n"
	if err := os.WriteFile(filepath.Join(table, "rivals.yaml"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	cases := map[string]struct {
		args    []string
		err     string
		printed string
	}{
		"all":              {nil, "1 of 2 rows fail", "2 issues of 2 projects; 1 fail"},
		"those that match": {[]string{"-only", "good#1$"}, "", "1 issues of 1 projects; 0 fail"},
		"none matches":     {[]string{"-only", "c/d"}, "-only: no issue matches", ""},
		"no pattern":       {[]string{"-only", "("}, "-only: error parsing regexp", ""},
		"an argument":      {[]string{"good"}, `unexpected argument "good"`, ""},
		"an unknown flag":  {[]string{"-count"}, "flag provided but not defined: -count", ""},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), tc.args, &out)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("run() = %v, want %q", err, tc.err)
			}
			if !strings.Contains(out.String(), tc.printed) {
				t.Errorf("printed, without %q:\n%s", tc.printed, out.String())
			}
		})
	}
}
