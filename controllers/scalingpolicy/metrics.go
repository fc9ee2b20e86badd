// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
)

// measured names the policy of a request in metrics.
func measured(key types.NamespacedName) metrics.Policy {
	kind := v1beta1.ScalingPolicyKind
	if key.Namespace == "" {
		kind = v1beta1.ClusterScalingPolicyKind
	}
	return metrics.Policy{Kind: kind, Namespace: key.Namespace, Name: key.Name}
}

// measuredState is what the status of a policy says.
func measuredState(status v1beta1.ScalingPolicyStatus) metrics.PolicyState {
	out := metrics.PolicyState{Scaled: status.Scaled}
	for _, skipped := range status.Skipped {
		out.Skipped += skipped.Count
	}
	if r := status.Rollout; r != nil {
		promoting := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionPromoting)
		out.Stages = &metrics.Stages{
			Collecting: r.Collecting, Waiting: r.Waiting, Verifying: r.Verifying, Promoted: r.Promoted, Harmed: r.Harmed,
			Halted: promoting != nil && promoting.Reason == v1beta1.ReasonPromotionHalted,
		}
	}
	return out
}
