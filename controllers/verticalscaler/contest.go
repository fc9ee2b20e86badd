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
	// maxPodsAsked is how many pods are read to find out who resizes them.
	maxPodsAsked = 10
	// maxWriters is how many are named, as many as the status holds.
	maxWriters = 8
	// resizeSubresource is how pods get other resources than they were made with.
	resizeSubresource = "resize"
)

// writersOf asks the API server who has what is contested: the cache leaves that out.
// It lists by name, since that is a right that we have of pods and Deployments alike.
func (r *Reconciler) writersOf(ctx context.Context, vs *v1beta1.VerticalScaler, c plan.Contest) (*plan.Writers, error) {
	var names []string
	ours := false
	add := func(entries []metav1.ManagedFieldsEntry, where []string, leaves []ownership.Leaf) error {
		more, err := ownership.WritersOf(entries, where, leaves, Name)
		names = append(names, more...)
		return err
	}
	if len(c.Template) > 0 {
		var found appsv1.DeploymentList
		if err := r.listLive(ctx, &found, scaler.Target(vs)); err != nil {
			return nil, err
		}
		for i := range found.Items {
			d := &found.Items[i]
			leaves := contestedLeaves(d.Spec.Template.Spec.Containers, c.Template)
			if err := add(d.ManagedFields, ownership.InTemplate, leaves); err != nil {
				return nil, err
			}
			owned, err := ownership.Of(d.ManagedFields, Name)
			if err != nil {
				return nil, fmt.Errorf("reading what is ours of Deployment %s: %w", scaler.Target(vs), err)
			}
			ours = hasAll(owned, leaves)
		}
	}
	pods := slices.Sorted(maps.Keys(c.Pods))
	for _, name := range pods[:min(len(pods), maxPodsAsked)] {
		var found corev1.PodList
		if err := r.listLive(ctx, &found, types.NamespacedName{Namespace: vs.Namespace, Name: name}); err != nil {
			return nil, err
		}
		for i := range found.Items {
			pod := &found.Items[i]
			// What a pod was made with is nobody's revert.
			resizes := slices.DeleteFunc(slices.Clone(pod.ManagedFields), func(entry metav1.ManagedFieldsEntry) bool {
				return entry.Subresource != resizeSubresource
			})
			leaves := contestedLeaves(pod.Spec.Containers, c.Pods[name])
			if err := add(resizes, ownership.InPod, leaves); err != nil {
				return nil, err
			}
			for _, leaf := range leaves { // resized by nobody else, but by anybody at all?
				by, err := ownership.WritersOf(resizes, ownership.InPod, []ownership.Leaf{leaf}, "")
				if err != nil {
					return nil, err
				}
				ours = ours && len(by) > 0
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return &plan.Writers{Names: names[:min(len(names), maxWriters)], Ours: ours, Partly: len(pods) > maxPodsAsked}, nil
}

// hasAll says whether there are leaves, and all of them are in the set.
func hasAll(owned *fieldpath.Set, leaves []ownership.Leaf) bool {
	return len(leaves) > 0 && !slices.ContainsFunc(leaves, func(leaf ownership.Leaf) bool {
		return !ownership.HasResource(owned, leaf.Container, leaf.List, leaf.Resource)
	})
}

func (r *Reconciler) listLive(ctx context.Context, list client.ObjectList, key types.NamespacedName) error {
	err := r.Live.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name})
	if err != nil {
		return fmt.Errorf("reading who has what of %s: %w", key, err)
	}
	return nil
}

// contestedLeaves are those of the sizes' entries that the containers have otherwise.
func contestedLeaves(containers []corev1.Container, sizes []plan.Size) (leaves []ownership.Leaf) {
	for _, size := range sizes {
		i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == size.Container })
		if i < 0 {
			continue
		}
		for list, has := range map[string][2]corev1.ResourceList{
			"requests": {containers[i].Resources.Requests, resourceList(size.Requests)},
			"limits":   {containers[i].Resources.Limits, resourceList(size.Limits)},
		} {
			for name, wanted := range has[1] {
				if found, ok := has[0][name]; ok && !quantity.Equal(found, wanted) {
					leaves = append(leaves, ownership.Leaf{Container: size.Container, List: list, Resource: string(name)})
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

// isUndone says whether somebody else has changed what we last resized the pod to.
func (m remembered) isUndone(pod workload.Pod) bool {
	if pod.Generation <= m.generation {
		return false
	}
	for name, ours := range m.sizes {
		if c, ok := pod.Container(name); ok && c.Resources != ours {
			return true
		}
	}
	return false
}

// acknowledge forgets what was undone, once the status counts it.
func (r *Reconciler) acknowledge(scaler types.NamespacedName, undone map[types.UID]int64) {
	for uid, seen := range undone {
		r.pods.remember(scaler, uid, func(what *remembered) {
			if what.generation < seen { // else it has been resized again
				what.sizes = nil
			}
		})
	}
}
