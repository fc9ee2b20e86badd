// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cluster

package scorecard

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

// stockVariable names the program with the tests that every bundle gets. The tests of this
// file start a cluster, and are skipped without it: "make scorecard" sets it.
const stockVariable = "SCORECARD_TEST"

var record = flag.Bool("record", false, "run no test of the bundle, but write what the operator stores to testdata (README.md there)")

// accepted are prefixes of suggestions that do not apply here.
var accepted = []string{
	// They store what the operator knows, and have no state to report.
	"verticalscalercheckpoints.autoscaling.verticalscaler.io does not have status spec",
	"newpodsizes.autoscaling.verticalscaler.io does not have status spec",
}

// TestBundle runs the tests that the bundle names: the stock tests, and those of this
// package with no more rights than config/scorecard/rbac.yaml grants.
func TestBundle(t *testing.T) {
	stock := os.Getenv(stockVariable)
	if *record {
		t.Skip("with -record, only TestRecord runs")
	}
	if stock == "" {
		t.Fatalf("%s is not set: run make scorecard", stockVariable)
	}
	folder := filepath.Join(testkit.Root(), "bundle")
	content, err := os.ReadFile(filepath.Join(folder, "tests", "scorecard", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var bundle v1alpha3.Configuration
	if err := yaml.UnmarshalStrict(content, &bundle); err != nil {
		t.Fatal(err)
	}
	csv, err := readCSV(folder)
	if err != nil {
		t.Fatal(err)
	}
	env := start(t, false)
	kubectl(t, env, "apply", "-f", filepath.Join(testkit.Root(), "config", "scorecard", "rbac.yaml"))
	account := env.Account(t, "verticalscaler-scorecard", "verticalscaler-scorecard")
	setting := Setting{
		Bundle: folder, Namespace: "verticalscaler-scorecard", Image: "registry.k8s.io/pause:3.10.1", Wait: 3 * time.Minute,
		Connect: func() (client.Client, error) { return Connect(account.Config) },
	}
	root := stockRoot(t, stock, folder)

	var ran []string
	for _, stage := range bundle.Stages {
		for _, test := range stage.Tests {
			t.Run(test.Labels["suite"]+"/"+test.Entrypoint[1], func(t *testing.T) {
				switch test.Image {
				case "quay.io/operator-framework/scorecard-test:" + stock[strings.LastIndex(stock, "-v")+1:]:
					pass(t, runStock(t, root, test.Entrypoint))
				case "ghcr.io/verticalscaler/verticalscaler-operator-scorecard:v" + csv.Spec.Version.String():
					ran = append(ran, test.Entrypoint[1])
					status := Run(t.Context(), test.Entrypoint[1], setting, time.Now())
					t.Log(status.Results[0].Log)
					pass(t, status)
				default:
					t.Fatalf("no program is the image %s", test.Image)
				}
			})
		}
	}
	slices.Sort(ran)
	if diff := cmp.Diff(Names(), ran); diff != "" && !t.Failed() && flag.Lookup("test.run").Value.String() == "" {
		t.Errorf("our tests (-in the program +in the bundle):\n%s", diff)
	}
	if missing := account.Forbidden(); len(missing) > 0 {
		t.Errorf("config/scorecard/rbac.yaml does not grant: %v", missing)
	}
}

// pass fails the test for any problem, error or suggestion in a status.
func pass(t *testing.T, status v1alpha3.TestStatus) {
	t.Helper()
	for _, r := range status.Results {
		suggestions := slices.DeleteFunc(r.Suggestions, func(s string) bool {
			return slices.ContainsFunc(accepted, func(beginning string) bool { return strings.HasPrefix(s, beginning) })
		})
		if r.State != v1alpha3.PassState || len(r.Errors)+len(suggestions) > 0 {
			t.Errorf("%s: %s, errors: %q, suggestions: %q\n%s", r.Name, r.State, r.Errors, suggestions, r.Log)
		}
	}
	if len(status.Results) == 0 {
		t.Error("the status has no results")
	}
}

// stockRoot is a root directory for the stock tests, which look for /bundle.
func stockRoot(t *testing.T, program, bundle string) string {
	t.Helper()
	root := t.TempDir()
	content, err := os.ReadFile(program)
	if err := errors.Join(
		err, os.WriteFile(filepath.Join(root, "scorecard-test"), content, 0o755),
		os.CopyFS(filepath.Join(root, "bundle"), os.DirFS(bundle)), os.Mkdir(filepath.Join(root, "tmp"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	return root
}

// runStock runs a stock test in the root directory. A user namespace permits that to
// users other than root.
func runStock(t *testing.T, root string, entrypoint []string) (status v1alpha3.TestStatus) {
	t.Helper()
	cmd := &exec.Cmd{Path: "/scorecard-test", Args: entrypoint, Dir: "/", Env: []string{}, SysProcAttr: &syscall.SysProcAttr{Chroot: root}}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.Output()
	if err := errors.Join(err, json.Unmarshal(out, &status)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return status
}

// start starts a cluster with config/default and the operator, which has the rights of
// its service account and the configuration of the bundle.
func start(t *testing.T, metrics bool) *testkit.Env {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	env, err := testkit.StartClusterWith(testkit.ClusterOptions{MetricsServer: metrics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := env.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "manager", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	c.Metrics.BindAddress, c.Health.BindAddress, c.LeaderElection.Enabled = "0", "0", false
	account := env.Account(t, testkit.System, testkit.ServiceAccount)
	source, err := metricsapi.New(account.Config)
	if err != nil {
		t.Fatal(err)
	}
	env.RunOperator(t, account, c, app.Options{Source: source}, logr.Discard())
	return env
}

func kubectl(t *testing.T, env *testkit.Env, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), env.Kubectl(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %v: %v: %s", args, err, out)
	}
}

// TestRecord records what this version stores, for the test upgrade-keeps-status of later
// versions: the operator sizes two Deployments by their usage, and again after an OOM
// kill in each.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("records with make scorecard ARGS=-record")
	}
	env := start(t, true)
	kubectl(t, env, "apply", "--server-side", "-f", filepath.Join("testdata", "recorded.yaml"))
	for decisions := range 2 {
		for _, name := range []string{"stored-in-place", "stored-rollout"} {
			t.Logf("%s: waiting for decision %d", name, decisions+1)
			testkit.Eventually(t, 10*time.Minute, func() string { return decided(t, env, name, decisions+1) })
			if decisions == 0 {
				var pods corev1.PodList
				if err := env.Client.List(t.Context(), &pods, client.InNamespace(RecordedNamespace), client.MatchingLabels{"app": name}); err != nil || len(pods.Items) == 0 {
					t.Fatalf("%d pods of %s: %v", len(pods.Items), name, err)
				}
				kubectl(t, env, "annotate", "pod", "-n", RecordedNamespace, pods.Items[0].Name, "kwok.verticalscaler.io/oom=once")
			}
		}
	}
	csv, err := readCSV(filepath.Join(testkit.Root(), "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "v"+csv.Spec.Version.String(), StoredFile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(recorded(t, env, csv.Spec.Version.String())), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Logf("recorded %s", file)
}

// decided returns what is missing until a VerticalScaler has applied that many decisions.
func decided(t *testing.T, env *testkit.Env, name string, decisions int) string {
	t.Helper()
	var scaler v1beta1.VerticalScaler
	if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: RecordedNamespace, Name: name}, &scaler); err != nil {
		return err.Error()
	}
	if applied := meta.FindStatusCondition(scaler.Status.Conditions, v1beta1.ConditionApplied); len(scaler.Status.History) < decisions || applied == nil || applied.Status != metav1.ConditionTrue {
		return fmt.Sprintf("%s has made %d of %d decisions, and reports %+v", name, len(scaler.Status.History), decisions, applied)
	}
	return ""
}

// recorded returns the stored objects without the fields that the API server adds. It keeps
// the managed fields of a Deployment.
func recorded(t *testing.T, env *testkit.Env, version string) string {
	t.Helper()
	out := fmt.Sprintf(`# What version %s stores: two VerticalScalers, their Deployments and their checkpoints.
# Recorded from a running operator by "make scorecard ARGS=-record". Do not edit: see ../README.md.
`, version)
	kinds := map[string]string{"Deployment": "apps/v1", "VerticalScaler": v1beta1.GroupVersion.String(), "VerticalScalerCheckpoint": v1beta1.GroupVersion.String()}
	for _, name := range []string{"stored-in-place", "stored-rollout"} {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			object := &unstructured.Unstructured{}
			object.SetAPIVersion(kinds[kind])
			object.SetKind(kind)
			if err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: RecordedNamespace, Name: name}, object); err != nil {
				t.Fatal(err)
			}
			managed := slices.DeleteFunc(object.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager != "verticalscaler" || kind != "Deployment" })
			object.SetResourceVersion("")
			for _, field := range []string{"managedFields", "creationTimestamp"} {
				unstructured.RemoveNestedField(object.Object, "metadata", field)
			}
			if len(managed) > 0 {
				object.SetManagedFields(managed)
			}
			if kind == "Deployment" {
				object.SetAnnotations(nil)
				unstructured.RemoveNestedField(object.Object, "status")
			}
			content, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			out += "---\n" + string(content)
		}
	}
	return out
}
