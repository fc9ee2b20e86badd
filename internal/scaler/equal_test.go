// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Comparing these with Quantity.Cmp takes longer than any test may.
func TestAForgedStatusIsComparedInNoTime(t *testing.T) {
	forged := v1beta1.VerticalScalerStatus{Recommendation: &v1beta1.Recommendation{
		ContainerRecommendations: []v1beta1.ContainerRecommendation{{
			ContainerName: "app", Target: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("1e1999999999"))},
		}},
	}}
	ours := *forged.DeepCopy()
	ours.Recommendation.ContainerRecommendations[0].Target.CPU = ptr.To(resource.MustParse("100m"))
	if EqualStatus(forged, ours) || EqualStatus(forged, *forged.DeepCopy()) {
		t.Error("a forged amount is the same as ours")
	}
	if !EqualStatus(ours, *ours.DeepCopy()) {
		t.Error("a status is not the same as its copy")
	}
	if got := PublishedRecommendation(forged.Recommendation, "app"); got.Target.CPUMillis != 0 {
		t.Errorf("a forged amount is read as %d", got.Target.CPUMillis)
	}
}

// Another zone, and another notation of an amount, are the same.
func TestStatusesAreComparedByMeaning(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ours := v1beta1.VerticalScalerStatus{
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionReady, LastTransitionTime: metav1.NewTime(at)}},
		Decision:   &v1beta1.Decision{Time: metav1.NewTime(at), Containers: []v1beta1.ContainerDecision{{Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("1500m"))}}}},
	}
	theirs := *ours.DeepCopy()
	theirs.Conditions[0].LastTransitionTime = metav1.NewTime(at.In(time.FixedZone("", 3600)))
	theirs.Decision.Containers[0].Requests.CPU = ptr.To(resource.MustParse("1.5"))
	theirs.History, theirs.Annotations = []v1beta1.HistoryEntry{}, map[string]string{}
	if !EqualStatus(ours, theirs) {
		t.Error("the same in another notation differs")
	}
}
