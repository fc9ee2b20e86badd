// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaleddeployment reconciles ScaledDeployments. In this owned pattern, the
// operator creates the Deployment and its VerticalScaler, and both have an owner reference
// to the ScaledDeployment.
//
// The owner reference maps the events of both objects to the ScaledDeployment. A reconcile
// reads them (observe.go), builds the desired objects (desired.go), applies them by
// server-side apply where they differ (apply.go), and writes the status once (status.go).
// The garbage collector deletes both objects together with their owner.
package scaleddeployment

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/predicates"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
)

// Name is the name of the controller in logs and metrics, and its field manager.
const Name = ownership.Owners

// workers is the number of objects that are reconciled at once.
const workers = 4

// deploymentIndex is the index of owners by the name of their Deployment.
const deploymentIndex = "spec.deploymentName"

// SetupWithManager registers the controller and its watches. inventory.Index must have
// indexed the Deployments before.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta1.ScaledDeployment{}, deploymentIndex, func(obj client.Object) []string {
		if owner, ok := obj.(*v1beta1.ScaledDeployment); ok {
			return []string{deploymentName(owner)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing ScaledDeployments by %s: %w", deploymentIndex, err)
	}
	// Each event has its class in the queue. Initial lists of watches are Routine. A retry keeps its class, and a
	// resync is Routine (Reconciler.result).
	cached, owner := mgr.GetCache(), queue.Mapped(ownerOf)
	err = ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		// A user has changed the owner. For has the class Edit.
		For(&v1beta1.ScaledDeployment{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// Changes of its objects.
		Watches(&appsv1.Deployment{}, queue.In(queue.Workload, owner)).
		Watches(&v1beta1.VerticalScaler{}, queue.In(queue.Workload, owner), builder.WithPredicates(scalerPredicate())).
		// A foreign Deployment that has the name an owner wants.
		Watches(&appsv1.Deployment{}, queue.In(queue.Workload, queue.Mapped(ownersByDeploymentName(cached))), builder.WithPredicates(controllerChangedPredicate())).
		// A foreign VerticalScaler: it has the name of the owner.
		Watches(&v1beta1.VerticalScaler{}, queue.In(queue.Workload, &handler.EnqueueRequestForObject{}), builder.WithPredicates(controllerChangedPredicate())).
		// An HPA that targets the Deployment directly: the owner sets the replicas again
		// after the HPA is deleted or has another target.
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, queue.In(queue.Workload, queue.Mapped(ownersByHPA(cached))), builder.WithPredicates(predicates.HPASpec)).
		WithOptions(queue.Options(workers)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the ScaledDeployment controller: %w", err)
	}
	return nil
}

// ownerOf maps an object to the ScaledDeployment that controls it. It asks no API server: another version than the served one names no
// ScaledDeployment.
func ownerOf(_ context.Context, o client.Object) ([]reconcile.Request, error) {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || !v1beta1.IsScaledDeployment(owner) {
		return nil, nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}}}, nil
}

// ownersByDeploymentName maps a Deployment to the owners that ask for its name.
func ownersByDeploymentName(cached client.Reader) func(context.Context, client.Object) ([]reconcile.Request, error) {
	return func(ctx context.Context, deployment client.Object) ([]reconcile.Request, error) {
		return ownersOf(ctx, cached, client.ObjectKeyFromObject(deployment))
	}
}

// ownersByHPA maps an HPA to the owners that ask for the Deployment it targets.
func ownersByHPA(cached client.Reader) func(context.Context, client.Object) ([]reconcile.Request, error) {
	return func(ctx context.Context, obj client.Object) ([]reconcile.Request, error) {
		hpa, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok || hpa.Spec.ScaleTargetRef.Kind != "Deployment" {
			return nil, nil
		}
		return ownersOf(ctx, cached, types.NamespacedName{Namespace: hpa.Namespace, Name: hpa.Spec.ScaleTargetRef.Name})
	}
}

// ownersOf are the owners that ask for a Deployment with that name.
func ownersOf(ctx context.Context, cached client.Reader, deployment types.NamespacedName) ([]reconcile.Request, error) {
	var owners v1beta1.ScaledDeploymentList
	if err := cached.List(ctx, &owners, client.InNamespace(deployment.Namespace),
		client.MatchingFields{deploymentIndex: deployment.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the ScaledDeployments of Deployment %s: %w", deployment, err)
	}
	requests := make([]reconcile.Request, len(owners.Items))
	for i := range owners.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&owners.Items[i])
	}
	return requests, nil
}

// controllerChangedPredicate accepts events that may free a name or take it: an object is
// created or deleted, or its controller changes.
func controllerChangedPredicate() predicate.Predicate {
	return predicates.Updates(func(before, after client.Object) bool {
		return !equality.Semantic.DeepEqual(metav1.GetControllerOfNoCopy(before), metav1.GetControllerOfNoCopy(after))
	})
}

// scalerPredicate accepts changes to the fields of a VerticalScaler that a reconcile
// compares or copies.
func scalerPredicate() predicate.Predicate {
	return predicates.Updates(func(before, after *v1beta1.VerticalScaler) bool {
		return before.Generation != after.Generation ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
			!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
			!equality.Semantic.DeepEqual(readyOf(before), readyOf(after))
	})
}

func readyOf(scaler *v1beta1.VerticalScaler) *metav1.Condition {
	return meta.FindStatusCondition(scaler.Status.Conditions, v1beta1.ConditionReady)
}
