// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// admit sees to it that the API server sizes new pods, as the status says. What they get
// stays the same while changes are frozen. The budget has nothing to do with it: no pod
// that runs is changed.
//
// That status.newPods is there says that there may be a binding. It is written first,
// so that a binding is found again after a crash.
func (r *Reconciler) admit(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope) error {
	if !scaler.SizesNewPods(&vs.Spec) {
		return nil
	}
	if why, frozen := r.Freeze.Frozen(vs.Namespace); frozen {
		if vs.Status.NewPods == nil || !equality.Semantic.DeepEqual(vs.Status.NewPods, scaler.APINewPods(p.plan.NewPods)) {
			p.wait(&deferral{v1beta1.ReasonFrozen, why})
		}
		return nil
	}
	if vs.Status.NewPods == nil {
		p.status.NewPods = &v1beta1.NewPods{}
		p.requeueAfter = staleCacheRetry
		return nil
	}
	key := client.ObjectKeyFromObject(vs)
	selector := p.observation.deployment.Spec.Selector
	sizes := vs.Status.NewPods.Containers
	if scaler.EvictsPods(&vs.Spec) && !equality.Semantic.DeepEqual(sizes, scaler.APINewPods(p.plan.NewPods).Containers) {
		p.requeueAfter = staleCacheRetry // the API server is given its time once the status says it
	}
	// An eviction rests on what there is now.
	if _, evicts := p.plan.Step.(plan.Evict); !evicts && r.admitted.isFresh(key, selector, p.now, r.ResyncPeriod) {
		r.admitted.ask(key, sizes, p.now, false)
		return nil
	}
	changed, err := r.ensureBinding(ctx, key, selector)
	if err == nil {
		r.admitted.remember(key, selector, p.now)
		r.admitted.ask(key, sizes, p.now, changed)
		if changed {
			p.plan = p.plan.Relearning()
		}
		return r.sweepBindings(ctx)
	}
	var reason, message string
	switch refused := apierror.Of(err); {
	case meta.IsNoMatchError(err):
		reason = v1beta1.ReasonAdmissionUnavailable
		message = "The API server has no MutatingAdmissionPolicy, which requires Kubernetes 1.36: use another updateMode"
	case errors.Is(err, errNoPolicy):
		reason = v1beta1.ReasonAdmissionUnavailable
		message = "There is no MutatingAdmissionPolicy " + admission.PolicyName + ": install config/components/new-pods"
	case refused.Reason != "":
		reason = refused.Reason
		message = "The operator lacks the rights of config/components/new-pods, so that the API server does not size new pods: " + refused.Message
	default:
		return err
	}
	if scaler.EvictsPods(&vs.Spec) {
		p.plan = p.plan.UnsizedBeside(reason, message)
	} else {
		p.plan = p.plan.Unsized(reason, message)
	}
	r.admitted.forget(key)
	return nil
}

// errNoPolicy says that a binding would do nothing.
var errNoPolicy = errors.New("the policy is not installed")

// bind makes the scaler's binding, or puts it right, and says whether it had to.
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

// dismiss removes the binding of a scaler whose mode needs none any more. Where the API
// server refuses that, it stays, and puts nothing into pods: the status holds no sizes.
func (r *Reconciler) deleteUnusedBinding(ctx context.Context, vs *v1beta1.VerticalScaler, status *v1beta1.VerticalScalerStatus) error {
	if vs.Status.NewPods == nil || scaler.SizesNewPods(&vs.Spec) || scaler.IsPaused(vs) {
		return nil
	}
	err := r.deleteBinding(ctx, client.ObjectKeyFromObject(vs))
	if refused := apierror.Of(err); refused.Reason != "" {
		log.FromContext(ctx).Info("The binding cannot be removed", "reason", refused.Reason, "message", refused.Message)
		return nil
	}
	if err == nil {
		status.NewPods = nil
	}
	return err
}

// unbind removes a scaler's binding.
func (r *Reconciler) deleteBinding(ctx context.Context, scaler types.NamespacedName) error {
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: admission.BindingName(scaler)}}
	err := r.Client.Delete(ctx, binding)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("deleting the binding of scaler %s: %w", scaler, err)
	}
	r.admitted.forget(scaler)
	return nil
}

// sweepBindings removes, once, the bindings of scalers that went while no operator was
// there. Nothing owns them: they belong to no namespace.
func (r *Reconciler) sweepBindings(ctx context.Context) error {
	if r.admitted.isSwept() {
		return nil
	}
	var bindings admissionv1.MutatingAdmissionPolicyBindingList
	if err := r.Live.List(ctx, &bindings, client.MatchingLabels(admission.Labels())); apierror.Of(err).Reason != "" {
		log.FromContext(ctx).Info("Bindings left behind cannot be looked for", "message", apierror.Of(err).Message)
		r.admitted.setSwept()
		return nil
	} else if err != nil {
		return fmt.Errorf("listing the bindings: %w", err)
	}
	for i := range bindings.Items {
		key, ours := admission.ScalerOf(&bindings.Items[i])
		// Where a namespace is not watched, the answer is another error.
		if err := r.Client.Get(ctx, key, &v1beta1.VerticalScaler{}); !ours || !apierrors.IsNotFound(err) {
			continue
		}
		if err := r.deleteBinding(ctx, key); err != nil {
			return err
		}
	}
	r.admitted.setSwept()
	return nil
}

// admissionMemory remembers which bindings were found to be right, and when.
type admissionMemory struct {
	mu    sync.Mutex
	bound map[types.NamespacedName]boundAt
	asks  map[types.NamespacedName]askedAt
	swept bool
}

type boundAt struct {
	selector *metav1.LabelSelector
	at       time.Time
}

// askedAt is since when the API server has been asked for sizes, with a binding.
type askedAt struct {
	sizes []v1beta1.NewPodContainer
	since time.Time
}

// ask notes that the status and a binding ask for these sizes.
func (m *admissionMemory) ask(scaler types.NamespacedName, sizes []v1beta1.NewPodContainer, now time.Time, anew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.asks[scaler]; ok && !anew && equality.Semantic.DeepEqual(last.sizes, sizes) {
		return
	}
	if m.asks == nil {
		m.asks = map[types.NamespacedName]askedAt{}
	}
	m.asks[scaler] = askedAt{slices.Clone(sizes), now}
}

// asked is since when the API server has been asked for what the status says; zero for not.
func (m *admissionMemory) asked(scaler types.NamespacedName, status *v1beta1.NewPods) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.asks[scaler]
	if !ok || status == nil || !equality.Semantic.DeepEqual(last.sizes, status.Containers) {
		return time.Time{}
	}
	return last.since
}

func (m *admissionMemory) isFresh(scaler types.NamespacedName, selector *metav1.LabelSelector, now time.Time, most time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.bound[scaler]
	return ok && now.Sub(last.at) < most && equality.Semantic.DeepEqual(last.selector, selector)
}

func (m *admissionMemory) remember(scaler types.NamespacedName, selector *metav1.LabelSelector, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bound == nil {
		m.bound = map[types.NamespacedName]boundAt{}
	}
	m.bound[scaler] = boundAt{selector.DeepCopy(), now}
}

func (m *admissionMemory) forget(scaler types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.bound, scaler)
	delete(m.asks, scaler)
}

func (m *admissionMemory) isBound(scaler types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.bound[scaler]
	return ok
}

func (m *admissionMemory) isSwept() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.swept
}

func (m *admissionMemory) setSwept() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.swept = true
}
