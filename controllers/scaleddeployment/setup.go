// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaleddeployment reconciles ScaledDeployments: the owned pattern, in which
// the Deployment and its VerticalScaler are made by the operator and carry an owner
// reference.
//
// Events of both find their way back by that reference. A pass says what should be
// (desired.go), applies it by server-side apply where it is not in force (apply.go), and
// writes the status once (status.go). What is deleted with the owner is left to the
// garbage collector.
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
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
)

// Name is the controller's name, in logs, metrics and as the field manager of all
// that it applies.
const Name = ownership.Owners

// deploymentIndex indexes owners by the name of their Deployment.
const deploymentIndex = "spec.deploymentName"

// workers is the number of owners reconciled at once.
const workers = 4

// SetupWithManager wires the watches. The Deployments must be indexed already, see
// inventory.Index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	r.written = &ownwrites.Memory{}
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta1.ScaledDeployment{}, deploymentIndex, func(obj client.Object) []string {
		if owner, ok := obj.(*v1beta1.ScaledDeployment); ok {
			return []string{deploymentName(owner)}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing ScaledDeployments by %s: %w", deploymentIndex, err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1beta1.ScaledDeployment{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.Deployment{}).
		Owns(&v1beta1.VerticalScaler{}, builder.WithPredicates(scalerPredicate())).
		// A Deployment that is not ours, and in our way.
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(ownersByDeploymentName(mgr.GetCache())), builder.WithPredicates(controllerChangedPredicate())).
		// A scaler likewise: its name is its owner's.
		Watches(&v1beta1.VerticalScaler{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(controllerChangedPredicate())).
		// An HPA on a Deployment of ours: once it goes, or looks elsewhere, the number of
		// pods is the owner's again.
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(ownersByHPA(mgr.GetCache())), builder.WithPredicates(hpaPredicate())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	return nil
}

// namesakes maps a Deployment to the owners that want one by its name.
func ownersByDeploymentName(cached client.Reader) handler.MapFunc {
	return func(ctx context.Context, deployment client.Object) []reconcile.Request {
		return ownersOf(ctx, cached, client.ObjectKeyFromObject(deployment))
	}
}

// ofHPA maps an HPA to the owners that want the Deployment that it scales.
func ownersByHPA(cached client.Reader) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		hpa, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok || hpa.Spec.ScaleTargetRef.Kind != "Deployment" {
			return nil
		}
		return ownersOf(ctx, cached, types.NamespacedName{Namespace: hpa.Namespace, Name: hpa.Spec.ScaleTargetRef.Name})
	}
}

// askers are the owners that ask for a Deployment by that name.
func ownersOf(ctx context.Context, cached client.Reader, deployment types.NamespacedName) []reconcile.Request {
	var owners v1beta1.ScaledDeploymentList
	if err := cached.List(ctx, &owners, client.InNamespace(deployment.Namespace),
		client.MatchingFields{deploymentIndex: deployment.Name}, client.UnsafeDisableDeepCopy); err != nil {
		// A lost event costs time, not correctness: the resync asks again.
		log.FromContext(ctx).Error(err, "Cannot look up ScaledDeployments", "Deployment", deployment)
		return nil
	}
	requests := make([]reconcile.Request, len(owners.Items))
	for i := range owners.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&owners.Items[i])
	}
	return requests
}

// controllerPredicate lets through what may make a name free, or take it: an object
// that comes, goes or changes hands.
func controllerChangedPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(metav1.GetControllerOfNoCopy(e.ObjectOld), metav1.GetControllerOfNoCopy(e.ObjectNew))
	}}
}

// hpaPredicate lets through what an HPA is about, not what it is doing. Before Kubernetes
// 1.37 it has no generation.
func hpaPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*autoscalingv2.HorizontalPodAutoscaler)
		after, ok2 := e.ObjectNew.(*autoscalingv2.HorizontalPodAutoscaler)
		return ok && ok2 && !equality.Semantic.DeepEqual(before.Spec, after.Spec)
	}}
}

// scalerPredicate lets through what we compare or repeat of a scaler.
func scalerPredicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1beta1.VerticalScaler)
		after, ok2 := e.ObjectNew.(*v1beta1.VerticalScaler)
		if !ok || !ok2 {
			return false
		}
		return before.Generation != after.Generation ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
			!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences) ||
			!equality.Semantic.DeepEqual(readyOf(before), readyOf(after))
	}}
}

func readyOf(scaler *v1beta1.VerticalScaler) *metav1.Condition {
	return meta.FindStatusCondition(scaler.Status.Conditions, v1beta1.ConditionReady)
}
