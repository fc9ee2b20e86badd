// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

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
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// takeOver records the original values of the template before the first rewrite: first the
// finalizer, then the values. The next reconcile rewrites the template.
//
// The values must be the user's: not another scaler's, which has not restored the template yet, and
// not an old cache's.
func (r *Reconciler) takeOver(ctx context.Context, s *scope, step plan.TakeOver) error {
	other, err := r.otherHolder(ctx, s.scaler, step.UID)
	if err != nil {
		return err
	}
	if other != "" {
		return &deferral{v1beta1.ReasonConflict, "VerticalScaler " + other + " has not restored the pod template yet"}
	}
	if _, _, err := r.templateOf(ctx, s, step.UID, step.ResourceVersion); err != nil {
		return err
	}
	if !controllerutil.ContainsFinalizer(s.scaler, v1beta1.RestoreFinalizer) {
		if err := r.changeFinalizer(ctx, s, controllerutil.AddFinalizer); err != nil {
			return err
		}
	}
	s.status.OriginalResources = scaler.APIOriginals(s.observation.situation.Originals, step.Originals, s.observation.situation.Deployment)
	s.again(staleCacheRetry)
	return nil
}

// otherHolder names another scaler that has recorded original values of the Deployment with that
// UID, if any.
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

// rewrite writes the sizes to the Deployment's pod template, and takes their fields from the
// managers that own them. The original values are recorded.
//
// A value that is not ours is the user's: if it has changed since it was recorded, it is recorded again, and the next
// reconcile rewrites the template.
func (r *Reconciler) rewrite(ctx context.Context, s *scope, step plan.Rewrite) error {
	deployment, owned, err := r.templateOf(ctx, s, step.UID, step.ResourceVersion)
	if err != nil {
		return err
	}
	if deployed := deployedSince(deployment, s.observation.situation.Originals, owned); len(deployed) > 0 {
		s.status.OriginalResources = scaler.APIOriginals(s.observation.situation.Originals, deployed, s.observation.situation.Deployment)
		s.plan.Decision = s.plan.Decision.NotApplied()
		s.again(staleCacheRetry)
		return nil
	}
	patch, err := rewritePatch(deployment, step.Sizes, s.observation.situation.Originals, owned)
	if err != nil {
		return err
	}
	if err := r.Freeze.Check(s.scaler.Namespace); err != nil {
		return err
	}
	// The Deployment is then the one with the sizes.
	if err := r.Client.Patch(ctx, deployment, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(Name)); err != nil {
		countAction("rollout", actionOutcome(err))
		return fmt.Errorf("writing the sizes to Deployment %s: %w", scaler.Target(s.scaler), err)
	}
	r.countDone(client.ObjectKeyFromObject(s.scaler), "rollout", metrics.RolledOut)
	r.memory.changePod(client.ObjectKeyFromObject(s.scaler), step.UID, func(what *remembered) {
		what.generation, what.at = deployment.Generation, s.now
	})
	log.FromContext(ctx).Info("Rewrote the pod template", "Deployment", deployment.Name, "reason", causeOf(s.plan), "sizes", formatChanges(s.observation.situation.Deployment.Containers, step.Sizes))
	return nil
}

// templateOf reads the Deployment and our fields of it. It must be exactly the Deployment of the plan.
func (r *Reconciler) templateOf(ctx context.Context, s *scope, uid types.UID, version string) (*appsv1.Deployment, *fieldpath.Set, error) {
	deployment, owned, err := r.readOwned(ctx, scaler.Target(s.scaler))
	if err != nil {
		return nil, nil, err
	}
	if deployment.UID != uid || deployment.ResourceVersion != version {
		return nil, nil, errStaleCache
	}
	return deployment, owned, nil
}

// readOwned reads a Deployment from the API server, and our fields of it.
func (r *Reconciler) readOwned(ctx context.Context, key types.NamespacedName) (*appsv1.Deployment, *fieldpath.Set, error) {
	var deployment appsv1.Deployment
	if err := r.Live.Get(ctx, key, &deployment); err != nil {
		return nil, nil, fmt.Errorf("reading the field managers of Deployment %s: %w", key, err)
	}
	owned, err := ownership.Of(deployment.ManagedFields, ownership.Scalers)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the managed fields of Deployment %s: %w", key, err)
	}
	return &deployment, owned, nil
}

// deployedSince are the recorded values of containers that another field manager has changed since, with their current
// values. A missing value counts only while we own nothing of its resource: we may have removed it.
func deployedSince(d *appsv1.Deployment, recorded []plan.Original, owned *fieldpath.Set) (changed []plan.Original) {
	if len(d.ManagedFields) == 0 {
		return nil // The writers are unknown.
	}
	now := workload.ReadDeployment(d)
	for _, original := range recorded {
		c, ok := now.Container(original.Container)
		if !ok || c.Unreadable {
			continue
		}
		after := original
		for _, r := range []plan.Resource{plan.CPU, plan.Memory} {
			if after.Has(r) {
				putDeployed(&after.Resources, c, r, owned)
			}
		}
		if after != original {
			changed = append(changed, after)
		}
	}
	return changed
}

// putDeployed puts the request and the limit of a container that are not ours.
func putDeployed(to *workload.Resources, c workload.Container, r plan.Resource, owned *fieldpath.Set) {
	ownsRequest := ownership.HasResource(owned, c.Name, "requests", r.String())
	ownsLimit := ownership.HasResource(owned, c.Name, "limits", r.String())
	ownsNothing := !ownsRequest && !ownsLimit
	request, limit := r.Request(*to), r.Limit(*to)
	if found := r.Request(c.Resources); !ownsRequest && (found > 0 || ownsNothing) {
		request = found
	}
	if found := r.Limit(c.Resources); !ownsLimit && (found > 0 || ownsNothing) {
		limit = found
	}
	r.Put(to, request, limit)
}

// rewritePatch writes the sizes to the pod template, and makes us own only them.
//
// A server-side apply would also own the containers themselves, and no other field manager could
// then remove or rename one. A patch changes the owner only of changed fields, so the managed
// fields are part of it.
func rewritePatch(d *appsv1.Deployment, sizes []plan.Size, originals []plan.Original, owned *fieldpath.Set) ([]byte, error) {
	var containers []containerPatch
	var leaves []ownership.Leaf
	for _, c := range workload.LongRunning(&d.Spec.Template.Spec) {
		size := plan.Size{Container: c.Name}
		if i := slices.IndexFunc(sizes, func(size plan.Size) bool { return size.Container == c.Name }); i >= 0 {
			size = sizes[i]
		}
		resources, ours := rewrittenResources(*c, size, originals, owned)
		if len(resources) > 0 {
			containers = append(containers, containerPatch{c.Name, resources, workload.IsSidecar(c)})
		}
		leaves = append(leaves, ours...)
	}
	managed, err := ownership.WithTemplate(d.ManagedFields, Name, leaves)
	if err != nil {
		return nil, err
	}
	return templatePatch(d, containers, managed), nil
}

// rewrittenResources are the changes of one container by list, such as "requests", and resource, where nil removes a value. It
// also returns the values that are ours then.
//
// A value of ours that the size leaves out is removed. It stays if its original value is not
// recorded, because the status was lost: the container would be left without it.
func rewrittenResources(c corev1.Container, size plan.Size, originals []plan.Original, owned *fieldpath.Set) (changes map[string]map[string]any, ours []ownership.Leaf) {
	changes = map[string]map[string]any{}
	for _, list := range []struct {
		name           string
		found, written corev1.ResourceList
	}{
		{"requests", c.Resources.Requests, resourceList(size.Requests)},
		{"limits", c.Resources.Limits, resourceList(size.Limits)},
	} {
		for _, r := range []plan.Resource{plan.CPU, plan.Memory} {
			name := corev1.ResourceName(r.String())
			leaf := ownership.Leaf{Container: c.Name, List: list.name, Resource: r.String(), IsSidecar: workload.IsSidecar(&c)}
			value, isWritten := list.written[name]
			_, isFound := list.found[name]
			switch {
			case isWritten:
				setQuantity(changes, list.name, name, &value)
				ours = append(ours, leaf)
			case !isFound || !ownership.HasResource(owned, leaf.Container, leaf.List, leaf.Resource):
			case slices.ContainsFunc(originals, func(o plan.Original) bool { return o.Container == c.Name && o.Has(r) }):
				setQuantity(changes, list.name, name, &resource.Quantity{})
			default:
				ours = append(ours, leaf)
			}
		}
	}
	return changes, ours
}

// containerPatch changes the resources of one container.
type containerPatch struct {
	Name      string `json:"name"`
	Resources any    `json:"resources"`

	isSidecar bool
}

// templatePatch is a patch of exactly this version of the Deployment.
func templatePatch(d *appsv1.Deployment, containers []containerPatch, managed []metav1.ManagedFieldsEntry) []byte {
	return patchOf(d.UID, d.ResourceVersion, managed, map[string]any{"template": map[string]any{"spec": byList(containers)}})
}

// patchOf is a strategic merge patch of exactly this version of an object. Containers must be in the order of the object: the
// patch puts them into its own order. Without managed fields, the API server alone decides the ownership.
func patchOf(uid types.UID, version string, managed []metav1.ManagedFieldsEntry, spec map[string]any) []byte {
	metadata := map[string]any{"uid": uid, "resourceVersion": version}
	if managed != nil {
		metadata["managedFields"] = managed
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		panic(err) // strings, maps, quantities and managed fields always encode
	}
	return patch
}

// byList puts native sidecars into the list of init containers.
func byList(containers []containerPatch) map[string]any {
	lists := map[string][]containerPatch{}
	for _, c := range containers {
		list := "containers"
		if c.isSidecar {
			list = "initContainers"
		}
		lists[list] = append(lists[list], c)
	}
	out := map[string]any{}
	for list, patches := range lists {
		out[list] = patches
	}
	return out
}
