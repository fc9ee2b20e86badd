// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// release lets a scaler that is being deleted go: what it holds is given back, then
// the finalizer is removed. Where the API server refuses that, an event says so: a
// scaler on its way out has no use for conditions.
func (r *Reconciler) release(ctx context.Context, vs *v1beta1.VerticalScaler, now time.Time) (p scope) {
	p.now = now
	if !controllerutil.ContainsFinalizer(vs, v1beta1.RestoreFinalizer) {
		return p
	}
	if p.err = r.restore(ctx, vs, vs.Status.OriginalResources); p.err == nil {
		p.err = r.dropFinalizer(ctx, vs, now)
	}
	if why := deferralFrom(p.err); why != nil { // the turn, or the end of the freeze, wakes it
		p.err = nil
		if why.reason == v1beta1.ReasonFrozen && r.Recorder != nil {
			r.recordEvent(vs, p, corev1.EventTypeWarning, eventBlocked, why.reason+": what was taken over is not given back yet: "+why.message)
		}
		return p
	}
	if refused := apierror.Of(p.err); refused.Reason != "" && r.Recorder != nil {
		r.recordEvent(vs, p, corev1.EventTypeWarning, eventBlocked, refused.Reason+": what was taken over cannot be given back: "+refused.Message)
	}
	return p
}

// releaseOthers gives back what the scaler holds but may hold no longer: that of a
// Deployment which it does not name any more or is not first to name, or all of it
// where neither the mode nor the fallback is Rollout.
func (r *Reconciler) releaseOthers(ctx context.Context, vs *v1beta1.VerticalScaler, status *v1beta1.VerticalScalerStatus, now time.Time) error {
	held := status.OriginalResources
	retargeted := scaler.RecordedClaim(vs) != "" && scaler.RecordedClaim(vs) != scaler.Claim(vs)
	if retargeted {
		status.Decision, status.Target, status.Recommendation, status.Summary = nil, nil, nil, nil
	}
	winner, err := r.winnerOver(ctx, vs)
	if err != nil {
		return err
	}
	keeps := held != nil && held.DeploymentName == vs.Spec.DeploymentName &&
		scaler.WritesTemplate(&vs.Spec) && winner == ""
	if keeps || scaler.IsPaused(vs) {
		return nil
	}
	if held != nil {
		if err := r.restore(ctx, vs, held); err != nil {
			return err
		}
		status.OriginalResources = nil
	}
	// Also with Rollout: a scaler that stands back, or that has not begun, holds nothing.
	if held == nil && controllerutil.ContainsFinalizer(vs, v1beta1.RestoreFinalizer) {
		return r.dropFinalizer(ctx, vs, now)
	}
	return nil
}

func (r *Reconciler) dropFinalizer(ctx context.Context, vs *v1beta1.VerticalScaler, now time.Time) error {
	updated := vs.DeepCopy()
	controllerutil.RemoveFinalizer(updated, v1beta1.RestoreFinalizer)
	if err := r.Client.Patch(ctx, updated, client.MergeFromWithOptions(vs, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	r.written.Remember(updated, now)
	vs.ResourceVersion, vs.Finalizers = updated.ResourceVersion, updated.Finalizers
	return nil
}

// giveBack puts the values found back into the Deployment's pod template and gives
// up their ownership.
//
// Only values that are still ours are put back: what somebody else has taken over
// since is theirs, and a forged record can reach nothing. Two writes are needed,
// since a field that is changed gets its writer as owner: the first restores the
// values, the second takes our name off them. Either can be repeated.
func (r *Reconciler) restore(ctx context.Context, vs *v1beta1.VerticalScaler, held *v1beta1.OriginalResources) error {
	if held == nil {
		return nil
	}
	var deployment appsv1.Deployment
	key := types.NamespacedName{Namespace: vs.Namespace, Name: held.DeploymentName}
	if err := r.Live.Get(ctx, key, &deployment); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("reading Deployment %s to give it back: %w", key, err)
	}
	if deployment.UID != held.UID {
		return nil // made anew since: nothing of ours is on it
	}
	if other, err := r.otherHolder(ctx, vs, held.UID); err != nil || other != "" {
		return err // what is ours on it is the other's to give back
	}
	owned, err := ownership.Of(deployment.ManagedFields, ownership.Scalers)
	if err != nil {
		return fmt.Errorf("reading the managed fields of Deployment %s: %w", key, err)
	}
	if patch := restorePatch(&deployment, held, owned); patch != nil {
		if why, frozen := r.Freeze.Frozen(vs.Namespace); frozen {
			r.dequeue(client.ObjectKeyFromObject(vs))
			return &freeze.Error{Why: why}
		}
		done, err := r.slot(vs, budget.Want{Class: budget.Bounds})
		if err != nil {
			return err
		}
		defer done()
		err = r.Client.Patch(ctx, &deployment, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(Name))
		if err != nil {
			return fmt.Errorf("giving back the resources of Deployment %s: %w", key, err)
		}
		countAction("give-back", "done")
		log.FromContext(ctx).Info("Gave back the pod template's resources", "Deployment", key)
	}
	return r.releaseOwnership(ctx, &deployment)
}

// restorePatch puts back the values found of those that are still ours; nil if none
// is. A value that was not set is removed.
func restorePatch(d *appsv1.Deployment, held *v1beta1.OriginalResources, owned *fieldpath.Set) []byte {
	var containers []map[string]any
	for _, h := range held.Containers {
		for _, c := range d.Spec.Template.Spec.Containers {
			if c.Name != h.ContainerName {
				continue
			}
			if resources := restoredResources(c, h, owned); resources != nil {
				containers = append(containers, map[string]any{"name": c.Name, "resources": resources})
			}
		}
	}
	if len(containers) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": d.UID, "resourceVersion": d.ResourceVersion},
		"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"containers": containers}}},
	})
	if err != nil {
		panic(err) // strings and maps always encode
	}
	return patch
}

// restoredResources is what a container's resources get back; nil for nothing.
func restoredResources(c corev1.Container, h v1beta1.OriginalContainerResources, owned *fieldpath.Set) map[string]map[string]any {
	out := map[string]map[string]any{}
	put := func(list, name string, q resource.Quantity) {
		if out[list] == nil {
			out[list] = map[string]any{}
		}
		out[list][name] = q.String()
		if q.IsZero() {
			out[list][name] = nil
		}
	}
	for _, r := range []struct {
		name           corev1.ResourceName
		request, limit *resource.Quantity
	}{
		{corev1.ResourceCPU, h.Requests.CPU, h.Limits.CPU},
		{corev1.ResourceMemory, h.Requests.Memory, h.Limits.Memory},
	} {
		request, isRequest := c.Resources.Requests[r.name], isRestorable(r.name, r.request) && ownership.HasResource(owned, c.Name, "requests", string(r.name))
		limit, isLimit := c.Resources.Limits[r.name], isRestorable(r.name, r.limit) && ownership.HasResource(owned, c.Name, "limits", string(r.name))
		if isRequest {
			request = *r.request
		}
		if isLimit {
			limit = *r.limit
		}
		// Where somebody else has changed one of the two since, the other must still
		// go with it: the API server would refuse it, and we would never be done.
		if !limit.IsZero() && request.Cmp(limit) > 0 {
			if isRequest {
				request = limit
			} else {
				limit = request
			}
		}
		if isRequest {
			put("requests", string(r.name), request)
		}
		if isLimit {
			put("limits", string(r.name), limit)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// isRestorable says whether a value that was recorded can be put back. One that
// nobody could have had was written by somebody else.
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

// disown takes our name off the Deployment's fields. They then belong to nobody,
// and the next writer takes them without a conflict.
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
	if err := r.Client.Patch(ctx, d, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Name)); err != nil {
		return fmt.Errorf("giving up the ownership of Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}
