// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// controlledBy sets the controller of the Deployment.
func controlledBy(d *appsv1.Deployment, apiVersion, kind string, uid types.UID) *appsv1.Deployment {
	d.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: uid, Controller: ptr.To(true)}}
	return d
}

// A ScaledDeployment repeats the conditions of its Deployment, and reads everything else live.
func TestTrimKeepsTheConditionsOfOwnedDeployments(t *testing.T) {
	for name, tc := range map[string]struct {
		apiVersion, kind string
		isController     bool
		keeps            bool
	}{
		"of a ScaledDeployment":                      {"autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", true, true},
		"of a version that is not served":            {"autoscaling.verticalscaler.io/v1", "ScaledDeployment", true, false},
		"of another API group":                       {"example.com/v1beta1", "ScaledDeployment", true, false},
		"of another kind":                            {"autoscaling.verticalscaler.io/v1beta1", "VerticalScaler", true, false},
		"of an owner that does not control anything": {"autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			whole := controlledBy(richDeployment(1), tc.apiVersion, tc.kind, "owner-1")
			whole.OwnerReferences[0].Controller = ptr.To(tc.isController)
			whole.Labels[v1beta1.ScaledDeploymentLabel] = "web"
			d := trimmed(t, whole.DeepCopy())
			assert.Equal(t, "reading the trimmed Deployment", workload.ReadDeployment(whole), workload.ReadDeployment(d))
			if d.Spec.Template.Spec.Volumes != nil || d.ManagedFields != nil || d.Labels != nil || d.Annotations != nil {
				t.Errorf("kept: %+v", d)
			}
			if diff := cmp.Diff(whole.Status.Conditions, d.Status.Conditions); (diff == "") != tc.keeps {
				t.Errorf("the conditions are kept: want %t (-whole +trimmed):\n%s", tc.keeps, diff)
			}
			assert.Equal(t, "trimmed again", d.DeepCopy(), trimmed(t, d))
		})
	}
}
