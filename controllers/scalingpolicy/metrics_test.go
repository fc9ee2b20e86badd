// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
)

func TestADeletedPolicyHasNoMetrics(t *testing.T) {
	metrics.ForgetPolicies()
	s := newFixture(t, interceptor.Funcs{}, aClusterPolicy("fleet"), aPolicy("p"))
	s.settle()
	expect := func(what string, want int) {
		t.Helper()
		if n, err := testutil.GatherAndCount(ctrlmetrics.Registry, "verticalscaler_policy_deployments"); err != nil || n != want {
			t.Errorf("%s: %d series, want %d: %v", what, n, want, err)
		}
	}
	expect("two policies", 4)
	s.must(s.api.Delete(t.Context(), aPolicy("p")))
	s.sync()
	if _, err := s.policy("shop/p"); err != nil {
		t.Fatal(err)
	}
	expect("one was deleted", 2)
}
