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
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// controlledBy sets the controller of the Deployment.
func controlledBy(d *appsv1.Deployment, apiVersion, kind string, uid types.UID) *appsv1.Deployment {
	d.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: uid, Controller: ptr.To(true)}}
	return d
}

// A ScaledDeployment is compared with its whole Deployment, so the spec and the status stay
// complete.
func TestTrimKeepsOwnedDeployments(t *testing.T) {
	for name, tc := range map[string]struct {
		apiVersion, kind string
		keeps            bool
	}{
		"of a ScaledDeployment":                     {"autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", true},
		"of a ScaledDeployment in a future version": {"autoscaling.verticalscaler.io/v1", "ScaledDeployment", true},
		"of another API group":                      {"example.com/v1beta1", "ScaledDeployment", false},
		"of another kind":                           {"autoscaling.verticalscaler.io/v1beta1", "VerticalScaler", false},
	} {
		t.Run(name, func(t *testing.T) {
			whole := controlledBy(richDeployment(1), tc.apiVersion, tc.kind, "owner-1")
			whole.Labels[v1beta1.ScaledDeploymentLabel] = "web"
			whole.Annotations[v1beta1.AppliedAnnotation] = "1"
			scalers := metav1.ManagedFieldsEntry{Manager: "verticalscaler", Operation: "Update", FieldsV1: ownedFields(3)}
			owners := metav1.ManagedFieldsEntry{Manager: "scaleddeployment", Operation: "Apply", FieldsV1: ownedFields(2)}
			whole.ManagedFields = append(whole.ManagedFields, scalers, owners)
			d := trimmed(t, whole.DeepCopy())
			if diff := cmp.Diff(workload.ReadDeployment(whole), workload.ReadDeployment(d)); diff != "" {
				t.Errorf("reading it (-whole +trimmed):\n%s", diff)
			}
			if !tc.keeps {
				if d.Spec.Template.Spec.Volumes != nil || d.ManagedFields != nil || d.Labels != nil || d.Annotations != nil || d.Status.Conditions != nil {
					t.Errorf("kept: %+v", d)
				}
				return
			}
			want := whole.DeepCopy()
			want.Labels = map[string]string{v1beta1.ScaledDeploymentLabel: "web"}
			want.Annotations = map[string]string{v1beta1.AppliedAnnotation: "1"}
			want.ManagedFields = []metav1.ManagedFieldsEntry{scalers}
			if diff := cmp.Diff(want, d); diff != "" {
				t.Errorf("trimmed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(d.DeepCopy(), trimmed(t, d)); diff != "" {
				t.Errorf("trimmed again (-once +twice):\n%s", diff)
			}
		})
	}
	t.Run("an owner that is not the controller is ignored", func(t *testing.T) {
		d := controlledBy(richDeployment(1), "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", "owner-1")
		d.OwnerReferences[0].Controller = nil
		if d = trimmed(t, d); d.Spec.Template.Spec.Volumes != nil {
			t.Errorf("kept: %+v", d.Spec)
		}
	})
}
