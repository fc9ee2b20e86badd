// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
)

var scaledFleet = []deployed{
	{namespace: "bank", name: "api", cpu: "4", memory: "8Gi", replicas: 3},
	{namespace: "bank", name: "owned", cpu: "1", memory: "1Gi", replicas: 1, owners: []metav1.OwnerReference{controller("ScaledDeployment", "owned")}},
	{namespace: "shop", name: "applied", cpu: "1", memory: "1Gi", replicas: 1},
	{namespace: "shop", name: "idle", cpu: "1", memory: "1Gi"},
	{namespace: "shop", name: "lone", cpu: "1", memory: "1Gi", replicas: 1},
	{namespace: "shop", name: "moved", cpu: "1", memory: "1Gi", replicas: 1},
	{namespace: "shop", name: "new", cpu: "1", memory: "1Gi", replicas: 1},
	{namespace: "shop", name: "silent", cpu: "1", memory: "1Gi", replicas: 1},
	{namespace: "shop", name: "web", cpu: "250m", memory: "256Mi", limit: "512Mi", replicas: 2},
}

// recommending is a scaler in updateMode Recommend, whose status has a recommendation for the container app from two days.
func recommending(namespace, name, cpu, memory string) v1beta1.VerticalScaler {
	s := v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: name}}
	s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend
	s.Status.Annotations = map[string]string{v1beta1.ClaimAnnotation: namespace + "/" + name}
	rec := v1beta1.ContainerRecommendation{ContainerName: "app", ObservedSeconds: 172800, Target: amounts(cpu, memory)}
	s.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{ContainerName: "gone"}, rec}}
	return s
}

// newScaledCluster has a fleet with scalers in all states, two of them in each response.
func newScaledCluster(t *testing.T, all []deployed) *apiServer {
	t.Helper()
	scalers := []v1beta1.VerticalScaler{
		recommending("bank", "api", "300m", "500Mi"), recommending("bank", "owned", "300m", "500Mi"), recommending("shop", "applied", "300m", "500Mi"),
		recommending("shop", "gone", "300m", "500Mi"), recommending("shop", "idle", "300m", "500Mi"), recommending("shop", "moved", "300m", "500Mi"),
		recommending("shop", "new", "300m", "500Mi"), recommending("shop", "silent", "", ""), recommending("shop", "web", "600m", ""),
		recommending("shop", "web-2", "7", "7Gi"),
	}
	scalers[2].Spec.UpdatePolicy.UpdateMode = "" // the default, InPlace
	scalers[5].Spec.DeploymentName = "lone"      // the status still is about moved
	scalers[6].Status.Recommendation.ContainerRecommendations[1].ObservedSeconds = 86399
	scalers[9].Spec.DeploymentName, scalers[9].Status.Annotations = "web", nil                                  // stands back
	scalers[8].OwnerReferences = []metav1.OwnerReference{controller(v1beta1.ClusterScalingPolicyKind, "fleet")} // those of policies count, too
	s := newClusterOf(t, all)
	for i := range scalers {
		s.put(&scalers[i])
	}
	return s
}

// Without Prometheus, a report compares with what scalers recommend, and says what it does not know.
func TestReportOfScalers(t *testing.T) {
	newScaledCluster(t, scaledFleet)
	out, errOut, code := run(t, nil, "report", "-A")
	want := `3 containers of 3 Deployments, by what their scalers recommend

RULE     CORES     GIB       CPU VS TODAY   MEMORY VS TODAY   STARVED   OOM DAYS   RESIZES/DAY
today    13.50     25.50     0%             0%                unknown   unknown    unknown
scaler   2.400     2.453     -82.2%         -90.4%            unknown   unknown    unknown
vpa      unknown   unknown   unknown        unknown           unknown   unknown    unknown
krr      unknown   unknown   unknown        unknown           unknown   unknown    unknown
git      2.400     2.453     -82.2%         -90.4%            unknown   unknown    unknown

NAMESPACE   DEPLOYMENT   CONTAINER   PODS   CPU             MEMORY            VPA       KRR       GIT          STARVED   OOM DAYS
bank        api          app         3      4000m -> 300m   8192Mi -> 500Mi   unknown   unknown   300m 500Mi   unknown   unknown
bank        owned        app         1      1000m -> 300m   1024Mi -> 500Mi   unknown   unknown   300m 500Mi   unknown   unknown
shop        web          app         2      250m -> 600m    256Mi -> 256Mi    unknown   unknown   600m 256Mi   unknown   unknown

Unknown are the figures that follow from past usage, which --prometheus reads: those of other rules, and all harm

Skipped, because it has no replicas: shop/idle/app

Skipped, because its scaler applies what it recommends (updateMode InPlace): shop/applied/app

Skipped, because its scaler has observed less than 24h0m0s of usage: shop/new/app

Skipped, because its scaler recommends nothing for it yet, or does not size it: shop/silent/app

Skipped, because no scaler sizes its Deployment: shop/lone/app, shop/moved/app
`
	if diff := gocmp.Diff(want, out); code != 0 || errOut != "" || diff != "" {
		t.Errorf("exit code %d: %s (-want +got):\n%s", code, errOut, diff)
	}
	if again, _, _ := run(t, nil, "report", "-A"); again != out {
		t.Errorf("the same report again is:\n%s", again)
	}
	if out, errOut, code := run(t, nil, "report", "-n=bank", "-l=app=api"); code != 0 || !strings.HasPrefix(out, "1 container of 1 Deployment, ") {
		t.Errorf("of a selection: exit code %d: %s%s", code, errOut, out)
	}
}

// Figures that are not known are missing in files, and not 0.
func TestReportOfScalersInFiles(t *testing.T) {
	newScaledCluster(t, scaledFleet)
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(prices, []byte("currency: EUR\ncpuCoreHour: 0.1\nmemoryGiBHour: 0.01\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output := func(format string) string {
		t.Helper()
		out, errOut, code := run(t, nil, "report", "-A", "-o="+format, "--prices="+prices)
		if code != 0 || errOut != "" {
			t.Fatalf("%s: exit code %d: %s", format, code, errOut)
		}
		return out
	}

	text := output("json")
	var report fleet.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	for _, unknown := range []string{"starvedPercent", "oomDays", "resizesPerDay", `"from"`, "warmUpSeconds", `"days"`, "containerDays"} {
		if strings.Contains(text, unknown) {
			t.Errorf("there is a %s in:\n%s", unknown, text)
		}
	}
	api := report.Containers[0]
	if today, ours, vpa := api.Rules[0], api.Rules[1], api.Rules[2]; api.Deployment != "api" || api.ObservedSeconds != 172800 || vpa.Rule != "vpa" || vpa.Requested != nil ||
		*today.CostPerMonth != 1051.2 || *ours.CostPerMonth != 76.3934 {
		t.Errorf("the first container is %+v", api)
	}

	lines := strings.Split(output("csv"), "\n")
	if want := "bank,api,app,3,13.3535,,4000,8589934592,1051.2,,,,300,524288000,76.3934,,,,,,,,,,,,,,,,300,524288000,76.3934,,,"; len(lines) != 5 || lines[1] != want {
		t.Errorf("lines %q, want %s", lines, want)
	}

	page := output("html")
	for _, want := range []string{"<td>unknown</td>", "Unknown are the figures", "Cores requested; today 13.50; scaler 2.400; git 2.400", "Cost per month EUR"} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %q in:\n%s", want, page)
		}
	}
	for _, unwanted := range []string{"Time starved", "OOM days\"", "over time", "NaN", "In the pictures", "replayed"} {
		if strings.Contains(page, unwanted) {
			t.Errorf("%q is in:\n%s", unwanted, page)
		}
	}
}
