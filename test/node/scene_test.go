// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

package node

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/test/node/internal/realnode"
)

// scene is a Deployment of one small pod, and its scaler with the same name.
type scene struct{ key client.ObjectKey }

// stage starts a scene in its own namespace. The scaler's policy determines the decision:
// see pin. There is no verification and no cooldown. New pods start as in the template unless the spec says Sized.
func stage(t *testing.T, edit func(*appsv1.Deployment), spec v1beta1.Scaling) scene {
	t.Helper()
	s := scene{client.ObjectKey{Namespace: env.Namespace(t), Name: "app"}}
	d := realnode.Deployment(s.key, 1)
	app := &d.Spec.Template.Spec.Containers[0]
	app.Args = []string{"-cpu=5", "-memory=20"}
	app.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("20m")
	app.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("200m")
	if edit != nil {
		edit(d)
	}
	spec.UpdatePolicy.CooldownSeconds, spec.UpdatePolicy.VerificationSeconds = ptr.To(int32(0)), ptr.To(int32(0))
	spec.UpdatePolicy.NewPods = cmp.Or(spec.UpdatePolicy.NewPods, v1beta1.NewPodsAsTemplate)
	env.Create(t, d)
	env.Create(t, &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: d.Name, Scaling: spec},
	})
	t.Cleanup(func() { // the next scenes need the room
		if err := env.Client.Delete(context.Background(), d, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Errorf("deleting the Deployment: %v", err)
		}
	})
	testkit.Eventually(t, long, func() string {
		if n := len(node.RunningPods(t, s.key)); n != 1 {
			return fmt.Sprintf("%d pods run", n)
		}
		return ""
	})
	return s
}

// pin returns a policy with fixed requests, so that the decision does not depend on usage. Limits follow both ways, so that a test
// sees both in the kernel. programs_test.go is about the default, which lowers no limit.
func pin(cpu, memory string) v1beta1.ContainerPolicy {
	bounds := v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse(cpu)), Memory: ptr.To(resource.MustParse(memory))}
	return v1beta1.ContainerPolicy{
		ContainerName: v1beta1.AnyContainer, ControlledValues: v1beta1.RequestsAndLimits, MinAllowed: bounds.DeepCopy(), MaxAllowed: bounds.DeepCopy(),
	}
}

func policies(p v1beta1.ContainerPolicy) *v1beta1.ResourcePolicy {
	return &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{p}}
}

// pin edits the scaler so that it decides on these requests.
func (s scene) pin(t *testing.T, cpu, memory string) {
	t.Helper()
	s.edit(t, func(spec *v1beta1.VerticalScalerSpec) {
		p := pin(cpu, memory)
		if spec.ResourcePolicy != nil {
			p.StartupBoost = spec.ResourcePolicy.ContainerPolicies[0].StartupBoost
		}
		if p.StartupBoost != nil {
			p.MaxAllowed.CPU = nil // it would limit the boost, and the usage is lower
		}
		spec.ResourcePolicy = policies(p)
	})
}

// edit edits the scaler's spec, and waits until the operator has observed it.
func (s scene) edit(t *testing.T, edit func(*v1beta1.VerticalScalerSpec)) {
	t.Helper()
	var generation int64
	testkit.Eventually(t, long, func() string {
		scaler := s.scaler(t)
		edit(&scaler.Spec)
		err := env.Client.Update(t.Context(), scaler)
		if apierrors.IsConflict(err) {
			return err.Error()
		}
		must.Succeed(t, err)
		generation = scaler.Generation
		return ""
	})
	testkit.Eventually(t, long, func() string {
		if seen := s.scaler(t).Status.ObservedGeneration; seen < generation {
			return fmt.Sprintf("generation %d is seen, not %d", seen, generation)
		}
		return ""
	})
}

func (s scene) scaler(t *testing.T) *v1beta1.VerticalScaler {
	t.Helper()
	var scaler v1beta1.VerticalScaler
	must.Succeed(t, env.Client.Get(t.Context(), s.key, &scaler))
	return &scaler
}

// reports waits for a reason of the condition Applied, and for its message.
func (s scene) reports(t *testing.T, reason, message string) {
	t.Helper()
	testkit.Eventually(t, long, func() string {
		switch c := meta.FindStatusCondition(s.scaler(t).Status.Conditions, v1beta1.ConditionApplied); {
		case c == nil:
			return "no condition Applied"
		case c.Reason != reason || !strings.Contains(c.Message, message):
			return fmt.Sprintf("it says %s: %s", c.Reason, c.Message)
		}
		return ""
	})
}

// pod returns the running pod, if it is the only one.
func (s scene) pod(t *testing.T) corev1.Pod {
	t.Helper()
	pods := node.RunningPods(t, s.key)
	if len(pods) != 1 {
		t.Fatalf("%d pods run", len(pods))
	}
	return pods[0]
}

// has waits until the pod has these requests and limits in its spec, in its status and in the kernel, and returns the pod.
func (s scene) has(t *testing.T, cpu, cpuLimit, memory, memoryLimit string) corev1.Pod {
	t.Helper()
	return s.hasIn(t, func(pod corev1.Pod) corev1.Pod { return pod }, cpu, cpuLimit, memory, memoryLimit)
}

// hasIn is has for a part of the pod.
func (s scene) hasIn(t *testing.T, part func(corev1.Pod) corev1.Pod, cpu, cpuLimit, memory, memoryLimit string) (pod corev1.Pod) {
	t.Helper()
	testkit.Eventually(t, long, func() string {
		pods := node.RunningPods(t, s.key)
		if len(pods) != 1 {
			return fmt.Sprintf("%d pods run", len(pods))
		}
		pod = pods[0]
		return enforced(t, part(pod), cpu, cpuLimit, memory, memoryLimit)
	})
	return pod
}

// enforced returns why the pod does not have these resources in its spec, in its status and
// in the kernel.
func enforced(t *testing.T, pod corev1.Pod, cpu, cpuLimit, memory, memoryLimit string) string {
	t.Helper()
	want := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpuLimit), corev1.ResourceMemory: resource.MustParse(memoryLimit)},
	}
	status := pod.Status.ContainerStatuses[0]
	switch {
	case !same(pod.Spec.Containers[0].Resources, want):
		return fmt.Sprintf("its spec has %v", pod.Spec.Containers[0].Resources)
	case status.Resources == nil || !same(*status.Resources, want):
		return fmt.Sprintf("its status has %v, and the conditions are %v", status.Resources, pod.Status.Conditions)
	}
	got := node.Limits(t, pod)
	if bytes := want.Limits.Memory().Value(); got.MemoryLimitBytes != bytes {
		return fmt.Sprintf("the cgroup's memory limit is %d, not %d", got.MemoryLimitBytes, bytes)
	}
	if quota := want.Limits.Cpu().MilliValue() * got.CPUPeriodMicros / 1000; got.CPUQuotaMicros != quota {
		return fmt.Sprintf("the cgroup's CPU quota is %d, not %d", got.CPUQuotaMicros, quota)
	}
	if shares := want.Requests.Cpu().MilliValue() * 1024 / 1000; got.CgroupVersion == 1 && got.CPUShares != shares {
		return fmt.Sprintf("the cgroup's CPU shares are %d, not %d", got.CPUShares, shares)
	}
	return ""
}

// same compares CPU at the kernel's precision.
func same(got, want corev1.ResourceRequirements) bool {
	for _, of := range []func(corev1.ResourceRequirements) corev1.ResourceList{
		func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Requests },
		func(r corev1.ResourceRequirements) corev1.ResourceList { return r.Limits },
	} {
		got, want := of(got), of(want)
		if off := got.Cpu().MilliValue() - want.Cpu().MilliValue(); off < -2 || off > 2 || got.Memory().Cmp(*want.Memory()) != 0 {
			return false
		}
	}
	return true
}

// restarts checks the number of restarts of the pod's container.
func restarts(t *testing.T, pod corev1.Pod, want int32) {
	t.Helper()
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != want {
		t.Errorf("pod %s was restarted %d times, not %d", pod.Name, n, want)
	}
}

// asked checks the number of resizes of the pod that the operator has requested.
func asked(t *testing.T, pod corev1.Pod, want int) {
	t.Helper()
	if n := resizes.of(pod); n != want {
		t.Errorf("%d resizes of pod %s were requested, not %d", n, pod.Name, want)
	}
}

// counter counts the resizes that the API server answers, by the URL's path. Conflicts do
// not count: the kubelet writes the pod at the same time, and the operator then retries.
type counter struct {
	mu    sync.Mutex
	asked map[string]int
}

func (c *counter) counting(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if r.Method == http.MethodPatch && err == nil && response.StatusCode != http.StatusConflict {
			c.mu.Lock()
			c.asked[r.URL.Path]++
			c.mu.Unlock()
		}
		return response, err
	})
}

func (c *counter) of(pod corev1.Pod) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/resize", pod.Namespace, pod.Name)]
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// source reports the usage that a scene sets.
type source struct {
	start time.Time

	mu       sync.Mutex
	reported map[string]amounts
	rounds   map[string]int
}

// amounts is the usage of each container; an empty value stands for unknown usage.
type amounts struct{ cpuMillis, memoryMiB int64 }

// measured stands for the usage of each pod that metrics-server has measured.
var measured = amounts{-1, -1}

// uses sets the reported usage of each container in the scene, whatever the real usage is.
func (s scene) uses(cpuMillis, memoryMiB int64) {
	reportedUsage.mu.Lock()
	defer reportedUsage.mu.Unlock()
	reportedUsage.reported[s.key.Namespace] = amounts{cpuMillis, memoryMiB}
}

// List implements collect.Source. Each round of set usage is one minute after the
// previous one.
func (s *source) List(ctx context.Context, namespace string, _ time.Time) (samples []usage.Sample, refused []usage.Refused, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reported, ok := s.reported[namespace]
	if !ok {
		return nil, nil, nil
	}
	s.rounds[namespace]++
	var pods corev1.PodList
	if err := env.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, nil, err
	}
	for _, pod := range pods.Items {
		used := reported
		if reported == measured {
			if used, err = measure(ctx, pod); err != nil {
				return nil, nil, err
			}
			if used == (amounts{}) {
				continue
			}
		}
		for _, c := range workload.LongRunning(&pod.Spec) {
			samples = append(samples, usage.Sample{
				Namespace: namespace, Pod: pod.Name, Container: c.Name, Window: 30 * time.Second,
				Time:      s.start.Add(time.Duration(s.rounds[namespace]) * time.Minute),
				CPUMillis: used.cpuMillis, MemoryBytes: used.memoryMiB << 20,
			})
		}
	}
	return samples, nil, nil
}
