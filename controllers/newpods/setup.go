// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package newpods

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
)

// SetupWithManager wires the watches. The initial lists of the watches trigger each namespace with scalers or
// sizes, so changes made while no operator ran are written then.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{request(o.GetNamespace())}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named(Name).WithOptions(queue.Options(r.Workers)).
		Watches(&v1beta1.VerticalScaler{}, queue.In(queue.Workload, ofNamespace), builder.WithPredicates(sizesPredicate())).
		// Another client has changed or deleted them.
		Watches(&v1beta1.NewPodSizes{}, queue.In(queue.Workload, ofNamespace)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of sizes of new pods: %w", err)
	}
	return nil
}

// sizesPredicate passes changes of a scaler that change its published sizes.
func sizesPredicate() predicate.Predicate {
	hasLine := func(o client.Object) bool {
		s, ok := o.(*v1beta1.VerticalScaler)
		return ok && s.Status.NewPods != nil
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return hasLine(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return hasLine(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*v1beta1.VerticalScaler)
			after, ok2 := e.ObjectNew.(*v1beta1.VerticalScaler)
			return ok && ok2 && (before.Status.NewPods != nil || after.Status.NewPods != nil) && lineOf(before) != lineOf(after)
		},
	}
}
