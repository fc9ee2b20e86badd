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

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
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

// trimming makes a client that answers as the cache does, which has no pod templates.
func trimming(t *testing.T) interceptor.Funcs {
	t.Helper()
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, into, options...)
			_, failed := inventory.Trim(into)
			must.Succeed(t, failed)
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			err := c.List(ctx, into, options...)
			must.Succeed(t, meta.EachListItem(into, func(o runtime.Object) error {
				_, err := inventory.Trim(o)
				return err
			}))
			return err
		},
	}
}

// The owner and its Deployment are read live, once for each version of them.
func TestASettledOwnerIsNotReadAgain(t *testing.T) {
	s := newFixture(t, anOwner(withScaling), trimming(t))
	live, ok := s.Client.(client.WithWatch)
	if !ok {
		t.Fatal("the fake client cannot watch")
	}
	reads := 0
	s.reconciler.Live = interceptor.NewClient(live, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			reads++
			return c.List(ctx, list, options...)
		},
	})
	expect := func(when string, wantReads, wantApplied int) {
		t.Helper()
		reads, s.applied = 0, nil
		if _, _, err := s.reconcile(); err != nil || reads != wantReads || len(s.applied) != wantApplied {
			t.Errorf("%s: %d reads, applied %v, %v; want %d and %d", when, reads, s.applied, err, wantReads, wantApplied)
		}
	}
	change := func(change func(*appsv1.Deployment)) {
		var d appsv1.Deployment
		must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d))
		change(&d)
		must.Succeed(t, s.Update(t.Context(), &d))
	}
	expect("at first", 4, 3) // The owner, its Deployments, and that both names are free.
	for range 3 {
		expect("at rest", 0, 0)
	}
	change(func(d *appsv1.Deployment) { d.Labels["team"] = "shop" })
	expect("after a change of another user", 2, 0)
	expect("at rest again", 0, 0)
	change(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/other:1" })
	expect("after a change of the image", 2, 2)
	expect("after the image was reverted", 0, 0)
	var owner v1beta1.ScaledDeployment
	must.Succeed(t, s.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &owner))
	if len(owner.Spec.Template.Spec.Containers) == 0 || owner.Status.Selector == "" {
		t.Errorf("the owner was written without what the cache lacks: %+v, status %+v", owner.Spec, owner.Status)
	}
}
