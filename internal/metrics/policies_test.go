// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// fleetPolicy and teamPolicy have one name.
var (
	fleetPolicy = Policy{Kind: "ClusterScalingPolicy", Name: "fleet"}
	teamPolicy  = Policy{Kind: "ScalingPolicy", Namespace: "shop", Name: "fleet"}
)

func TestPoliciesHaveSeriesOfTheirOwn(t *testing.T) {
	p := &Policies{}
	p.Record(fleetPolicy, PolicyState{Scaled: 1})
	p.Record(fleetPolicy, PolicyState{Scaled: 480, Skipped: 20, Stages: &Stages{Collecting: 300, Waiting: 156, Verifying: 20, Promoted: 24, Harmed: 3, Halted: true}})
	p.Record(teamPolicy, PolicyState{Scaled: 2})
	p.Record(Policy{Kind: "ScalingPolicy", Namespace: "shop", Name: "gone"}, PolicyState{Scaled: 7, Stages: &Stages{}})
	p.Forget(Policy{Kind: "ScalingPolicy", Namespace: "shop", Name: "gone"})
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
	if err := testutil.CollectAndCompare(p, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	p.Forget(teamPolicy)
	if n := testutil.CollectAndCount(p); n != SeriesPerPolicy {
		t.Errorf("a policy has %d series, want %d", n, SeriesPerPolicy)
	}
}

// While a manager is replaced, both may be running. A series may be there once only.
func TestTheNewestManagerReportsPolicies(t *testing.T) {
	all := &policyManagers{}
	before, after := &Policies{}, &Policies{}
	before.Record(fleetPolicy, PolicyState{Scaled: 1})
	before.Record(teamPolicy, PolicyState{Scaled: 1})
	after.Record(fleetPolicy, PolicyState{Scaled: 2})
	count := func() int { return testutil.CollectAndCount(all) }
	if n := count(); n != 0 {
		t.Errorf("%d series without a manager", n)
	}
	all.add(before)
	if n := count(); n != 4 {
		t.Errorf("%d series with one manager, want 4", n)
	}
	all.add(after)
	if n := count(); n != 2 {
		t.Errorf("%d series with two managers, want 2", n)
	}
	all.remove(before)
	if n := count(); n != 2 {
		t.Errorf("%d series after the first has ended, want 2", n)
	}
}

func TestPoliciesAreServedWhileTheManagerRuns(t *testing.T) {
	p, ended := &Policies{}, make(chan error)
	p.Record(teamPolicy, PolicyState{})
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- p.Start(ctx) }()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(servedPolicies); n != 0 {
		t.Errorf("%d series after the manager has ended", n)
	}
	var none *Policies
	none.Record(teamPolicy, PolicyState{})
	none.Forget(teamPolicy)
}
