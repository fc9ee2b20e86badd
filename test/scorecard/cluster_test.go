// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cluster

package scorecard

import (
	"encoding/json"
	"errors"
	"flag"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

// stockVariable names the program with the tests that every bundle gets. The tests of this
// file start a cluster, and are skipped without it: "make scorecard" sets it.
const stockVariable = "SCORECARD_TEST"

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
	env := start(t)
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
func start(t *testing.T) *testkit.Env {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	env, err := testkit.StartCluster()
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
