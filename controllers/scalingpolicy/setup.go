// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/predicates"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
)

const (
	// Name is the name of the controller of policies, and the field manager of both controllers.
	Name = ownership.Policies
	// membersName is the name of the controller of Deployments.
	membersName = Name + "-members"

	// targetIndex is the index of scalers by the name of the Deployment that they size, and by their own name.
	targetIndex = "policies.target"
)

// pause is the time in which events of a policy become one reconcile.
const pause = time.Second

// requests is the queue of a controller.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Watch adds the indices and informers that the controllers need to the cache. It must be called before the
// cache is started.
func (r *Reconciler) Watch(ctx context.Context) error {
	err := r.Cached.IndexField(ctx, &v1beta1.VerticalScaler{}, targetIndex, func(object client.Object) []string {
		s, ok := object.(*v1beta1.VerticalScaler)
		if !ok {
			return nil
		}
		if s.Spec.DeploymentName == s.Name {
			return []string{s.Name}
		}
		return []string{s.Spec.DeploymentName, s.Name}
	})
	if err != nil {
		return fmt.Errorf("indexing VerticalScalers by the name of their Deployment: %w", err)
	}
	return nil
}

// SetupWithManager registers both controllers and their watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	metrics.ForgetPolicies() // of the manager before this one
	if err := r.Watch(ctx); err != nil {
		return err
	}
	if r.Forbidden == "" {
		if err := r.setupMembers(mgr); err != nil {
			return fmt.Errorf("building the controller of members: %w", err)
		}
	}
	if err := r.setupPolicies(mgr); err != nil {
		return fmt.Errorf("building the controller of policies: %w", err)
	}
	return nil
}

// startMembers is the source of requests for Deployments: all of them, and then each that changes. The watch of scalers adds
// those that are gone.
func (r *Reconciler) startMembers(ctx context.Context, q requests) error {
	if err := r.Deployments.WaitForSync(ctx); err != nil {
		return fmt.Errorf("waiting for the Deployments: %w", err)
	}
	changed, routine := queue.InClass(q, queue.Workload), queue.InClass(q, queue.Routine)
	r.Deployments.OnChange(func(deployment types.NamespacedName) {
		changed.Add(reconcile.Request{NamespacedName: deployment})
		r.notify(deployment.Namespace)
	})
	for _, d := range r.Deployments.All(metav1.NamespaceAll) {
		routine.Add(reconcile.Request{NamespacedName: d.Key()})
	}
	return nil
}

// startPolicies is the source of requests that notify finds. Events within a second become one request.
func (r *Reconciler) startPolicies(ctx context.Context, q requests) error {
	routine := queue.InClass(q, queue.Routine)
	lookUp := func(find queue.Find) {
		queue.LookUp(ctx, find, func(found reconcile.Request) { routine.AddAfter(found, pause) })
	}
	r.lookUpPolicies.Store(&lookUp)
	return nil
}

// setupMembers builds the controller that has a request for each Deployment.
func (r *Reconciler) setupMembers(mgr ctrl.Manager) error {
	building := ctrl.NewControllerManagedBy(mgr).Named(membersName).WithOptions(queue.Options(r.Workers)).
		WatchesRawSource(source.Func(r.startMembers)).
		WatchesRawSource(r.kind(&v1beta1.VerticalScaler{}, queue.In(queue.Edit, handler.EnqueueRequestsFromMapFunc(membersOfScaler)), memberPredicate())).
		WatchesRawSource(r.kind(&v1beta1.ScalingPolicy{}, queue.In(queue.Edit, queue.Mapped(r.membersOfPolicy)), policyPredicate()))
	if r.ServesCluster {
		building.
			WatchesRawSource(r.kind(&v1beta1.ClusterScalingPolicy{}, queue.In(queue.Edit, queue.Mapped(r.membersOfPolicy)), policyPredicate())).
			WatchesRawSource(r.kind(namespaceMetadata(), queue.In(queue.Edit, queue.Mapped(r.membersOfNamespace)), namespacePredicate()))
	}
	return building.Complete(members{r})
}

// setupPolicies builds the controller that has a request for each ClusterScalingPolicy, and for the ScalingPolicies of each
// namespace.
func (r *Reconciler) setupPolicies(mgr ctrl.Manager) error {
	itself := queue.In(queue.Edit, &handler.EnqueueRequestForObject{})
	ofNamespace := queue.In(queue.Edit, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, policy client.Object) []reconcile.Request {
		return []reconcile.Request{request(policy.GetNamespace(), "")}
	}))
	building := ctrl.NewControllerManagedBy(mgr).Named(Name).WithOptions(queue.Options(1)).
		WatchesRawSource(r.kind(&v1beta1.ScalingPolicy{}, ofNamespace, policyPredicate()))
	if r.ServesCluster {
		building.WatchesRawSource(r.kind(&v1beta1.ClusterScalingPolicy{}, itself, policyPredicate()))
	}
	if r.Forbidden != "" {
		return building.Complete(r) // Each policy reports this.
	}
	building.
		WatchesRawSource(source.Func(r.startPolicies)).
		WatchesRawSource(r.kind(&v1beta1.VerticalScaler{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, _ requests) { r.notify(e.Object.GetNamespace()) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ requests) { r.notify(e.ObjectNew.GetNamespace()) },
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requests) { r.notify(e.Object.GetNamespace()) },
		}, predicate.ResourceVersionChangedPredicate{}))
	if r.ServesCluster {
		building.WatchesRawSource(r.kind(namespaceMetadata(), handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, _ requests) { r.notify(e.Object.GetName()) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ requests) { r.notify(e.ObjectNew.GetName()) },
		}, namespacePredicate()))
	}
	return building.Complete(r)
}

// kind is a watch of the policies' own cache.
func (r *Reconciler) kind(object client.Object, to handler.EventHandler, predicates ...predicate.Predicate) source.Source {
	return source.Kind(r.Cached, object, to, predicates...)
}

// membersOfScaler maps a scaler to its Deployment. A policy's scaler is also mapped to the Deployment of its own name:
// an edit may have changed its Deployment.
func membersOfScaler(_ context.Context, object client.Object) []reconcile.Request {
	s, ok := object.(*v1beta1.VerticalScaler)
	if !ok {
		return nil
	}
	out := []reconcile.Request{request(s.Namespace, s.Spec.DeploymentName)}
	if s.Name != s.Spec.DeploymentName {
		out = append(out, request(s.Namespace, s.Name))
	}
	return out
}

// membersOfPolicy maps a policy to all Deployments that it may select or that its scalers name.
func (r *Reconciler) membersOfPolicy(ctx context.Context, policy client.Object) ([]reconcile.Request, error) {
	return r.membersIn(ctx, policy.GetNamespace())
}

// membersOfNamespace maps a namespace to its Deployments and the Deployments of its scalers.
func (r *Reconciler) membersOfNamespace(ctx context.Context, namespace client.Object) ([]reconcile.Request, error) {
	return r.membersIn(ctx, namespace.GetName())
}

// membersIn lists the Deployments of a namespace, and the deleted Deployments of its scalers. If the scalers cannot be
// listed, it returns the Deployments with the error.
func (r *Reconciler) membersIn(ctx context.Context, namespace string) (out []reconcile.Request, err error) {
	added := map[types.NamespacedName]bool{}
	for _, d := range r.Deployments.All(namespace) {
		added[d.Key()] = true
		out = append(out, reconcile.Request{NamespacedName: d.Key()})
	}
	var scalers v1beta1.VerticalScalerList
	if err := r.Cached.List(ctx, &scalers, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing the VerticalScalers of deleted Deployments: %w", err)
	}
	for i := range scalers.Items {
		s := &scalers.Items[i]
		if key := client.ObjectKeyFromObject(s); fleet.IsGenerated(s) && !added[key] {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out, nil
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// notify triggers the policies that may select Deployments of a namespace. A look-up that fails is repeated. Before the
// controller starts, nothing is triggered: it starts with all policies.
func (r *Reconciler) notify(namespace string) {
	lookUp := r.lookUpPolicies.Load()
	if lookUp == nil {
		return
	}
	(*lookUp)(func(ctx context.Context) (found []reconcile.Request, err error) {
		var some v1beta1.ScalingPolicyList
		if err := r.Cached.List(ctx, &some, client.InNamespace(namespace), client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("looking for ScalingPolicies: %w", err)
		}
		if len(some.Items) > 0 {
			found = append(found, request(namespace, ""))
		}
		if !r.ServesCluster {
			return found, nil
		}
		var all v1beta1.ClusterScalingPolicyList
		if err := r.Cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing ClusterScalingPolicies: %w", err)
		}
		for i := range all.Items {
			found = append(found, request("", all.Items[i].Name))
		}
		return found, nil
	})
}

// memberPredicate passes changes of a scaler that may make it differ from its policy.
func memberPredicate() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
		predicates.Updates(func(before, after client.Object) bool {
			return !equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
		}))
}

// policyPredicate passes all changes of a policy except status changes, unless another program has reset the status.
func policyPredicate() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{},
		predicates.Updates(func(before, after client.Object) bool {
			return fleet.ViewOf(after).Status.ObservedGeneration < fleet.ViewOf(before).Status.ObservedGeneration
		}))
}

// namespacePredicate passes changes that select or exclude Deployments.
func namespacePredicate() predicate.Predicate {
	return predicates.Updates(func(before, after client.Object) bool {
		return !maps.Equal(before.GetLabels(), after.GetLabels()) || fleet.IsExcluded(before.GetAnnotations()) != fleet.IsExcluded(after.GetAnnotations()) ||
			(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil)
	})
}

// namespaceMetadata is the type in which namespaces are watched and read: only metadata is needed.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}
