// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// takeOver records the original values of the template before the first rewrite: first the
// finalizer, then the values. The next reconcile rewrites the template.
//
// The values must be the user's: not those of another scaler that has not restored the
// template yet, and not those of an old cache.
func (r *Reconciler) takeOver(ctx context.Context, s *scope, step plan.TakeOver) error {
	other, err := r.otherHolder(ctx, s.scaler, step.UID)
	if err != nil {
		return err
	}
	if other != "" {
		s.plan = s.plan.Delayed(v1beta1.ReasonConflict, "VerticalScaler "+other+" has not restored the pod template yet")
		return nil
	}
	var live appsv1.Deployment
	if err := r.Live.Get(ctx, scaler.Target(s.scaler), &live); err != nil {
		if s.block(err) {
			return nil
		}
		return fmt.Errorf("reading Deployment %s to record its original values: %w", scaler.Target(s.scaler), err)
	}
	if live.ResourceVersion != step.ResourceVersion {
		return errStaleCache
	}
	if !controllerutil.ContainsFinalizer(s.scaler, v1beta1.RestoreFinalizer) {
		updated := s.scaler.DeepCopy()
		controllerutil.AddFinalizer(updated, v1beta1.RestoreFinalizer)
		if err := r.Client.Patch(ctx, updated, client.MergeFromWithOptions(s.scaler, client.MergeFromWithOptimisticLock{})); err != nil {
			if s.block(err) {
				return nil
			}
			return fmt.Errorf("adding the finalizer: %w", err)
		}
		r.written.Remember(updated, s.now)
		s.scaler.ResourceVersion, s.scaler.Finalizers = updated.ResourceVersion, updated.Finalizers
	}
	s.status.OriginalResources = scaler.APIOriginals(s.observation.situation.Originals, step.Originals, s.observation.situation.Deployment)
	s.requeueAfter = staleCacheRetry
	return nil
}

// otherHolder names another scaler that has recorded original values of the Deployment with
// that UID; empty for none.
func (r *Reconciler) otherHolder(ctx context.Context, vs *v1beta1.VerticalScaler, deployment types.UID) (string, error) {
	var scalers v1beta1.VerticalScalerList
	if err := r.Client.List(ctx, &scalers, client.InNamespace(vs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing the scalers of namespace %s: %w", vs.Namespace, err)
	}
	for i := range scalers.Items {
		other := &scalers.Items[i]
		if held := other.Status.OriginalResources; other.Name != vs.Name && held != nil && held.UID == deployment {
			return other.Name, nil
		}
	}
	return "", nil
}

// rewrite applies the sizes to the Deployment's pod template. The server-side apply has no
// other fields, and takes these from their managers. The original values are recorded.
func (r *Reconciler) rewrite(ctx context.Context, s *scope, step plan.Rewrite) error {
	sizes := map[string]corev1.ResourceRequirements{}
	for _, size := range step.Sizes {
		sizes[size.Container] = corev1.ResourceRequirements{Requests: resourceList(size.Requests), Limits: resourceList(size.Limits)}
	}
	if err := r.keepUnrecorded(ctx, s, sizes); err != nil {
		if s.block(err) {
			s.plan = s.plan.KeepDecision(s.observation.situation)
			return nil
		}
		return err
	}
	deployment := s.observation.situation.Deployment
	config := templateConfig(types.NamespacedName{Namespace: s.scaler.Namespace, Name: deployment.Name}, step, sizes)
	if err := r.Client.Apply(ctx, config, client.FieldOwner(Name), client.ForceOwnership); err != nil {
		s.plan = s.plan.KeepDecision(s.observation.situation)
		if rejection := apierror.Of(err); rejection.Reason != "" {
			countAction("rollout", rejection.Reason)
			s.plan = s.plan.Blocked(rejection.Reason, rejection.Message)
			return nil
		}
		countAction("rollout", actionOutcome(err))
		return fmt.Errorf("applying the sizes to Deployment %s: %w", deployment.Name, err)
	}
	countAction("rollout", "done")
	// The answer was read into what was sent.
	r.pods.remember(client.ObjectKeyFromObject(s.scaler), step.UID, func(what *remembered) {
		what.generation, what.at = ptr.Deref(config.Generation, 0), s.now
	})
	s.changes = append(s.changes, templateChanges(deployment, step.Sizes)...)
	log.FromContext(ctx).Info("Rewrote the pod template", "Deployment", deployment.Name, "reason", causeOf(s.plan), "sizes", formatChanges(s.changes))
	return nil
}

// templateConfig is the server-side apply of the containers' sizes.
func templateConfig(key types.NamespacedName, step plan.Rewrite, sizes map[string]corev1.ResourceRequirements) *appsv1ac.DeploymentApplyConfiguration {
	var containers []*corev1ac.ContainerApplyConfiguration
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		resources := corev1ac.ResourceRequirements()
		if list := sizes[name].Requests; len(list) > 0 {
			resources.WithRequests(list)
		}
		if list := sizes[name].Limits; len(list) > 0 {
			resources.WithLimits(list)
		}
		containers = append(containers, corev1ac.Container().WithName(name).WithResources(resources))
	}
	return appsv1ac.Deployment(key.Name, key.Namespace).
		// Without these, an apply would create a Deployment that was just deleted, or change
		// another one with the same name.
		WithUID(step.UID).WithResourceVersion(step.ResourceVersion).
		WithSpec(appsv1ac.DeploymentSpec().WithTemplate(corev1ac.PodTemplateSpec().
			WithSpec(corev1ac.PodSpec().WithContainers(containers...))))
}

// keepUnrecorded adds to the sizes the values of the template that the operator owns without
// a record of the original values, because the status was lost. An apply without them would
// remove them, and leave a container without requests.
func (r *Reconciler) keepUnrecorded(ctx context.Context, s *scope, sizes map[string]corev1.ResourceRequirements) error {
	var deployment appsv1.Deployment
	key := scaler.Target(s.scaler)
	if err := r.Live.Get(ctx, key, &deployment); err != nil {
		return fmt.Errorf("reading the field managers of Deployment %s: %w", key, err)
	}
	owned, err := ownership.Of(deployment.ManagedFields, ownership.Scalers)
	if err != nil {
		return fmt.Errorf("reading the managed fields of Deployment %s: %w", key, err)
	}
	addUnrecorded(&deployment, s.observation.situation.Originals, owned, sizes)
	return nil
}

func addUnrecorded(d *appsv1.Deployment, held []plan.Original, owned *fieldpath.Set, sizes map[string]corev1.ResourceRequirements) {
	for _, c := range d.Spec.Template.Spec.Containers {
		size := sizes[c.Name]
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if isRecorded(held, c.Name, name) {
				continue
			}
			if q, ok := c.Resources.Requests[name]; ok && ownership.HasResource(owned, c.Name, "requests", string(name)) {
				size.Requests = withQuantity(size.Requests, name, q)
			}
			if q, ok := c.Resources.Limits[name]; ok && ownership.HasResource(owned, c.Name, "limits", string(name)) {
				size.Limits = withQuantity(size.Limits, name, q)
			}
		}
		if size.Requests != nil || size.Limits != nil {
			sizes[c.Name] = size
		}
	}
}

func isRecorded(held []plan.Original, container string, resource corev1.ResourceName) bool {
	return slices.ContainsFunc(held, func(h plan.Original) bool {
		return h.Container == container && (resource == corev1.ResourceCPU && h.CPU || resource == corev1.ResourceMemory && h.Memory)
	})
}

func withQuantity(list corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[name] = q
	return list
}
