// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
