// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestPoliciesHaveSeriesOfTheirOwn(t *testing.T) {
	// A ClusterScalingPolicy and a ScalingPolicy have one name.
	fleetPolicy, teamPolicy, gone := types.NamespacedName{Name: "fleet"}, key("shop", "fleet"), key("shop", "gone")
	promoting := v1beta1.ScalingPolicyStatus{
		Selected: 501, Scaled: 480,
		Skipped:    []v1beta1.PolicyCount{{Reason: v1beta1.ReasonExcluded, Count: 14}, {Reason: v1beta1.ReasonOtherScaler, Count: 6}},
		Rollout:    &v1beta1.PolicyRolloutStatus{Collecting: 300, Waiting: 156, Verifying: 20, Promoted: 24, Harmed: 3},
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonPromotionHalted}},
	}
	ForgetPolicies()
	RecordPolicy(fleetPolicy, v1beta1.ScalingPolicyStatus{Scaled: 1})
	RecordPolicy(fleetPolicy, promoting)
	RecordPolicy(teamPolicy, v1beta1.ScalingPolicyStatus{Scaled: 2})
	RecordPolicy(gone, v1beta1.ScalingPolicyStatus{Scaled: 7, Rollout: &v1beta1.PolicyRolloutStatus{}})
	ForgetPolicy(gone)
	want := `
# HELP verticalscaler_policy_action_required [ALPHA] 1 if a user must act on the policy, by the reason that the plugin shows. Otherwise 0, without a reason. If usage is missing in the whole cluster, verticalscaler_usage_missing says so.
# TYPE verticalscaler_policy_action_required gauge
verticalscaler_policy_action_required{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",reason="PromotionHalted"} 1
verticalscaler_policy_action_required{kind="ScalingPolicy",policy="fleet",policy_namespace="shop",reason=""} 0
# HELP verticalscaler_policy_deployments [ALPHA] Deployments that the selectors of the policy match, by state: scaled if they have a scaler of this policy, skipped if they must have none.
# TYPE verticalscaler_policy_deployments gauge
verticalscaler_policy_deployments{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",state="scaled"} 480
verticalscaler_policy_deployments{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",state="skipped"} 20
verticalscaler_policy_deployments{kind="ScalingPolicy",policy="fleet",policy_namespace="shop",state="scaled"} 2
verticalscaler_policy_deployments{kind="ScalingPolicy",policy="fleet",policy_namespace="shop",state="skipped"} 0
# HELP verticalscaler_policy_scalers [ALPHA] Scalers of the policy, by stage: collecting evidence, waiting for their turn, or promoted. Of those that are promoted, verifying are being verified, and harmed did harm. Absent if the policy promotes none.
# TYPE verticalscaler_policy_scalers gauge
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="collecting"} 300
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="harmed"} 3
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="promoted"} 24
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="verifying"} 20
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="waiting"} 156
`
	names := []string{"verticalscaler_policy_deployments", "verticalscaler_policy_action_required", "verticalscaler_policy_scalers"}
	must.Succeed(t, testutil.GatherAndCompare(ctrlmetrics.Registry, strings.NewReader(want), names...))
	ForgetPolicy(teamPolicy)
	if n := policySeries(); n != SeriesPerPolicy {
		t.Errorf("a policy has %d series, want %d", n, SeriesPerPolicy)
	}
	RecordPolicy(fleetPolicy, v1beta1.ScalingPolicyStatus{Scaled: 1})
	if n := policySeries(); n != 3 {
		t.Errorf("a policy that no longer promotes has %d series, want 3", n)
	}
	if got := testutil.ToFloat64(policyAction); got != 0 {
		t.Errorf("a policy without a problem requires action: %v", got)
	}
	ForgetPolicies()
	if n := policySeries(); n != 0 {
		t.Errorf("%d series are left", n)
	}
}

func policySeries() int {
	return testutil.CollectAndCount(policyDeployments) + testutil.CollectAndCount(policyScalers) + testutil.CollectAndCount(policyAction)
}
