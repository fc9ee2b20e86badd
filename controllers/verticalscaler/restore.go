// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// release restores the original values of a scaler that is being deleted, and removes the
// finalizer. An event reports a rejection, because a scaler that is being deleted has no
// use for conditions.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.scaler, v1beta1.RestoreFinalizer) {
		return nil
	}
	err := r.restore(ctx, s.scaler, s.scaler.Status.OriginalResources)
	if err == nil {
		err = r.changeFinalizer(ctx, s, controllerutil.RemoveFinalizer)
	}
	switch why := obstacleTo(err); {
	case why.Stalled:
		r.recordEvent(s, corev1.EventTypeWarning, eventBlocked, why.Reason+": Cannot restore the original values: "+why.Message)
	case why.Reason == v1beta1.ReasonFrozen:
		r.recordEvent(s, corev1.EventTypeWarning, eventBlocked, why.Reason+": Waiting to restore the original values: "+why.Message)
		return nil
	case why.Exists():
		return nil // The budget triggers a reconcile, as the end of a freeze does.
	}
	return err
}

// restorePrevious is a phase: it restores the original values that the scaler may no longer
// replace. That happens if the scaler names another Deployment, if another scaler takes
// precedence, or if neither the mode nor the fallback is Rollout.
func (r *Reconciler) restorePrevious(ctx context.Context, s *scope) (done bool, err error) {
	if claim := scaler.RecordedClaim(s.scaler); claim != "" && claim != scaler.Claim(s.scaler) {
		s.status.Decision, s.status.Target, s.status.Recommendation, s.status.Summary = nil, nil, nil, nil
	}
	original := s.status.OriginalResources
	keeps := original != nil && original.DeploymentName == s.scaler.Spec.DeploymentName &&
		scaler.WritesTemplate(&s.scaler.Spec) && s.standing.IsFirst()
	if original == nil || keeps || scaler.IsPaused(s.scaler) {
		return false, nil
	}
	err = r.restore(ctx, s.scaler, original)
	switch {
	case err == nil:
		s.status.OriginalResources = nil
	case obstacleTo(err).Exists():
		s.unreleased, err = err, nil // the plan reports it
	}
	return false, err
}

// dropUnused removes the finalizer at the end of a reconcile that has nothing to restore: the
// finalizer is only for original values, even with Rollout. It must not run earlier: takeOver adds
// the finalizer before the record, and a crash between the two leaves the finalizer that this
// reconcile needs. After any step, the status comes first.
func (r *Reconciler) dropUnused(ctx context.Context, s *scope) error {
	if s.plan.Step != nil || s.status.OriginalResources != nil || s.scaler.Status.OriginalResources != nil ||
		scaler.IsPaused(s.scaler) || !controllerutil.ContainsFinalizer(s.scaler, v1beta1.RestoreFinalizer) {
		return nil
	}
	return s.answer(r.changeFinalizer(ctx, s, controllerutil.RemoveFinalizer))
}

// changeFinalizer adds or removes the finalizer. The cache lacks those of others.
func (r *Reconciler) changeFinalizer(ctx context.Context, s *scope, change func(o client.Object, finalizer string) bool) error {
	live, err := inventory.WholeScaler(ctx, r.Live, s.scaler)
	if err != nil {
		return err
	}
	updated := live.DeepCopy()
	change(updated, v1beta1.RestoreFinalizer)
	if err := r.Client.Patch(ctx, updated, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing the finalizer: %w", err)
	}
	r.written.Remember(updated, s.now)
	s.scaler.ResourceVersion, s.scaler.Finalizers = updated.ResourceVersion, updated.Finalizers
	return nil
}

// restore writes the original values to the Deployment's pod template and releases the
// ownership of the fields.
//
// Only fields that are still ours are restored. Another field manager keeps the fields that it has
// taken over, and a forged record has no effect. That needs two writes, because the writer of a
// changed field owns it: the first restores the values, the second removes our ownership. Both can
// be repeated.
func (r *Reconciler) restore(ctx context.Context, vs *v1beta1.VerticalScaler, original *v1beta1.OriginalResources) error {
	if original == nil {
		return nil
	}
	key := types.NamespacedName{Namespace: vs.Namespace, Name: original.DeploymentName}
	deployment, owned, err := r.readOwned(ctx, key)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if deployment.UID != original.UID {
		return nil // It was recreated, and has nothing of ours.
	}
	if other, err := r.otherHolder(ctx, vs, original.UID); err != nil || other != "" {
		return err // The other scaler restores the values.
	}
	if patch := restorePatch(deployment, original, owned); patch != nil {
		if err := r.Freeze.Check(vs.Namespace); err != nil {
			r.dequeue(client.ObjectKeyFromObject(vs))
			return err
		}
		done, err := r.slot(vs, budget.Want{Class: budget.Bounds})
		if err != nil {
			return err
		}
		err = r.Client.Patch(ctx, deployment, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(Name))
		done(err)
		if err != nil {
			return fmt.Errorf("restoring the original values of Deployment %s: %w", key, err)
		}
		r.countDone(client.ObjectKeyFromObject(vs), "restore", metrics.Restored)
		log.FromContext(ctx).Info("Restored the original values of the pod template", "Deployment", key)
	}
	return r.releaseOwnership(ctx, deployment)
}

// restorePatch restores the original values of the fields that are still ours, if any. A value that
// was not set is removed.
func restorePatch(d *appsv1.Deployment, original *v1beta1.OriginalResources, owned *fieldpath.Set) []byte {
	var containers []containerPatch
	for _, c := range workload.LongRunning(&d.Spec.Template.Spec) {
		for _, h := range original.Containers {
			if c.Name != h.ContainerName {
				continue
			}
			if resources := restoredResources(*c, h, owned); resources != nil {
				containers = append(containers, containerPatch{c.Name, resources, workload.IsSidecar(c)})
			}
		}
	}
	if len(containers) == 0 {
		return nil
	}
	return templatePatch(d, containers, nil)
}

// restoredResources are the original values of a container's fields that are still ours, or nil.
func restoredResources(c corev1.Container, original v1beta1.OriginalContainerResources, owned *fieldpath.Set) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, r := range []struct {
		name           corev1.ResourceName
		request, limit *resource.Quantity
	}{
		{corev1.ResourceCPU, original.Requests.CPU, original.Limits.CPU},
		{corev1.ResourceMemory, original.Requests.Memory, original.Limits.Memory},
	} {
		request, limit := r.request, r.limit
		if !isRestorable(r.name, request) || !ownership.HasResource(owned, c.Name, "requests", string(r.name)) {
			request = nil
		}
		if !isRestorable(r.name, limit) || !ownership.HasResource(owned, c.Name, "limits", string(r.name)) {
			limit = nil
		}
		request, limit = fitted(request, limit, c.Resources.Requests[r.name], c.Resources.Limits[r.name])
		setQuantity(out, "requests", r.name, request)
		setQuantity(out, "limits", r.name, limit)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// fitted makes a restored request and a restored limit, nil for none, fit together and to the
// current values. If another field manager has changed one of the two, the API server would
// always reject the other.
func fitted(request, limit *resource.Quantity, currentRequest, currentLimit resource.Quantity) (fittedRequest, fittedLimit *resource.Quantity) {
	least, most := ptr.Deref(request, currentRequest), ptr.Deref(limit, currentLimit)
	switch {
	case most.IsZero() || least.Cmp(most) <= 0:
		return request, limit
	case request != nil:
		return &most, limit
	case limit != nil:
		return request, &least
	}
	return nil, nil
}

// setQuantity sets an entry of a merge patch. Nil leaves the field alone, zero removes it.
func setQuantity(patch map[string]map[string]any, list string, name corev1.ResourceName, q *resource.Quantity) {
	if q == nil {
		return
	}
	if patch[list] == nil {
		patch[list] = map[string]any{}
	}
	patch[list][string(name)] = nil
	if value := *q; !value.IsZero() {
		patch[list][string(name)] = value.String() // which modifies it
	}
}

// isRestorable reports whether a recorded value can be restored. A value that no template can
// have was forged.
func isRestorable(name corev1.ResourceName, q *resource.Quantity) bool {
	if q == nil {
		return false
	}
	read := quantity.MemoryBytes
	if name == corev1.ResourceCPU {
		read = quantity.CPUMillis
	}
	_, err := read(*q)
	return err == nil
}

// releaseOwnership removes us from the field managers of the Deployment. The fields have no
// manager then, and the next writer takes them without a conflict.
func (r *Reconciler) releaseOwnership(ctx context.Context, d *appsv1.Deployment) error {
	kept := []metav1.ManagedFieldsEntry{}
	for _, entry := range d.ManagedFields {
		if entry.Manager != Name {
			kept = append(kept, entry)
		}
	}
	if len(kept) == len(d.ManagedFields) {
		return nil
	}
	if len(kept) == 0 {
		// An empty list means "no opinion"; a list with one empty entry means none.
		kept = append(kept, metav1.ManagedFieldsEntry{})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.UID, "resourceVersion": d.ResourceVersion, "managedFields": kept,
	}})
	if err != nil {
		return fmt.Errorf("encoding the managed fields: %w", err)
	}
	if err := r.Freeze.Check(d.Namespace); err != nil {
		return err
	}
	if err := r.Client.Patch(ctx, d, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Name)); err != nil {
		return fmt.Errorf("releasing the ownership of Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}
