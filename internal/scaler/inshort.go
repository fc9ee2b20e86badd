// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// ReasonInShort is the one reason of a scaler for tables: the reason of Ready, or of Applied while
// the scaler operates normally. It is empty without conditions.
func ReasonInShort(conditions []metav1.Condition) string {
	if c := InShort(conditions); c != nil {
		return c.Reason
	}
	return ""
}

// LacksUsage reports whether a reason means that usage of running pods is missing.
func LacksUsage(reason string) bool {
	return reason == v1beta1.ReasonMetricsIncomplete || reason == v1beta1.ReasonMetricsUnavailable
}

// IsUsageDown reports whether usage of nearly all pods is missing: for nine in ten scalers with pods, and at least three.
func IsUsageDown(blind, sized int) bool { return blind >= 3 && blind*10 >= sized*9 }

// ActionOf is the reason for which a user must act on a policy, if any. Only the label v1beta1.UsageLabel reports that usage is
// missing in the whole cluster; the status does not.
func ActionOf(policy v1beta1.ScalingPolicyStatus) string {
	blind := 0
	for _, s := range policy.States {
		if LacksUsage(s.Reason) {
			blind += int(s.Count)
		}
	}
	ready := meta.FindStatusCondition(policy.Conditions, v1beta1.ConditionReady)
	switch {
	case ready == nil:
		return ""
	case ready.Status != metav1.ConditionTrue:
		return ready.Reason
	case IsUsageDown(blind, int(policy.Scaled)):
		return v1beta1.ReasonMetricsIncomplete
	}
	return ""
}

// InShort is the condition with that reason; nil without conditions.
func InShort(conditions []metav1.Condition) *metav1.Condition {
	ready := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
	applied := meta.FindStatusCondition(conditions, v1beta1.ConditionApplied)
	if applied != nil && (ready == nil || ready.Reason == v1beta1.ReasonOperatingNormally) {
		return applied
	}
	return ready
}
