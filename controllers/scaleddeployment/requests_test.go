// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A ScaledDeployment whose Deployment is rejected is tried again each minute. The API server must not
// send all Deployments of the namespace each time.
func TestARejectedDeploymentReadsNoOthers(t *testing.T) {
	rejects := interceptor.Funcs{Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
		return apierrors.NewForbidden(appsv1.Resource("deployments"), "web", fmt.Errorf("exceeded quota: team"))
	}}
	var others []client.Object
	for i := range 100 {
		others = append(others, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("other-%d", i)}})
	}
	s := newFixture(t, anOwner(), rejects, others...)
	sent := 0
	live, ok := s.Client.(client.WithWatch)
	if !ok {
		t.Fatal("the fake client cannot watch")
	}
	s.reconciler.Live = interceptor.NewClient(live, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := c.List(ctx, list, options...)
			sent += meta.LenList(list)
			return err
		},
	})
	for range 3 {
		if _, result, err := s.reconcile(); err != nil || result.RequeueAfter != rejectedRetry {
			t.Fatalf("reconciled again after %v: %v", result.RequeueAfter, err)
		}
	}
	// One is the owner, which must still exist when its Deployment is created.
	if sent > 3 {
		t.Errorf("the API server has sent %d objects in 3 reconciles, want one in each", sent)
	}
}
