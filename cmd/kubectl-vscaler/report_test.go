// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// deployed is a Deployment of the fleet in these tests, with one container.
type deployed struct {
	namespace, name string
	cores           float64 // used by day, by a pod; at night a tenth of it
	bytes           float64
	cpu, memory     string // requested
	limit           string // of memory
	replicas        int32
	noUsage         bool
	owners          []metav1.OwnerReference
	kind            string // empty for a Deployment
}

func (d deployed) pod(i int) string {
	switch d.kind {
	case "StatefulSet":
		return fmt.Sprintf("%s-%d", d.name, i)
	case "DaemonSet":
		return fmt.Sprintf("%s-bcdf%d", d.name, i+2)
	case "CronJob":
		return fmt.Sprintf("%s-29384760-bcdf%d", d.name, i+2)
	}
	return fmt.Sprintf("%s-5d4f8b9c4-bcdf%d", d.name, i+2)
}

var deployedFleet = []deployed{
	{namespace: "bank", name: "api", cores: 0.2, bytes: 300 * mebi, cpu: "4", memory: "8Gi", replicas: 3},
	{namespace: "shop", name: "idle", cpu: "1", memory: "1Gi"},
	{namespace: "shop", name: "late", cpu: "1", memory: "1Gi", replicas: 1, noUsage: true},
	{namespace: "shop", name: "web", cores: 0.5, bytes: 200 * mebi, cpu: "250m", memory: "256Mi", limit: "512Mi", replicas: 2},
	{namespace: "shop", name: "web-with-a-name-that-is-too-long-to-be-found-in-pods", cores: 1, bytes: mebi, cpu: "1", memory: "1Gi", replicas: 1},
}

var namespacesAsked = regexp.MustCompile(`namespace=~?"([^"]*)"`)

// fleetPrometheus answers like a Prometheus with the usage of the fleet, and with its kube-state-metrics.
func fleetPrometheus(w http.ResponseWriter, r *http.Request) {
	prometheusOf(w, r, deployedFleet)
}

// prometheusOf is fleetPrometheus of another fleet. It has no metrics of OpenCost.
func prometheusOf(w http.ResponseWriter, r *http.Request, fleet []deployed) {
	query, results := r.FormValue("query"), []string{}
	isAsked := func(d deployed) bool {
		asked := namespacesAsked.FindStringSubmatch(query)
		return asked == nil || strings.Contains("|"+asked[1]+"|", "|"+d.namespace+"|")
	}
	if !strings.HasSuffix(r.URL.Path, "query_range") {
		for _, d := range fleet {
			add := func(value any, labels ...string) {
				labels = append(labels, fmt.Sprintf(`"namespace":%q`, d.namespace))
				results = append(results, fmt.Sprintf(`{"metric":{%s},"value":[0,"%v"]}`, strings.Join(labels, ","), value))
			}
			app := []string{fmt.Sprintf(`"pod":%q`, d.pod(0)), `"container":"app"`}
			switch {
			case !isAsked(d), strings.Contains(query, "hourly_cost"):
			case strings.Contains(query, "kube_deployment_spec_replicas"):
				add(d.replicas, fmt.Sprintf(`"deployment":%q`, d.name))
			case strings.Contains(query, "kube_pod_container_resource_requests"):
				cpu, memory := resource.MustParse(d.cpu), resource.MustParse(d.memory)
				add(cpu.AsApproximateFloat64(), append(app, `"resource":"cpu"`)...)
				add(memory.AsApproximateFloat64(), append(app, `"resource":"memory"`)...)
			case strings.Contains(query, "kube_pod_container_resource_limits"):
				if d.limit != "" {
					limit := resource.MustParse(d.limit)
					add(limit.AsApproximateFloat64(), append(app, `"resource":"memory"`)...)
				}
			default: // kube_pod_container_info, and whether there is any metric
				add(1, app...)
			}
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(results, ","))
		return
	}
	for _, d := range fleet {
		if !isAsked(d) || d.noUsage {
			continue
		}
		for i := range int(d.replicas) {
			var points []string
			for at := number(r, "start"); at <= number(r, "end"); at += number(r, "step") {
				if d.kind == "CronJob" && at/3600%24 != 3 {
					continue
				}
				value := d.bytes
				if strings.Contains(query, "cpu") {
					if value = d.cores; at/3600%24 < 6 {
						value /= 10
					}
					value *= 1 + 0.1*math.Sin(float64(at))
				}
				points = append(points, fmt.Sprintf(`[%d,"%g"]`, at, value/float64(i+1)))
			}
			results = append(results, fmt.Sprintf(`{"metric":{"namespace":%q,"pod":%q,"container":"app"},"values":[%s]}`, d.namespace, d.pod(i), strings.Join(points, ",")))
		}
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(results, ","))
}

// newFleetCluster has the same fleet. The pods of web request more than its template.
func newFleetCluster(t *testing.T) *apiServer {
	t.Helper()
	return newClusterOf(t, deployedFleet)
}

// newClusterOf has Deployments, with two objects in each response. Of web, a pod is running and one has failed.
func newClusterOf(t *testing.T, all []deployed) *apiServer {
	t.Helper()
	s := startServer(t)
	s.pageSize = 2
	for _, d := range all {
		cpu := d.cpu
		if d.name == "web" {
			cpu = "100m"
			failed := newPod(d.namespace, d.pod(1), d.name, "9", d.memory, d.limit)
			failed.Status.Phase = corev1.PodFailed
			s.put(newPod(d.namespace, d.pod(0), d.name, d.cpu, d.memory, d.limit), failed)
		}
		deployment := newDeployment(d.namespace, d.name, d.replicas, cpu, d.memory, d.limit)
		deployment.OwnerReferences = d.owners
		s.put(deployment)
	}
	return s
}

const reportUntil = "--until=2026-11-23T12:00:00Z"

func reportOf(t *testing.T, args ...string) (report fleet.Report, text string) {
	t.Helper()
	out := printed(t, append([]string{"report", reportUntil, "-o=json"}, args...)...)
	must.Succeed(t, json.Unmarshal([]byte(out), &report))
	return report, out
}

// The report is the same from the cluster and from kube-state-metrics, with any number of workers.
func TestReport(t *testing.T) {
	newFleetCluster(t)
	prometheus := "--prometheus=" + serve(t, fleetPrometheus)
	report, text := reportOf(t, prometheus, "-A")
	for name, args := range map[string][]string{"again": {"-A"}, "with one worker": {"-A", "--workers=1"}, "from metrics": {"-A", "--from-metrics"}} {
		if _, again := reportOf(t, append(args, prometheus)...); again != text {
			t.Errorf("%s, the report differs:\n%s\nwant\n%s", name, again, text)
		}
	}

	api, web := report.Containers[0], report.Containers[1]
	if len(report.Containers) != 2 || api.Workload != "api" || web.Workload != "web" || web.Replicas != 2 {
		t.Fatalf("containers %+v", report.Containers)
	}
	if today := web.Rules[0].Requests(); today != (quantity.Amounts{CPUMillis: 250, MemoryBytes: 256 * mebi}) || web.Rules[0].StarvedPercent < 70 {
		t.Errorf("today is %+v", web.Rules[0])
	}
	var names []string
	for i, total := range report.Rules {
		names = append(names, total.Rule)
		if i > 0 && (total.Cores > 3 || total.GiB > 3) {
			t.Errorf("%+v is too much", total)
		}
	}
	if got := strings.Join(names, " "); got != "today balanced vpa krr git" || report.Rules[0].Cores != 12.5 || report.Rules[0].GiB != 24.5 {
		t.Errorf("rules %s, of which today %+v", got, report.Rules[0])
	}
	var skipped []string
	for _, s := range report.Skipped {
		skipped = append(skipped, s.Workload[:4]+": "+s.Why)
	}
	want := "idle: it has no replicas; late: Prometheus knows no usage of its pods; " +
		"web-: the name of the Deployment is longer than 46 characters, so its pods' names do not contain it in full"
	if got := strings.Join(skipped, "; "); got != want {
		t.Errorf("skipped %s", got)
	}
}

// Other kinds are read, too: a StatefulSet, a DaemonSet with two nodes, a CronJob that runs for an hour a day, and a Rollout.
func TestReportOfOtherKinds(t *testing.T) {
	all := []deployed{
		{namespace: "shop", name: "db", kind: "StatefulSet", cores: 0.5, bytes: 200 * mebi, cpu: "2", memory: "4Gi", replicas: 2},
		{namespace: "shop", name: "agent", kind: "DaemonSet", cores: 0.1, bytes: 50 * mebi, cpu: "1", memory: "1Gi", replicas: 2},
		{namespace: "shop", name: "nightly", kind: "CronJob", cores: 1, bytes: 300 * mebi, cpu: "4", memory: "8Gi", replicas: 1},
		{namespace: "shop", name: "canary", kind: "Rollout", cores: 0.2, bytes: 100 * mebi, cpu: "1", memory: "1Gi", replicas: 3},
	}
	s := startServer(t)
	for _, d := range all {
		about := metav1.ObjectMeta{Namespace: "shop", Name: d.name, Labels: map[string]string{"team": "data"}}
		template := newDeployment("shop", d.name, d.replicas, d.cpu, d.memory, "").Spec.Template
		switch d.kind {
		case "StatefulSet":
			template.Spec.Containers[0].Args = []string{"-Xmx3g"}
			pod := newPod("shop", "db-0", "db", "3", "4Gi", "")
			pod.OwnerReferences = []metav1.OwnerReference{controller("StatefulSet", "db")}
			s.put(&appsv1.StatefulSet{ObjectMeta: about, Spec: appsv1.StatefulSetSpec{Replicas: &d.replicas, Template: template}}, pod)
		case "DaemonSet":
			s.put(&appsv1.DaemonSet{ObjectMeta: about, Spec: appsv1.DaemonSetSpec{Template: template}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: d.replicas}})
		case "CronJob":
			s.put(&batchv1.CronJob{ObjectMeta: about, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}})
		}
	}
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for metric, price := range map[string]string{"node_cpu_hourly_cost": "0.03", "node_ram_hourly_cost": "0.004"} {
			if strings.Contains(r.FormValue("query"), metric) {
				fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,%q]}]}}`, price)
				return
			}
		}
		prometheusOf(w, r, all)
	})
	rows := func(args ...string) (fleet.Report, map[string]fleet.Row) {
		report, _ := reportOf(t, append([]string{"--prometheus=" + address}, args...)...)
		byKind := map[string]fleet.Row{}
		for _, row := range report.Containers {
			byKind[row.Kind] = row
		}
		return report, byKind
	}
	// The API server does not know Rollouts.
	if report, byKind := rows(); len(byKind) != 3 || report.PricesFrom != "OpenCost's metrics, the mean of all nodes" {
		t.Errorf("without Rollouts: %+v", report)
	}
	s.answer("/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts", json.RawMessage(`{"apiVersion":"argoproj.io/v1alpha1","kind":"RolloutList","items":[
		{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","metadata":{"namespace":"shop","name":"canary"},"spec":{"replicas":3,
		"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}}}}]}`))
	report, byKind := rows("--group-by=label:team")
	if len(byKind) != 4 || len(report.Groups) != 2 || report.Groups[0].Name != "data" || report.Groups[0].Containers != 3 || report.Groups[1].Name != "" {
		t.Fatalf("report %+v", report)
	}
	if db := byKind["StatefulSet"]; db.Rules[0].CPUMillicores != 3000 || db.Replicas != 2 || db.Git().MemoryBytes != 3<<30 || db.HeapBytes != 3<<30 {
		t.Errorf("db %+v", db)
	}
	// 730 hours of the prices, for a 24th of the time, in which no pod is idle before the first run and after the last.
	if cost := *byKind["CronJob"].Rules[0].CostPerMonth; cost < 4.4 || cost > 6 {
		t.Errorf("nightly costs %g", cost)
	}
	if agent, canary := byKind["DaemonSet"], byKind["Rollout"]; agent.Replicas != 2 || canary.Replicas != 3 || canary.Git().CPUMillis > 300 {
		t.Errorf("agent %+v, canary %+v", agent, canary)
	}
	s.forbid("/apis/batch/v1")
	out, errOut, code := run(t, nil, "report", reportUntil, "--prometheus="+address, "--prices="+priceFile(t, "cpuCoreHour: 1\n"))
	if code != 0 || !strings.Contains(errOut, "CronJobs are left out: ") || !strings.Contains(out, "prices.yaml: a core costs 1 and") {
		t.Errorf("exit code %d: %s%s", code, errOut, out)
	}
}

// priceFile is a file with prices.
func priceFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prices.yaml")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestReportOfASelection(t *testing.T) {
	s := newFleetCluster(t)
	prometheus := "--prometheus=" + serve(t, fleetPrometheus)
	for args, want := range map[string]string{
		"":                                   "shop/web", // the context's namespace
		"-n=bank":                            "bank/api",
		"-A -l=app=api":                      "bank/api",
		"-n bank --from-metrics":             "bank/api",
		"-A --deployment=api":                "bank/api",
		"-A --deployment=api --from-metrics": "bank/api",
	} {
		report, _ := reportOf(t, append(strings.Fields(args), prometheus)...)
		if got := report.Containers[0].Namespace + "/" + report.Containers[0].Workload; len(report.Containers) != 1 || got != want {
			t.Errorf("%s: %d containers, first %s", args, len(report.Containers), got)
		}
	}
	if n := s.count(apps + "/namespaces/shop/deployments"); n != 2 {
		t.Errorf("Deployments were listed %d times, want 2 pages", n)
	}
}

func TestReportFormats(t *testing.T) {
	newFleetCluster(t)
	prometheus := "--prometheus=" + serve(t, fleetPrometheus)
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	must.Succeed(t, os.WriteFile(prices, []byte("currency: EUR\ncpuCoreHour: 0.03\nmemoryGiBHour: 0.004\n"), 0o600))
	assert.Contains(t, "table", printed(t, "report", "-A", prometheus, reportUntil, "--prices="+prices, "--profile=Safe,Frugal", "--top=1"),
		"2 containers of 2 workloads, by usage from 2026-11-15T12:00:00Z to 2026-11-23T12:00:00Z\n", "\nsafe ", "\nfrugal ", "COST/MONTH EUR",
		"\nbank        api        app         3      4000m -> ", "\n1 more container with smaller differences: see --top, or --output csv\n")
	assert.Contains(t, "HTML", printed(t, "report", "-A", prometheus, reportUntil, "-o=html"),
		"<title>VerticalScaler report</title>", `<td class="name">api</td>`, `<h2>bank/api/app</h2>`, `<path class="usage" d="M0 `)
	file := filepath.Join(t.TempDir(), "report.csv")
	assert.Equal(t, "output", "", printed(t, "report", "-A", prometheus, reportUntil, "-o=csv", "--output-file="+file))
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 3 || !strings.Contains(string(text), "\nbank,Deployment,api,app,3,") {
		t.Errorf("%v: %s", err, text)
	}
}

// Patches that are applied leave no difference, in each format.
func TestPatches(t *testing.T) {
	prometheus := "--prometheus=" + serve(t, fleetPrometheus)
	for _, format := range fleet.PatchFormats() {
		all := slices.Clone(deployedFleet)
		newClusterOf(t, all)
		folder := filepath.Join(t.TempDir(), "patches")
		write := func(want string) {
			t.Helper()
			out, errOut, code := run(t, nil, "report", "-A", prometheus, reportUntil, "--top=0", "--patches="+string(format), "--patches-folder="+folder)
			if want = "Wrote " + want + " to " + folder + ". Without one are "; code != 0 || !strings.HasPrefix(errOut, want) || !strings.HasPrefix(out, "2 containers") {
				t.Fatalf("%s: exit code %d: %s%s; want %s", format, code, errOut, out, want)
			}
		}
		write("2 patches")
		files := map[string]string{"bank_Deployment_api.yaml": "", "shop_Deployment_web.yaml": ""}
		for name := range files {
			text, err := os.ReadFile(filepath.Join(folder, name))
			must.Succeed(t, err)
			files[name] = string(text)
			for i := range all {
				if all[i].namespace+"_Deployment_"+all[i].name+".yaml" == name {
					all[i].apply(t, format, text)
				}
			}
		}
		newClusterOf(t, all)
		write("0 patches")
		for name, before := range files {
			if text, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(text) != before {
				t.Errorf("%s: an applied patch changed: %v\n%s", format, err, text)
			}
		}
		text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
		if isKustomize := format == "kustomize"; (err == nil) != isKustomize || isKustomize && strings.Count(string(text), "path: ") != 2 {
			t.Errorf("%s: the component is %v\n%s", format, err, text)
		}
		if format == "ssa" && !strings.Contains(files["shop_Deployment_web.yaml"], "namespace: shop\n") {
			t.Errorf("a manifest without a namespace: %s", files["shop_Deployment_web.yaml"])
		}
	}
}

// apply sets the resources that a patch has, as its tool does.
func (d *deployed) apply(t *testing.T, format fleet.PatchFormat, text []byte) {
	t.Helper()
	var resources corev1.ResourceRequirements
	if format == "helm-values" {
		var values struct{ Resources corev1.ResourceRequirements }
		must.Succeed(t, yaml.UnmarshalStrict(text, &values))
		resources = values.Resources
	} else {
		containers := container(d.cpu, d.memory, d.limit)
		containers[0].Image = "app:1"
		before, err := json.Marshal(appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: containers},
		}}})
		must.Succeed(t, err)
		patch, err := yaml.YAMLToJSON(text)
		must.Succeed(t, err)
		after, err := strategicpatch.StrategicMergePatch(before, patch, appsv1.Deployment{})
		must.Succeed(t, err)
		var deployment appsv1.Deployment
		must.Succeed(t, json.Unmarshal(after, &deployment))
		containers = deployment.Spec.Template.Spec.Containers
		if len(containers) != 1 || containers[0].Image != "app:1" || deployment.Name != d.name {
			t.Fatalf("the patch changes more than resources: %s", after)
		}
		resources = containers[0].Resources
	}
	d.cpu, d.memory = resources.Requests.Cpu().String(), resources.Requests.Memory().String()
	if limit, ok := resources.Limits["memory"]; ok != (d.limit != "") {
		t.Errorf("the limit %q becomes %v", d.limit, resources.Limits)
	} else if ok {
		// web requests 256Mi with a limit of 512Mi.
		if ratio := limit.AsApproximateFloat64() / resources.Requests.Memory().AsApproximateFloat64(); ratio < 2 || ratio > 2.02 {
			t.Errorf("the limit is %g of the request", ratio)
		}
		d.limit = limit.String()
	}
}

// A file that this command has not written stays, and a Deployment that another object controls has no patch.
func TestPatchesRefuse(t *testing.T) {
	all := slices.Clone(deployedFleet)
	all[0].owners = []metav1.OwnerReference{controller("ScaledDeployment", "api")}
	newClusterOf(t, all)
	folder := t.TempDir()
	file := filepath.Join(folder, "shop_Deployment_web.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("mine: true\n"), 0o600))
	out, errOut, code := run(t, nil, "report", "-A", reportUntil, "--prometheus="+serve(t, fleetPrometheus), "--patches=ssa", "--patches-folder="+folder)
	if want := "writing patches: " + file + " exists and was not written by this command"; out != "" || code != 1 || errOut != want {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	if _, err := os.Stat(filepath.Join(folder, "bank_Deployment_api.yaml")); err == nil {
		t.Error("a Deployment that a ScaledDeployment controls has a patch")
	}
}

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

// printed is the output of a command that succeeds without a warning.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, code := run(t, nil, args...)
	if code != 0 || errOut != "" {
		t.Fatalf("%q: exit code %d: %s", args, code, errOut)
	}
	return out
}

// A series stands for a Deployment with one pod, whose limit equals its request.
func TestReportOfTables(t *testing.T) {
	withoutCluster(t)
	var report fleet.Report
	out := printed(t, "report", folder, "--profile=Balanced,Frugal,Safe", "-o=json")
	must.Succeed(t, json.Unmarshal([]byte(out), &report))
	if len(report.Containers) != 5 || report.Workloads != 5 || report.ContainerDays != 30 {
		t.Errorf("%d containers, %d Deployments, %d days", len(report.Containers), report.Workloads, report.ContainerDays)
	}
	byRule := map[string]fleet.Total{}
	for _, total := range report.Rules {
		byRule[total.Rule] = total
	}
	if len(byRule) != 7 || byRule["frugal"].Cores > byRule["safe"].Cores {
		t.Errorf("rules %+v", report.Rules)
	}
	leak := report.Containers[slices.IndexFunc(report.Containers, func(r fleet.Row) bool { return r.Name == "leak" })]
	if leak.Namespace != "" || leak.Workload != "leak" || leak.Replicas != 1 || leak.Rules[0].OOMDays == 0 {
		t.Errorf("leak is %+v, and today %+v", leak.Container, leak.Rules[0])
	}
	if again, _, _ := run(t, nil, "report", folder, "--profile=Balanced,Frugal,Safe", "-o=json", "--workers=1"); again != out {
		t.Errorf("with one worker, the report is\n%s\nwant\n%s", again, out)
	}
}

// A table without requests, from standard input.
func TestReportOfStandardInput(t *testing.T) {
	usage, err := os.Open(filepath.Join(folder, "leak.csv"))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = usage.Close() })
	out, errOut, code := run(t, usage, "report", "-", "--warm-up=0")
	if code != 0 || !strings.Contains(out, "\n            leak       leak        1      none -> ") {
		t.Errorf("exit code %d: %s\n%s", code, errOut, out)
	}
}

func TestReportWritesAPage(t *testing.T) {
	scratch := t.TempDir()
	path := filepath.Join(scratch, "page.html")
	assert.Equal(t, "output", "", printed(t, "report", folder, "-o=html", "--top=4", "--output-file="+path))
	page, err := os.ReadFile(path)
	must.Succeed(t, err)
	if got := strings.Count(string(page), `<figure class="plot">`); got != 8 {
		t.Errorf("the page has %d plots, want 8", got)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 1 {
		t.Errorf("files are left over: %v, %v", left, err)
	}
}

// Saved usage can be reported, and leads to the same recommendations.
func TestReportOfSavedUsage(t *testing.T) {
	newFleetCluster(t)
	saved := filepath.Join(t.TempDir(), "usage")
	first, _ := reportOf(t, "-A", "--prometheus="+serve(t, fleetPrometheus), "--save="+saved)
	withoutCluster(t)
	var again fleet.Report
	must.Succeed(t, json.Unmarshal([]byte(printed(t, "report", saved, "-o=json")), &again))
	for _, row := range first.Containers {
		i := slices.IndexFunc(again.Containers, func(r fleet.Row) bool {
			return r.Namespace == row.Namespace && r.Workload == row.Workload && r.Name == row.Name
		})
		if i < 0 || again.Containers[i].Git() != row.Git() || again.Containers[i].Rules[0].Requests() != row.Rules[0].Requests() {
			t.Errorf("%s/%s is not the same: %+v", row.Namespace, row.Workload, again.Containers)
		}
	}
}

// TestExamplesRun runs what help shows, from the folder that it is meant for.
func TestExamplesRun(t *testing.T) {
	root, _ := newRoot(genericiooptions.NewTestIOStreamsDiscard())
	command, _, err := root.Find([]string{"report"})
	must.Succeed(t, err)
	newScaledCluster(t, scaledFleet)
	t.Chdir(filepath.Join("..", ".."))
	scratch := t.TempDir()
	prices := filepath.Join(scratch, "prices.yaml")
	must.Succeed(t, os.WriteFile(prices, []byte("cpuCoreHour: 1\n"), 0o600))
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
		must.Succeed(t, err)
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
	out := printed(t, "report", "-A")
	want := `3 containers of 3 workloads, by what their scalers recommend

RULE     CORES     GIB       CPU VS TODAY   MEMORY VS TODAY   STARVED   OOM DAYS   RESIZES/DAY
today    13.50     25.50     0%             0%                unknown   unknown    unknown
scaler   2.400     2.453     -82.2%         -90.4%            unknown   unknown    unknown
vpa      unknown   unknown   unknown        unknown           unknown   unknown    unknown
krr      unknown   unknown   unknown        unknown           unknown   unknown    unknown
git      2.400     2.453     -82.2%         -90.4%            unknown   unknown    unknown

NAMESPACE   WORKLOAD   CONTAINER   PODS   CPU             MEMORY            VPA       KRR       GIT          STARVED   OOM DAYS
bank        api        app         3      4000m -> 300m   8192Mi -> 500Mi   unknown   unknown   300m 500Mi   unknown   unknown
bank        owned      app         1      1000m -> 300m   1024Mi -> 500Mi   unknown   unknown   300m 500Mi   unknown   unknown
shop        web        app         2      250m -> 600m    256Mi -> 256Mi    unknown   unknown   600m 256Mi   unknown   unknown

Unknown are the figures that follow from past usage, which --prometheus reads: those of other rules, and all harm

Skipped, because it has no replicas: shop/idle/app

Skipped, because its scaler applies what it recommends (updateMode InPlace): shop/applied/app

Skipped, because its scaler has observed less than 24h0m0s of usage (no usage now: metrics.k8s.io is not served: is metrics-server installed?): shop/new/app

Skipped, because its scaler recommends nothing for it yet, or does not size it (no usage now: metrics.k8s.io is not served: is metrics-server installed?): shop/silent/app

Skipped, because no scaler sizes its Deployment (no usage now: metrics.k8s.io is not served: is metrics-server installed?): shop/lone/app, shop/moved/app
`
	assert.Equal(t, "report", want, out)
	assert.Equal(t, "the same report again", out, printed(t, "report", "-A"))
	if out := printed(t, "report", "-n=bank", "-l=app=api"); !strings.HasPrefix(out, "1 container of 1 workload, ") {
		t.Errorf("of a selection: %s", out)
	}
}

// Deployments without a recommendation are ranked by what their busiest pod uses now. That is marked, and in no sum and no patch.
func TestReportOfUsageAtOneMoment(t *testing.T) {
	s := newScaledCluster(t, scaledFleet)
	for i, cpu := range []string{"40m", "20m"} { // the other pod uses more memory
		pod := newPod("shop", deployed{name: "lone"}.pod(i), "lone", "1", "1Gi", "")
		s.put(pod, usageOf(pod, cpu, []string{"50Mi", "60Mi"}[i]))
	}
	for name, cpu := range map[string]string{"new": "0", "applied": "1m"} {
		pod := newPod("shop", deployed{name: name}.pod(0), name, "1", "1Gi", "")
		s.put(pod, usageOf(pod, cpu, "1Gi"))
	}
	folder := filepath.Join(t.TempDir(), "requests")
	out, errOut, code := run(t, nil, "report", "-A", "--patches=ssa", "--patches-folder="+folder)
	want := `5 containers of 5 workloads: 3 by what their scalers recommend, 2 by their usage at one moment (now)

RULE     CORES     GIB       CPU VS TODAY   MEMORY VS TODAY   STARVED   OOM DAYS   RESIZES/DAY
today    15.50     27.50     0%             0%                unknown   unknown    unknown
scaler   4.400     4.453     -71.6%         -83.8%            unknown   unknown    unknown
vpa      unknown   unknown   unknown        unknown           unknown   unknown    unknown
krr      unknown   unknown   unknown        unknown           unknown   unknown    unknown
git      4.400     4.453     -71.6%         -83.8%            unknown   unknown    unknown

NAMESPACE   WORKLOAD   CONTAINER   PODS   CPU                  MEMORY                   VPA       KRR       GIT            STARVED   OOM DAYS
bank        api        app         3      4000m -> 300m        8192Mi -> 500Mi          unknown   unknown   300m 500Mi     unknown   unknown
shop        lone       app         1      1000m -> 40m (now)   1024Mi -> 60Mi (now)     unknown   unknown   1000m 1024Mi   unknown   unknown
shop        new        app         1      1000m -> 1m (now)    1024Mi -> 1024Mi (now)   unknown   unknown   1000m 1024Mi   unknown   unknown
bank        owned      app         1      1000m -> 300m        1024Mi -> 500Mi          unknown   unknown   300m 500Mi     unknown   unknown
shop        web        app         2      250m -> 600m         256Mi -> 256Mi           unknown   unknown   600m 256Mi     unknown   unknown
`
	if diff := gocmp.Diff(want, out[:min(len(want), len(out))]); code != 0 || diff != "" {
		t.Errorf("exit code %d: %s (-want +got):\n%s", code, errOut, diff)
	}
	assert.Contains(t, "report", out,
		". Usage at one moment has no peaks and no margin: the sums and git keep the requests of these containers today\n",
		"\nSkipped, because its scaler recommends nothing for it yet, or does not size it (no usage now: metrics.k8s.io has none of its pods): shop/silent/app\n")
	if !strings.HasPrefix(errOut, "Wrote 2 patches to ") {
		t.Errorf("patches: %s", errOut)
	}
	assert.Contains(t, "CSV", printed(t, "report", "-A", "-o=csv"), "\nshop,Deployment,lone,app,1,1.0777,0,1000,")
	// Without the operator, usage is all there is.
	s.answer(ours+"/verticalscalers", failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
	assert.Contains(t, "HTML", printed(t, "report", "-A", "-o=html"),
		"3 containers of 3 workloads: 0 by what their scalers recommend, 3 by their usage at one moment (now)", "<td>1000m -&gt; 40m (now)</td>")
}

// Raise-only requests are not lowered.
func TestReportOfAScalerThatOnlyRaisesMemory(t *testing.T) {
	s := newScaledCluster(t, scaledFleet)
	api := recommending("bank", "api", "300m", "500Mi")
	api.Spec.UpdatePolicy.ScaleDown = &v1beta1.DirectionPolicy{ControlledResources: []v1beta1.ControlledResource{v1beta1.ControlledCPU}}
	s.put(&api)
	assert.Contains(t, "report", printed(t, "report", "-n=bank", "-l=app=api"), " 4000m -> 300m   8192Mi -> 8192Mi ")
}

// Figures that are not known are missing in files, and not 0.
func TestReportOfScalersInFiles(t *testing.T) {
	newScaledCluster(t, scaledFleet)
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	must.Succeed(t, os.WriteFile(prices, []byte("currency: EUR\ncpuCoreHour: 0.1\nmemoryGiBHour: 0.01\n"), 0o600))
	output := func(format string) string {
		t.Helper()
		return printed(t, "report", "-A", "-o="+format, "--prices="+prices)
	}

	text := output("json")
	var report fleet.Report
	must.Succeed(t, json.Unmarshal([]byte(text), &report))
	for _, unknown := range []string{"starvedPercent", "oomDays", "resizesPerDay", `"from"`, "warmUpSeconds", `"days"`, "containerDays"} {
		if strings.Contains(text, unknown) {
			t.Errorf("there is a %s in:\n%s", unknown, text)
		}
	}
	api := report.Containers[0]
	if today, ours, vpa := api.Rules[0], api.Rules[1], api.Rules[2]; api.Workload != "api" || api.ObservedSeconds != 172800 || vpa.Rule != "vpa" || vpa.Requested != nil ||
		*today.CostPerMonth != 1051.2 || *ours.CostPerMonth != 76.3934 {
		t.Errorf("the first container is %+v", api)
	}

	lines := strings.Split(output("csv"), "\n")
	if want := "bank,Deployment,api,app,3,13.3535,,4000,8589934592,1051.2,,,,300,524288000,76.3934,,,,,,,,,,,,,,,,300,524288000,76.3934,,,"; len(lines) != 5 || lines[1] != want {
		t.Errorf("lines %q, want %s", lines, want)
	}

	page := output("html")
	assert.Contains(t, "HTML", page, "<td>unknown</td>", "Unknown are the figures", `style="background-size: 100% 100%">13.50</td>`, "COST/MONTH EUR")
	for _, unwanted := range []string{"Time starved", "OOM days\"", "over time", "NaN", "In the pictures", "replayed"} {
		if strings.Contains(page, unwanted) {
			t.Errorf("%q is in:\n%s", unwanted, page)
		}
	}
}

// The CronJob in config/report has flags that work, and the rights that they need, and no more.
func TestTheWeeklyReport(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "report", "weekly_report.yaml"))
	must.Succeed(t, err)
	var job batchv1.CronJob
	var role rbacv1.ClusterRole
	for _, part := range strings.Split(string(text), "\n---\n") {
		for kind, into := range map[string]any{"kind: CronJob\n": &job, "kind: ClusterRole\n": &role} {
			if strings.Contains(part, "\n"+kind) {
				must.Succeed(t, yaml.UnmarshalStrict([]byte(part), into))
			}
		}
	}
	s := newFleetCluster(t)
	file := filepath.Join(t.TempDir(), "report.txt")
	var args []string
	for _, arg := range job.Spec.JobTemplate.Spec.Template.Spec.InitContainers[0].Command[1:] {
		if !strings.HasPrefix(arg, "--kubeconfig=") {
			args = append(args, strings.NewReplacer("http://PROMETHEUS:9090", serve(t, fleetPrometheus), "/report/report.txt", file).Replace(arg))
		}
	}
	assert.Equal(t, "output", "", printed(t, append(args, reportUntil)...))
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "\nNAMESPACE   CONTAINERS ") {
		t.Errorf("%v: %s", err, text)
	}
	may := map[string]bool{}
	for _, rule := range role.Rules {
		if !slices.Equal(rule.Verbs, []string{"list"}) {
			t.Errorf("it may %q", rule.Verbs)
		}
		for _, resource := range rule.Resources {
			may[resource] = true
		}
	}
	asked := map[string]bool{}
	for path := range s.asked {
		asked[filepath.Base(path)] = true
	}
	if diff := gocmp.Diff(may, asked); diff != "" {
		t.Errorf("the rights (-granted +needed):\n%s", diff)
	}
}
