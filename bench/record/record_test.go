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
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// today is a fixed date for documents.
var today = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// folder contains the output of "go run ./traces -containers 10 -days 8 -step 30m
// FOLDER", in two tables, one of them compressed, and two series of 5 minutes in a third one.
func folder(t *testing.T) string {
	t.Helper()
	made := traces.Make(10, 8*24*time.Hour, 30*time.Minute)
	fine := traces.Make(2, 4*24*time.Hour, 5*time.Minute)
	for i := range fine {
		fine[i].Name = "fine-" + fine[i].Name
	}
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
	write("first.csv", backtest.WriteUsage, made[:5]...)
	write("others.csv.gz", backtest.WriteUsage, made[5:]...)
	write("fine.csv", backtest.WriteUsage, fine...)
	write("series.csv", backtest.WriteContainers, append(made, fine...)...)
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
// engine shows here. The three formats are from runs with different numbers of processors. With -short,
// there is one.
func TestRecordOfSyntheticUsage(t *testing.T) {
	dir := folder(t)
	with := func(more ...string) []string {
		return append(more, "-draws", "500", "-group", "containers=diurnal*,leak*,spike*,fine", "-siblings", "^fine-", dir)
	}

	// Without two kinds: targets of missing groups are omitted.
	json, _ := command(t, 0, "-draws", "100", "-scenarios", "recorded", "-skip", "others,fine,leak,sp*", "-o", "json", dir)
	golden(t, "record.json", json)
	if testing.Short() {
		return
	}

	table, progress := command(t, 0, with("-workers", "3", "-pattern-days", "13")...)
	golden(t, "record.txt", table)
	for _, s := range scenarios() {
		if !strings.Contains(progress, s.name+": replayed ") || !strings.Contains(progress, s.name+": took ") {
			t.Errorf("the progress of %s is missing: %q", s.name, progress)
		}
	}

	document := filepath.Join(t.TempDir(), "record.md")
	if err := os.WriteFile(document, []byte("# Before\n\n"+recordBegins+"an older one\n"+recordEnds+"\nAfter.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, 0, with("-workers", "1", "-pattern-days", "5", "-scenarios", "recorded,10-pods-15,first-day,patterns", "-into", document)...)
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "record.md", string(text))
}

func TestAMissedTargetFailsACheck(t *testing.T) {
	dir := folder(t)
	_, errOut := command(t, exitFailed, "-check", "-draws", "10", "-scenarios", "first-day,recorded", "-skip", "others", dir)
	if want := "misses a target of recorded, all: "; !strings.Contains(errOut, want) {
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
		"no draws":              {exitUsage, "-draws and -pattern-days at least 1", []string{"-draws", "0", dir}},
		"a pattern":             {exitUsage, "not a pattern", []string{"-skip", "[", dir}},
		"a scenario":            {exitUsage, "no scenario \"recoded\": recorded, 3-pods-5, ", []string{"-scenarios", "first-day,recoded", dir}},
		"an expression":         {exitUsage, "missing closing )", []string{"-siblings", "^(job", dir}},
		"no days":               {exitUsage, "-draws and -pattern-days at least 1", []string{"-pattern-days", "0", dir}},
		"a group without name":  {exitUsage, "is not like", []string{"-group", "=web*", dir}},
		"a group named all":     {exitUsage, "is not like", []string{"-group", "all=web*", dir}},
		"a group of no series":  {exitFailed, "no series is in the group web", []string{"-group", "web=web*", "-skip", "others,fine", "-draws", "1", dir}},
		"nothing left":          {exitFailed, "no series is left", []string{"-skip", "*", dir}},
		"nothing long enough":   {exitFailed, "no series is longer", []string{"-warm-up", "192h", "-skip", "others,fine", dir}},
		"an empty folder":       {exitFailed, "no usage to replay", []string{t.TempDir()}},
		"a document without it": {exitFailed, "has no lines", []string{"-skip", "others,fine", "-draws", "1", "-into", filepath.Join(dir, "first.csv"), dir}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.code == exitFailed {
				tc.args = append([]string{"-scenarios", "recorded"}, tc.args...)
			}
			if _, errOut := command(t, tc.code, tc.args...); !strings.Contains(errOut, tc.want) {
				t.Errorf("errors are %q, want %q", errOut, tc.want)
			}
		})
	}
}

// outcomes returns those of series with these measures, by rule.
func outcomes(rules ...[]backtest.Measures) [][]backtest.Outcome {
	list := make([][]backtest.Outcome, len(rules[0]))
	for _, rule := range rules {
		for i, m := range rule {
			list[i] = append(list[i], backtest.Outcome{Measures: m})
		}
	}
	return list
}

func TestFigures(t *testing.T) {
	vpa := []backtest.Measures{
		{
			Hours: 24, RequestedCPU: 48, WantedCPU: 20, UnservedCPU: 1, StarvedHours: 6, StarvedMeanHours: 3, HasMemory: true,
			RequestedMemory: 72, Kills: 3, KillDays: 1, Days: 1, Resizes: 2,
		},
		{Hours: 72, RequestedCPU: 72, Days: 3, Resizes: 9},
	}
	ours := []backtest.Measures{
		{Hours: 24, RequestedCPU: 24, WantedCPU: 20, HasMemory: true, RequestedMemory: 24, Days: 1, Resizes: 1},
		{Hours: 72, RequestedCPU: 144, Days: 3},
	}
	s := newSample(outcomes(vpa, ours), 2)
	none := math.NaN()
	for name, tc := range map[string]struct {
		times     []float64
		vpa, ours values
	}{
		"each once": {
			[]float64{1, 1},
			values{1.25, 1, 0, 12.5, 6.25, 2.5, 3, 100, 3, 2.75, 3},
			values{1.75, 0.5, 50, 0, 0, 0, 1, 0, 0, 0.25, 1},
		},
		"the first twice": {
			[]float64{2, 1},
			values{1.4, 1, 0, 50. / 3, 25. / 3, 10. / 3, 3, 100, 6, 2.6, 3},
			values{1.6, 0.5, 100. / 3, 0, 0, 0, 1, 0, 0, 0.4, 1},
		},
		"none that has memory": {
			[]float64{0, 2},
			values{1, 1, 0, 0, 0, 0, none, none, none, 3, 3},
			values{2, 2, 100, 0, 0, 0, none, none, none, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.of(tc.times)
			for rule, want := range []values{tc.vpa, tc.ours} {
				for m, measure := range measures {
					if math.Abs(got[rule][m]-want[m]) > 1e-12 || math.IsNaN(got[rule][m]) != math.IsNaN(want[m]) {
						t.Errorf("rule %d: %s is %g, want %g", rule, measure.name, got[rule][m], want[m])
					}
				}
			}
		})
	}
}

// TestPercentiles: a series that is drawn n times counts n times.
func TestPercentiles(t *testing.T) {
	var list []backtest.Measures
	for i := range 10 { // in no order
		list = append(list, backtest.Measures{Hours: 24, RequestedCPU: 1, Resizes: (i*7)%10 + 1})
	}
	s := newSample(outcomes(list), 1)
	once := []float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	if got := s.of(once)[0][resizesP90]; got != 9 {
		t.Errorf("the 90th percentile of 1 to 10 is %g, want 9", got)
	}
	twice := slices.Clone(once)
	twice[7] = 3 // ten resizes
	if got := s.of(twice)[0][resizesP90]; got != 10 {
		t.Errorf("the 90th percentile of 1 to 10, with 10 three times, is %g, want 10", got)
	}
	if got := s.of(make([]float64, 10))[0][resizesP90]; !math.IsNaN(got) {
		t.Errorf("the 90th percentile of nothing is %g", got)
	}
}

// TestTheBootstrapIsPaired: if every series costs half under one rule, so does every draw,
// however much the series differ.
func TestTheBootstrapIsPaired(t *testing.T) {
	var one, half []backtest.Measures
	var cluster []int
	for i := range 10 {
		cores := math.Exp(float64(i))
		one = append(one, backtest.Measures{Hours: 24, RequestedCPU: cores})
		half = append(half, backtest.Measures{Hours: 24, RequestedCPU: cores / 2})
		cluster = append(cluster, i)
	}
	s := newSample(outcomes(one, half), 2)
	sums := map[float64]int{}
	bootstrap(cluster, 1000, func(times []float64) {
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

// TestSiblingsAreDrawnTogether: nine copies of a series make no interval narrower.
func TestSiblingsAreDrawnTogether(t *testing.T) {
	of := siblings{regexp.MustCompile("^job-[0-9]{2}")}
	var keys []string
	for _, name := range []string{"job-123", "job-124", "job-99", "web", "job-125", "web-2"} {
		keys = append(keys, of.clusterOf(backtest.Trace{Name: name, Table: "a.csv.gz"}))
	}
	keys = append(keys, of.clusterOf(backtest.Trace{Name: "job-126", Table: "b.csv"}))
	if diff := cmp.Diff([]string{"a/job-12*", "a/job-12*", "a/job-99*", "a/web", "a/job-12*", "a/web-2", "b/job-12*"}, keys); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	cluster := numbered(keys)
	if diff := cmp.Diff([]int{0, 0, 1, 2, 0, 3, 4}, cluster); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	isLeftOut := false
	bootstrap(cluster, 200, func(times []float64) {
		if times[0] != times[1] || times[0] != times[4] {
			t.Fatalf("siblings were drawn %v times", times)
		}
		if sum := times[0] + times[2] + times[3] + times[5] + times[6]; sum != 5 {
			t.Fatalf("%g clusters were drawn of 5", sum)
		}
		isLeftOut = isLeftOut || times[0] == 0
	})
	if !isLeftOut {
		t.Error("the siblings were in every draw")
	}
}

// TestFolds leaves out each source of a group in turn, but not sources without a member.
func TestFolds(t *testing.T) {
	var list []backtest.Measures
	for _, cores := range []float64{1, 3, 10, 100} {
		list = append(list, backtest.Measures{Hours: 24, RequestedCPU: 24 * cores})
	}
	s := newSample(outcomes(list), 1)
	got := []float64{}
	for _, of := range s.folds([]float64{1, 1, 1, 0}, []int{0, 0, 1, 2}) {
		got = append(got, of[0][cores])
	}
	if diff := cmp.Diff([]float64{10, 2}, got); diff != "" {
		t.Errorf("cores without each source (-want +got):\n%s", diff)
	}
	if folds := s.folds([]float64{1, 1, 0, 0}, []int{0, 0, 1, 2}); folds != nil {
		t.Errorf("a single source has folds: %v", folds)
	}
}

// TestATargetOfFoldsIsReachedInEach: one source can hide what another shows.
func TestATargetOfFoldsIsReachedInEach(t *testing.T) {
	of := func(ours float64) []values {
		all := make([]values, len(rules()))
		all[0][cores], all[ruleOf(profile.Calm)][cores] = 10, ours
		return all
	}
	goal := target{profile: profile.Calm, measure: cores, most: 1, isOfFolds: true}
	for name, tc := range map[string]struct {
		isOfFolds  bool
		all        float64
		folds      [][]values
		want       bool
		low, highs number
	}{
		"reached everywhere":                {true, 9, [][]values{of(8), of(10)}, true, 0.8, 1},
		"missed without one":                {true, 9, [][]values{of(8), of(11)}, false, 0.8, 1.1},
		"missed without one, which is fine": {false, 9, [][]values{of(11), of(8)}, true, 0.8, 1.1},
		"missed":                            {true, 11, [][]values{of(8), of(9)}, false, 0.8, 0.9},
	} {
		t.Run(name, func(t *testing.T) {
			goal.isOfFolds = tc.isOfFolds
			got := newTargetRecord(goal, of(tc.all), newDrawn(len(rules())), 1, tc.folds, 0)
			if got.IsReached != tc.want || *got.Folds != (span{tc.low, tc.highs}) {
				t.Errorf("reached: %t, folds: %v", got.IsReached, *got.Folds)
			}
		})
	}
}

// TestFirstDays: a day from requests that are too small, however the series goes on.
func TestFirstDays(t *testing.T) {
	series := backtest.Trace{Name: "app", Step: time.Hour, HasMemory: true}
	for i := range int64(50) {
		series.Samples = append(series.Samples, backtest.Sample{At: 7200 + i*3600, CPUMillis: 100, MemoryBytes: 1000 + i})
	}
	series.Samples[3].CPUMillis = 9999
	idle := series
	idle.Samples = []backtest.Sample{{At: 0, CPUMillis: 1, MemoryBytes: 10}, {At: 3600, CPUMillis: 1}}
	got := firstDays([]backtest.Trace{series, idle})
	if len(got[0].Samples) != 24 || got[0].Requests != (quantity.Amounts{CPUMillis: 50, MemoryBytes: 1023 * 6 / 10}) {
		t.Errorf("%d samples from %+v", len(got[0].Samples), got[0].Requests)
	}
	if len(got[1].Samples) != 2 || got[1].Requests != (quantity.Amounts{CPUMillis: 10, MemoryBytes: 6}) {
		t.Errorf("%d samples from %+v", len(got[1].Samples), got[1].Requests)
	}
	if len(series.Samples) != 50 {
		t.Error("the series itself was cut")
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
