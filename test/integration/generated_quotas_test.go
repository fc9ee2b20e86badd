// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The plan adds up pods as quotas do. Here the API server counts random pods, their resizes and what
// their kubelet reports.
func TestQuotasCountPodsAsPredicted(t *testing.T) {
	const pods, resizes = 40, 3
	must.Succeed(t, env.Node(t.Context(), testkit.NodeName))
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "sandbox-"}, Handler: "sandbox", Overhead: &nodev1.Overhead{
		PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("25m"), corev1.ResourceMemory: resource.MustParse("33Mi")},
	}}
	env.Create(t, class)
	t.Cleanup(func() { _ = env.Client.Delete(t.Context(), class) })
	namespace := env.Namespace(t)
	quota := enforcedQuota(t, namespace)
	r := rand.New(rand.NewPCG(1, 1))
	seen := map[string]int{}
	for i := range pods {
		pod := fullPod(randomPod(r, namespace, fmt.Sprintf("web-%d", i)), r)
		if r.IntN(4) == 0 {
			pod.Spec.RuntimeClassName = &class.Name
			seen["overhead"]++
		}
		if r.IntN(5) == 0 {
			pod.Spec.Resources = podLevel(pod, r)
			seen["pod-level resources"]++
		}
		before := usedOf(t, quota)
		if err := env.Client.Create(t.Context(), pod); err != nil {
			t.Fatalf("creating %s: %v", shown(pod), err)
		}
		if counted, predicted := less(usedOf(t, quota), before), workload.ReadPod(pod, true).Counted(); counted != predicted {
			t.Errorf("the quota counts %+v for the new pod, predicted %+v\n%s", counted, predicted, shown(pod))
		}
		if pod.Spec.Resources != nil {
			continue // not resized
		}
		for range resizes {
			reportApplied(t, r, pod)
			resized := randomResize(r, pod)
			read, after := workload.ReadPod(pod, true), workload.ReadPod(resized, true)
			growth := less(after.CountedWith(after.Footprint()), read.Counted())
			before := usedOf(t, quota)
			err := env.Client.SubResource("resize").Update(t.Context(), resized)
			if apierrors.IsInvalid(err) {
				seen["another QoS class"]++
				break
			}
			if err != nil {
				t.Fatalf("resizing %s: %v", shown(resized), err)
			}
			for what, v := range map[string][2]int64{
				"requests.cpu": {growth.Requests.CPUMillis, less(usedOf(t, quota), before).Requests.CPUMillis},
				"limits.cpu":   {growth.Limits.CPUMillis, less(usedOf(t, quota), before).Limits.CPUMillis},
				"memory":       {growth.Requests.MemoryBytes, less(usedOf(t, quota), before).Requests.MemoryBytes},
			} {
				if v[0] > 0 {
					seen["growth"]++
				}
				if max(0, v[0]) != max(0, v[1]) {
					t.Errorf("predicted %d more of %s, the quota counts %d more\n%s\nresized to\n%s", v[0], what, v[1], shown(pod), shown(resized))
				}
			}
			pod = resized
		}
	}
	for _, what := range []string{"overhead", "pod-level resources", "growth"} {
		if seen[what] == 0 {
			t.Errorf("no pod had: %s", what)
		}
	}
	t.Logf("%v", seen)
}

// enforcedQuota is a quota with room for everything. No controller runs here: the test writes the
// status that makes the API server enforce it.
func enforcedQuota(t *testing.T, namespace string) *corev1.ResourceQuota {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "team"}}
	quota.Spec.Hard = corev1.ResourceList{}
	used := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory} {
		quota.Spec.Hard[name], used[name] = resource.MustParse("10Ti"), resource.MustParse("0")
	}
	env.Create(t, quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: used}
	must.Succeed(t, env.Client.Status().Update(t.Context(), quota))
	testkit.Eventually(t, busy, func() string {
		if err := env.Client.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
		}, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Sprintf("the quota is not enforced yet: %v", err)
		}
		return ""
	})
	return quota
}

// usedOf is the usage that the quota counts now.
func usedOf(t *testing.T, quota *corev1.ResourceQuota) (used workload.Resources) {
	t.Helper()
	must.Succeed(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(quota), quota))
	of := func(name corev1.ResourceName) *resource.Quantity {
		q := quota.Status.Used[name]
		return &q
	}
	used.Requests = quantity.Amounts{CPUMillis: of(corev1.ResourceRequestsCPU).MilliValue(), MemoryBytes: of(corev1.ResourceRequestsMemory).Value()}
	used.Limits = quantity.Amounts{CPUMillis: of(corev1.ResourceLimitsCPU).MilliValue(), MemoryBytes: of(corev1.ResourceLimitsMemory).Value()}
	return used
}

func less(a, b workload.Resources) workload.Resources {
	return workload.Resources{
		Requests: quantity.Amounts{CPUMillis: a.Requests.CPUMillis - b.Requests.CPUMillis, MemoryBytes: a.Requests.MemoryBytes - b.Requests.MemoryBytes},
		Limits:   quantity.Amounts{CPUMillis: a.Limits.CPUMillis - b.Limits.CPUMillis, MemoryBytes: a.Limits.MemoryBytes - b.Limits.MemoryBytes},
	}
}

// fullPod has all requests and limits, which a quota demands.
func fullPod(pod *corev1.Pod, r *rand.Rand) *corev1.Pod {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				resources := list[i].Resources
				if _, ok := resources.Requests[name]; !ok {
					resources.Requests[name] = randomAmount(r, name)
					delete(resources.Limits, name)
				}
				if _, ok := resources.Limits[name]; !ok {
					resources.Limits[name] = times(resources.Requests[name], 1+r.Int64N(3))
				}
			}
		}
	}
	return pod
}

// podLevel are pod-level resources above what any container has.
func podLevel(pod *corev1.Pod, r *rand.Rand) *corev1.ResourceRequirements {
	most := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20"), corev1.ResourceMemory: resource.MustParse("40Gi")}
	if r.IntN(2) == 0 {
		return &corev1.ResourceRequirements{Limits: most}
	}
	return &corev1.ResourceRequirements{Requests: most, Limits: most}
}

// reportApplied writes a status as a kubelet would: it has applied what is declared, or something else.
func reportApplied(t *testing.T, r *rand.Rand, pod *corev1.Pod) {
	t.Helper()
	report := func(containers []corev1.Container) (out []corev1.ContainerStatus) {
		for _, c := range containers {
			applied := *c.Resources.DeepCopy()
			if r.IntN(3) == 0 {
				for name := range applied.Requests {
					applied.Requests[name] = randomAmount(r, name)
					applied.Limits[name] = times(applied.Requests[name], 2)
				}
			}
			out = append(out, corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: "id", Resources: ptr.To(applied), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		}
		return out
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = report(pod.Spec.Containers), report(pod.Spec.InitContainers)
	must.Succeed(t, env.Client.Status().Update(t.Context(), pod))
}
