// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// The API of VerticalPodAutoscalers may be added and removed while the operator runs.
func TestTheAPIOfVPAsIsAddedAndRemoved(t *testing.T) {
	namespace := env.Namespace(t)
	reader, err := dynamic.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	vpas := &inventory.VPAs{Client: reader}
	vpas.Follow(t.Context(), func(workload.VPA) {})
	if err := vpas.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	known := func(want int) {
		t.Helper()
		testkit.Eventually(t, 2*time.Minute, func() string {
			if got := len(vpas.Of(testkit.Deployment(namespace, "web"))); got != want {
				return fmt.Sprintf("%d VerticalPodAutoscalers are known, not %d", got, want)
			}
			return ""
		})
	}
	gone := func(crd string) {
		t.Helper()
		testkit.Eventually(t, 2*time.Minute, func() string {
			object := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}}
			if err := env.Client.Get(t.Context(), client.ObjectKey{Name: crd}, &object); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%s is still there: %v", crd, err)
			}
			return ""
		})
	}
	options := envtest.CRDInstallOptions{Paths: []string{testkit.VPACRD()}, ErrorIfPathMissing: true}
	for range 2 {
		known(0)
		if _, err := envtest.InstallCRDs(env.Config, options); err != nil {
			t.Fatal(err)
		}
		vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
		}}}
		vpa.SetGroupVersionKind(schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"})
		vpa.SetNamespace(namespace)
		vpa.SetName("web")
		testkit.Eventually(t, 2*time.Minute, func() string {
			// A kind is served shortly after it is established.
			if err := env.Client.Create(t.Context(), vpa.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
				return err.Error()
			}
			return ""
		})
		known(1)
		if err := envtest.UninstallCRDs(env.Config, options); err != nil {
			t.Fatal(err)
		}
		known(0)
		// A definition stays until its objects are deleted. It cannot be updated then.
		gone("verticalpodautoscalers.autoscaling.k8s.io")
	}
}
