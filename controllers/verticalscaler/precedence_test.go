// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
)

// A scaler behind another one may need events of the Deployment to restore its values.
func TestAScalerThatStandsBackKeepsItsClaimUntilItHasRestored(t *testing.T) {
	original := &v1beta1.OriginalResources{DeploymentName: "web"}
	for name, tc := range map[string]struct {
		standing precedence.Standing
		original *v1beta1.OriginalResources
		want     string
	}{
		"first":                           {want: "ns/web"},
		"behind, nothing to restore":      {standing: precedence.Standing{Winner: "elder"}},
		"behind, with values to restore":  {precedence.Standing{Winner: "elder"}, original, "ns/web"},
		"refused, with values to restore": {precedence.Standing{Refused: true}, original, "ns/web"},
	} {
		t.Run(name, func(t *testing.T) {
			vs := &v1beta1.VerticalScaler{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "web"},
			}
			scaler.RecordClaim(&vs.Status, "ns/web")
			s := &scope{scaler: vs, standing: tc.standing, status: *vs.Status.DeepCopy()}
			s.status.OriginalResources = tc.original
			if _, err := (&Reconciler{}).claim(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if got := s.status.Annotations[v1beta1.ClaimAnnotation]; got != tc.want {
				t.Errorf("claims %q, want %q", got, tc.want)
			}
		})
	}
}
