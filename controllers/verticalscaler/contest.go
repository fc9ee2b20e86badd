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

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// maxPodsAsked limits the pods that are read to find the field managers that resize them.
	maxPodsAsked = 10
	// maxWriters is the number of field managers that the status can name.
	maxWriters = 8
	// resizeSubresource is the subresource that changes the resources of a running pod.
	resizeSubresource = "resize"
)

// writersOf asks the API server which field managers wrote the contested values. The cache
// leaves managed fields out. It lists by name, because the operator may list pods and
// Deployments.
func (r *Reconciler) writersOf(ctx context.Context, vs *v1beta1.VerticalScaler, c plan.Contest) (*plan.Writers, error) {
	var out plan.Writers
	if len(c.Template) > 0 {
		var found appsv1.DeploymentList
		if err := r.listLive(ctx, &found, scaler.Target(vs)); err != nil {
			return nil, err
		}
		for i := range found.Items {
			d := &found.Items[i]
			leaves := contestedLeaves(&d.Spec.Template.Spec, c.Template)
			all, err := addWriters(&out, d.ManagedFields, ownership.InTemplate, leaves, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == Name })
			if err != nil {
				return nil, err
			}
			out.Ours = all && len(leaves) > 0
		}
	}
	pods := slices.Sorted(maps.Keys(c.Pods))
	out.Partly = len(pods) > maxPodsAsked
	for _, name := range pods[:min(len(pods), maxPodsAsked)] {
		var found corev1.PodList
		if err := r.listLive(ctx, &found, types.NamespacedName{Namespace: vs.Namespace, Name: name}); err != nil {
			return nil, err
		}
		for i := range found.Items {
			pod := &found.Items[i]
			// The initial values of a pod revert nothing.
			resizes := slices.DeleteFunc(slices.Clone(pod.ManagedFields), func(entry metav1.ManagedFieldsEntry) bool { return entry.Subresource != resizeSubresource })
			leaves := contestedLeaves(&pod.Spec, c.Pods[name])
			all, err := addWriters(&out, resizes, ownership.InPod, leaves, func(metav1.ManagedFieldsEntry) bool { return true })
			if err != nil {
				return nil, err
			}
			out.Ours = out.Ours && all
		}
	}
	slices.Sort(out.Names)
	out.Names = slices.Compact(out.Names)
	out.Names = out.Names[:min(len(out.Names), maxWriters)]
	return &out, nil
}

// addWriters adds the other field managers that wrote the leaves, and reports whether all leaves are in entries that count.
func addWriters(to *plan.Writers, entries []metav1.ManagedFieldsEntry, at []string, leaves []ownership.Leaf, counts func(metav1.ManagedFieldsEntry) bool) (all bool, err error) {
	names, err := ownership.WritersOf(entries, at, leaves, Name)
	if err != nil {
		return false, err
	}
	to.Names, all = append(to.Names, names...), true
	counted := slices.DeleteFunc(slices.Clone(entries), func(entry metav1.ManagedFieldsEntry) bool { return !counts(entry) })
	for _, leaf := range leaves {
		by, err := ownership.WritersOf(counted, at, []ownership.Leaf{leaf}, "")
		if err != nil {
			return false, err
		}
		all = all && len(by) > 0
	}
	return all, nil
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
func resourcesIn(containers []workload.Container, sizes []plan.Size) (out workload.Reported) {
	for _, size := range sizes {
		for _, c := range containers {
			if c.Name == size.Container {
				out = append(out, workload.NamedResources{Name: c.Name, Resources: c.Resources})
			}
		}
	}
	return out
}
