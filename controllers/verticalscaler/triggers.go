// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/predicates"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// addTriggers adds all triggers of a scaler's reconcile, each with its class in the queue. Initial lists of
// watches are Routine. A retry keeps its class, and a resync is Routine (Reconciler.result).
func (r *Reconciler) addTriggers(building *builder.Builder, cached cache.Cache, collected <-chan event.GenericEvent) {
	find := lookup{cached}

	// An OOM kill is Urgent, and so is a scaler that may have a slot of the budget: the slot waits for it.
	building.WatchesRawSource(named{podSource(r.Pods, find.claimants), "Pods"})
	if r.Budget != nil {
		building.WatchesRawSource(named{budgetSource(r.Budget), "the budget"})
	}

	// A user has changed a scaler, or which of the scalers of a Deployment is the first. For has the class Edit.
	building.For(&v1beta1.VerticalScaler{}, builder.WithPredicates(scalerPredicate())).
		Watches(&v1beta1.VerticalScaler{}, queue.In(queue.Edit, keepOrder(r.order)))

	// Changes around a scaler.
	building.
		Watches(&appsv1.Deployment{}, queue.In(queue.Workload, queue.Mapped(find.ofDeployment)), builder.WithPredicates(deploymentPredicate())).
		Watches(&corev1.LimitRange{}, queue.In(queue.Workload, queue.Mapped(find.ofNamespace)),
			builder.WithPredicates(predicates.OfSpec(func(o *corev1.LimitRange) any { return o.Spec }))).
		Watches(&corev1.ResourceQuota{}, queue.In(queue.Workload, queue.Mapped(find.ofQuota(r.memory.mayWaitForQuota))), builder.WithPredicates(quotaPredicate())).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, queue.In(queue.Workload, queue.Mapped(find.ofHPA)), builder.WithPredicates(predicates.HPASpec))
	if r.VPAs != nil {
		building.WatchesRawSource(vpaSource{r.VPAs, find.ofVPA})
	}

	// Many scalers at once, none of them urgent. The freeze switch itself stops the writes.
	building.WatchesRawSource(source.Channel(collected, queue.In(queue.Routine, &handler.EnqueueRequestForObject{})))
	if r.Freeze != nil {
		building.WatchesRawSource(named{freezeSource(r.Freeze, r.FreezeAPI, find), "the freeze switch"})
	}
}

// scalerPredicate passes the changes of a user, and one change of our own: a new claim. It
// triggers a reconcile that sees all Deployment events from before the claim was in the index. A
// status that was wiped is written again, with or without a claim. A restored checkpoint is loaded.
func scalerPredicate() predicate.Predicate {
	// A paused scaler is reconciled only if it was just paused, for another reason, or deleted.
	notPaused := predicate.NewPredicateFuncs(func(o client.Object) bool {
		vs, ok := o.(*v1beta1.VerticalScaler)
		return ok && !scaler.IsPaused(vs)
	})
	changed := predicates.Updates(func(before, after *v1beta1.VerticalScaler) bool {
		return before.Generation != after.Generation || scaler.RecordedClaim(before) != scaler.RecordedClaim(after) ||
			before.Annotations[v1beta1.RestoredAnnotation] != after.Annotations[v1beta1.RestoredAnnotation] ||
			after.Status.ObservedGeneration < before.Status.ObservedGeneration
	})
	urgent := predicates.Updates(func(before, after *v1beta1.VerticalScaler) bool {
		return pauseOf(before) != pauseOf(after) || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
	})
	return predicate.Or(urgent, predicate.And(notPaused, changed))
}

// pauseOf is the reason of the scaler's pause; empty if it is not paused.
func pauseOf(vs *v1beta1.VerticalScaler) string {
	if !scaler.IsPaused(vs) {
		return ""
	}
	return scaler.PauseMessage(vs, "")
}

// deploymentPredicate passes changes of a Deployment's fields that the reconciler reads.
func deploymentPredicate() predicate.Predicate {
	return predicates.Updates(func(before, after *appsv1.Deployment) bool {
		return before.UID != after.UID ||
			before.Generation != after.Generation ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			!equality.Semantic.DeepEqual(before.Status, after.Status)
	})
}

// quotaPredicate passes the changes that may let a scaler continue. Everything else is dropped,
// because the status of a quota changes with every pod of its namespace. A new quota, or one
// that is used up, blocks a scaler in its own reconcile.
func quotaPredicate() predicate.Predicate {
	freeing := predicates.Updates(func(before, after *corev1.ResourceQuota) bool {
		return !equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
			workload.MoreRoom([]corev1.ResourceQuota{*before}, []corev1.ResourceQuota{*after})
	})
	return predicate.And(freeing, predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }})
}

// keepOrder keeps the order of the scalers, and triggers those whose standing an event changes. So a reconcile may
// see an order that is newer than the cache, and is repeated if its standing changed.
func keepOrder(order *precedence.Order) handler.EventHandler {
	note := func(obj client.Object, q requests) {
		if vs, ok := obj.(*v1beta1.VerticalScaler); ok {
			trigger(q, order.Note(vs))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q requests) { note(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q requests) { note(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q requests) {
			trigger(q, order.Forget(client.ObjectKeyFromObject(e.Object)))
		},
	}
}

func trigger(q requests, keys []types.NamespacedName) {
	for _, key := range keys {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}
