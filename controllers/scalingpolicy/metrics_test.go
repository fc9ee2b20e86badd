// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
)

func TestMetricsSayWhatTheStatusSays(t *testing.T) {
	status := v1beta1.ScalingPolicyStatus{
		Selected: 9, Scaled: 7,
		Skipped: []v1beta1.PolicyCount{{Reason: v1beta1.ReasonExcluded, Count: 4}, {Reason: v1beta1.ReasonOtherScaler, Count: 2}},
		Rollout: &v1beta1.PolicyRolloutStatus{Collecting: 1, Waiting: 2, Verifying: 3, Promoted: 4, Harmed: 5},
		Conditions: []metav1.Condition{
			{Type: v1beta1.ConditionReady, Reason: v1beta1.ReasonPromotionHalted},
			{Type: v1beta1.ConditionPromoting, Reason: v1beta1.ReasonPaused},
		},
	}
	want := metrics.PolicyState{Scaled: 7, Skipped: 6, Stages: &metrics.Stages{Collecting: 1, Waiting: 2, Verifying: 3, Promoted: 4, Harmed: 5}}
	if diff := cmp.Diff(want, measuredState(status)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	status.Conditions[1].Reason = v1beta1.ReasonPromotionHalted
	want.Stages.Halted = true
	if diff := cmp.Diff(want, measuredState(status)); diff != "" {
		t.Errorf("halted (-want +got):\n%s", diff)
	}
	// Nothing is promoted, or nothing is known yet.
	status.Rollout, want.Stages = nil, nil
	if diff := cmp.Diff(want, measuredState(status)); diff != "" {
		t.Errorf("without a rollout (-want +got):\n%s", diff)
	}
	for key, want := range map[types.NamespacedName]metrics.Policy{
		{Name: "fleet"}:                    {Kind: "ClusterScalingPolicy", Name: "fleet"},
		{Namespace: "shop", Name: "fleet"}: {Kind: "ScalingPolicy", Namespace: "shop", Name: "fleet"},
	} {
		if got := measured(key); got != want {
			t.Errorf("%s is %+v", key, got)
		}
	}
}

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
