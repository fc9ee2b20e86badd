// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package prometheus

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/prometheus/internal/realprometheus"
)

// A real Prometheus scrapes the operator, while it sizes a Deployment beside a scaler whose Deployment does not exist, and a
// policy that has nothing to do. No panel of a dashboard is empty, and the values equal the status.
func TestDashboardsHaveNoEmptyPanel(t *testing.T) {
	w := newFixture(t)
	w.config.Metrics.BindAddress, w.config.Metrics.Secure = testkit.FreeAddress(t), false
	w.config.Prometheus.Address = newWay(t, w.namespace, nil).URL // days of usage, for a recommendation
	w.scale()
	env.Create(t, testkit.Scaler(w.namespace, "typo", "wbe"))
	env.Create(t, &v1beta1.ScalingPolicy{ // A user sizes its only Deployment.
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "all"},
		Spec:       v1beta1.ScalingPolicySpec{PolicyRules: v1beta1.PolicyRules{Priority: 1}},
	})
	operator := w.start()
	w.recommends(0)
	prometheus := realprometheus.Start(t, w.config.Metrics.BindAddress, w.namespace)
	queries := realprometheus.Queries(t, map[string]string{"job": realprometheus.Job, "target_namespace": w.namespace, "scaler": "web", "container": ".*"})
	if len(queries) < 30 {
		t.Fatalf("there are %d queries", len(queries))
	}
	testkit.Eventually(t, soon, func() string { return strings.Join(prometheus.Empty(queries), "\n") })

	of := fmt.Sprintf(`target_namespace=%q`, w.namespace)
	cores := func() string { return fmt.Sprint(float64(w.recommends(0).Target.CPU.MilliValue()) / 1000) }
	for query, want := range map[string]func() string{
		`sum(verticalscaler_status{` + of + `})`:                                                                          func() string { return "2" },
		`sum(verticalscaler_status{` + of + `, reason="DeploymentNotFound"})`:                                             func() string { return "1" },
		fmt.Sprintf(`verticalscaler_policy_deployments{policy_namespace=%q, policy="all", state="skipped"}`, w.namespace): func() string { return "1" },
		`sum(verticalscaler_container_target{` + of + `, scaler="web", target_container="app", resource="cpu"})`:          cores,
	} {
		testkit.Eventually(t, soon, func() string {
			got, err := prometheus.Query(query)
			if want := want(); err != nil || len(got) != 1 || got[0].Value.String() != want {
				return fmt.Sprintf("%s = %v, %v; want %s", query, got, err, want)
			}
			return ""
		})
	}

	// Each metric of the reference is scraped, unless it needs what is not here.
	elsewhere := []string{"verticalscaler_admission_policy_missing"} // absent until the policies were asked for
	testkit.Eventually(t, soon, func() string {                      // A scrape that is late leaves no series until the next one.
		for _, m := range metrics.All() {
			if got, err := prometheus.Query(fmt.Sprintf(`{__name__=~"%s(_count)?"}`, m.Name)); err != nil || len(got) == 0 && !slices.Contains(elsewhere, m.Name) {
				return fmt.Sprintf("%s has no series: %v", m.Name, err)
			}
		}
		return ""
	})

	operator.Stop(t)
	w.config.Metrics.Scalers = metrics.Off
	w.start()
	testkit.Eventually(t, soon, func() string {
		total, err := prometheus.Query(`controller_runtime_active_workers{controller="verticalscaler"}`)
		if err != nil || len(total) == 0 {
			return fmt.Sprintf("the operator is not scraped again: %v", err)
		}
		if left, err := prometheus.Query(`verticalscaler_status{` + of + `}`); err != nil || len(left) > 0 {
			return fmt.Sprintf("there are still series about scalers: %v, %v", left, err)
		}
		return ""
	})
}
