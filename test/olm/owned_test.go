// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// ownedIn creates a ScaledDeployment with one pod and a scaler in that mode.
func ownedIn(t *testing.T, namespace, name string, mode v1beta1.UpdateMode) {
	t.Helper()
	template := testkit.Deployment(namespace, name).Spec.Template
	template.Annotations = map[string]string{usesCPU: "340m", usesMemory: "300Mi"}
	template.Spec.Containers[0].Resources.Limits = nil
	create(t, &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.ScaledDeploymentSpec{
			Replicas: ptr.To[int32](1), Template: template,
			Scaling: &v1beta1.Scaling{
				UpdatePolicy:   v1beta1.UpdatePolicy{UpdateMode: mode, CooldownSeconds: ptr.To[int32](0)},
				ResourcePolicy: enough(),
			},
		},
	})
}

func owner(t *testing.T, namespace, name string) *v1beta1.ScaledDeployment {
	t.Helper()
	var o v1beta1.ScaledDeployment
	if err := env.Client.Get(t.Context(), key(namespace, name), &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

// available waits until the ScaledDeployment reports that its whole spec is applied.
func available(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		o := owner(t, namespace, name)
		if o.Status.ObservedGeneration != o.Generation || !meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionReady) {
			return fmt.Sprintf("ScaledDeployment %s/%s: %+v", namespace, name, o.Status)
		}
		return ""
	})
}

// missing returns a message while the object exists.
func missing(t *testing.T, namespace, name string, object client.Object) string {
	t.Helper()
	err := env.Client.Get(t.Context(), key(namespace, name), object)
	if apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("%T %s/%s is still there: %v", object, namespace, name, err)
}

// revertsDrift changes the number of replicas by hand, and waits until the operator reverts it.
func revertsDrift(t *testing.T, namespace, name string) {
	t.Helper()
	wanted := *deployment(t, namespace, name).Spec.Replicas
	patch(t, deployment(t, namespace, name), `{"spec":{"replicas":%d}}`, wanted+1)
	eventually(t, func() string {
		if n := *deployment(t, namespace, name).Spec.Replicas; n != wanted {
			return fmt.Sprintf("Deployment %s/%s has %d replicas, not %d", namespace, name, n, wanted)
		}
		return ""
	})
}

// keepsWhatItOwns takes a ScaledDeployment through all that the operator does for one.
func keepsWhatItOwns(t *testing.T, namespace string) {
	t.Helper()
	const name, renamed = "orders", "orders-v2"
	ownedIn(t, namespace, name, v1beta1.UpdateModeRecommend)
	available(t, namespace, name)
	t.Log("the Deployment and the scaler of a ScaledDeployment are created")

	revertsDrift(t, namespace, name)
	patch(t, scaler(t, namespace, name), `{"spec":{"updatePolicy":{"updateMode":"InPlace"}}}`)
	eventually(t, func() string {
		if mode := scaler(t, namespace, name).Spec.UpdatePolicy.UpdateMode; mode != v1beta1.UpdateModeRecommend {
			return fmt.Sprintf("the scaler's mode is %s: it is not reverted", mode)
		}
		return ""
	})
	t.Log("changes by others are reverted")

	patch(t, owner(t, namespace, name), `{"spec":{"deploymentName":%q}}`, renamed)
	available(t, namespace, name)
	if n := deployment(t, namespace, renamed).Status.AvailableReplicas; n != 1 {
		t.Errorf("the renamed Deployment has %d pods", n)
	}
	eventually(t, func() string {
		if got := scaler(t, namespace, name).Spec.DeploymentName; got != renamed {
			return "the scaler sizes " + got
		}
		return missing(t, namespace, name, &appsv1.Deployment{})
	})
	t.Log("a Deployment is renamed")

	patch(t, owner(t, namespace, name), `{"spec":{"scaling":null}}`)
	eventually(t, func() string { return missing(t, namespace, name, &v1beta1.VerticalScaler{}) })
	available(t, namespace, name)

	if err := env.Client.Delete(t.Context(), owner(t, namespace, name)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { return missing(t, namespace, renamed, &appsv1.Deployment{}) })
	t.Log("scaling is removed, and owned objects are deleted with their owner")
}

// blockingIsGuarded makes sure that the API server enforces
// OwnerReferencesPermissionEnforcement. Otherwise, the tests would not notice if the
// operator lacked the right to write references that block the owner's deletion.
func blockingIsGuarded(t *testing.T, namespace string) {
	t.Helper()
	const name = "someone"
	create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}},
	})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	as, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	blocks := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScaledDeploymentKind, Name: name, UID: "1", BlockOwnerDeletion: ptr.To(true),
	}}}}
	eventually(t, func() string { // the API server observes a binding with a delay
		err := as.Create(t.Context(), blocks.DeepCopy(), client.DryRunAll)
		if err == nil {
			t.Fatal("the API server runs without the admission plugin OwnerReferencesPermissionEnforcement")
		}
		if !strings.Contains(err.Error(), "cannot set blockOwnerDeletion") {
			return err.Error()
		}
		return ""
	})
}
