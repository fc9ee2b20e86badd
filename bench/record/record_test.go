// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

// folder has generated usage: two tables, one of them compressed, and two series of 5 minutes in a third one.
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
		must.Succeed(t, format(&b, made...))
		if strings.HasSuffix(name, ".gz") {
			var zipped bytes.Buffer
			zip := gzip.NewWriter(&zipped)
			_, _ = zip.Write(b.Bytes()) // to memory
			_ = zip.Close()
			b = zipped
		}
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644))
	}
	write("first.csv", backtest.WriteUsage, made[:5]...)
	write("others.csv.gz", backtest.WriteUsage, made[5:]...)
	write("fine.csv", backtest.WriteUsage, fine...)
	write("series.csv", backtest.WriteContainers, append(made, fine...)...)
	return dir
}

// Every change of the engine shows here.
func TestRecordOfGeneratedUsage(t *testing.T) {
	var out bytes.Buffer
	args := []string{"-draws", "500", "-skip", "weekly*", "-group", "containers=diurnal*,leak*,spike*,fine", "-siblings", "^fine-", folder(t)}
	must.Succeed(t, run(args, &out, io.Discard))
	golden.Compare(t, "record.md", out.String())
}

func TestInvalidArgumentsAreRejected(t *testing.T) {
	dir := folder(t)
	for name, tc := range map[string]struct {
		want string
		args []string
	}{
		"no folder":            {"name one folder", nil},
		"a pattern":            {"not a pattern", []string{"-skip", "[", dir}},
		"an expression":        {"missing closing )", []string{"-siblings", "^(job", dir}},
		"a group of no series": {"no series of the group web", []string{"-group", "web=web*", "-skip", "others,fine", "-draws", "1", dir}},
		"an empty folder":      {"no usage to replay", []string{t.TempDir()}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(tc.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q", err, tc.want)
			}
		})
	}
}

// If every series costs half under one rule, so does every draw, however much the series differ.
func TestTheBootstrapIsPaired(t *testing.T) {
	var all []series
	for i := range 10 {
		requested := math.Exp(float64(i))
		all = append(all, series{cluster: string(rune('a' + i)), under: []backtest.Measures{
			{Hours: 24, RequestedCPU: requested}, {Hours: 24, RequestedCPU: requested / 2},
		}})
	}
	g := measureGroup("all", all, 1000)
	if g.low[1][cores] != 0.5 || g.high[1][cores] != 0.5 {
		t.Errorf("the ratio is from %g to %g", g.low[1][cores], g.high[1][cores])
	}
}

// Copies of a series make no interval narrower.
func TestSiblingsAreDrawnTogether(t *testing.T) {
	o := options{siblings: []*regexp.Regexp{regexp.MustCompile("^job-[0-9]{2}")}}
	var all []series
	for _, trace := range []backtest.Trace{
		{Name: "job-123", Table: "a.csv.gz"},
		{Name: "job-124", Table: "a.csv.gz"},
		{Name: "job-99", Table: "a.csv.gz"},
		{Name: "web", Table: "a.csv.gz"},
		{Name: "job-125", Table: "a.csv.gz"},
		{Name: "job-126", Table: "b.csv"},
	} {
		all = append(all, series{cluster: o.clusterOf(trace)})
	}
	clusters := clustersOf(all)
	if diff := cmp.Diff([]int{0, 0, 1, 2, 0, 3}, clusters); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	isLeftOut := false
	bootstrap(clusters, 200, func(times []float64) {
		if times[0] != times[1] || times[0] != times[4] {
			t.Fatalf("siblings were drawn %v times", times)
		}
		if sum := times[0] + times[2] + times[3] + times[5]; sum != 4 {
			t.Fatalf("%g clusters were drawn of 4", sum)
		}
		isLeftOut = isLeftOut || times[0] == 0
	})
	if !isLeftOut {
		t.Error("the siblings were in every draw")
	}
}
