// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

// Package report tests the plugin's report with a real Prometheus that has the usage of many containers.
package report

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// build builds the plugin.
func build(t testing.TB) string {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), "kubectl-vscaler")
	command := exec.Command("go", "build", "-buildvcs=false", "-o", plugin, "./cmd/kubectl-vscaler")
	command.Dir = testkit.Root()
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v: %s", err, out)
	}
	return plugin
}

func run(t testing.TB, plugin string, args ...string) []byte {
	t.Helper()
	var out, errOut bytes.Buffer
	command := exec.CommandContext(t.Context(), plugin, args...)
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil || errOut.Len() > 0 {
		t.Fatalf("%v: %v: %s", args, err, &errOut)
	}
	return out.Bytes()
}

// A report has the containers of all Deployments and is the same again. Its figures are those of a report of a
// single Deployment, which asks Prometheus for that Deployment alone.
func TestAReportAgreesWithThatOfADeployment(t *testing.T) {
	const deployments, days = 150, 4
	plugin, prometheus := build(t), start(t, deployments, days)
	server, end := "--prometheus="+prometheus, "--until="+until.Format(time.RFC3339)
	flags := []string{"report", "-A", "--from-metrics", server, "--since=96h", end, "-o=json"}
	text := run(t, plugin, flags...)
	if again := run(t, plugin, flags...); !bytes.Equal(text, again) {
		t.Error("the same report again differs")
	}
	var report fleet.Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Containers) != deployments || report.Deployments != deployments || len(report.Skipped) > 0 {
		t.Fatalf("%d containers of %d Deployments, and %d are skipped", len(report.Containers), report.Deployments, len(report.Skipped))
	}
	for i := range 8 {
		name := nameOf(i * deployments / 8)
		i := slices.IndexFunc(report.Containers, func(row fleet.Row) bool { return row.Deployment == name })
		row := report.Containers[i]
		var single fleet.Report
		text := run(t, plugin, append(slices.Clone(flags), "--deployment="+name)...)
		if err := json.Unmarshal(text, &single); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]fleet.Row{row}, single.Containers, cmpopts.IgnoreUnexported(fleet.Row{})); diff != "" {
			t.Errorf("%s (-of all +alone):\n%s", name, diff)
		}
	}
}
