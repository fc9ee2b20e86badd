// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// thief is a client with the operator's own token, and all rights of the operator.
func (w *fixture) thief() client.Client {
	w.Helper()
	account := env.Account(w.t, testkit.System, testkit.ServiceAccount)
	c, err := client.New(account.Config, client.Options{Scheme: env.Client.Scheme()})
	must.Succeed(w, err)
	return c
}

// A stolen token names a ScaledDeployment that does not exist, beside one that does. No policy can refuse that.
func TestWhatAStolenTokenCreatesWithoutAnOwnerIsCollected(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Own("web")
	thief := w.thief()
	d := testkit.Deployment(w.Namespace, "gone")
	d.Labels = map[string]string{ownerLabel: "gone", v1beta1.ApplyingLabel: "true"}
	d.Spec.Template.Labels[ownerLabel] = "gone"
	d.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(), Kind: "ScaledDeployment", Name: "gone", UID: "00000000-0000-0000-0000-000000000000", Controller: ptr.To(true),
	}}
	// The API server learns of the first one with a delay.
	w.eventually(func() string { return testkit.MessageOf(thief.Create(t.Context(), d.DeepCopy())) })
	w.gone(d)
	w.eventually(func() string {
		var pods corev1.PodList
		if err := env.Client.List(t.Context(), &pods, client.InNamespace(w.Namespace), client.MatchingLabels{ownerLabel: "gone"}); err != nil {
			return err.Error()
		}
		if len(pods.Items) > 0 {
			return fmt.Sprintf("%d of its pods are left", len(pods.Items))
		}
		return ""
	})
}
