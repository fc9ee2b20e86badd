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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// sidecarPort is where the load of the sidecar listens: the containers of a pod share their network.
const sidecarPort = 8081

// withSidecar adds a native sidecar with the resources of the container.
func withSidecar(d *appsv1.Deployment) {
	spec := &d.Spec.Template.Spec
	sidecar := *spec.Containers[0].DeepCopy()
	sidecar.Name, sidecar.RestartPolicy = "sidecar", ptr.To(corev1.ContainerRestartPolicyAlways)
	sidecar.ReadinessProbe.HTTPGet.Port = intstr.FromInt32(sidecarPort)
	sidecar.Args = []string{"-cpu=5", "-memory=20", fmt.Sprintf("-addr=:%d", sidecarPort)}
	spec.InitContainers = []corev1.Container{sidecar}
}

// sidecarOf is the pod as if the sidecar were its container.
func sidecarOf(pod corev1.Pod) corev1.Pod {
	pod.Spec.Containers, pod.Status.ContainerStatuses = pod.Spec.InitContainers, pod.Status.InitContainerStatuses
	return pod
}

func TestANativeSidecarIsResizedUpAndDown(t *testing.T) {
	t.Parallel()
	s := stage(t, withSidecar, v1beta1.Scaling{ResourcePolicy: policies(pin("90m", "128Mi"))})
	before := s.pod(t)
	s.uses(5, 20)
	s.hasIn(t, sidecarOf, "90m", "720m", "128Mi", "256Mi")
	s.has(t, "90m", "720m", "128Mi", "256Mi")
	s.reports(t, v1beta1.ReasonApplied, "")

	s.pin(t, "40m", "64Mi")
	after := s.hasIn(t, sidecarOf, "40m", "320m", "64Mi", "128Mi")
	s.reports(t, v1beta1.ReasonApplied, "")
	restarts(t, after, 0)
	restarts(t, sidecarOf(after), 0)
	if after.UID != before.UID {
		t.Error("the pod was replaced")
	}
	asked(t, after, 2)
}

func TestAnOOMKillOfANativeSidecarRaisesItsMemory(t *testing.T) {
	t.Parallel()
	policy := pin("20m", "64Mi")
	policy.MaxAllowed.Memory = ptr.To(resource.MustParse("1Gi"))
	s := stage(t, withSidecar, v1beta1.Scaling{ResourcePolicy: policies(policy)})
	s.uses(5, 20)
	before := s.pod(t)
	node.Overload(t, before, sidecarPort, 5, 170)

	// Twice the limit at the OOM kill, on the first day, and a limit twice that.
	after := s.hasIn(t, sidecarOf, "20m", "200m", "256Mi", "512Mi")
	s.reports(t, v1beta1.ReasonApplied, "")
	if got := s.scaler(t).Status.Decision.Reason; got != "OOMKill" {
		t.Errorf("the reason of the decision is %s", got)
	}
	restarts(t, after, 0)
	restarts(t, sidecarOf(after), 1) // by the kernel
	if after.UID != before.UID {
		t.Error("the pod was replaced")
	}
	node.Load(t, after, sidecarPort, 5, 170)
	restarts(t, sidecarOf(s.pod(t)), 1)
}
