// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// today is a fixed date for documents.
var today = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// folder contains the output of "go run ./hack/traces -containers 10 -days 8 -step 30m
// FOLDER", in two tables, one of them compressed.
func folder(t *testing.T) string {
	t.Helper()
	made := traces.Make(10, 8*24*time.Hour, 30*time.Minute)
	dir := t.TempDir()
	write := func(name string, format func(io.Writer, ...backtest.Trace) error, made ...backtest.Trace) {
		var b bytes.Buffer
		if err := format(&b, made...); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".gz") {
			var zipped bytes.Buffer
			zip := gzip.NewWriter(&zipped)
			_, _ = zip.Write(b.Bytes()) // to memory
			_ = zip.Close()
			b = zipped
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("first.csv", traces.WriteUsage, made[:5]...)
	write("others.csv.gz", traces.WriteUsage, made[5:]...)
	write("series.csv", traces.WriteContainers, made...)
	return dir
}

// command runs the command, and checks its exit code.
func command(t *testing.T, want int, args ...string) (out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	if got := run(args, &o, &e, today); got != want {
		t.Fatalf("record %s ends with %d, want %d:\n%s", strings.Join(args, " "), got, want, e.String())
	}
	return o.String(), e.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// TestRecordOfSyntheticUsage compares the record of synthetic usage: every change of the
// engine shows here. The three formats are from runs with different numbers of processors.
func TestRecordOfSyntheticUsage(t *testing.T) {
	args := []string{"-draws", "500", "-group", "containers=diurnal*,leak*,spike*", folder(t)}
	with := func(more ...string) []string { return append(more, args...) }

	table, progress := command(t, 0, with("-workers", "3")...)
	golden(t, "record.txt", table)
	if !strings.HasSuffix(progress, "Replayed 50 of 50\n") {
		t.Errorf("progress is %q", progress)
	}

	document := filepath.Join(t.TempDir(), "record.md")
	if err := os.WriteFile(document, []byte("# Before\n\n"+recordBegins+"an older one\n"+recordEnds+"\nAfter.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, 0, with("-workers", "1", "-into", document)...)
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "record.md", string(text))

	// Of the first table, without two kinds: targets of missing groups are omitted.
	json, _ := command(t, 0, "-draws", "100", "-skip", "others,leak,sp*", "-o", "json", args[len(args)-1])
	golden(t, "record.json", json)
}

func TestAMissedTargetFailsACheck(t *testing.T) {
	dir := folder(t)
	_, errOut := command(t, exitFailed, "-check", "-draws", "10", "-skip", "others", dir)
	if want := "misses a target of all: "; !strings.Contains(errOut, want) {
		t.Errorf("errors are %q, want %q", errOut, want)
	}
}

func TestInvalidArgumentsAreRejected(t *testing.T) {
	dir := folder(t)
	for name, tc := range map[string]struct {
		code int
		want string
		args []string
	}{
		"no folder":             {exitUsage, "name one folder", nil},
		"two folders":           {exitUsage, "name one folder", []string{dir, dir}},
		"a format":              {exitUsage, "not one of table", []string{"-o", "yaml", dir}},
		"no draws":              {exitUsage, "-draws at least 1", []string{"-draws", "0", dir}},
		"a pattern":             {exitUsage, "not a pattern", []string{"-skip", "[", dir}},
		"a group without name":  {exitUsage, "is not like", []string{"-group", "=web*", dir}},
		"a group named all":     {exitUsage, "is not like", []string{"-group", "all=web*", dir}},
		"a group of no series":  {exitFailed, "no series is in the group web", []string{"-group", "web=web*", "-skip", "others", "-draws", "1", dir}},
		"nothing left":          {exitFailed, "no series is left", []string{"-skip", "*", dir}},
		"nothing long enough":   {exitFailed, "no series is longer", []string{"-warm-up", "192h", "-skip", "others", dir}},
		"an empty folder":       {exitFailed, "no usage to replay", []string{t.TempDir()}},
		"a document without it": {exitFailed, "has no lines", []string{"-skip", "others", "-draws", "1", "-into", filepath.Join(dir, "first.csv"), dir}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, errOut := command(t, tc.code, tc.args...); !strings.Contains(errOut, tc.want) {
				t.Errorf("errors are %q, want %q", errOut, tc.want)
			}
		})
	}
}

// measured returns outcomes of series with these measures, by rule.
func measured(rules ...[]backtest.Measures) [][]backtest.Outcome {
	outcomes := make([][]backtest.Outcome, len(rules[0]))
	for _, rule := range rules {
		for i, m := range rule {
			outcomes[i] = append(outcomes[i], backtest.Outcome{Measures: m})
		}
	}
	return outcomes
}

func TestFigures(t *testing.T) {
	s := newSample(measured([]backtest.Measures{
		{
			Hours: 24, RequestedCPU: 48, WantedCPU: 20, UnservedCPU: 1, StarvedHours: 6, HasMemory: true,
			RequestedMemory: 72, Kills: 3, KillDays: 1, Days: 1, Resizes: 2,
		},
		{Hours: 72, RequestedCPU: 72, Days: 3, Resizes: 6},
	}), 1)
	none := math.NaN()
	for name, tc := range map[string]struct {
		times []float64
		want  values
	}{
		"each once":            {[]float64{1, 1}, values{1.25, 12.5, 2.5, 3, 100, 3000, 2}},
		"the first twice":      {[]float64{2, 1}, values{1.4, 50. / 3, 10. / 3, 3, 100, 3000, 2}},
		"none that has memory": {[]float64{0, 2}, values{1, 0, 0, none, none, none, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.of(tc.times)[0]
			for m, measure := range measures {
				if math.Abs(got[m]-tc.want[m]) > 1e-12 || math.IsNaN(got[m]) != math.IsNaN(tc.want[m]) {
					t.Errorf("%s is %g, want %g", measure.name, got[m], tc.want[m])
				}
			}
		})
	}
}

// TestTheBootstrapIsPaired: if every series costs half under one rule, so does every draw,
// however much the series differ.
func TestTheBootstrapIsPaired(t *testing.T) {
	var one, half []backtest.Measures
	for i := range 10 {
		cores := math.Exp(float64(i))
		one = append(one, backtest.Measures{Hours: 24, RequestedCPU: cores})
		half = append(half, backtest.Measures{Hours: 24, RequestedCPU: cores / 2})
	}
	s := newSample(measured(one, half), 2)
	sums := map[float64]int{}
	s.bootstrap(1000, func(times []float64) {
		of := s.of(times)
		if got := ratio(of[1][cores], of[0][cores]); got != 0.5 {
			t.Fatalf("the ratio is %g on a draw", got)
		}
		drawn := 0.0
		for _, n := range times {
			drawn += n
		}
		if drawn != 10 {
			t.Fatalf("%g series were drawn of 10", drawn)
		}
		sums[of[0][cores]]++
	})
	if len(sums) < 900 {
		t.Errorf("only %d draws differ of 1000", len(sums))
	}
}

func TestInterval(t *testing.T) {
	var thousand []float64
	for i := range 1000 {
		thousand = append(thousand, float64(1000-i))
	}
	for name, tc := range map[string]struct {
		of        []float64
		low, high float64
	}{
		"25th and 975th of 1000":        {thousand, 25, 975},
		"NaN does not count":            {append([]float64{math.NaN(), math.NaN()}, thousand...), 25, 975},
		"one value is its own interval": {[]float64{3}, 3, 3},
		"a ratio may be infinite":       {[]float64{1, math.Inf(1)}, 1, math.Inf(1)},
		"no values have no interval":    {nil, math.NaN(), math.NaN()},
		"only NaN has no interval":      {[]float64{math.NaN()}, math.NaN(), math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			low, high := interval(tc.of)
			same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
			if !same(low, tc.low) || !same(high, tc.high) {
				t.Errorf("the interval is [%g, %g], want [%g, %g]", low, high, tc.low, tc.high)
			}
		})
	}
}

func TestTargets(t *testing.T) {
	of := func(m int, v float64) (all values) {
		all[m] = v
		return all
	}
	atMostHalf := target{measure: oomDays, most: 0.5}
	aDay := target{measure: resizes, most: 12, isAbsolute: true}
	for name, tc := range map[string]struct {
		target    target
		vpa, ours float64
		want      bool
	}{
		"half is enough":                        {atMostHalf, 4, 2, true},
		"more than half is not enough":          {atMostHalf, 4, 2.01, false},
		"zero is enough for zero":               {atMostHalf, 0, 0, true},
		"more than zero is not enough for zero": {atMostHalf, 0, 0.01, false},
		"VPA's resizes do not matter":           {aDay, 1, 12, true},
		"their number matters":                  {aDay, 100, 12.01, false},
		"an unmeasured value is not enough":     {atMostHalf, math.NaN(), math.NaN(), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.target.isReached(of(tc.target.measure, tc.vpa), of(tc.target.measure, tc.ours)); got != tc.want {
				t.Errorf("reached: %t", got)
			}
		})
	}
}
