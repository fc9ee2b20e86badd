// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// While the cache does not show the resize that was just made, no other pod is resized: the next
// reconcile would count its pods wrongly.
func TestAReconcileOnAnOldCacheResizesNothing(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	var resized []string
	var patched client.Patch
	p.Client = interceptor.NewClient(p.server, interceptor.Funcs{
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			resized, patched = append(resized, o.GetName()), patch
			o.SetGeneration(2) // The API server says so, and the cache does not yet.
			return nil
		},
	})
	for i := range 4 {
		if _, _, err := p.reconcile(); err != nil || len(resized) != 1 {
			t.Fatalf("reconcile %d on an old cache: %v, resized %v, want one pod", i, err, resized)
		}
	}

	// The cache catches up, and the kubelet has applied the resize.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: resized[0]}}
	if err := p.server.Patch(t.Context(), pod, patched); err != nil {
		t.Fatal(err)
	}
	pod.Generation = 2
	if err := p.server.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.ObservedGeneration = 2
	pod.Status.ContainerStatuses[0].Resources = pod.Spec.Containers[0].Resources.DeepCopy()
	if err := p.server.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.reconcile(); err != nil || len(resized) != 2 || resized[0] == resized[1] {
		t.Errorf("once the cache has caught up: %v, resized %v, want a second pod", err, resized)
	}
}
