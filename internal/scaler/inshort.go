// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// ReasonInShort is the one reason that says how a scaler is doing, for tables: that of Ready, or that
// of Applied while the scaler operates normally. It is empty without conditions.
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

// InShort is the condition with that reason; nil without conditions.
func InShort(conditions []metav1.Condition) *metav1.Condition {
	ready := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
	applied := meta.FindStatusCondition(conditions, v1beta1.ConditionApplied)
	if applied != nil && (ready == nil || ready.Reason == v1beta1.ReasonOperatingNormally) {
		return applied
	}
	return ready
}
