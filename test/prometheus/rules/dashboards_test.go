// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package rules

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	_ "github.com/verticalscaler/verticalscaler-operator/internal/operator/app" // registers the operator's metrics
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/prometheus/internal/live"
)

// soon is the timeout of every wait, long enough for a busy machine.
const soon = 2 * time.Minute

// fleet are hundreds of scalers in several namespaces. Some have no Deployment, no pods or no
// recommendation, and some are stalled.
func fleet(detail metrics.Detail) *metrics.Scalers {
	s := &metrics.Scalers{Detail: detail}
	s.Record(types.NamespacedName{Namespace: "shop", Name: "web"}, metrics.State{Reason: "Verifying", Ready: true, Waiting: true}, sizes(300))
	for i := range 400 {
		key := types.NamespacedName{Namespace: fmt.Sprintf("team-%d", i%7), Name: fmt.Sprintf("scaler-%d", i)}
		switch i % 5 {
		case 0:
			s.Record(key, metrics.State{Reason: "WaitingForDeployment", Ready: true}, &metrics.Sizes{})
		case 1:
			s.Record(key, metrics.State{Reason: "Contested", Stalled: true}, sizes(int64(i)))
			s.Count(key, metrics.Undone)
		case 2:
			s.Record(key, metrics.State{Reason: "Learning", Ready: true}, &metrics.Sizes{Pods: 2, Containers: []metrics.Container{{Name: "app"}}})
		default:
			s.Record(key, metrics.State{Reason: "Applied", Ready: true}, sizes(int64(i)))
			s.Count(key, metrics.Resized)
		}
	}
	return s
}

func sizes(cpu int64) *metrics.Sizes {
	amounts := func(percent int64) quantity.Amounts {
		return quantity.Amounts{CPUMillis: 1 + cpu*percent/100, MemoryBytes: (1 + cpu*percent/100) << 20}
	}
	return &metrics.Sizes{
		PodsAtSize: 1, Pods: 3, Requested: amounts(300), Recommended: amounts(200), Original: amounts(600),
		Containers: []metrics.Container{
			{Name: "app", Request: amounts(100), Target: amounts(70), LowerBound: amounts(50), UpperBound: amounts(110)},
			{Name: "log", Request: amounts(10)},
		},
	}
}

// policies are one that has halted, one that promotes nothing, and one without Deployments.
func policies() *metrics.Policies {
	p := &metrics.Policies{}
	p.Record(metrics.Policy{Kind: "ClusterScalingPolicy", Name: "fleet"}, metrics.PolicyState{
		Scaled: 380, Skipped: 21, Stages: &metrics.Stages{Collecting: 200, Waiting: 100, Verifying: 10, Promoted: 80, Harmed: 4, Halted: true},
	})
	p.Record(metrics.Policy{Kind: "ScalingPolicy", Namespace: "team-1", Name: "fleet"}, metrics.PolicyState{Scaled: 7})
	p.Record(metrics.Policy{Kind: "ScalingPolicy", Namespace: "team-2", Name: "typo"}, metrics.PolicyState{Stages: &metrics.Stages{}})
	return p
}

// The panels have data with each detail, but those of single scalers. The metrics of
// controller-runtime need controllers: the test with the operator itself has them.
func TestDashboardsOfAFleet(t *testing.T) {
	for detail, variables := range map[metrics.Detail]map[string]string{
		metrics.Full:       {"job": live.Job, "target_namespace": "shop", "scaler": "web", "container": ".*"},
		metrics.Aggregated: {"job": live.Job, "target_namespace": ".*", "scaler": "", "container": ".*"},
	} {
		t.Run(string(detail), func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			stopped := make(chan error)
			go func() { stopped <- fleet(detail).Start(ctx) }()
			go func() { stopped <- policies().Start(ctx) }()
			defer func() {
				stop()
				for range 2 {
					if err := <-stopped; err != nil {
						t.Error(err)
					}
				}
			}()
			server := httptest.NewServer(promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{}))
			defer server.Close()
			prometheus := live.Start(t, server.Listener.Addr().String(), namespace)
			var queries []live.Query
			for _, q := range live.Queries(t, variables) {
				isOfScaler := strings.HasSuffix(q.Dashboard, "Scaler")
				if !strings.Contains(q.Expression, "controller_runtime_") && (detail == metrics.Full || !isOfScaler) {
					queries = append(queries, q)
				}
			}
			if len(queries) < 15 {
				t.Fatalf("there are %d queries", len(queries))
			}
			testkit.Eventually(t, soon, func() string { return strings.Join(prometheus.Empty(queries), "\n") })

			for query, want := range map[string]string{
				`sum(verticalscaler_status)`:                       "401",
				`sum(verticalscaler_stalled)`:                      "80",
				`sum(verticalscaler_policy_deployments)`:           "408",
				`sum(verticalscaler_policy_promotion_halted)`:      "1",
				`count(count by (scaler) (verticalscaler_status))`: map[metrics.Detail]string{metrics.Full: "401", metrics.Aggregated: "1"}[detail],
			} {
				testkit.Eventually(t, soon, func() string { // A scrape that is late leaves no series until the next one.
					if got, err := prometheus.Query(query); err != nil || len(got) != 1 || got[0].Value[1] != want {
						return fmt.Sprintf("%s = %v, %v; want %s", query, got, err, want)
					}
					return ""
				})
			}
		})
	}
}
