// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

const (
	podsPerDeployment = 10
	// rolloutLabel is on all pods of the scenario.
	rolloutLabel = "demo.verticalscaler.io/rollout"
)

// rolloutNamespaces are the namespaces of the scenario. A policy injects a native sidecar into new pods of all but the last.
var rolloutNamespaces = []string{"shop", "billing", "search"}

// rolloutNamespace is a namespace of the scenario.
func rolloutNamespace(i int) *corev1.Namespace {
	labels := map[string]string{}
	if i < len(rolloutNamespaces)-1 {
		labels["testkit.verticalscaler.io/sidecar"] = "true"
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rolloutNamespaces[i], Labels: labels}}
}

// unscaled are Deployments that no scaler names, with names like those that a scaler does.
var unscaled = []string{"app-1-canary", "my-app-1", "app", "plain"}

// scaledDeployment is a Deployment with its scaler. Half of them use more than they request, and half use less.
func scaledDeployment(i int) (*appsv1.Deployment, *v1beta1.VerticalScaler) {
	namespace, name := rolloutNamespaces[[]int{0, 1, 0, 2, 0, 1, 0}[i%7]], fmt.Sprintf("app-%d", i)
	cpu, memory := 15+i%12, 25+i%20
	if i%2 == 0 || i%5 == 3 { // Without the usage of a container, nothing is lowered.
		cpu, memory = 100+i%40, 170+i%50
	}
	d := rolloutDeployment(namespace, name, podsPerDeployment, cpu, memory)
	scaler := &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.VerticalScalerSpec{
			DeploymentName: name,
			Scaling: v1beta1.Scaling{
				// One decision, so that pods can be compared with it. No verification, during which new pods get the size before.
				UpdatePolicy: v1beta1.UpdatePolicy{CooldownSeconds: ptr.To[int32](3600), VerificationSeconds: ptr.To[int32](0)},
			},
		},
	}
	pod := &d.Spec.Template.Spec
	switch app := &pod.Containers[0].Resources; i % 5 {
	case 1: // no limits
		app.Limits = nil
	case 2: // CPU only
		app.Requests, app.Limits = resourceList("60m", ""), nil
		scaler.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{
			{ContainerName: "app", ControlledResources: []v1beta1.ControlledResource{v1beta1.ControlledCPU}},
		}}
	case 3: // a second container, and a native sidecar, of which simulated nodes report no usage: it stays as it is
		pod.Containers = append(pod.Containers, corev1.Container{
			Name: "cache", Image: "registry.example/cache:1", Resources: corev1.ResourceRequirements{Requests: resourceList("40m", "64Mi")},
		})
		pod.InitContainers = []corev1.Container{
			{Name: "migrate", Image: "registry.example/migrate:1", Resources: corev1.ResourceRequirements{Requests: resourceList("10m", "16Mi")}},
			{
				Name: "log", Image: "registry.example/log:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
				Resources: corev1.ResourceRequirements{Requests: resourceList("20m", "32Mi"), Limits: resourceList("", "128Mi")},
			},
		}
	case 4: // a limit of memory only
		app.Limits = resourceList("", "400Mi")
	}
	return d, scaler
}

// rolloutDeployment is a Deployment whose app uses so many millicores and mebibytes.
func rolloutDeployment(namespace, name string, replicas int32, cpu, memory int) *appsv1.Deployment {
	labels := map[string]string{"app": name, rolloutLabel: "true"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					"usage.verticalscaler.io/cpu": "10m", "usage.verticalscaler.io/memory": "20Mi",
					"usage.verticalscaler.io/cpu.app": fmt.Sprintf("%dm", cpu), "usage.verticalscaler.io/memory.app": fmt.Sprintf("%dMi", memory),
				}},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Containers: []corev1.Container{{
						Name: "app", Image: "registry.example/app:1",
						Resources: corev1.ResourceRequirements{Requests: resourceList("60m", "100Mi"), Limits: resourceList("300m", "400Mi")},
					}},
				},
			},
		},
	}
}

// resourceList has amounts of CPU and memory. Empty texts are left out.
func resourceList(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			out[name] = resource.MustParse(text)
		}
	}
	return out
}

// injected is the native sidecar that the policy of testkit injects.
func injected() corev1.Container {
	return corev1.Container{Name: testkit.Sidecar, Resources: corev1.ResourceRequirements{Requests: resourceList("20m", "40Mi"), Limits: resourceList("40m", "80Mi")}}
}
