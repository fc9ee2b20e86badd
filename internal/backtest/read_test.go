// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func read(tables ...string) ([]backtest.Trace, error) {
	var r backtest.Reader
	for i, table := range tables {
		if err := r.Read([]string{"a.csv", "b.csv"}[i], strings.NewReader(table)); err != nil {
			return nil, err
		}
	}
	return r.Traces()
}

func TestReader(t *testing.T) {
	const usage = "series,timestamp,cpu_cores,memory_bytes\nweb,600,0.25,1048576\nweb,0,0.5,2097152\nweb,300,1,0\n"
	web := backtest.Trace{
		Name: "web", Table: "a.csv", Step: 5 * time.Minute, HasMemory: true,
		Samples: []backtest.Sample{{0, 500, 2 << 20}, {300, 1000, 0}, {600, 250, 1 << 20}},
	}
	changed := func(change func(*backtest.Trace)) []backtest.Trace {
		changed := web
		change(&changed)
		return []backtest.Trace{changed}
	}
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, _ = zip.Write([]byte(usage))
	_ = zip.Close()

	cases := map[string]struct {
		tables []string
		want   []backtest.Trace
	}{
		"rows may come in any order": {[]string{usage}, []backtest.Trace{web}},
		"gzip is recognized":         {[]string{zipped.String()}, []backtest.Trace{web}},
		"a byte order mark and Windows' line ends do not matter": {
			[]string{"\xef\xbb\xbf" + strings.ReplaceAll(usage, "\n", "\r\n")}, []backtest.Trace{web},
		},
		"columns may come in any order, with others among them": {
			[]string{"node,Memory_Bytes, cpu_cores,timestamp,series\nn1,2097152,0.5,0,web\nn1,0,1,300,web\nn1,1048576,0.25,600,web\n"},
			[]backtest.Trace{web},
		},
		"times may be in words": {
			[]string{"series,timestamp,cpu_cores,memory_bytes\nweb,1970-01-01T00:00:00Z,0.5,2097152\nweb,1970-01-01T01:05:00+01:00,1,0\nweb,600,0.25,1048576\n"},
			[]backtest.Trace{web},
		},
		"memory may be missing": {
			[]string{"series,timestamp,cpu_cores\nweb,0,0.5\nweb,300,1\nweb,600,0.25\n"},
			changed(func(web *backtest.Trace) {
				web.HasMemory = false
				web.Samples = []backtest.Sample{{0, 500, 0}, {300, 1000, 0}, {600, 250, 0}}
			}),
		},
		"a table of containers has the interval and today's requests": {
			[]string{"series,source,step_s,init_cpu,init_mem\nweb,us,60,1.5,1000\nother,us,60,1,1\n", usage},
			changed(func(web *backtest.Trace) {
				web.Table, web.Step, web.Requests = "b.csv", time.Minute, quantity.Amounts{CPUMillis: 1500, MemoryBytes: 1000}
			}),
		},
		"the interval is the most frequent distance": {
			[]string{usage + "web,1200,1,1\nweb,5000,1,1\n"},
			changed(func(web *backtest.Trace) {
				web.Samples = append(append([]backtest.Sample(nil), web.Samples...), backtest.Sample{1200, 1000, 1}, backtest.Sample{5000, 1000, 1})
			}),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := read(tc.tables...)
			must.Succeed(t, err)
			assert.Equal(t, "traces", tc.want, got)
		})
	}
}

func TestReaderRefuses(t *testing.T) {
	const head = "series,timestamp,cpu_cores,memory_bytes\n"
	cases := map[string]struct {
		tables []string
		want   string
	}{
		"an empty file":       {[]string{""}, "a.csv: is empty: a header was expected, such as series,timestamp,cpu_cores,memory_bytes"},
		"a header alone":      {[]string{head}, "no usage to replay"},
		"a file without head": {[]string{"web,0,1,1\n"}, "a.csv: line 1: the column series is missing; usage has the header series,timestamp,cpu_cores,memory_bytes"},
		"no CPU":              {[]string{"series,timestamp\n"}, "a.csv: line 1: the column cpu_cores is missing; usage has the header series,timestamp,cpu_cores,memory_bytes"},
		"a column twice":      {[]string{"series,timestamp,cpu_cores,series\n"}, "a.csv: line 1: the column series appears twice"},
		"words for numbers":   {[]string{head + "web,0,1,1\nweb,300,much,1\n"}, `a.csv: line 3: cpu_cores is "much", which is not a number`},
		"NaN":                 {[]string{head + "web,0,1,NaN\n"}, `a.csv: line 2: memory_bytes is "NaN", which is not a number`},
		"infinity":            {[]string{head + "web,0,Inf,1\n"}, `a.csv: line 2: cpu_cores is Inf, which is not from 0 to 10000`},
		"less than nothing":   {[]string{head + "web,0,-0.1,1\n"}, `a.csv: line 2: cpu_cores is -0.1, which is not from 0 to 10000`},
		"CPU left out":        {[]string{head + "web,0,,1\n"}, `a.csv: line 2: cpu_cores is empty`},
		"a time in words":     {[]string{head + "web,noon,1,1\n"}, `a.csv: line 2: timestamp is "noon", which is neither whole seconds since 1970 nor a time such as 2026-01-01T00:05:00Z`},
		"milliseconds":        {[]string{head + "web,1767225600000,1,1\n"}, `a.csv: line 2: timestamp is 1767225600000, which is not between 1970 and 2200 (milliseconds?)`},
		"no name":             {[]string{head + ",0,1,1\n"}, `a.csv: line 2: series must be a name of 1 to 253 bytes`},
		"a column too few":    {[]string{head + "web,0,1\n"}, `a.csv: line 2: wrong number of fields`},
		"an open quote":       {[]string{head + "\"web,0,1,1\n"}, `a.csv: line 2: extraneous or missing " in quoted-field`},
		"broken gzip":         {[]string{"\x1f\x8bxxxxxxxxxx"}, "a.csv: unpacking: gzip: invalid header"},
		"a time twice":        {[]string{head + "web,0,1,1\nweb,300,1,1\n", head + "web,300,1,1\n"}, `series "web": there are two rows for the timestamp 300`},
		"one row":             {[]string{head + "web,0,1,1\n"}, `series "web": there is only one row; at least two are required`},
		"a row every week":    {[]string{head + "web,0,1,1\nweb,604800,1,1\n"}, `series "web": its rows are usually 168h0m0s apart; the longest supported interval is 24h0m0s`},
		"a container twice":   {[]string{"series,init_cpu\nweb,1\nweb,2\n"}, `a.csv: line 3: series "web" is described twice`},
		"half a second":       {[]string{"series,init_cpu,step_s\nweb,1,0.5\n"}, `a.csv: line 2: step_s is 0.5, which is not in whole seconds`},
		"containers, no CPU":  {[]string{"series,init_mem\nweb,1\n"}, `a.csv: line 1: the column timestamp is missing; usage has the header series,timestamp,cpu_cores,memory_bytes`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := read(tc.tables...)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
}

// FuzzReader: any bytes lead to an error, or to traces that can be replayed and that survive
// writing and reading.
func FuzzReader(f *testing.F) {
	f.Add([]byte("series,timestamp,cpu_cores,memory_bytes\nweb,600,0.25,1048576\nweb,0,0.5,2097152\nweb,300,1,0\n"))
	f.Add([]byte("series,init_cpu,init_mem,step_s\nweb,1,1,60\n"))
	f.Add([]byte("\xef\xbb\xbfseries,timestamp,cpu_cores\n\"a\nb\",1970-01-01T00:00:00Z,1e3\n\"a\nb\",7258118399,0\n"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, table []byte) {
		var r backtest.Reader
		if r.Read("fuzz", bytes.NewReader(table)) != nil {
			return
		}
		made, err := r.Traces()
		if err != nil {
			return
		}
		for _, trace := range made {
			if len(trace.Samples) < 2 || trace.Step < time.Second || trace.Step > 24*time.Hour {
				t.Fatalf("bad trace: %+v", trace)
			}
			for i, s := range trace.Samples {
				if s.CPUMillis < 0 || s.CPUMillis > quantity.MaxCPUMillis || s.MemoryBytes < 0 || s.MemoryBytes > quantity.MaxMemoryBytes || s.At < 0 {
					t.Fatalf("bad sample: %+v", s)
				}
				if i > 0 && trace.Samples[i-1].At >= s.At {
					t.Fatalf("not in order: %+v, %+v", trace.Samples[i-1], s)
				}
			}
		}
		outcomes := backtest.Run(made, []backtest.Rule{backtest.Static(), doubling()}, backtest.Options{Record: true})
		for i, trace := range made {
			if text := fmt.Sprint(backtest.Plots(trace, outcomes[i], time.Hour), outcomes[i][0].Measures); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
				t.Fatalf("a number that is none: %s", text)
			}
		}
	})
}
