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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// maxPodsAsked is how many pods are read to find the field managers that resize them.
	maxPodsAsked = 10
	// maxWriters is how many field managers are named, as many as the status allows.
	maxWriters = 8
	// resizeSubresource is the subresource that changes the resources of a running pod.
	resizeSubresource = "resize"
)

// writersOf asks the API server which field managers wrote the contested values. The cache
// leaves managed fields out. It lists by name, because the operator may list pods and
// Deployments.
func (r *Reconciler) writersOf(ctx context.Context, vs *v1beta1.VerticalScaler, c plan.Contest) (*plan.Writers, error) {
	names, ours := []string(nil), false
	if len(c.Template) > 0 {
		var err error
		if names, ours, err = r.templateWriters(ctx, scaler.Target(vs), c.Template); err != nil {
			return nil, err
		}
	}
	pods := slices.Sorted(maps.Keys(c.Pods))
	for _, name := range pods[:min(len(pods), maxPodsAsked)] {
		more, known, err := r.podWriters(ctx, types.NamespacedName{Namespace: vs.Namespace, Name: name}, c.Pods[name])
		if err != nil {
			return nil, err
		}
		names, ours = append(names, more...), ours && known
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return &plan.Writers{Names: names[:min(len(names), maxWriters)], Ours: ours, Partly: len(pods) > maxPodsAsked}, nil
}

// templateWriters names the other field managers of the template's contested values, and
// reports whether the operator owns all of them.
func (r *Reconciler) templateWriters(ctx context.Context, key types.NamespacedName, sizes []plan.Size) (names []string, ours bool, err error) {
	var found appsv1.DeploymentList
	if err := r.listLive(ctx, &found, key); err != nil {
		return nil, false, err
	}
	for i := range found.Items {
		d := &found.Items[i]
		leaves := contestedLeaves(&d.Spec.Template.Spec, sizes)
		more, err := ownership.WritersOf(d.ManagedFields, ownership.InTemplate, leaves, Name)
		if err != nil {
			return nil, false, err
		}
		owned, err := ownership.Of(d.ManagedFields, Name)
		if err != nil {
			return nil, false, fmt.Errorf("reading the managed fields of Deployment %s: %w", key, err)
		}
		names, ours = append(names, more...), hasAll(owned, leaves)
	}
	return names, ours, nil
}

// podWriters names the other field managers that resized the contested values of a pod, and
// reports whether each value was resized at all.
func (r *Reconciler) podWriters(ctx context.Context, key types.NamespacedName, sizes []plan.Size) (names []string, resized bool, err error) {
	var found corev1.PodList
	if err := r.listLive(ctx, &found, key); err != nil {
		return nil, false, err
	}
	resized = true
	for i := range found.Items {
		pod := &found.Items[i]
		// The values that a pod was created with revert nothing.
		resizes := slices.DeleteFunc(slices.Clone(pod.ManagedFields), func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Subresource != resizeSubresource
		})
		leaves := contestedLeaves(&pod.Spec, sizes)
		more, err := ownership.WritersOf(resizes, ownership.InPod, leaves, Name)
		if err != nil {
			return nil, false, err
		}
		names = append(names, more...)
		for _, leaf := range leaves {
			by, err := ownership.WritersOf(resizes, ownership.InPod, []ownership.Leaf{leaf}, "")
			if err != nil {
				return nil, false, err
			}
			resized = resized && len(by) > 0
		}
	}
	return names, resized, nil
}

// hasAll reports whether there are leaves and the set has all of them.
func hasAll(owned *fieldpath.Set, leaves []ownership.Leaf) bool {
	return len(leaves) > 0 && !slices.ContainsFunc(leaves, func(leaf ownership.Leaf) bool {
		return !ownership.HasResource(owned, leaf.Container, leaf.List, leaf.Resource)
	})
}

func (r *Reconciler) listLive(ctx context.Context, list client.ObjectList, key types.NamespacedName) error {
	err := r.Live.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name})
	if err != nil {
		return fmt.Errorf("reading the field managers of %s: %w", key, err)
	}
	return nil
}

// contestedLeaves are the entries of the sizes that differ from the containers' values.
func contestedLeaves(spec *corev1.PodSpec, sizes []plan.Size) (leaves []ownership.Leaf) {
	containers := workload.LongRunning(spec)
	for _, size := range sizes {
		i := slices.IndexFunc(containers, func(c *corev1.Container) bool { return c.Name == size.Container })
		if i < 0 {
			continue
		}
		for list, has := range map[string][2]corev1.ResourceList{
			"requests": {containers[i].Resources.Requests, resourceList(size.Requests)},
			"limits":   {containers[i].Resources.Limits, resourceList(size.Limits)},
		} {
			for name, wanted := range has[1] {
				if found, ok := has[0][name]; ok && !quantity.Equal(found, wanted) {
					leaves = append(leaves, ownership.Leaf{Container: size.Container, List: list, Resource: string(name), IsSidecar: workload.IsSidecar(containers[i])})
				}
			}
		}
	}
	return leaves
}

// resourcesIn are the resources of the containers that the sizes are of.
func resourcesIn(containers []workload.Container, sizes []plan.Size) map[string]workload.Resources {
	out := map[string]workload.Resources{}
	for _, size := range sizes {
		for _, c := range containers {
			if c.Name == size.Container {
				out[c.Name] = c.Resources
			}
		}
	}
	return out
}
