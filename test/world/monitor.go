// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// monitor checks that a scaler may make each write of the operator to a pod or a template:
//
//   - The scaler names the Deployment, is not deleted or suspended, and its mode allows it. Pods are resized in the mode
//     InPlace, and templates are written in the mode Rollout or as its fallback. Restoring the original values is allowed
//     in any mode.
//   - Only resources of containers are written, never those of init containers. Other writes of pods, and those that change
//     the QoS class, are refused by the API server.
//   - A resized pod differs in what was requested only: the API server has added nothing.
//
// Which sizes may be written is checked in internal/plan. A reconcile may have seen a scaler before its latest edit, so what
// the previous spec allows is allowed, too. It needs an API server in memory: on a real one, rights and admission policies
// confine the operator.
func (w *World) monitor() (out []string) {
	h := history{}
	for _, e := range w.changes {
		if s, ok := e.Object.(*v1beta1.VerticalScaler); ok {
			h[s.Name] = append(h[s.Name], version{s, e.Type == watch.Deleted})
		}
		if !e.isOurs || e.Before == nil || e.Type == watch.Deleted || !e.isEffective() {
			continue
		}
		wrong := ""
		if _, pod, ok := versionsOf[*corev1.Pod](e); ok {
			wrong = h.forbids(deploymentOf(pod), scaler.ResizesPods)
		} else if before, after, ok := versionsOf[*appsv1.Deployment](e); ok && !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
			wrong = h.forbidsRewrite(before, after)
		}
		if wrong != "" {
			out = append(out, fmt.Sprintf("%T %s, at revision %s: %s", e.Object, e.Object.GetName(), e.Object.GetResourceVersion(), wrong))
		}
	}
	return append(out, w.unrequested...)
}

// history are the versions of the scalers by name, in order.
type history map[string][]version

// version is a scaler as it was once.
type version struct {
	*v1beta1.VerticalScaler
	isGone bool
}

// deploymentOf is the Deployment of a pod, by the name of its ReplicaSet.
func deploymentOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ""
	}
	return owner.Name[:max(0, strings.LastIndex(owner.Name, "-"))]
}

// forbids describes why no scaler may write to a Deployment or its pods now.
func (h history) forbids(deployment string, may func(*v1beta1.VerticalScalerSpec) bool) string {
	why := fmt.Sprintf("no scaler names Deployment %q", deployment)
	for _, versions := range h {
		for _, spec := range specsOf(versions) {
			if spec.DeploymentName != deployment {
				continue
			}
			if !spec.Suspend && may(spec) {
				return ""
			}
			why = fmt.Sprintf("no scaler may change it: %+v", spec.UpdatePolicy)
		}
	}
	return why
}

// specsOf returns the specs that a reconcile may have seen: the latest one, and the one before.
func specsOf(versions []version) (specs []*v1beta1.VerticalScalerSpec) {
	for _, v := range slices.Backward(versions) {
		switch {
		case v.isGone, len(specs) >= 2:
			return specs
		case len(specs) == 0 || !apiequality.Semantic.DeepEqual(*specs[len(specs)-1], v.Spec):
			specs = append(specs, &v.Spec)
		}
	}
	return specs
}

// forbidsRewrite describes why no scaler may change a template like that.
func (h history) forbidsRewrite(before, after *appsv1.Deployment) string {
	with := before.Spec.DeepCopy()
	isRestored := true
	for i := range min(len(with.Template.Spec.Containers), len(after.Spec.Template.Spec.Containers)) {
		was, is := &with.Template.Spec.Containers[i].Resources, after.Spec.Template.Spec.Containers[i].Resources
		isRestored = isRestored && (apiequality.Semantic.DeepEqual(*was, is) || h.hasRecorded(after.Name, with.Template.Spec.Containers[i].Name, *was, is))
		*was = is
	}
	switch {
	case !apiequality.Semantic.DeepEqual(*with, after.Spec):
		return "more than resources of containers was changed"
	case isRestored:
		return ""
	}
	return h.forbids(after.Name, scaler.WritesTemplate)
}

// hasRecorded reports whether a scaler has recorded the values of a container that were written as the original ones. A value
// may also be as close to the original as the other value of the container allows.
func (h history) hasRecorded(deployment, container string, was, is corev1.ResourceRequirements) bool {
	fits := func(before, after, bound resource.Quantity, original *resource.Quantity, side int) bool {
		return after.Cmp(before) == 0 || original != nil && (after.Cmp(*original) == 0 || original.Cmp(bound) == side && after.Cmp(bound) == 0)
	}
	fitsBoth := func(name corev1.ResourceName, request, limit *resource.Quantity) bool {
		return fits(was.Requests[name], is.Requests[name], is.Limits[name], request, 1) && fits(was.Limits[name], is.Limits[name], is.Requests[name], limit, -1)
	}
	for _, versions := range h {
		for _, v := range versions {
			held := v.Status.OriginalResources
			if held == nil || held.DeploymentName != deployment {
				continue
			}
			for _, c := range held.Containers {
				if c.ContainerName == container && fitsBoth(corev1.ResourceCPU, c.Requests.CPU, c.Limits.CPU) && fitsBoth(corev1.ResourceMemory, c.Requests.Memory, c.Limits.Memory) {
					return true
				}
			}
		}
	}
	return false
}
