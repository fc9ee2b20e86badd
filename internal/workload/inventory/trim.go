// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Trim removes the fields of a cached object that the operator does not read, because the cache
// holds every watched Deployment. A trimmed object must never be sent to the API server.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		trimDeployment(o)
	case *corev1.Node:
		trimNode(o)
	case *v1beta1.VerticalScaler:
		o.ManagedFields = nil
		shareInScaler(o)
	case *autoscalingv2.HorizontalPodAutoscaler:
		o.ManagedFields, o.Annotations, o.Labels = nil, nil, nil
		o.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
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

// trimDeploymentConditions keeps only an exceeded progress deadline, without the times and messages that change,
// and why and since when pods cannot be created.
func trimDeploymentConditions(conditions []appsv1.DeploymentCondition) (out []appsv1.DeploymentCondition) {
	for _, c := range conditions {
		if workload.IsDeadlineExceeded(c) {
			out = append(out, appsv1.DeploymentCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
		if workload.IsReplicaFailure(c) {
			out = append(out, appsv1.DeploymentCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime})
		}
	}
	return out
}

// trimOwnDeployment keeps the fields that are compared with the ScaledDeployment, and the managed
// fields of scalers.
func trimOwnDeployment(d *appsv1.Deployment) {
	d.Labels = keepKey(d.Labels, v1beta1.ScaledDeploymentLabel)
	d.Annotations = keepKey(d.Annotations, v1beta1.AppliedAnnotation)
	d.ManagedFields = slices.DeleteFunc(d.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager != ownership.Scalers
	})
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
		kept := corev1.Container{Name: c.Name, Resources: c.Resources, ResizePolicy: c.ResizePolicy}
		workload.KeepHeap(&kept, &c)
		out = append(out, kept)
	}
	return out
}

func keepKey(m map[string]string, key string) map[string]string {
	if v, ok := m[key]; ok {
		return map[string]string{key: v}
	}
	return nil
}
