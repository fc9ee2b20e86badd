// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// thief is a client with the operator's own token, and all rights of the operator.
func (w *fixture) thief() client.Client {
	w.Helper()
	account := env.Account(w.T, testkit.System, testkit.ServiceAccount)
	c, err := client.New(account.Config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// refused fails unless the error is the policy's rejection with these words.
func refused(t *testing.T, err error, policy string, words ...string) {
	t.Helper()
	wrong := !apierrors.IsForbidden(err)
	for _, word := range append(words, "ValidatingAdmissionPolicy 'verticalscaler-"+policy+"'") {
		wrong = wrong || !strings.Contains(err.Error(), word)
	}
	if wrong {
		t.Errorf("got %v, want a refusal of policy %s with %q", err, policy, words)
	}
}

// untilRejectedBy waits until a policy rejects the request, which must change nothing: the API
// server enforces a new policy with a delay.
func (w *fixture) untilRejectedBy(policy string, try func() error) {
	w.Helper()
	w.eventually(func() string {
		if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "verticalscaler-"+policy) {
			return fmt.Sprintf("policy %s is not enforced yet: %v", policy, err)
		}
		return ""
	})
}

// A stolen token names a ScaledDeployment that does not exist, beside one that does. No policy can refuse that.
func TestWhatAStolenTokenCreatesWithoutAnOwnerIsCollected(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.own("web")
	thief := w.thief()
	d := testkit.Deployment(w.namespace, "gone")
	d.Labels = map[string]string{ownerLabel: "gone"}
	d.Spec.Template.Labels[ownerLabel] = "gone"
	d.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(), Kind: "ScaledDeployment", Name: "gone", UID: "00000000-0000-0000-0000-000000000000", Controller: ptr.To(true),
	}}
	w.eventually(func() string { return said(thief.Create(t.Context(), d.DeepCopy())) }) // The API server learns of the first one with a delay.
	w.gone(d)
	w.eventually(func() string {
		var pods corev1.PodList
		if err := env.Client.List(t.Context(), &pods, client.InNamespace(w.namespace), client.MatchingLabels{ownerLabel: "gone"}); err != nil {
			return err.Error()
		}
		if len(pods.Items) > 0 {
			return fmt.Sprintf("%d of its pods are left", len(pods.Items))
		}
		return ""
	})
}

// grant grants rights in the test's namespace.
func (w *fixture) grant(to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	w.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "t-"}, Rules: rules}
	w.create(role)
	if to.Kind == rbacv1.UserKind {
		to.APIGroup = rbacv1.GroupName
	}
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "t-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{to},
	})
}

// user is a client with the rights that a test grants it in its namespace.
type user struct {
	*fixture
	client.Client
	subject rbacv1.Subject
}

// user may do everything with scalers and ScaledDeployments, and nothing with Deployments.
func (w *fixture) user(name string) user {
	w.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		w.Fatal(err)
	}
	u := user{w, c, rbacv1.Subject{Kind: rbacv1.UserKind, Name: name}}
	w.grant(u.subject, rbacv1.PolicyRule{
		APIGroups: []string{"autoscaling.verticalscaler.io"}, Verbs: []string{"*"},
		Resources: []string{"verticalscalers", "scaleddeployments", "scaleddeployments/scale"},
	})
	return u
}

// may grants the user a right on all Deployments.
func (u user) may(verb string) {
	u.Helper()
	u.grant(u.subject, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{verb}})
}
