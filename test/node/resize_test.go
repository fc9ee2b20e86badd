// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/test/node/internal/realnode"
)

// TestAPodIsResizedUpAndDown is the simple case: no restart, and the QoS class stays. The template's CPU limit is 10 times
// its request, of which 8 times are kept.
func TestAPodIsResizedUpAndDown(t *testing.T) {
	t.Parallel()
	type limits struct{ cpu, memory string }
	cases := map[corev1.PodQOSClass]struct {
		edit     func(*appsv1.Deployment)
		up, down limits
	}{
		corev1.PodQOSBurstable: {up: limits{"720m", "256Mi"}, down: limits{"320m", "128Mi"}},
		corev1.PodQOSGuaranteed: {
			edit: func(d *appsv1.Deployment) {
				r := &d.Spec.Template.Spec.Containers[0].Resources
				r.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("60m"), corev1.ResourceMemory: resource.MustParse("96Mi")}
				r.Limits = r.Requests.DeepCopy()
			},
			up: limits{"90m", "128Mi"}, down: limits{"40m", "64Mi"},
		},
	}
	for class, tc := range cases {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			s := stage(t, tc.edit, v1beta1.Scaling{ResourcePolicy: policies(pin("90m", "128Mi"))})
			before := s.pod(t)
			s.uses(5, 20)
			up := s.has(t, "90m", tc.up.cpu, "128Mi", tc.up.memory)
			s.reports(t, v1beta1.ReasonApplied, "")

			s.pin(t, "40m", "64Mi")
			down := s.has(t, "40m", tc.down.cpu, "64Mi", tc.down.memory)
			s.reports(t, v1beta1.ReasonApplied, "")

			restarts(t, down, 0)
			if up.UID != before.UID || down.UID != before.UID {
				t.Error("the pod was replaced")
			}
			if up.Status.QOSClass != class || down.Status.QOSClass != class {
				t.Errorf("the QoS class was %s, then %s, not %s", up.Status.QOSClass, down.Status.QOSClass, class)
			}
			asked(t, down, 2)
		})
	}
}

// TestADeferredResizeGoesThrough: another pod has reserved the room. Once that pod is
// deleted, the kubelet retries on its own.
func TestADeferredResizeGoesThrough(t *testing.T) {
	t.Parallel()
	s := stage(t, nil, v1beta1.Scaling{ResourcePolicy: policies(pin("20m", "64Mi"))})
	s.uses(5, 20)
	pod := s.pod(t)

	var host corev1.Node
	must.Succeed(t, env.Client.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &host))
	reserved := host.Status.Allocatable.Memory().DeepCopy()
	reserved.Sub(resource.MustParse("4Gi")) // leaves room for the other scenes
	filler := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "filler"},
		Spec:       realnode.Deployment(s.key, 1).Spec.Template.Spec,
	}
	filler.Spec.Containers[0].Args = []string{"-memory=1"}
	filler.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: reserved}}
	env.Create(t, filler)
	testkit.Eventually(t, long, func() string {
		must.Succeed(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(filler), filler))
		if filler.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("the other pod is %s: %v", filler.Status.Phase, filler.Status.Conditions)
		}
		return ""
	})

	s.pin(t, "20m", "6Gi")
	s.reports(t, v1beta1.ReasonDeferred, "Node didn't have enough resource: memory")
	before := node.Limits(t, s.pod(t))
	if before.MemoryLimitBytes != 128<<20 {
		t.Errorf("the limit is %d, although the resize is put off", before.MemoryLimitBytes)
	}
	must.Succeed(t, env.Client.Delete(t.Context(), filler))
	after := s.has(t, "20m", "200m", "6Gi", "12Gi")
	s.reports(t, v1beta1.ReasonApplied, "")
	restarts(t, after, 0)
	if after.UID != pod.UID {
		t.Error("the pod was replaced")
	}
	asked(t, after, 1)
}

// TestMoreThanTheNodeHasIsAskedForOnce: a larger node in the cluster does not help a pod on
// this node. The pod gets what its node can provide.
func TestMoreThanTheNodeHasIsRequestedOnce(t *testing.T) {
	t.Parallel()
	larger := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "larger"},
		Spec:       corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "example.com/nobody", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("512"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		}},
	}
	larger.Status.Capacity = larger.Status.Allocatable
	env.Create(t, larger)
	t.Cleanup(func() {
		if err := env.Client.Delete(context.Background(), larger); err != nil {
			t.Errorf("deleting the node: %v", err)
		}
	})
	s := stage(t, nil, v1beta1.Scaling{ResourcePolicy: policies(pin("300", "96Mi"))})
	s.uses(5, 20)
	pod := s.has(t, "20m", "200m", "96Mi", "192Mi")
	s.reports(t, v1beta1.ReasonNodeCapacity, "node didn't have enough allocatable resources: cpu, requested: 32000") // the ceiling of a container
	asked(t, pod, 2)                                                                                                 // everything, which is rejected, and then only memory

	for i := range int32(5) {
		s.edit(t, func(spec *v1beta1.VerticalScalerSpec) { spec.UpdatePolicy.TolerancePercent = ptr.To(20 + i) })
		s.reports(t, v1beta1.ReasonNodeCapacity, "")
	}
	asked(t, pod, 2)
	restarts(t, s.pod(t), 0)

	s.pin(t, "30m", "96Mi")
	s.has(t, "30m", "240m", "96Mi", "192Mi")
	s.reports(t, v1beta1.ReasonApplied, "")
	asked(t, pod, 3)
}

// TestALimitBelowTheUsageStays: with RequestsAndLimits, the kubelet refuses to lower the limit below the current usage.
func TestALimitBelowTheUsageStays(t *testing.T) {
	t.Parallel()
	s := stage(t, func(d *appsv1.Deployment) {
		r := &d.Spec.Template.Spec.Containers[0].Resources
		r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory] = resource.MustParse("128Mi"), resource.MustParse("256Mi")
	}, v1beta1.Scaling{ResourcePolicy: policies(pin("20m", "128Mi"))})
	s.uses(5, 20)
	pod := s.pod(t)
	node.Load(t, pod, realnode.AppPort, 5, 200)

	s.pin(t, "20m", "64Mi")
	s.reports(t, v1beta1.ReasonResizeError, "below current usage")
	if got := node.Limits(t, s.pod(t)); got.MemoryLimitBytes != 256<<20 {
		t.Errorf("the limit is %d, with 200 MiB in use", got.MemoryLimitBytes)
	}
	s.has(t, "20m", "200m", "64Mi", "256Mi") // the limit is restored after a while, and the request stays lowered
	s.reports(t, v1beta1.ReasonResizeError, "below current usage")
	asked(t, pod, 2)

	// Lower usage does not lower the limit: page cache would fill it again.
	node.Load(t, pod, realnode.AppPort, 5, 20)
	s.pin(t, "20m", "60Mi")
	after := s.has(t, "20m", "200m", "60Mi", "256Mi")
	s.reports(t, v1beta1.ReasonResizeError, "below current usage")
	restarts(t, after, 0)
	if after.UID != pod.UID {
		t.Error("the pod was replaced")
	}
	asked(t, pod, 3)
}

// TestAPodThatStartsHasMoreCPU covers a first start, a restart of the container, and a new
// pod, which is created with the boost.
func TestAPodThatStartsHasMoreCPU(t *testing.T) {
	t.Parallel()
	const period = 4 * time.Second
	boost := &v1beta1.StartupBoost{CPU: &v1beta1.CPUStartupBoost{
		Type: v1beta1.BoostFactor, Factor: ptr.To(int32(3)), DurationSeconds: ptr.To(int32(period / time.Second)),
	}}
	s := stage(t, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 30 // time to see what the kernel enforces
	}, v1beta1.Scaling{
		UpdatePolicy:   v1beta1.UpdatePolicy{NewPods: v1beta1.NewPodsSized},
		ResourcePolicy: policies(v1beta1.ContainerPolicy{ContainerName: v1beta1.AnyContainer, StartupBoost: boost}),
	})

	s.uses(5, 20)
	s.pin(t, "30m", "64Mi")
	pod := s.has(t, "30m", "240m", "64Mi", "128Mi")
	s.reports(t, v1beta1.ReasonApplied, "")
	before := resizes.of(pod) // one more if the first decision came while the pod still started

	node.Kill(t, pod)
	s.starts(t, "90m", "720m", 1, v1beta1.ReasonBoosted)
	pod = s.boostEnded(t, "30m", "240m", period, 1)
	asked(t, pod, before+2)

	testkit.Eventually(t, long, func() string { // until the API server gives new pods the boost
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "probe", Labels: pod.Labels, OwnerReferences: pod.OwnerReferences}}
		probe.Spec = realnode.Deployment(s.key, 1).Spec.Template.Spec
		if err := env.Client.Create(t.Context(), probe, client.DryRunAll); err != nil {
			return err.Error()
		}
		if cpu := probe.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "90m" {
			return "a new pod would request " + cpu
		}
		return ""
	})
	must.Succeed(t, env.Client.Delete(t.Context(), &pod))
	testkit.Eventually(t, long, func() string {
		for _, other := range node.RunningPods(t, s.key) {
			if other.UID != pod.UID {
				return ""
			}
		}
		return "no other pod runs yet"
	})
	s.starts(t, "90m", "720m", 0, v1beta1.ReasonBoosted)
	again := s.boostEnded(t, "30m", "240m", period, 0)
	if again.UID == pod.UID {
		t.Error("it is the same pod")
	}
	asked(t, again, 1) // only the end of the boost
}

// starts waits until the kernel enforces the boost, which must be before the pod is Ready.
func (s scene) starts(t *testing.T, cpu, limit string, times int32, reason string) {
	t.Helper()
	testkit.Eventually(t, long, func() string {
		pods := node.RunningPods(t, s.key)
		if len(pods) != 1 || pods[0].Status.ContainerStatuses[0].RestartCount != times {
			return "the pod does not run yet"
		}
		return enforced(t, pods[0], cpu, limit, "64Mi", "128Mi")
	})
	if pod := workload.ReadPod(ptr.To(s.pod(t)), true); pod.Ready {
		t.Error("the pod was Ready before it was seen to have more CPU")
	}
	s.reports(t, reason, "Starting pods have more CPU until they are Ready")
}

// isPutDown waits until the boost has ended, which must not be before the pod has been
// Ready for that long.
func (s scene) boostEnded(t *testing.T, cpu, limit string, period time.Duration, times int32) corev1.Pod {
	t.Helper()
	pod := s.has(t, cpu, limit, "64Mi", "128Mi")
	read := workload.ReadPod(&pod, true)
	if !read.Ready || read.Resized.Before(read.ReadyChanged.Add(period)) {
		t.Errorf("the boost ended at %s, and Ready (%t) since %s", read.Resized, read.Ready, read.ReadyChanged)
	}
	restarts(t, pod, times)
	return pod
}
