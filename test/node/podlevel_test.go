// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

package node

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// hasPodLevel waits until the pod declares these pod-level resources, and the kubelet reports them as
// applied.
func (s scene) hasPodLevel(t *testing.T, cpu, cpuLimit, memory, memoryLimit string) {
	t.Helper()
	want := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpuLimit), corev1.ResourceMemory: resource.MustParse(memoryLimit)},
	}
	testkit.Eventually(t, long, func() string {
		pod := s.pod(t)
		switch {
		case pod.Spec.Resources == nil || !same(*pod.Spec.Resources, want):
			return fmt.Sprintf("its spec has %v at the pod level", pod.Spec.Resources)
		case pod.Status.Resources == nil || !same(*pod.Status.Resources, want):
			return fmt.Sprintf("its status has %v at the pod level, and the conditions are %v", pod.Status.Resources, pod.Status.Conditions)
		}
		return ""
	})
}

func TestPodLevelResourcesAreResizedUpAndDown(t *testing.T) {
	t.Parallel()
	s := stage(t, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Resources = &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
		}
	}, v1beta1.Scaling{ResourcePolicy: policies(pin("90m", "128Mi"))})
	before := s.pod(t)
	s.uses(5, 20)
	s.has(t, "90m", "720m", "128Mi", "256Mi")
	s.hasPodLevel(t, "120m", "1200m", "192Mi", "384Mi") // 30m and 64Mi beyond the container
	s.reports(t, v1beta1.ReasonApplied, "")

	s.pin(t, "40m", "64Mi")
	down := s.has(t, "40m", "320m", "64Mi", "128Mi")
	s.hasPodLevel(t, "70m", "700m", "128Mi", "256Mi")
	s.reports(t, v1beta1.ReasonApplied, "")
	restarts(t, down, 0)
	if down.UID != before.UID || down.Status.QOSClass != before.Status.QOSClass {
		t.Error("the pod was replaced, or its QoS class has changed")
	}
	asked(t, down, 2)
}
