// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/operator-framework/operator-lib/prune"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// sizeNewPods is a phase: it makes the API server give new pods the sizes in the status. The
// sizes stay the same while changes are frozen. The budget does not count them, because no
// running pod changes.
//
// status.newPods says that there may be a binding. It is written first, so that a restarted
// operator finds the binding.
func (r *Reconciler) sizeNewPods(ctx context.Context, s *scope) (done bool, err error) {
	if s.policy.Suspended || !scaler.SizesNewPods(&s.scaler.Spec) {
		return false, nil
	}
	current, wanted := s.scaler.Status.NewPods, scaler.APINewPods(s.plan.NewPods)
	if why, frozen := r.Freeze.Frozen(s.scaler.Namespace); frozen {
		if current == nil || !equality.Semantic.DeepEqual(current, wanted) {
			s.deferBy(&deferral{v1beta1.ReasonFrozen, why})
		}
		return false, nil
	}
	if current == nil {
		s.status.NewPods = &v1beta1.NewPods{}
		s.requeueAfter = staleCacheRetry
		return false, nil
	}
	if scaler.EvictsPods(&s.scaler.Spec) && !equality.Semantic.DeepEqual(current.Containers, wanted.Containers) {
		s.requeueAfter = staleCacheRetry // The API server gets its time after the status is written.
	}
	key, selector := client.ObjectKeyFromObject(s.scaler), s.observation.deployment.Spec.Selector
	// Before an eviction, the binding is always read again.
	if _, evicts := s.plan.Step.(plan.Evict); !evicts && r.admitted.isFresh(key, selector, s.now, r.ResyncPeriod) {
		r.admitted.ask(key, current.Containers, s.now, false)
		return false, nil
	}
	changed, err := r.ensureBinding(ctx, key, selector)
	if err != nil {
		return false, r.planUnsized(s, err)
	}
	r.admitted.remember(key, selector, s.now)
	r.admitted.ask(key, current.Containers, s.now, changed)
	if changed {
		s.plan = s.plan.Relearning()
	}
	return false, r.sweepBindings(ctx)
}

// planUnsized makes the plan report why the API server does not size new pods. It returns the
// error of a request that failed for another reason.
func (r *Reconciler) planUnsized(s *scope, err error) error {
	var reason, message string
	switch rejection := apierror.Of(err); {
	case meta.IsNoMatchError(err):
		reason = v1beta1.ReasonAdmissionUnavailable
		message = "The API server has no MutatingAdmissionPolicy, which requires Kubernetes 1.36: use another updateMode"
	case errors.Is(err, errNoPolicy):
		reason = v1beta1.ReasonAdmissionUnavailable
		message = "MutatingAdmissionPolicy " + admission.PolicyName + " does not exist: apply dist/new-pods.yaml"
	case rejection.Reason != "":
		reason = rejection.Reason
		message = "The operator lacks the permissions of dist/new-pods.yaml, so the API server does not size new pods: " + rejection.Message
	default:
		return err
	}
	if scaler.EvictsPods(&s.scaler.Spec) {
		s.plan = s.plan.UnsizedBeside(reason, message)
	} else {
		s.plan = s.plan.Unsized(reason, message)
	}
	r.admitted.forget(client.ObjectKeyFromObject(s.scaler))
	return nil
}

// errNoPolicy says that a binding would have no effect.
var errNoPolicy = errors.New("the policy is not installed")

// ensureBinding creates or corrects the scaler's binding, and reports whether it did.
func (r *Reconciler) ensureBinding(ctx context.Context, scaler types.NamespacedName, selector *metav1.LabelSelector) (changed bool, err error) {
	policy := client.ObjectKey{Name: admission.PolicyName}
	if err := r.Live.Get(ctx, policy, &admissionv1.MutatingAdmissionPolicy{}); apierrors.IsNotFound(err) {
		return false, errNoPolicy
	} else if err != nil {
		return false, fmt.Errorf("reading the policy for new pods: %w", err)
	}
	want, found := admission.Binding(scaler, selector), &admissionv1.MutatingAdmissionPolicyBinding{}
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(want), found); {
	case apierrors.IsNotFound(err):
		if err := r.Client.Create(ctx, want, client.FieldOwner(Name)); err != nil {
			return false, fmt.Errorf("creating the binding of scaler %s: %w", scaler, err)
		}
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading the binding of scaler %s: %w", scaler, err)
	case equality.Semantic.DeepEqual(found.Spec, want.Spec):
		return false, nil
	}
	found.Spec, found.Labels = want.Spec, want.Labels
	if err := r.Client.Update(ctx, found, client.FieldOwner(Name)); err != nil {
		return false, fmt.Errorf("updating the binding of scaler %s: %w", scaler, err)
	}
	return true, nil
}

// deleteUnusedBinding deletes the binding of a scaler whose mode does not need one. A binding
// that cannot be deleted has no effect, because the status has no sizes.
func (r *Reconciler) deleteUnusedBinding(ctx context.Context, vs *v1beta1.VerticalScaler, status *v1beta1.VerticalScalerStatus) error {
	if vs.Status.NewPods == nil || scaler.SizesNewPods(&vs.Spec) || scaler.IsPaused(vs) {
		return nil
	}
	err := r.deleteBinding(ctx, client.ObjectKeyFromObject(vs))
	if refused := apierror.Of(err); refused.Reason != "" {
		log.FromContext(ctx).Info("Cannot delete the binding", "reason", refused.Reason, "message", refused.Message)
		return nil
	}
	if err == nil {
		status.NewPods = nil
	}
	return err
}

// deleteBinding deletes a scaler's binding.
func (r *Reconciler) deleteBinding(ctx context.Context, scaler types.NamespacedName) error {
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: admission.BindingName(scaler)}}
	err := r.Client.Delete(ctx, binding)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("deleting the binding of scaler %s: %w", scaler, err)
	}
	r.admitted.forget(scaler)
	return nil
}

// sweeper sweeps the bindings when the operator starts to lead. The caches are synced then.
type sweeper struct{ *Reconciler }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (sweeper) NeedLeaderElection() bool { return true }

// sweepRetry is when to sweep again after a failed request.
const sweepRetry = 30 * time.Second

// Start implements manager.Runnable. It ends once the bindings are swept, or may not be listed.
func (s sweeper) Start(ctx context.Context) error {
	// It only fails with the context, when the operator stops.
	_ = wait.PollUntilContextCancel(ctx, sweepRetry, true, func(ctx context.Context) (bool, error) {
		err := s.sweepBindings(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot sweep leftover bindings yet", "retryAfter", sweepRetry.String())
		}
		return err == nil, nil
	})
	return nil
}

// sweepBindings deletes, once, the bindings of scalers that were deleted while no operator was
// running. A binding is cluster-scoped, so a scaler cannot own it.
func (r *Reconciler) sweepBindings(ctx context.Context) error {
	if r.admitted.swept.Load() {
		return nil
	}
	leftovers, err := prune.NewPruner(bindings{r.Client, r}, bindingKind, r.leftoverBindings, prune.WithLabels(admission.Labels()))
	if err != nil {
		return fmt.Errorf("creating the pruner of bindings: %w", err)
	}
	_, err = leftovers.Prune(ctx)
	switch rejection := apierror.Of(err); {
	case meta.IsNoMatchError(err): // An API server without these policies has no bindings.
	case rejection.Reason != "":
		// The right belongs to an optional component. If it comes later, the next binding sweeps.
		log.FromContext(ctx).V(1).Info("Cannot sweep leftover bindings", "message", rejection.Message)
		return nil
	case err != nil:
		return fmt.Errorf("sweeping the bindings: %w", err)
	}
	r.admitted.swept.Store(true)
	return nil
}

// bindings is the client of the pruner. It lists from the API server, because a pruner asks for unstructured objects,
// which are not cached.
type bindings struct {
	client.Client
	reconciler *Reconciler
}

// Delete deletes a binding. Several reconciles may sweep at the same time, so it may be deleted already.
func (b bindings) Delete(ctx context.Context, obj client.Object, _ ...client.DeleteOption) error {
	binding, err := asBinding(obj)
	if err != nil {
		return err
	}
	scaler, _ := admission.ScalerOf(binding)
	return b.reconciler.deleteBinding(ctx, scaler)
}

func asBinding(obj client.Object) (*admissionv1.MutatingAdmissionPolicyBinding, error) {
	binding, ok := obj.(*admissionv1.MutatingAdmissionPolicyBinding)
	if !ok {
		return nil, fmt.Errorf("%T %s is not a binding", obj, obj.GetName())
	}
	return binding, nil
}

var bindingKind = admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding")

// leftoverBindings returns the bindings whose scalers do not exist, in the namespaces of this process. It remembers the bindings of the
// other scalers, so that they go with their scalers, whatever a reconcile has seen of them.
func (r *Reconciler) leftoverBindings(ctx context.Context, found []client.Object) (leftovers []client.Object, err error) {
	for _, obj := range found {
		binding, err := asBinding(obj)
		if err != nil {
			return nil, err
		}
		key, isOurs := admission.ScalerOf(binding)
		if !isOurs || !r.owns(key.Namespace) {
			continue
		}
		// In a namespace that is not watched, the error is another one.
		switch err := r.Client.Get(ctx, key, &v1beta1.VerticalScaler{}); {
		case err == nil:
			r.admitted.exists(key)
		case apierrors.IsNotFound(err):
			leftovers = append(leftovers, binding)
		}
	}
	return leftovers, nil
}
