// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

func TestReasonInShort(t *testing.T) {
	c := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: "True", Reason: reason}
	}
	for want, conditions := range map[string][]metav1.Condition{
		"":                   nil,
		"Applied":            {c("Ready", "OperatingNormally"), c("Applied", "Applied")},
		"Verifying":          {c("Applied", "Verifying"), c("Ready", "OperatingNormally")},
		"Learning":           {c("Ready", "Learning"), c("Applied", "Learning")},
		"MetricsUnavailable": {c("Ready", "MetricsUnavailable"), c("Applied", "Applied")},
		"Resizing":           {c("Applied", "Resizing")},
		"OperatingNormally":  {c("Ready", "OperatingNormally")},
	} {
		if got := scaler.ReasonInShort(conditions); got != want {
			t.Errorf("ReasonInShort(%v) = %q, want %q", conditions, got, want)
		}
	}
}
