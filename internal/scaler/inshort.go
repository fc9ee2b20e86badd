// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// ReasonInShort is the one reason that says how a scaler is doing, for tables: that of Ready, or that
// of Applied while the scaler operates normally, or MetricsIncomplete if the scaler only recommends and lacks usage of
// pods. It is empty without conditions.
func ReasonInShort(conditions []metav1.Condition) string {
	if c := InShort(conditions); c != nil {
		return c.Reason
	}
	return ""
}

// InShort is the condition with that reason; nil without conditions.
func InShort(conditions []metav1.Condition) *metav1.Condition {
	ready := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
	applied := meta.FindStatusCondition(conditions, v1beta1.ConditionApplied)
	if applied != nil && (ready == nil || ready.Reason == v1beta1.ReasonOperatingNormally) {
		provided := meta.FindStatusCondition(conditions, v1beta1.ConditionRecommendationProvided)
		if applied.Reason == v1beta1.ReasonRecommendOnly && provided != nil && provided.Reason == v1beta1.ReasonMetricsIncomplete {
			return provided // What is recommended rests on only some of the pods.
		}
		return applied
	}
	return ready
}
