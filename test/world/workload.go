// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

const (
	// neighbour is a Deployment that no scaler names. Its pods have a label in common with
	// those that are scaled.
	neighbour = "neighbour"
	replicas  = 3
)

// size is the CPU and memory of the two containers.
type size struct {
	zetaCPU, zetaMemory, alphaCPU, alphaMemory string
	// limitsOf is the size whose limits containers have; nil for their own.
	limitsOf *size
}

var (
	small   = size{"100m", "128Mi", "50m", "64Mi", nil}
	large   = size{"300m", "320Mi", "150m", "160Mi", nil}
	lowered = size{"100m", "128Mi", "50m", "64Mi", &large} // in place, where limits stay
)

// deployment is an untidy Deployment: its containers are not in the order of the alphabet,
// a native sidecar runs beside them, and its pods run on nodes with skewed clocks. The
// limits are twice the requests.
func (w *World) deployment(name string, s size) *appsv1.Deployment {
	labels := map[string]string{AppLabel: name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: template(labels, s),
		},
	}
}

func template(labels map[string]string, s size) corev1.PodTemplateSpec {
	withTeam := map[string]string{"team": "shop"}
	for key, value := range labels {
		withTeam[key] = value
	}
	out := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: withTeam},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{
				Name: "mesh", Image: "example.com/mesh:1",
				RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
				Resources:     requirements("10m", "32Mi"),
			}},
			Containers: []corev1.Container{
				{Name: "zeta", Image: "example.com/zeta:1", Resources: requirements(s.zetaCPU, s.zetaMemory)},
				{Name: "alpha", Image: "example.com/alpha:1", Resources: requirements(s.alphaCPU, s.alphaMemory)},
			},
		},
	}
	if s.limitsOf != nil {
		for i, c := range template(nil, *s.limitsOf).Spec.Containers {
			out.Spec.Containers[i].Resources.Limits = c.Resources.Limits
		}
	}
	return out
}

func requirements(cpu, memory string) corev1.ResourceRequirements {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	limits := corev1.ResourceList{}
	for name, request := range requests {
		limit := request.DeepCopy()
		limit.Add(request)
		limits[name] = limit
	}
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// scaler is a scaler whose bounds decide alone, so that the end of a run does not depend on
// when its samples were taken: minAllowed and maxAllowed are the size.
func (w *World) scaler(name, deployment string, mode v1beta1.UpdateMode, s size) *v1beta1.VerticalScaler {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: deployment, Scaling: *scaling(mode, s)},
	}
}

func scaling(mode v1beta1.UpdateMode, s size) *v1beta1.Scaling {
	return &v1beta1.Scaling{
		UpdatePolicy: v1beta1.UpdatePolicy{
			UpdateMode: mode, CooldownSeconds: ptr.To[int32](0), VerificationSeconds: ptr.To[int32](0),
		},
		ResourcePolicy: &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{
			pinned("zeta", s.zetaCPU, s.zetaMemory), pinned("alpha", s.alphaCPU, s.alphaMemory),
			// The runs compare what is written to these two. The sidecar has no bounds that decide alone.
			{ContainerName: "mesh", Mode: v1beta1.ContainerModeOff},
		}},
	}
}

func pinned(container, cpu, memory string) v1beta1.ContainerPolicy {
	bounds := func() *v1beta1.ResourceBounds {
		return &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse(cpu)), Memory: ptr.To(resource.MustParse(memory))}
	}
	return v1beta1.ContainerPolicy{ContainerName: container, MinAllowed: bounds(), MaxAllowed: bounds()}
}

// disruptionBudget allows one pod of the Deployment to be missing.
func (w *World) disruptionBudget(deployment string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: deployment},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(1)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{AppLabel: deployment}},
		},
	}
}

// deployAll creates Deployments of a size, and the neighbour, and awaits that all their pods run.
func (w *World) deployAll(s size, names ...string) {
	w.Helper()
	other := w.deployment(neighbour, small)
	other.Spec.Replicas = ptr.To[int32](1)
	w.Create(other)
	for _, name := range names {
		w.Create(w.deployment(name, s))
	}
	w.Await("the Deployments to run", func() string {
		for _, name := range append(names, neighbour) {
			if wrong := w.IsRunning(name); wrong != "" {
				return wrong
			}
		}
		return ""
	})
}
