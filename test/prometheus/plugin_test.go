// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package prometheus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// The plugin reports the usage of a Deployment from a real Prometheus, and the saved
// usage with the same recommendations.
func TestThePluginReportsFromPrometheus(t *testing.T) {
	dir := t.TempDir()
	plugin := filepath.Join(dir, "kubectl-vscaler")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", plugin, "./cmd/kubectl-vscaler")
	build.Dir = testkit.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v: %s", err, out)
	}
	w := newFixture(t)
	way := newWay(t, w.namespace, nil)
	w.scale()
	reportWith := func(args ...string) (string, string) {
		t.Helper()
		var out, errOut bytes.Buffer
		command := exec.CommandContext(t.Context(), plugin, append([]string{"report", "--kubeconfig=" + env.Kubeconfig(), "--namespace=" + w.namespace, "-o=json"}, args...)...)
		command.Stdout, command.Stderr = &out, &errOut
		_ = command.Run() // the caller checks both outputs
		return out.String(), errOut.String()
	}
	only := func(out, errOut string) (row fleet.Row) {
		t.Helper()
		var report fleet.Report
		if err := json.Unmarshal([]byte(out), &report); err != nil || errOut != "" || len(report.Containers) != 1 {
			t.Fatalf("%v: %s%s", err, out, errOut)
		}
		return report.Containers[0]
	}

	saved := filepath.Join(dir, "usage")
	row := only(reportWith("--prometheus="+way.URL, "--deployment=web", "--save="+saved))
	if row.Namespace != w.namespace || row.Workload != "web" || row.Name != "app" {
		t.Fatalf("container %+v", row.Container)
	}
	for _, r := range row.Rules {
		t.Logf("%s requests %dm; starved %g%% of the time", r.Rule, r.CPUMillicores, r.StarvedPercent)
		if r.Rule == fleet.Today && (r.CPUMillicores != 100 || r.StarvedPercent < 99) {
			t.Errorf("today's requests are not those of the pods: %+v", r)
		}
		if r.Rule == "balanced" && (r.CPUMillicores < 200 || r.CPUMillicores > 300) {
			t.Errorf("what is recommended does not rest on 0.2 cores: %+v", r)
		}
	}
	table, err := os.ReadFile(filepath.Join(saved, w.namespace+"_web_app.csv"))
	must.Succeed(t, err)
	if n := bytes.Count(table, []byte("\n")) - 1; n < days*288-3 || n > days*288+3 {
		t.Errorf("%d intervals of five minutes in %d days", n, days)
	}
	if n := bytes.Count(table, fmt.Appendf(nil, ",%d\n", 900*mebi)); n != 1 {
		t.Errorf("the peak of one minute is in %d intervals", n)
	}
	if again := only(reportWith(saved)); again.Git() != row.Git() {
		t.Errorf("what was saved leads to %+v, want %+v", again.Git(), row.Git())
	}

	for args, want := range map[string]string{
		"--deployment=none":                          "no workload selected: there is none in namespace " + w.namespace + " with the name none",
		"--deployment=web --prometheus-label=x=none": "but not enough of the 1 containers of the selected workloads since ",
	} {
		if out, errOut := reportWith(append(strings.Fields(args), "--prometheus="+way.URL)...); out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: %s%s\nwant %s", args, out, errOut, want)
		}
	}
}
