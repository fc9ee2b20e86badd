// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux && olm

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

// accepted are prefixes of suggestions that do not apply here: these kinds have no state to report.
var accepted = []string{
	"verticalscalercheckpoints.autoscaling.verticalscaler.io does not have status spec",
	"newpodsizes.autoscaling.verticalscaler.io does not have status spec",
}

// TestBundle runs the tests that the bundle names: the stock tests, with the program that SCORECARD_TEST names, and our own with
// no more rights than config/scorecard/rbac.yaml grants.
func TestBundle(t *testing.T) {
	bundle := filepath.Join(testkit.Root(), "bundle")
	content, err := os.ReadFile(filepath.Join(bundle, "tests", "scorecard", "config.yaml"))
	must.Succeed(t, err)
	var tests v1alpha3.Configuration
	must.Succeed(t, yaml.UnmarshalStrict(content, &tests))
	root := stockRoot(t, os.Getenv("SCORECARD_TEST"), bundle)
	for _, stage := range tests.Stages {
		for _, test := range stage.Tests {
			t.Run(test.Labels["suite"]+"/"+test.Entrypoint[1], func(t *testing.T) {
				var result v1alpha3.TestStatus
				if test.Entrypoint[1] == testName {
					result = runOwn(t, bundle)
				} else {
					result = runStock(t, root, test.Entrypoint)
				}
				for _, r := range result.Results {
					suggestions := slices.DeleteFunc(r.Suggestions, func(s string) bool {
						return slices.ContainsFunc(accepted, func(beginning string) bool { return strings.HasPrefix(s, beginning) })
					})
					if r.State != v1alpha3.PassState || len(r.Errors)+len(suggestions) > 0 {
						t.Errorf("%s: %s, errors: %q, suggestions: %q\n%s", r.Name, r.State, r.Errors, suggestions, r.Log)
					}
				}
			})
		}
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
		t.Fatalf("run make test-olm PKG=./test/scorecard: %v", err)
	}
	return root
}

// runStock runs a stock test in the root directory. A user namespace permits that to users other than root.
func runStock(t *testing.T, root string, entrypoint []string) (result v1alpha3.TestStatus) {
	t.Helper()
	cmd := &exec.Cmd{Path: "/scorecard-test", Args: entrypoint, Dir: "/", Env: []string{}, SysProcAttr: &syscall.SysProcAttr{Chroot: root}}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.Output()
	if err := errors.Join(err, json.Unmarshal(out, &result)); err != nil || len(result.Results) == 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	return result
}

// runOwn runs our test in a cluster with the operator, which has the rights of its service account and the configuration of the
// bundle.
func runOwn(t *testing.T, bundle string) v1alpha3.TestStatus {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	env, err := testkit.StartCluster()
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, env.Stop()) })
	must.Succeed(t, env.Install(t.Context()))
	content, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "manager", "config.yaml"))
	must.Succeed(t, err)
	c, err := config.Parse(content)
	must.Succeed(t, err)
	c.Metrics.BindAddress, c.Health.BindAddress, c.LeaderElection.Enabled = "0", "0", false
	operator := env.Account(t, testkit.System, testkit.ServiceAccount)
	source, err := metricsapi.New(operator.Config)
	must.Succeed(t, err)
	env.RunOperator(t, operator, c, app.Options{Source: source}, logr.Discard())

	kubectl := exec.CommandContext(t.Context(), env.Kubectl(), "--kubeconfig", env.Kubeconfig(),
		"apply", "-f", filepath.Join(testkit.Root(), "config", "scorecard", "rbac.yaml"))
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	account := env.Account(t, mark, mark)
	own, err := client.New(account.Config, client.Options{})
	must.Succeed(t, err)
	result := status(tester{own, mark, 3 * time.Minute}.examplesReconcile(t.Context(), bundle))
	if missing := account.Forbidden(); len(missing) > 0 {
		t.Errorf("config/scorecard/rbac.yaml does not grant: %v", missing)
	}
	return result
}
