// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

const (
	// eventEditReverted is on a policy's scaler whose spec was edited.
	eventEditReverted = "EditReverted"
)

// members reconciles Deployments.
type members struct{ *Reconciler }

// Reconcile creates, updates or deletes the scaler of one Deployment by the policies. Each write has the version
// that was read as a precondition, so an old cache leads to a conflict, and not to a wrong scaler.
func (r members) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	if r.Forbidden != "" {
		return reconcile.Result{}, nil // The status of each policy reports this.
	}
	step, err := r.decide(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if step != nil {
		err = step(ctx)
	}
	rejection := apierror.Of(err)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: r.conflict.Delay(key)}, nil
	case rejection.Reason == v1beta1.ReasonNamespaceTerminating:
		return reconcile.Result{}, nil
	case rejection.Reason != "":
		message := conditions.Truncated(rejection.Message)
		if before, _ := r.rejected.Swap(key, message); before != message {
			r.notify(key.Namespace)
		}
		return reconcile.Result{RequeueAfter: rejectedRetry}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	r.accept(key)
	r.conflict.Forget(key)
	return reconcile.Result{}, nil
}

// accept records that the API server rejects nothing about a Deployment.
func (r members) accept(key types.NamespacedName) {
	if _, wasRejected := r.rejected.LoadAndDelete(key); wasRejected {
		r.notify(key.Namespace)
	}
}

// write is one write to the scaler of a Deployment.
type write func(ctx context.Context) error

// decide returns the one write that is needed, or nil.
func (r members) decide(ctx context.Context, key types.NamespacedName) (write, error) {
	found, err := r.scalersBy(ctx, client.InNamespace(key.Namespace), client.MatchingFields{targetIndex: key.Name})
	if err != nil {
		return nil, err
	}
	scalers, named := found[key], found[key].Named
	isOurs := named != nil && fleet.IsGenerated(named)
	if named == nil {
		r.promoted.Forget(key) // No policy may see the scaler again.
	}
	if named != nil && fleet.IsReleasable(named) {
		return func(ctx context.Context) error {
			_, err := r.update(ctx, named, fleet.Released)
			return err
		}, nil
	}
	all, err := r.policies(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	if isOurs && r.mustLeave(all, named) {
		return nil, nil
	}
	wanted, err := r.wanted(ctx, all, key, scalers)
	if err != nil {
		return nil, err
	}
	if wanted != nil && wanted.IsPaused() {
		return nil, nil // A paused policy takes nothing over from another one, either.
	}
	switch {
	case wanted != nil && named == nil:
		deployment := r.Deployments.Get(key)
		if deployment == nil {
			return nil, nil // It has just been deleted.
		}
		return func(ctx context.Context) error { return r.create(ctx, wanted.Scaler(deployment)) }, nil
	case !isOurs || named.DeletionTimestamp != nil: // The deletion triggers the next reconcile.
		return nil, nil
	case wanted != nil && wanted.IsUpToDate(named):
		return nil, nil
	case wanted != nil:
		return func(ctx context.Context) error { return r.conform(ctx, wanted, named) }, nil
	}
	return r.removal(ctx, all, named)
}

// conform updates a scaler to its policy. If the policy has not changed, that reverts an edit of the scaler.
func (r members) conform(ctx context.Context, p *fleet.Policy, s *v1beta1.VerticalScaler) error {
	if _, err := r.update(ctx, s, p.Desired); err != nil {
		return err
	}
	isSettled := p.Status.ObservedGeneration == p.Object.GetGeneration() && !meta.IsStatusConditionTrue(p.Status.Conditions, v1beta1.ConditionReconciling)
	if isSettled && p.Controls(s) {
		r.Recorder.Eventf(s, nil, corev1.EventTypeWarning, eventEditReverted, "Reconcile", "An edit of the scaler was reverted: to change it, edit spec.template of %s, or detach the scaler", p)
	}
	return nil
}

// mustLeave reports whether a scaler of a policy stays as it is: because of a pause, a selector that cannot be parsed,
// or a deletion. The garbage collector deletes or orphans the scalers of a deleted policy.
func (r members) mustLeave(all policies, s *v1beta1.VerticalScaler) bool {
	policy, exists := all.of(s)
	return exists && (policy == nil || policy.IsPaused())
}

// wanted is the policy whose scaler the Deployment should have, or nil.
func (r members) wanted(ctx context.Context, all policies, key types.NamespacedName, scalers fleet.Scalers) (*fleet.Policy, error) {
	deployment := r.Deployments.Get(key)
	if deployment == nil || scalers.OfUser != nil {
		return nil, nil
	}
	namespace, err := r.namespace(ctx, key.Namespace)
	if err != nil || namespace.Terminating {
		return nil, err
	}
	return all.choose(deployment, namespace), nil
}

// removal deletes a scaler that no policy wants. Its policy may be unknown only because the cache is old.
func (r members) removal(ctx context.Context, all policies, s *v1beta1.VerticalScaler) (write, error) {
	if metav1.GetControllerOfNoCopy(s).Kind == v1beta1.ClusterScalingPolicyKind && !r.ServesCluster {
		return nil, nil // Another operator serves it.
	}
	if _, exists := all.of(s); !exists {
		if exists, err := r.existsLive(ctx, s); err != nil || exists {
			return nil, err
		}
	}
	return func(ctx context.Context) error { return r.delete(ctx, s) }, nil
}

// existsLive asks the API server whether the policy of a scaler exists. The operator may list policies.
func (r members) existsLive(ctx context.Context, s *v1beta1.VerticalScaler) (bool, error) {
	controller, namespace, list := metav1.GetControllerOfNoCopy(s), s.Namespace, &metav1.PartialObjectMetadataList{}
	if controller.Kind == v1beta1.ClusterScalingPolicyKind {
		namespace = metav1.NamespaceNone
	}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(controller.Kind + "List"))
	if err := r.Live.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{metav1.ObjectNameField: controller.Name}); err != nil {
		return false, fmt.Errorf("looking for %s %s: %w", controller.Kind, controller.Name, err)
	}
	return slices.ContainsFunc(list.Items, func(p metav1.PartialObjectMetadata) bool { return p.UID == controller.UID }), nil
}

func (r members) create(ctx context.Context, s *v1beta1.VerticalScaler) error {
	if err := r.Client.Create(ctx, s, client.FieldOwner(Name)); err != nil {
		return fmt.Errorf("creating VerticalScaler %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// update changes a scaler that was read from the cache.
func (r *Reconciler) update(ctx context.Context, cached *v1beta1.VerticalScaler, change func(*v1beta1.VerticalScaler) *v1beta1.VerticalScaler) (*v1beta1.VerticalScaler, error) {
	live, err := inventory.WholeScaler(ctx, r.Live, cached)
	if err != nil {
		return nil, err
	}
	changed := change(live)
	if err := r.Client.Update(ctx, changed, client.FieldOwner(Name)); err != nil {
		return nil, fmt.Errorf("updating VerticalScaler %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	return changed, nil
}

func (r members) delete(ctx context.Context, s *v1beta1.VerticalScaler) error {
	err := r.Client.Delete(ctx, s, client.Preconditions{UID: ptr.To(s.UID), ResourceVersion: ptr.To(s.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting VerticalScaler %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}
