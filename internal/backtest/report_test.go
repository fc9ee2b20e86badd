// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// evaluate makes a report about two days of two containers, one of them with a name that
// wants to be more, and one that is too short to be measured.
func evaluate(t *testing.T) *backtest.Report {
	t.Helper()
	made := []backtest.Trace{
		traces.One("diurnal", 48*time.Hour, 30*time.Minute),
		traces.One("leak", 48*time.Hour, 30*time.Minute),
		traces.One("spike", 6*time.Hour, 30*time.Minute),
	}
	made[1].Name = "leak<script>alert(\"1\")</script>\x1b[31m"
	made[1].Requests.MemoryBytes = 300 * mebi
	report, err := backtest.Evaluate(made, []backtest.Rule{doubling(), vpa.Rule(), backtest.Static()}, []string{"static", "vpa"},
		backtest.Options{WarmUp: 12 * time.Hour, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestReportFormats(t *testing.T) {
	report := evaluate(t)
	for name, write := range map[string]func(io.Writer) error{
		"report.txt":      func(w io.Writer) error { return report.WriteTable(w, false) },
		"report-wide.txt": func(w io.Writer) error { return report.WriteTable(w, true) },
		"report.json":     report.WriteJSON,
		"report.yaml":     report.WriteYAML,
		"report.html":     report.WriteHTML,
		"picture.svg":     func(w io.Writer) error { return report.WritePicture(w, report.Containers[1].Name) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// TestThePageNeedsNothingElse: a page that is mailed, or opened without a network, is
// all there.
func TestThePageNeedsNothingElse(t *testing.T) {
	var b bytes.Buffer
	if err := evaluate(t).WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if bad := regexp.MustCompile(`(?i)<script|<link|<iframe|<img|<object|src=|href=|url\(|@import|https?://`).FindString(page); bad != "" {
		t.Errorf("the page has %q", bad)
	}
	plots := regexp.MustCompile(`(?s)<svg viewBox.*?</svg>`).FindAllString(page, -1)
	if len(plots) != 4 {
		t.Errorf("there are %d plots, want CPU and memory of two containers", len(plots))
	}
	for i, plot := range plots {
		decoder := xml.NewDecoder(strings.NewReader(plot))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("plot %d: %v", i, err)
				break
			}
		}
		if strings.Contains(plot, "NaN") || strings.Contains(plot, "Inf") {
			t.Errorf("plot %d has a number that is none", i)
		}
	}
}

// TestThePageStaysSmall: a month with a sample a minute is not in the page sample by
// sample, and neither are a hundred resizes a day.
func TestThePageStaysSmall(t *testing.T) {
	restless := rule(nil)
	restless.New = func(backtest.Container) backtest.Policy { return &wobbling{} }
	report, err := backtest.Evaluate([]backtest.Trace{traces.One("diurnal", 30*24*time.Hour, time.Minute)},
		[]backtest.Rule{restless}, nil, backtest.Options{Record: true})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := report.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 100<<10 {
		t.Errorf("the page has %d KiB", b.Len()>>10)
	}
}

func TestTooShort(t *testing.T) {
	_, err := backtest.Evaluate([]backtest.Trace{traces.One("spike", time.Hour, time.Minute)}, []backtest.Rule{backtest.Static()}, nil,
		backtest.Options{WarmUp: time.Hour})
	if want := "no container has usage for longer than the warm-up of 1h0m0s"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A name is the user's, and XML allows no control characters.
func TestThePictureIsAnImage(t *testing.T) {
	report := evaluate(t)
	for _, c := range report.Containers {
		var b bytes.Buffer
		if err := report.WritePicture(&b, c.Name); err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(b.Bytes(), new(struct{})); err != nil {
			t.Errorf("%q: %v", c.Name, err)
		}
	}
	if err := report.WritePicture(io.Discard, "spike"); err == nil {
		t.Error("a container that was not replayed has a picture")
	}
}
