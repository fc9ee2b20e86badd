// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
)

const folder = "../../internal/backtest/testdata/traces"

// run runs the command, and tells what it wrote and the code that it would exit with.
func run(t *testing.T, stdin io.Reader, args ...string) (out, errOut string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	root := newRoot(genericiooptions.IOStreams{In: stdin, Out: &o, ErrOut: &e})
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		return o.String(), err.Error(), exitCode(err)
	}
	return o.String(), e.String(), 0
}

func TestBacktest(t *testing.T) {
	out, errOut, code := run(t, nil, "backtest", folder)
	if code != 0 || errOut != "" {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	for _, want := range []string{"5 containers and 30 container-days of usage, after a warm-up of 3 days\n", "\nverticalscaler ", "\nvpa ", "\nstatic "} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
}

func TestBacktestFormats(t *testing.T) {
	var fromJSON, fromYAML backtest.Report
	out, _, code := run(t, nil, "backtest", folder, "-o", "json", "--policy", "static,vpa")
	if err := json.Unmarshal([]byte(out), &fromJSON); code != 0 || err != nil {
		t.Errorf("JSON: %d, %v", code, err)
	}
	out, _, code = run(t, nil, "backtest", folder, "-o", "yaml", "--policy=static", "--policy=vpa")
	if err := yaml.UnmarshalStrict([]byte(out), &fromYAML); code != 0 || err != nil {
		t.Errorf("YAML: %d, %v", code, err)
	}
	for _, report := range []backtest.Report{fromJSON, fromYAML} {
		if len(report.Policies) != 2 || report.Policies[0].Name != "static" || len(report.Containers) != 5 {
			t.Errorf("the report is not complete: %+v", report.Policies)
		}
	}
}

func TestBacktestWritesAFile(t *testing.T) {
	scratch := t.TempDir()
	path := filepath.Join(scratch, "page.html")
	out, errOut, code := run(t, nil, "backtest", folder, "-o", "html", "--output-file", path)
	if code != 0 || out != "" || errOut != "" {
		t.Fatalf("exit code %d: %q, %q", code, out, errOut)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(page), "<svg viewBox"); got != 10 {
		t.Errorf("the page has %d plots, want 10", got)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 1 {
		t.Errorf("files are left over: %v, %v", left, err)
	}
}

func TestBacktestReadsStandardInput(t *testing.T) {
	usage, err := os.Open(filepath.Join(folder, "leak.csv"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = usage.Close() })
	out, errOut, code := run(t, usage, "backtest", "-", "--cpu-request=500m", "--memory-request=512Mi", "--policy=static", "-o", "wide", "--warm-up=0")
	if code != 0 || !strings.Contains(out, "leak        static   0.500") {
		t.Errorf("exit code %d: %s\n%s", code, errOut, out)
	}
}

// TestBacktestProfiles: each reserves more and resizes less, or the other way round.
func TestBacktestProfiles(t *testing.T) {
	ours := map[string]backtest.PolicyReport{}
	for _, name := range profileNames() {
		var report backtest.Report
		out, errOut, code := run(t, nil, "backtest", folder, "-o", "json", "--policy", "static,verticalscaler", "--profile", name)
		if err := json.Unmarshal([]byte(out), &report); code != 0 || err != nil {
			t.Fatalf("%s: %d, %s, %v", name, code, errOut, err)
		}
		ours[name] = report.Policies[1]
	}
	balanced := ours["Balanced"]
	if balanced.About != engine.Rule().About || ours["Safe"].About == balanced.About {
		t.Errorf("the profiles are called %q and %q", balanced.About, ours["Safe"].About)
	}
	if f, s := ours["Frugal"].CPU.RequestedCores, ours["Safe"].CPU.RequestedCores; f > s {
		t.Errorf("Frugal reserves %.3f cores, Safe %.3f", f, s)
	}
	if c, b := ours["Calm"].ResizesPerDay, balanced.ResizesPerDay; c > b {
		t.Errorf("Calm resizes %.2f times a day, Balanced %.2f", c, b)
	}
}

func TestBacktestRefuses(t *testing.T) {
	leak := filepath.Join(folder, "leak.csv")
	scratch := t.TempDir()
	cases := map[string]struct {
		args []string
		code int
		want string
	}{
		"nothing to replay":     {[]string{"backtest"}, 2, "no usage to replay: name files or a folder, or - for standard input, or use --prometheus"},
		"a file that is not":    {[]string{"backtest", "none.csv"}, 1, "stat none.csv: no such file or directory"},
		"a folder without any":  {[]string{"backtest", scratch}, 1, "read " + scratch + ": the folder has no .csv or .csv.gz files"},
		"unknown requests":      {[]string{"backtest", leak}, 1, `series "leak": the current requests are not known: set --cpu-request and --memory-request, or add a table with the header series,init_cpu,init_mem`},
		"an unknown policy":     {[]string{"backtest", leak, "--policy=best"}, 2, `--policy "best" is not one of verticalscaler, vpa, static`},
		"a policy twice":        {[]string{"backtest", leak, "--policy=vpa,vpa"}, 2, "--policy names vpa twice"},
		"an unknown profile":    {[]string{"backtest", leak, "--profile=calm"}, 2, `--profile "calm" is not one of Balanced, Frugal, Safe, Calm`},
		"no policy":             {[]string{"backtest", leak, "--policy="}, 2, `--policy is empty`},
		"an unknown format":     {[]string{"backtest", leak, "-o", "xml"}, 2, `--output "xml" is not one of table, wide, json, yaml, html`},
		"an unknown flag":       {[]string{"backtest", leak, "--best"}, 2, `unknown flag: --best: see "kubectl vscaler backtest --help"`},
		"a negative warm-up":    {[]string{"backtest", leak, "--warm-up=-1h"}, 2, "--warm-up must be from 0 to 8784h0m0s"},
		"a long warm-up":        {[]string{"backtest", folder, "--warm-up=240h"}, 1, "no container has usage for longer than the warm-up of 240h0m0s: use --warm-up"},
		"no quantity":           {[]string{"backtest", leak, "--cpu-request=much"}, 2, `--cpu-request "much": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		"a request of nothing":  {[]string{"backtest", leak, "--memory-request=0"}, 2, "--memory-request must be more than 0"},
		"standard input twice":  {[]string{"backtest", "-", "-"}, 2, "standard input can be read only once"},
		"an unknown subcommand": {[]string{"forecast"}, 2, `unknown command "forecast": see "kubectl vscaler --help"`},
		"a file that cannot be": {[]string{"backtest", folder, "--policy=static", "--output-file", filepath.Join(scratch, "no", "file")}, 1, "no such file or directory"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out, errOut, code := run(t, strings.NewReader(""), tc.args...)
			if code != tc.code || !strings.Contains(errOut, tc.want) {
				t.Errorf("exit code %d, want %d: %s\nwant %s", code, tc.code, errOut, tc.want)
			}
			if out != "" {
				t.Errorf("there was output: %s", out)
			}
		})
	}
}

// TestExamplesRun runs what help shows, from the folder that it is meant for.
func TestExamplesRun(t *testing.T) {
	root := newRoot(genericiooptions.NewTestIOStreamsDiscard())
	command, _, err := root.Find([]string{"backtest"})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join("..", ".."))
	t.Setenv("KUBECONFIG", newKubeconfig(t))
	scratch := t.TempDir()
	address, token, ca := tokenServer(t)
	places := strings.NewReplacer("backtest.html", filepath.Join(scratch, "backtest.html"), "--save usage", "--save "+filepath.Join(scratch, "usage"),
		"http://localhost:9090", serve(t, answer), "https://prometheus.example.com", address, "-file token", "-file "+token, "-file ca.crt", "-file "+ca)
	ran := 0
	for line := range strings.Lines(command.Example) {
		_, args, isCommand := strings.Cut(strings.TrimSpace(line), commandName+" ")
		if !isCommand || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		usage, err := os.Open("internal/backtest/testdata/traces/leak.csv")
		if err != nil {
			t.Fatal(err)
		}
		args = places.Replace(args)
		if _, errOut, code := run(t, usage, strings.Fields(args)...); code != 0 {
			t.Errorf("%s: exit code %d: %s", args, code, errOut)
		}
		ran++
		_ = usage.Close()
	}
	if ran < 7 {
		t.Errorf("only %d examples were run", ran)
	}
}

func TestCompletion(t *testing.T) {
	for want, args := range map[string][]string{
		"verticalscaler\nvpa\nstatic\n:4\n":   {"__complete", "backtest", "--policy", ""},
		"Balanced\nFrugal\nSafe\nCalm\n:4\n":  {"__complete", "backtest", "--profile", ""},
		"table\nwide\njson\nyaml\nhtml\n:4\n": {"__complete", "backtest", "-o", ""},
		"csv\ngz\n:8\n":                       {"__complete", "backtest", ""},
	} {
		if out, _, _ := run(t, nil, args...); out != want {
			t.Errorf("%v completes to %q, want %q", args, out, want)
		}
	}
	if out, _, code := run(t, nil, "completion", "bash"); code != 0 || !strings.Contains(out, "vscaler") {
		t.Error("there is no completion for bash")
	}
}

// TestProgress shows what a terminal would get; anything else gets nothing.
func TestProgress(t *testing.T) {
	var screen bytes.Buffer
	p := &progress{to: &screen}
	p.say("Reading usage")
	p.say("Replaying: 1 of 3")
	p.say("Done")
	p.clear()
	p.clear()
	want := "\rReading usage" + "\rReplaying: 1 of 3" + "\rDone             " + "\r    \r"
	if got := screen.String(); got != want {
		t.Errorf("the screen got %q, want %q", got, want)
	}
	screen.Reset()
	quiet := newProgress(&screen)
	quiet.say("Reading usage")
	quiet.clear()
	if screen.Len() > 0 {
		t.Errorf("what is no terminal got %q", screen.String())
	}
}
