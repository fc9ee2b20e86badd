// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mapping is the example of docs/watch-a-deployment.md: a controller that is triggered by
// Deployments that it does not own.
package mapping

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// The example begins.

const byDeployment = "spec.deploymentName"

// Reconciler calls Act for a scaler and its Deployment, which is nil while it does not exist.
type Reconciler struct {
	client.Client
	Act func(ctx context.Context, scaler *v1beta1.VerticalScaler, deployment *appsv1.Deployment) error
}

// SetupWithManager adds the index and the watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	names := func(scaler client.Object) []string {
		return []string{scaler.(*v1beta1.VerticalScaler).Spec.DeploymentName}
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta1.VerticalScaler{}, byDeployment, names); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1beta1.VerticalScaler{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.scalersOf)).
		Complete(r)
}

// scalersOf is the reverse lookup. It reads the cache and sends no request.
func (r *Reconciler) scalersOf(ctx context.Context, deployment client.Object) (requests []reconcile.Request) {
	var scalers v1beta1.VerticalScalerList
	if err := r.List(ctx, &scalers, client.InNamespace(deployment.GetNamespace()),
		client.MatchingFields{byDeployment: deployment.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "Cannot look up scalers")
	}
	for i := range scalers.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&scalers.Items[i])})
	}
	return requests
}

// Reconcile reads both objects from the cache.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	scaler, deployment := &v1beta1.VerticalScaler{}, &appsv1.Deployment{}
	if err := r.Get(ctx, request.NamespacedName, scaler); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	err := r.Get(ctx, client.ObjectKey{Namespace: scaler.Namespace, Name: scaler.Spec.DeploymentName}, deployment)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.Act(ctx, scaler, nil) // its creation triggers the next reconcile
	} else if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.Act(ctx, scaler, deployment)
}
