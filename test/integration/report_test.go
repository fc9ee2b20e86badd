// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// reported are Deployments of a Git repository: one with a native sidecar and limits, and one that sets only CPU.
const reported = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers:
      - name: proxy
        image: example.com/proxy:1
        restartPolicy: Always
        resources: {requests: {cpu: 500m, memory: 512Mi}}
      - name: migrate
        image: example.com/migrate:1
        resources: {requests: {cpu: 50m}}
      containers:
      - name: app
        image: example.com/app:1
        resources: {requests: {cpu: "2", memory: 4Gi}, limits: {cpu: "4", memory: 4Gi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec:
      containers:
      - name: app
        image: example.com/api:1
        resources: {requests: {cpu: 20m}}
`

// reportedUsage answers like a Prometheus with the usage of the containers, by day and by night.
func reportedUsage(namespace string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("step") == "" { // for one moment: there are no metrics of OpenCost
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
			return
		}
		number := func(name string) int64 {
			v, _ := strconv.ParseFloat(r.FormValue(name), 64) // the plugin sends numbers
			return int64(v)
		}
		var results []string
		for i, of := range [][2]string{{"web", "app"}, {"web", "proxy"}, {"api", "app"}} {
			var points []string
			for at := number("start"); at <= number("end"); at += number("step") {
				value := float64(300<<20) * float64(i+1)
				if strings.Contains(r.FormValue("query"), "cpu") {
					value = 0.1 * float64(i+1) * (1.5 + math.Sin(float64(at)*2*math.Pi/86400))
				}
				points = append(points, fmt.Sprintf(`[%d,"%g"]`, at, value))
			}
			results = append(results, fmt.Sprintf(`{"metric":{"namespace":%q,"pod":%q,"container":%q},"values":[%s]}`,
				namespace, of[0]+"-5d4f8b9c4-bcdfg", of[1], strings.Join(points, ",")))
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(results, ","))
	}
}

// Patches of a report, applied by Kustomize or by server-side apply, leave no difference in the next report: by past usage
// and by what scalers recommend. Nothing but resources changes.
func TestPatchesOfAReportLeaveNoDifference(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "kubectl-vscaler")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", plugin, "./cmd/kubectl-vscaler")
	build.Dir = testkit.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v: %s", err, out)
	}
	for _, by := range []string{"usage", "scalers"} {
		for _, format := range []fleet.PatchFormat{fleet.Kustomize, fleet.SSA} {
			t.Run(by+" "+string(format), func(t *testing.T) {
				namespace, repository := env.Namespace(t), t.TempDir()
				run := func(command string, args ...string) (out []byte, errOut string) {
					t.Helper()
					var o, e bytes.Buffer
					c := exec.CommandContext(t.Context(), command, append([]string{"--kubeconfig=" + env.Kubeconfig()}, args...)...)
					c.Stdout, c.Stderr, c.Dir = &o, &e, repository
					if err := c.Run(); err != nil {
						t.Fatalf("%s %q: %v: %s%s", command, args, err, &o, &e)
					}
					return o.Bytes(), e.String()
				}
				write := func(file, text string) {
					t.Helper()
					path := filepath.Join(repository, file)
					must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o750))
					must.Succeed(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "NAMESPACE", namespace)), 0o600))
				}
				write("base/deployments.yaml", reported)
				write("base/kustomization.yaml", "resources: [deployments.yaml]\n")
				run(env.Kubectl(), "apply", "--server-side", "--field-manager=git", "-k", "base")

				flags := []string{"report", "-n=" + namespace, "-o=json", "--patches=" + string(format), "--patches-folder=requests"}
				if by == "usage" {
					server := httptest.NewServer(reportedUsage(namespace))
					t.Cleanup(server.Close)
					flags = append(flags, "--prometheus="+server.URL, "--until=2026-11-23T12:00:00Z")
				} else {
					recommend(t, namespace, "web", "app", "proxy")
					recommend(t, namespace, "api", "app")
				}
				report := func(patches string) (r fleet.Report) {
					t.Helper()
					out, errOut := run(plugin, flags...)
					if !strings.HasPrefix(errOut, "Wrote "+patches+" to requests. ") {
						t.Errorf("%s, want %s", errOut, patches)
					}
					if err := json.Unmarshal(out, &r); err != nil || len(r.Containers) != 3 {
						t.Fatalf("%v: %s", err, out)
					}
					return r
				}

				before := report("2 patches")
				if format == fleet.Kustomize {
					write("kustomization.yaml", "resources: [base]\ncomponents: [requests]\n")
					run(env.Kubectl(), "apply", "--server-side", "--field-manager=git", "-k", ".")
				} else {
					// The manifests of the repository own the resources so far.
					run(env.Kubectl(), "apply", "--server-side", "--field-manager=requests", "--force-conflicts", "-f", "requests")
				}
				after := report("0 patches")
				for i := range after.Containers {
					row := &after.Containers[i]
					if today := row.Rules[0].Requests(); today != row.Git() {
						t.Errorf("%s/%s requests %+v, and %+v is recommended", row.Workload, row.Name, today, row.Git())
					}
				}
				if was, is := before.Rules[len(before.Rules)-1].Sum, after.Rules[len(after.Rules)-1].Sum; *was != *is {
					t.Errorf("%+v was recommended, and then %+v", *was, *is)
				}
				out, _ := run(env.Kubectl(), "get", "deployment", "web", "-n="+namespace, "-o=jsonpath={.spec.replicas} {.spec.template.spec.initContainers[*].name} "+
					"{.spec.template.spec.initContainers[1].resources.requests.cpu} {.spec.template.spec.containers[*].image}")
				if string(out) != "2 proxy migrate 50m example.com/app:1" {
					t.Errorf("something else changed: %s", out)
				}
			})
		}
	}
}

// recommend creates a scaler in updateMode Recommend whose status recommends 300m and 700Mi for some containers.
func recommend(t *testing.T, namespace, deployment string, containers ...string) {
	t.Helper()
	s := testkit.Scaler(namespace, deployment, deployment)
	s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend
	env.Create(t, s)
	writeStatus(t, namespace, deployment, func(status *v1beta1.VerticalScalerStatus) {
		status.Annotations = map[string]string{v1beta1.ClaimAnnotation: namespace + "/" + deployment}
		cpu, memory := resource.MustParse("300m"), resource.MustParse("700Mi")
		status.Recommendation = &v1beta1.Recommendation{}
		for _, name := range containers {
			status.Recommendation.ContainerRecommendations = append(status.Recommendation.ContainerRecommendations, v1beta1.ContainerRecommendation{
				ContainerName: name, ObservedSeconds: 200_000, Target: v1beta1.Amounts{CPU: &cpu, Memory: &memory},
			})
		}
	})
}
