// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package world

import (
	"context"
	"flag"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

var env *testkit.Env

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testkit.ClusterMain(m, &env))
}

// Each scenario converges without faults, and nothing is wrong on the way. A second run ends
// as the first one. The operator runs in this process.
func TestScenariosConvergeWithoutFaults(t *testing.T) {
	cluster := Open(t, env)
	for _, scenario := range Scenarios() {
		t.Run(scenario.Name, func(t *testing.T) {
			t.Parallel()
			first, second := runOnce(t, cluster, scenario), runOnce(t, cluster, scenario)
			if diff := first.Diff(second); diff != "" {
				t.Errorf("two runs end differently (-first +second):\n%s", diff)
			}
		})
	}
}

// runOnce runs a scenario without faults, and returns its end.
func runOnce(t *testing.T, cluster *Cluster, scenario Scenario) State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	began := time.Now()
	w, err := cluster.NewWorld(ctx, scenario)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	step := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v\n%s", what, err, w.Describe(context.WithoutCancel(ctx)))
		}
		t.Logf("%6.2fs %s", time.Since(began).Seconds(), what)
	}
	metrics := httptest.NewServer(w.Metrics())
	defer metrics.Close()
	source, err := metricsapi.New(&rest.Config{Host: metrics.URL})
	if err != nil {
		t.Fatal(err)
	}
	step("set up", scenario.Setup(w))
	config := w.Config()
	config.Metrics.BindAddress = "0"
	operator := env.StartOperator(t, config, source, w.Namespace())
	defer operator.Stop(t)
	step("acted", scenario.Act(w))
	step("converged", w.Converge(ctx))
	step("quiet", w.StayQuiet(ctx))
	state, err := w.EndState(ctx)
	step("read", err)
	for _, wrong := range w.Violations() {
		t.Error(wrong)
	}
	return state
}
