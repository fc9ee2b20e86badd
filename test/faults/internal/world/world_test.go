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

// Each scenario converges without faults, and nothing is wrong on the way. The operator
// runs in this process.
func TestScenariosConvergeWithoutFaults(t *testing.T) {
	cluster := Open(t, env)
	for _, scenario := range Scenarios() {
		t.Run(scenario.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			began := time.Now()
			var w *World
			step := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Fatalf("%s: %v\n%s", what, err, w.Describe(context.WithoutCancel(t.Context())))
				}
				t.Logf("%6.2fs %s", time.Since(began).Seconds(), what)
			}
			var err error
			w, err = cluster.NewWorld(ctx, scenario)
			step("created", err)
			defer func() {
				if err := w.Close(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}()
			step("set up", scenario.Setup(w))
			metrics := httptest.NewServer(w.Metrics())
			defer metrics.Close()
			source, err := metricsapi.New(&rest.Config{Host: metrics.URL})
			step("usage", err)
			config := w.Config()
			config.Metrics.BindAddress = "0"
			operator := env.StartOperator(t, config, source, w.Namespace())
			defer operator.Stop(t)
			step("acted", scenario.Act(w))
			step("converged", w.Converge(ctx))
			step("stayed quiet", w.StayQuiet(ctx))
			state, err := w.EndState(ctx)
			step("end state", err)
			for _, wrong := range w.Violations() {
				t.Error(wrong)
			}
			writes, err := w.writes()
			step("writes", err)
			t.Logf("%d writes: %v\n%+v", len(writes), writes, state)
		})
	}
}
