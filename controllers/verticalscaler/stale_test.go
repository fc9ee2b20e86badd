// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// While the cache does not show the last resize, no other pod is resized: the next reconcile would
// count its pods wrongly.
func TestAReconcileOnAnOldCacheResizesNothing(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	var patched client.Patch
	p.answer = func(o client.Object, patch client.Patch) error {
		patched = patch
		o.SetGeneration(2) // Only the API server has it yet.
		return nil
	}
	for i := range 4 {
		if _, _, err := p.reconcile(); err != nil || len(p.resized) != 1 {
			t.Fatalf("reconcile %d on an old cache: %v, resized %v, want one pod", i, err, p.resized)
		}
	}

	// The cache catches up, and the kubelet has applied the resize.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: p.resized[0]}}
	must.Succeed(t, p.server.Patch(t.Context(), pod, patched))
	pod.Generation = 2
	must.Succeed(t, p.server.Update(t.Context(), pod))
	pod.Status.ObservedGeneration = 2
	pod.Status.ContainerStatuses[0].Resources = pod.Spec.Containers[0].Resources.DeepCopy()
	must.Succeed(t, p.server.Status().Update(t.Context(), pod))
	if _, _, err := p.reconcile(); err != nil || len(p.resized) != 2 || p.resized[0] == p.resized[1] {
		t.Errorf("once the cache has caught up: %v, resized %v, want a second pod", err, p.resized)
	}
}

// Etcd is restored from a backup: a pod and a Deployment have lower generations than our last writes led to. The memory of
// these writes ends after a while, and the pod is sized.
func TestAnOldGenerationIsBelievedAfterAWhile(t *testing.T) {
	p := newPlant(t, 400)
	p.answer = func(o client.Object, _ client.Patch) error {
		o.SetGeneration(2) // which the backup does not have
		return nil
	}
	for after, want := range []int{1, 1, 2} { // in half minutes
		if _, _, err := p.reconcile(); err != nil || len(p.resized) != want {
			t.Errorf("after %d half minutes: %v, resized %v, want %d", after, err, p.resized, want)
		}
		p.clock.SetTime(p.clock.Now().Add(ownwrites.StaleFor / 2))
	}
}

// A rejected request of any scaler is retried within the period of resyncs.
func TestARejectionEndsWithinTheResyncPeriod(t *testing.T) {
	for _, uid := range []types.UID{"a", "b", "c", "web", "api", "e7a0"} {
		p := newPlant(t, 400)
		period := p.retryPeriod(uid)
		if period > p.ResyncPeriod || period < p.ResyncPeriod/2 {
			t.Errorf("%s: %s of %s", uid, period, p.ResyncPeriod)
		}
	}
	p := newPlant(t, 400)
	p.conflict = apierrors.NewForbidden(corev1.Resource("pods"), "checkout-1-a", errors.New("the right is missing"))
	var result reconcile.Result
	for range 6 { // until all pods are rejected
		var err error
		if _, result, err = p.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	before := len(p.resized)
	p.conflict = nil
	for passed := time.Duration(0); len(p.resized) == before && passed < p.ResyncPeriod; passed += result.RequeueAfter {
		p.clock.SetTime(p.clock.Now().Add(result.RequeueAfter))
		var err error
		if _, result, err = p.reconcile(); err != nil || result.RequeueAfter <= 0 {
			t.Fatalf("again in %s: %v", result.RequeueAfter, err)
		}
	}
	if len(p.resized) == before {
		t.Error("no resize is tried within the period")
	}
}
