// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
)

const folder = "../../internal/backtest/testdata/traces"

// run runs the command, and tells what it wrote and the code that it would exit with.
func run(t *testing.T, stdin io.Reader, args ...string) (out, errOut string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	root, _ := newRoot(genericiooptions.IOStreams{In: stdin, Out: &o, ErrOut: &e})
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		return o.String(), err.Error(), cli.ExitCode(err)
	}
	return o.String(), e.String(), 0
}

// A series stands for a Deployment with one pod, whose limit equals its request.
func TestReportOfTables(t *testing.T) {
	withoutCluster(t)
	var report fleet.Report
	out, errOut, code := run(t, nil, "report", folder, "--profile=Balanced,Frugal,Safe,Calm", "-o=json")
	if err := json.Unmarshal([]byte(out), &report); code != 0 || errOut != "" || err != nil {
		t.Fatalf("exit code %d: %s: %v", code, errOut, err)
	}
	if len(report.Containers) != 5 || report.Deployments != 5 || report.ContainerDays != 30 {
		t.Errorf("%d containers, %d Deployments, %d days", len(report.Containers), report.Deployments, report.ContainerDays)
	}
	byRule := map[string]fleet.Total{}
	for _, total := range report.Rules {
		byRule[total.Rule] = total
	}
	if len(byRule) != 8 || byRule["frugal"].Cores > byRule["safe"].Cores || byRule["calm"].ResizesPerDay > byRule["balanced"].ResizesPerDay {
		t.Errorf("rules %+v", report.Rules)
	}
	leak := report.Containers[slices.IndexFunc(report.Containers, func(r fleet.Row) bool { return r.Name == "leak" })]
	if leak.Namespace != "" || leak.Deployment != "leak" || leak.Replicas != 1 || leak.Rules[0].OOMDays == 0 {
		t.Errorf("leak is %+v, and today %+v", leak.Container, leak.Rules[0])
	}
	if again, _, _ := run(t, nil, "report", folder, "--profile=Balanced,Frugal,Safe,Calm", "-o=json", "--workers=1"); again != out {
		t.Errorf("with one worker, the report is\n%s\nwant\n%s", again, out)
	}
}

// A table without requests, from standard input.
func TestReportOfStandardInput(t *testing.T) {
	usage, err := os.Open(filepath.Join(folder, "leak.csv"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = usage.Close() })
	out, errOut, code := run(t, usage, "report", "-", "--warm-up=0")
	if code != 0 || !strings.Contains(out, "\n            leak         leak        1      none -> ") {
		t.Errorf("exit code %d: %s\n%s", code, errOut, out)
	}
}

func TestReportWritesAPage(t *testing.T) {
	scratch := t.TempDir()
	path := filepath.Join(scratch, "page.html")
	out, errOut, code := run(t, nil, "report", folder, "-o=html", "--top=4", "--output-file="+path)
	if code != 0 || out != "" || errOut != "" {
		t.Fatalf("exit code %d: %q, %q", code, out, errOut)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(page), `<figure class="plot">`); got != 8 {
		t.Errorf("the page has %d plots, want 8", got)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 1 {
		t.Errorf("files are left over: %v, %v", left, err)
	}
}

// What is saved can be reported, and leads to the same recommendations.
func TestReportOfSavedUsage(t *testing.T) {
	newFleetCluster(t)
	saved := filepath.Join(t.TempDir(), "usage")
	first, _ := reportOf(t, "-A", "--prometheus="+serve(t, fleetPrometheus), "--save="+saved)
	withoutCluster(t)
	out, errOut, code := run(t, nil, "report", saved, "-o=json")
	var again fleet.Report
	if err := json.Unmarshal([]byte(out), &again); code != 0 || err != nil {
		t.Fatalf("exit code %d: %s: %v", code, errOut, err)
	}
	for _, row := range first.Containers {
		i := slices.IndexFunc(again.Containers, func(r fleet.Row) bool {
			return r.Namespace == row.Namespace && r.Deployment == row.Deployment && r.Name == row.Name
		})
		if i < 0 || again.Containers[i].Git() != row.Git() || again.Containers[i].Rules[0].Requests() != row.Rules[0].Requests() {
			t.Errorf("%s/%s is not the same: %+v", row.Namespace, row.Deployment, again.Containers)
		}
	}
}

// TestExamplesRun runs what help shows, from the folder that it is meant for.
func TestExamplesRun(t *testing.T) {
	root, _ := newRoot(genericiooptions.NewTestIOStreamsDiscard())
	command, _, err := root.Find([]string{"report"})
	if err != nil {
		t.Fatal(err)
	}
	newScaledCluster(t, scaledFleet)
	t.Chdir(filepath.Join("..", ".."))
	scratch := t.TempDir()
	prices := filepath.Join(scratch, "prices.yaml")
	if err := os.WriteFile(prices, []byte("cpuCoreHour: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address, token, ca := tokenServer(t)
	places := strings.NewReplacer("report.html", filepath.Join(scratch, "report.html"), "report.csv", filepath.Join(scratch, "report.csv"), "prices.yaml", prices,
		"folder requests", "folder "+filepath.Join(scratch, "requests"), "http://localhost:9090", serve(t, fleetPrometheus),
		"https://prometheus.example.com", address, "-file token", "-file "+token+" --prometheus-ca-file "+ca)
	ran := 0
	for line := range strings.Lines(command.Example) {
		_, args, isCommand := strings.Cut(strings.TrimSpace(line), cli.Name+" ")
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
	if ran < 6 {
		t.Errorf("only %d examples were run", ran)
	}
}
