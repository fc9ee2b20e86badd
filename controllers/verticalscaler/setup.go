// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verticalscaler reconciles VerticalScalers: the un-owned pattern, in which
// the Deployment neither belongs to the scaler nor knows it.
//
// A Deployment's event finds its scalers through the claim that each reconcile records in the
// scaler's status (lookup.go). A reconcile observes, learns, plans, applies one step and writes
// the status once (reconciler.go). The pure packages recommend and plan decide; this package
// does the I/O.
package verticalscaler

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Name is the name of the controller, and the field manager of everything that it writes.
const Name = ownership.Scalers

// workers is the number of scalers reconciled at once. A reconcile mostly waits for the API
// server.
const workers = 8

// SetupWithManager wires the watches. Pods must be indexed already, see
// inventory.Index.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, wake <-chan event.GenericEvent) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	r.written = &ownwrites.Memory{}
	var err error
	if r.lookup, err = newLookup(ctx, mgr.GetCache()); err != nil {
		return err
	}
	r.contenders = newContenders(maxContenders)
	all := ofNamespace(mgr.GetCache())
	building := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		For(&v1beta1.VerticalScaler{}, builder.WithPredicates(scalerPredicate())).
		Watches(&v1beta1.VerticalScaler{}, r.contenders.handler()).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.lookup.ofDeployment), builder.WithPredicates(deploymentPredicate())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.lookup.ofPod), builder.WithPredicates(podPredicate())).
		Watches(&corev1.LimitRange{}, handler.EnqueueRequestsFromMapFunc(all), builder.WithPredicates(limitRangePredicate())).
		Watches(&corev1.ResourceQuota{}, handler.EnqueueRequestsFromMapFunc(ofQuota(all, r.quotas.mayWait)), builder.WithPredicates(quotaPredicate())).
		Watches(&autoscalingv2.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(r.lookup.ofHPA(all)), builder.WithPredicates(hpaPredicate())).
		WatchesRawSource(source.Channel(wake, &handler.EnqueueRequestForObject{})).
		WithOptions(queue.Options(workers))
	if r.VPAs != nil {
		building.WatchesRawSource(vpaSource{vpas: r.VPAs, requests: r.lookup.ofVPA(all)})
	}
	if r.Budget != nil {
		building.WatchesRawSource(&budgetSource{r.Budget, clock.RealClock{}})
	}
	if r.Freeze != nil {
		building.WatchesRawSource(&freezeSource{r.Freeze, r.FreezeAPI, mgr.GetCache(), clock.RealClock{}})
		r.Client = freeze.Guard(r.Client, r.Freeze)
	}
	if r.MaySweep {
		if err := mgr.Add(sweeper{r}); err != nil {
			return fmt.Errorf("adding the sweep of bindings: %w", err)
		}
	}
	if r.Metrics != nil {
		if err := mgr.Add(r.Metrics); err != nil {
			return fmt.Errorf("adding the metrics about scalers: %w", err)
		}
	}
	if err := building.Complete(r); err != nil {
		return fmt.Errorf("building the controller: %w", err)
	}
	return nil
}

// scalerPredicate passes the changes of a user, and one change of our own: a new claim. It
// triggers a reconcile that sees all Deployment events from before the claim was in the index. A
// status that was wiped is written again, with or without a claim.
func scalerPredicate() predicate.Predicate {
	// A paused scaler is reconciled only if it was just paused, for another reason, or deleted.
	notPaused := predicate.NewPredicateFuncs(func(o client.Object) bool {
		vs, ok := o.(*v1beta1.VerticalScaler)
		return ok && !scaler.IsPaused(vs)
	})
	changed := updates(func(before, after *v1beta1.VerticalScaler) bool {
		return before.Generation != after.Generation || scaler.RecordedClaim(before) != scaler.RecordedClaim(after) ||
			after.Status.ObservedGeneration < before.Status.ObservedGeneration
	})
	urgent := updates(func(before, after *v1beta1.VerticalScaler) bool {
		return pauseOf(before) != pauseOf(after) || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
	})
	return predicate.Or(urgent, predicate.And(notPaused, changed))
}

// pauseOf says why the scaler is paused; empty if it is not.
func pauseOf(vs *v1beta1.VerticalScaler) string {
	if !scaler.IsPaused(vs) {
		return ""
	}
	return scaler.PauseMessage(vs)
}

// deploymentPredicate passes changes of what the reconciler reads of a Deployment.
func deploymentPredicate() predicate.Predicate {
	return updates(func(before, after *appsv1.Deployment) bool {
		return before.UID != after.UID ||
			before.Generation != after.Generation ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			!equality.Semantic.DeepEqual(before.Status, after.Status)
	})
}

// podPredicate passes changes of what the reconciler reads of a pod.
func podPredicate() predicate.Predicate {
	return updates(func(before, after *corev1.Pod) bool {
		return before.Generation != after.Generation ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			!equality.Semantic.DeepEqual(before.Status, after.Status)
	})
}

// limitRangePredicate passes changes of what a LimitRange allows. It has no generation.
func limitRangePredicate() predicate.Predicate {
	return updates(func(before, after *corev1.LimitRange) bool {
		return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
	})
}

// quotaPredicate passes the changes that may let a scaler continue. Everything else is dropped,
// because the status of a quota changes with every pod of its namespace. A new quota, or one
// that is used up, blocks a scaler in its own reconcile.
func quotaPredicate() predicate.Predicate {
	freeing := updates(func(before, after *corev1.ResourceQuota) bool {
		return !equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
			workload.MoreRoom([]corev1.ResourceQuota{*before}, []corev1.ResourceQuota{*after})
	})
	return predicate.And(freeing, predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }})
}

// hpaPredicate passes changes of the spec of an HPA.
func hpaPredicate() predicate.Predicate {
	return updates(func(before, after *autoscalingv2.HorizontalPodAutoscaler) bool {
		return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
	})
}

// updates passes all creations and deletions, and the updates that matter.
func updates[T client.Object](matters func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(T)
			after, ok2 := e.ObjectNew.(T)
			return ok && ok2 && matters(before, after)
		},
	}
}
