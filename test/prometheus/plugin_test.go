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

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// The plugin replays the usage of a Deployment from a real Prometheus, and replays the
// saved usage with the same result.
func TestThePluginReplaysFromPrometheus(t *testing.T) {
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
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfigOf(w.namespace), kubeconfig); err != nil {
		t.Fatal(err)
	}
	backtestWith := func(args ...string) (string, string) {
		t.Helper()
		var out, errOut bytes.Buffer
		command := exec.CommandContext(t.Context(), plugin, append([]string{"backtest", "--kubeconfig=" + kubeconfig}, args...)...)
		command.Stdout, command.Stderr = &out, &errOut
		_ = command.Run() // the caller checks both outputs
		return out.String(), errOut.String()
	}

	saved := filepath.Join(dir, "usage")
	out, errOut := backtestWith("--prometheus="+way.URL, "--scaler=web", "--save="+saved, "-o=json")
	var report backtest.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || errOut != "" {
		t.Fatalf("%v: %s", err, errOut)
	}
	if len(report.Containers) != 1 || report.Containers[0].Name != w.namespace+"/web/app" {
		t.Fatalf("containers %+v", report.Containers)
	}
	for _, p := range report.Containers[0].Policies {
		cores := p.CPU.RequestedCores
		t.Logf("%s requests %g cores; starved %g%% of the time", p.Name, cores, p.CPU.StarvedPercent)
		if p.Name == "static" && (cores != 0.1 || p.CPU.StarvedPercent < 99) {
			t.Errorf("today's requests are not those of the pods: %+v", p)
		}
		if p.Name == "verticalscaler" && (cores < 0.2 || cores > 0.3) {
			t.Errorf("what is recommended does not rest on 0.2 cores: %+v", p)
		}
	}
	table, err := os.ReadFile(filepath.Join(saved, w.namespace+"_web.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(table, []byte("\n")) - 1; n < days*288-3 || n > days*288+3 {
		t.Errorf("%d intervals of five minutes in %d days", n, days)
	}
	if n := bytes.Count(table, fmt.Appendf(nil, ",%d\n", 900*mebi)); n != 1 {
		t.Errorf("the peak of one minute is in %d intervals", n)
	}
	if n := way.asked(); n != 64 {
		t.Errorf("%d queries for 8 days, want 64", n)
	}
	again, errOut := backtestWith(saved, "-o=json")
	if again != out {
		t.Errorf("what was saved leads to another report: %s\n%s\nwant\n%s", errOut, again, out)
	}

	for args, want := range map[string]string{
		"--deployment=web-db --requests=app=1/1Gi":   "knows no usage of Deployment " + w.namespace + "/web-db since ",
		"--deployment=none":                          `reading Deployment ` + w.namespace + `/none: deployments.apps "none" not found`,
		"--deployment=web --prometheus-label=x=none": `container!="POD",x="none"}[5m]))`,
	} {
		if out, errOut := backtestWith(append(strings.Fields(args), "--prometheus="+way.URL)...); out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%s: %s%s\nwant %s", args, out, errOut, want)
		}
	}
}

// kubeconfigOf returns an administrator's kubeconfig.
func kubeconfigOf(namespace string) clientcmdapi.Config {
	c := env.Config
	return clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {Server: c.Host, CertificateAuthority: c.CAFile, CertificateAuthorityData: c.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"test": {
			ClientCertificate: c.CertFile, ClientCertificateData: c.CertData, ClientKey: c.KeyFile, ClientKeyData: c.KeyData, Token: c.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test", Namespace: namespace}},
		CurrentContext: "test",
	}
}
