// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// installRights installs the roles and admission policies of config/default and config/policies until the test ends. The
// administrator, who runs all other tests, passes the policies.
func installRights(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"default", "policies"} {
		for _, object := range env.Rendered(t, filepath.Join(testkit.Root(), "config", folder)) {
			switch object.GetKind() {
			case "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			default:
				continue
			}
			create(t, object)
			t.Cleanup(func() {
				if err := client.IgnoreNotFound(env.Client.Delete(context.Background(), object)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// actor is a user of the API server.
type actor struct {
	client.Client
	name string
}

// actingAs is a client of that user. It has the group of all who are authenticated.
func actingAs(t *testing.T, name string) *actor {
	t.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return &actor{c, name}
}

// may binds a ClusterRole to the user: in a namespace, or in all for "".
func (a *actor) may(t *testing.T, role, namespace string) {
	t.Helper()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: a.name}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	var binding client.Object = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "t-"}, RoleRef: ref, Subjects: subjects}
	if namespace == "" {
		binding = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}, RoleRef: ref, Subjects: subjects}
	}
	create(t, binding)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(env.Client.Delete(context.Background(), binding)); err != nil {
			t.Error(err)
		}
	})
}

// untilRefused waits until a policy refuses a dry run: the API server enforces a new policy with a delay.
func untilRefused(t *testing.T, policy, words string, try func() error) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() string {
		if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'verticalscaler-"+policy+"'") || !strings.Contains(err.Error(), words) {
			return fmt.Sprintf("policy %s does not say %q yet: %v", policy, words, err)
		}
		return ""
	})
}

func inPlace(p *v1beta1.ScalingPolicy) {
	p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
}

// generatedBy is what the operator creates for a policy of that UID.
func generatedBy(t *testing.T, uid types.UID, namespace, deployment string) *v1beta1.VerticalScaler {
	t.Helper()
	p := policyOf(namespace, "fleet", inPlace)
	p.UID = uid
	return readPolicy(t, p).Desired(&v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}})
}

func readPolicy(t *testing.T, p *v1beta1.ScalingPolicy) *fleet.Policy {
	t.Helper()
	read, err := fleet.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// The token of the operator writes what a policy leads to, also without the rights on Deployments, and no more.
func TestAStolenTokenWritesOnlyTheScalersOfPolicies(t *testing.T) {
	installRights(t)
	// Only the rights for policies: the operator lacks those on Deployments.
	for _, role := range []string{"verticalscaler-manager-rollout", "verticalscaler-manager-scaled-deployment"} {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}}
		if err := env.Client.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	namespace := env.Namespace(t)
	thief := actingAs(t, "system:serviceaccount:"+testkit.System+":"+testkit.ServiceAccount)
	ofUser := testkit.Scaler(namespace, "mine", "mine")
	create(t, ofUser)
	stored := policyOf(namespace, "fleet", inPlace)
	create(t, stored)
	policy := readPolicy(t, stored)
	other := clusterPolicy(namespace, namespace)
	create(t, other)
	t.Cleanup(func() { deleteObjectAfter(t, other) })

	const scalers = "operator-scalers"
	untilRefused(t, scalers, "must have the name of its Deployment", func() error {
		s := generatedBy(t, stored.UID, namespace, "web")
		s.Spec.DeploymentName = "api"
		return thief.Create(t.Context(), s, client.DryRunAll)
	})
	orByUsers := func(what string, err error, says string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'verticalscaler-users'") && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	dev := actingAs(t, "dev-of-"+namespace)
	dev.may(t, "verticalscaler-editor", namespace)
	untilRefused(t, "users", "cannot patch resource", func() error { // What the operator is not asked for.
		return dev.Create(t.Context(), generatedBy(t, stored.UID, namespace, "web"), client.DryRunAll)
	})
	// The account lacks rights on Deployments, so two policies refuse these. The API server names one of them.
	orByUsers("creating one of no policy", thief.Create(t.Context(), testkit.Scaler(namespace, "made", "web"), client.DryRunAll), "may only create and delete scalers that")
	orByUsers("taking a user's", thief.Update(t.Context(), policy.Desired(ofUser), client.DryRunAll), "may only change its own finalizer")
	untilRefused(t, scalers, "may only create and delete", func() error { return thief.Delete(t.Context(), ofUser.DeepCopy(), client.DryRunAll) })
	scaler := generatedBy(t, stored.UID, namespace, "web")
	if err := thief.Create(t.Context(), scaler); err != nil {
		t.Fatal(err)
	}

	// From here on, the operator does its work.
	cluster, err := fleet.ReadCluster(other, testkit.System)
	if err != nil {
		t.Fatal(err)
	}
	for _, next := range []func(*v1beta1.VerticalScaler) *v1beta1.VerticalScaler{
		func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler { return policy.Promoted(s, time.Now()) },
		func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
			return fleet.Marked(s, v1beta1.HarmedAnnotation, time.Now())
		},
		cluster.Desired,
		policy.Desired,
	} {
		scaler = next(scaler)
		if err := thief.Update(t.Context(), scaler); err != nil {
			t.Fatal(err)
		}
	}
	if scaler.Spec.UpdatePolicy.UpdateMode != v1beta1.UpdateModeInPlace {
		t.Errorf("the scaler is in mode %s", scaler.Spec.UpdatePolicy.UpdateMode)
	}
	// A user's edit and a finalizer that was set before the edit is reverted.
	patchObject(t, &v1beta1.VerticalScaler{}, client.ObjectKeyFromObject(scaler), `{"spec":{"deploymentName":"api"},"metadata":{"finalizers":["autoscaling.verticalscaler.io/restore-original-resources"]}}`)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler); err != nil {
		t.Fatal(err)
	}
	scaler.Finalizers = nil
	if err := thief.Update(t.Context(), scaler); err != nil {
		t.Errorf("removing the finalizer: %v", err)
	}
	scaler = policy.Desired(scaler)
	if err := thief.Update(t.Context(), scaler); err != nil {
		t.Errorf("reverting the edit: %v", err)
	}
	patchObject(t, &v1beta1.VerticalScaler{}, client.ObjectKeyFromObject(scaler), `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/detached":"yes"},"labels":{"team":"shop"}}}`)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(scaler), scaler); err != nil {
		t.Fatal(err)
	}
	scaler = fleet.Released(scaler)
	if err := thief.Update(t.Context(), scaler); err != nil {
		t.Fatalf("releasing: %v", err)
	}
	if fleet.IsGenerated(scaler) || len(scaler.OwnerReferences) > 0 || scaler.Labels["team"] != "shop" {
		t.Errorf("it is still %+v", scaler.ObjectMeta)
	}
	second := generatedBy(t, stored.UID, namespace, "api")
	if err := thief.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if err := thief.Delete(t.Context(), second, client.Preconditions{UID: ptr.To(second.UID), ResourceVersion: ptr.To(second.ResourceVersion)}); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// deleteObjectAfter deletes an object at the end of a test.
func deleteObjectAfter(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(env.Client.Delete(context.Background(), object)); err != nil {
		t.Error(err)
	}
}
