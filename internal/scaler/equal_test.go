// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Comparing these the usual way takes longer than any test may.
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
