// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// fleetPolicy and teamPolicy have one name.
var (
	fleetPolicy = Policy{Kind: "ClusterScalingPolicy", Name: "fleet"}
	teamPolicy  = Policy{Kind: "ScalingPolicy", Namespace: "shop", Name: "fleet"}
	gone        = Policy{Kind: "ScalingPolicy", Namespace: "shop", Name: "gone"}
)

func TestPoliciesHaveSeriesOfTheirOwn(t *testing.T) {
	ForgetPolicies()
	fleetPolicy.Record(PolicyState{Scaled: 1})
	fleetPolicy.Record(PolicyState{Scaled: 480, Skipped: 20, Stages: &Stages{Collecting: 300, Waiting: 156, Verifying: 20, Promoted: 24, Harmed: 3, Halted: true}})
	teamPolicy.Record(PolicyState{Scaled: 2})
	gone.Record(PolicyState{Scaled: 7, Stages: &Stages{}})
	gone.Forget()
	want := `
# HELP verticalscaler_policy_deployments [ALPHA] Deployments that the selectors of the policy match, by state: scaled if they have a scaler of this policy, skipped if they must have none.
# TYPE verticalscaler_policy_deployments gauge
verticalscaler_policy_deployments{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",state="scaled"} 480
verticalscaler_policy_deployments{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",state="skipped"} 20
verticalscaler_policy_deployments{kind="ScalingPolicy",policy="fleet",policy_namespace="shop",state="scaled"} 2
verticalscaler_policy_deployments{kind="ScalingPolicy",policy="fleet",policy_namespace="shop",state="skipped"} 0
# HELP verticalscaler_policy_promotion_halted [ALPHA] 1 if the promotion has halted because too many scalers did harm: a user must act. Absent if the policy promotes none.
# TYPE verticalscaler_policy_promotion_halted gauge
verticalscaler_policy_promotion_halted{kind="ClusterScalingPolicy",policy="fleet",policy_namespace=""} 1
# HELP verticalscaler_policy_scalers [ALPHA] Scalers of the policy, by stage: collecting evidence, waiting for their turn, or promoted. Of those that are promoted, verifying are being verified, and harmed did harm. Absent if the policy promotes none.
# TYPE verticalscaler_policy_scalers gauge
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="collecting"} 300
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="harmed"} 3
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="promoted"} 24
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="verifying"} 20
verticalscaler_policy_scalers{kind="ClusterScalingPolicy",policy="fleet",policy_namespace="",stage="waiting"} 156
`
	if err := testutil.GatherAndCompare(ctrlmetrics.Registry, strings.NewReader(want), "verticalscaler_policy_deployments", "verticalscaler_policy_promotion_halted", "verticalscaler_policy_scalers"); err != nil {
		t.Error(err)
	}
	teamPolicy.Forget()
	if n := policySeries(); n != SeriesPerPolicy {
		t.Errorf("a policy has %d series, want %d", n, SeriesPerPolicy)
	}
	fleetPolicy.Record(PolicyState{Scaled: 1})
	if n := policySeries(); n != 2 {
		t.Errorf("a policy that no longer promotes has %d series, want 2", n)
	}
	ForgetPolicies()
	if n := policySeries(); n != 0 {
		t.Errorf("%d series are left", n)
	}
}

func policySeries() int {
	return testutil.CollectAndCount(policyDeployments) + testutil.CollectAndCount(policyScalers) + testutil.CollectAndCount(policyHalted)
}
