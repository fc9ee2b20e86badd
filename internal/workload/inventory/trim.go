// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Trim removes the fields of a cached object that the operator does not read, because the cache
// holds every watched Deployment and pod. A trimmed object must never be sent to the API server.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		trimDeployment(o)
	case *corev1.Pod:
		trimPod(o)
	case *corev1.Node:
		trimNode(o)
	case *metav1.PartialObjectMetadata:
		o.ManagedFields = nil
		o.Labels = nil
		o.Annotations = keepKey(o.Annotations, revisionAnnotation)
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return obj, nil
}

func trimDeployment(d *appsv1.Deployment) {
	if owner := metav1.GetControllerOfNoCopy(d); owner != nil && v1beta1.IsScaledDeployment(owner) {
		trimOwnDeployment(d)
		return
	}
	d.ManagedFields = nil
	d.Annotations, d.Labels = nil, nil
	d.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers:     trimContainers(d.Spec.Template.Spec.Containers),
		InitContainers: trimInitContainers(d.Spec.Template.Spec.InitContainers),
		Resources:      d.Spec.Template.Spec.Resources,
		Overhead:       d.Spec.Template.Spec.Overhead,
	}}
	d.Status.Conditions = trimDeploymentConditions(d.Status.Conditions)
}

// trimDeploymentConditions keeps only an exceeded progress deadline, without the times and
// messages that change.
func trimDeploymentConditions(conditions []appsv1.DeploymentCondition) (out []appsv1.DeploymentCondition) {
	for _, c := range conditions {
		if workload.IsDeadlineExceeded(c) {
			out = append(out, appsv1.DeploymentCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	return out
}

// trimOwnDeployment keeps what is compared with the ScaledDeployment, and the managed fields of
// scalers.
func trimOwnDeployment(d *appsv1.Deployment) {
	d.Labels = keepKey(d.Labels, v1beta1.ScaledDeploymentLabel)
	d.Annotations = keepKey(d.Annotations, v1beta1.AppliedAnnotation)
	d.ManagedFields = slices.DeleteFunc(d.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager != ownership.Scalers
	})
}

func trimPod(p *corev1.Pod) {
	p.ManagedFields, p.Annotations = lastResize(p.ManagedFields), nil
	p.Labels = keepKey(p.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	p.Spec = corev1.PodSpec{
		Containers:     trimContainers(p.Spec.Containers),
		InitContainers: trimInitContainers(p.Spec.InitContainers),
		Resources:      p.Spec.Resources,
		Overhead:       p.Spec.Overhead,
		NodeName:       p.Spec.NodeName,
	}
	statuses := make([]corev1.ContainerStatus, 0, len(p.Status.ContainerStatuses))
	for _, s := range p.Status.ContainerStatuses {
		statuses = append(statuses, trimStatus(s))
	}
	var init []corev1.ContainerStatus
	for _, s := range p.Status.InitContainerStatuses {
		init = append(init, trimStatus(s))
	}
	p.Status = corev1.PodStatus{
		Phase:             p.Status.Phase,
		QOSClass:          p.Status.QOSClass,
		StartTime:         p.Status.StartTime,
		Conditions:        trimConditions(p.Status.Conditions),
		ContainerStatuses: statuses,

		InitContainerStatuses: init,
	}
}

func trimStatus(s corev1.ContainerStatus) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:                 s.Name,
		RestartCount:         s.RestartCount,
		Resources:            s.Resources,
		State:                corev1.ContainerState{Running: s.State.Running, Terminated: s.State.Terminated, Waiting: trimWaiting(s.State.Waiting)},
		LastTerminationState: corev1.ContainerState{Terminated: s.LastTerminationState.Terminated},
	}
}

func trimNode(n *corev1.Node) {
	n.ManagedFields, n.Annotations, n.Labels = nil, nil, nil
	n.Spec = corev1.NodeSpec{}
	allocatable := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if amount, ok := n.Status.Allocatable[name]; ok {
			allocatable[name] = amount
		}
	}
	n.Status = corev1.NodeStatus{Allocatable: allocatable}
}

// lastResize keeps the time of the last resize in place; nil for never.
func lastResize(entries []metav1.ManagedFieldsEntry) (out []metav1.ManagedFieldsEntry) {
	for _, entry := range entries {
		if entry.Subresource != workload.ResizeSubresource || entry.Time == nil {
			continue
		}
		if len(out) == 0 || out[0].Time.Before(entry.Time) {
			out = []metav1.ManagedFieldsEntry{{Subresource: entry.Subresource, Time: entry.Time}}
		}
	}
	return out
}

// trimConditions keeps the resize conditions, the status and transition time of Ready, and that a
// pod is unschedulable, without the message, which changes with each node.
func trimConditions(conditions []corev1.PodCondition) (out []corev1.PodCondition) {
	for _, c := range conditions {
		switch {
		case c.Type == corev1.PodResizePending, c.Type == corev1.PodResizeInProgress:
			out = append(out, c)
		case c.Type == corev1.PodReady:
			out = append(out, corev1.PodCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
		case workload.IsUnschedulable(c):
			out = append(out, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	return out
}

// trimWaiting keeps only CrashLoopBackOff, without the message, which changes with each
// attempt.
func trimWaiting(waiting *corev1.ContainerStateWaiting) *corev1.ContainerStateWaiting {
	if !workload.IsBackingOff(waiting) {
		return nil
	}
	return &corev1.ContainerStateWaiting{Reason: waiting.Reason}
}

// trimInitContainers keeps the restart policy, which makes an init container a sidecar.
func trimInitContainers(containers []corev1.Container) []corev1.Container {
	out := trimContainers(containers)
	for i, c := range containers {
		out[i].RestartPolicy = c.RestartPolicy
	}
	return out
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		out = append(out, corev1.Container{Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy})
	}
	return out
}

func keepKey(m map[string]string, key string) map[string]string {
	if v, ok := m[key]; ok {
		return map[string]string{key: v}
	}
	return nil
}
