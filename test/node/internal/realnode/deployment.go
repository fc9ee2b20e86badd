// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

package realnode

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// AppPort is where the container of a [Deployment] listens.
const AppPort = 8080

// The ratios of the limits of a [Deployment] to its requests.
const (
	cpuLimitOverRequest    = 3
	memoryLimitOverRequest = 2
)

// Deployment returns a Deployment whose pods use what [Node.Load] sets. They request 100m
// and 64Mi.
func Deployment(key client.ObjectKey, replicas int32) *appsv1.Deployment {
	d := testkit.Deployment(key.Namespace, key.Name)
	d.Spec.Replicas = ptr.To(replicas)
	spec := &d.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	app := &spec.Containers[0]
	app.Image, app.ImagePullPolicy = "verticalscaler.local/stress:dev", corev1.PullNever
	app.Args = []string{"-cpu=20", "-memory=20"}
	app.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	app.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	app.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(AppPort)},
	}}
	return d
}

// Requests are the requests of one container.
type Requests struct{ CPUMillis, MemoryBytes int64 }

// Unapplied is why the decision of a [Deployment]'s scaler is not applied in every pod's
// cgroup, or not yet large enough, if enough says so.
func (n *Node) Unapplied(t *testing.T, deployment client.ObjectKey, replicas int, enough func(Requests) string) string {
	t.Helper()
	var s v1beta1.VerticalScaler
	if err := n.Client.Get(t.Context(), deployment, &s); err != nil {
		return err.Error()
	}
	if s.Status.Decision == nil || len(s.Status.Decision.Containers) == 0 {
		return fmt.Sprintf("nothing is decided: %+v", s.Status.Conditions)
	}
	decided := s.Status.Decision.Containers[0].Requests
	if decided.CPU == nil || decided.Memory == nil {
		return fmt.Sprintf("decided is only %+v", decided)
	}
	requests := Requests{decided.CPU.MilliValue(), decided.Memory.Value()}
	if what := enough(requests); what != "" {
		return what
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, "Applied"); c == nil || c.Status != metav1.ConditionTrue {
		return fmt.Sprintf("not applied: %+v", c)
	}
	pods := n.RunningPods(t, deployment)
	if len(pods) != replicas {
		return fmt.Sprintf("%d pods run", len(pods))
	}
	for _, pod := range pods {
		got := n.Limits(t, pod)
		if want := requests.MemoryBytes * memoryLimitOverRequest; got.MemoryLimitBytes != want {
			return fmt.Sprintf("pod %s: the cgroup's memory limit is %d, not %d", pod.Name, got.MemoryLimitBytes, want)
		}
		// With a period of 100 ms, the quota is a tenth of a millisecond per millicore.
		if want := requests.CPUMillis * cpuLimitOverRequest * got.CPUPeriodMicros / 1000; got.CPUQuotaMicros != want {
			return fmt.Sprintf("pod %s: the cgroup's CPU quota is %d, not %d", pod.Name, got.CPUQuotaMicros, want)
		}
		// In cgroup v1, a core has 1024 shares; v2 uses another scale.
		if want := requests.CPUMillis * 1024 / 1000; got.CgroupVersion == 1 && got.CPUShares != want {
			return fmt.Sprintf("pod %s: the cgroup's CPU shares are %d, not %d", pod.Name, got.CPUShares, want)
		}
	}
	return ""
}
