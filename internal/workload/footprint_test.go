// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// FuzzFootprint compares our sums of random pods with those of the library that quotas and the scheduler
// use. The seed makes the pod: a failure is found again with
//
//	go test ./internal/workload -run FuzzFootprint/seed#N
func FuzzFootprint(f *testing.F) {
	for seed := range uint64(3000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		pod := randomPod(rand.New(rand.NewPCG(seed, 1)))
		read := workload.ReadPod(pod, true)
		template := workload.ReadDeployment(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: pod.Spec}}})
		bySpec := helperSum(pod, resourcehelper.PodResourcesOptions{})
		for what, sums := range map[string][2]workload.Resources{
			"a LimitRange's sum":         {helperSum(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true}), read.Footprint().Sum()},
			"the sum with overhead":      {bySpec, read.Footprint().Counted()},
			"the sum of a template":      {bySpec, template.Footprint().Counted()},
			"what quotas count of a pod": {helperSum(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}), read.Counted()},
		} {
			if diff := cmp.Diff(sums[0], sums[1]); diff != "" {
				t.Errorf("%s (-library +ours):\n%s", what, diff)
			}
		}
		if t.Failed() {
			t.Logf("seed %d: %+v\n%+v", seed, pod.Spec, pod.Status)
		}
	})
}

func helperSum(pod *corev1.Pod, options resourcehelper.PodResourcesOptions) workload.Resources {
	amountsIn := func(list corev1.ResourceList) quantity.Amounts {
		return quantity.Amounts{CPUMillis: list.Cpu().MilliValue(), MemoryBytes: list.Memory().Value()}
	}
	return workload.Resources{
		Requests: amountsIn(resourcehelper.PodRequests(pod, options)), Limits: amountsIn(resourcehelper.PodLimits(pod, options)),
	}
}

// randomPod has containers, native sidecars and init containers in any order, and now and then an
// overhead, pod-level resources, and a kubelet that has applied other values.
func randomPod(r *rand.Rand) *corev1.Pod {
	pod := &corev1.Pod{}
	for i := range 1 + r.IntN(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c-%d", i), Resources: randomResources(r)})
	}
	for i := range r.IntN(5) {
		c := corev1.Container{Name: fmt.Sprintf("init-%d", i), Resources: randomResources(r)}
		if r.IntN(2) == 0 {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	if r.IntN(4) == 0 {
		pod.Spec.Overhead = randomList(r)
	}
	if r.IntN(4) == 0 {
		pod.Spec.Resources = ptr.To(randomResources(r))
	}
	if r.IntN(4) == 0 {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: []string{corev1.PodReasonDeferred, corev1.PodReasonInfeasible}[r.IntN(2)]}}
	}
	for _, c := range pod.Spec.Containers {
		if status, ok := randomStatus(r, c); ok {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if status, ok := randomStatus(r, c); ok {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, status)
		}
	}
	return pod
}

func randomStatus(r *rand.Rand, c corev1.Container) (status corev1.ContainerStatus, ok bool) {
	switch r.IntN(3) {
	case 0:
		return status, false
	case 1:
		return corev1.ContainerStatus{Name: c.Name, Resources: &c.Resources}, true
	}
	return corev1.ContainerStatus{Name: c.Name, Resources: ptr.To(randomResources(r))}, true
}

func randomResources(r *rand.Rand) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: randomList(r), Limits: randomList(r)}
}

// randomList has some of the resources; nil for none, as the API server's answers have it.
func randomList(r *rand.Rand) corev1.ResourceList {
	list := corev1.ResourceList{}
	if r.IntN(3) > 0 {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(1+r.Int64N(1000), resource.DecimalSI)
	}
	if r.IntN(3) > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity((1+r.Int64N(1000))<<20, resource.BinarySI)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// The API server adds to the template. The next pod will probably get the same as the newest one.
func TestNewPod(t *testing.T) {
	app, proxy := container("app", 100), sidecar(container("proxy", 50))
	template := workload.Deployment{Containers: []workload.Container{app}}
	created := func(minute int, p workload.Pod) workload.Pod {
		p.Created, p.Current = noon.Add(time.Duration(minute)*time.Minute), true
		return p
	}
	plain := workload.Pod{Containers: []workload.Container{container("app", 400)}}
	injected := workload.Pod{Containers: []workload.Container{proxy, plain.Containers[0]}, Overhead: amounts(10, 0)}
	is := func(cpu int64, change func(*workload.Pod)) workload.Pod {
		p := created(9, workload.Pod{Containers: []workload.Container{container("app", 400), container("other", cpu)}})
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		template workload.Deployment
		pods     []workload.Pod
		cpu      int64
	}{
		"without pods it is the template":                      {template, nil, 100},
		"a resized pod does not change what the next one gets": {template, []workload.Pod{plain}, 100},
		"what was injected and the overhead are added":         {template, []workload.Pod{injected}, 160},
		"the newest pod counts":                                {template, []workload.Pod{created(2, injected), created(1, plain), created(1, is(1000, func(p *workload.Pod) { p.Created = noon }))}, 160},
		"an older one does not":                                {template, []workload.Pod{created(1, injected), created(2, plain)}, 100},
		"nor does one of an older template":                    {template, []workload.Pod{created(1, injected), is(1000, func(p *workload.Pod) { p.Current = false })}, 160},
		"nor one that ends":                                    {template, []workload.Pod{created(1, injected), is(1000, func(p *workload.Pod) { p.Terminating = true })}, 160},
		"nor one that has ended":                               {template, []workload.Pod{created(1, injected), is(1000, func(p *workload.Pod) { p.Ended = true })}, 160},
		"the template's own sidecar counts once": {
			workload.Deployment{Containers: []workload.Container{sidecar(container("proxy", 30)), app}},
			[]workload.Pod{injected},
			140,
		},
		"an init container runs beside the sidecars before it": {
			workload.Deployment{Containers: []workload.Container{app}, Others: []workload.Container{container("init", 500)}},
			[]workload.Pod{{Containers: injected.Containers, Others: []workload.Container{after(1, container("init", 1))}}},
			550,
		},
		"and beside none if it comes first": {
			workload.Deployment{Containers: []workload.Container{app}, Others: []workload.Container{container("init", 500)}},
			[]workload.Pod{{Containers: injected.Containers, Others: []workload.Container{container("init", 1)}}},
			500,
		},
		"a new sidecar starts before a new init container": {
			workload.Deployment{Containers: []workload.Container{proxy, app}, Others: []workload.Container{after(1, container("init", 500))}},
			[]workload.Pod{plain},
			550,
		},
		"a new container and a new init container are added to what is injected": {
			workload.Deployment{Containers: []workload.Container{app, container("log", 7)}, Others: []workload.Container{container("init", 500)}},
			[]workload.Pod{injected},
			560,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.template.NewPod(tc.pods).Counted().Requests.CPUMillis; got != tc.cpu {
				t.Errorf("a new pod requests %dm, want %dm", got, tc.cpu)
			}
		})
	}
}

// A lowered value counts after the kubelet has applied it, and a raised value at once.
func TestCounted(t *testing.T) {
	pod := workload.Pod{
		Containers: []workload.Container{sidecar(container("proxy", 50)), container("app", 200)},
		Actual:     workload.Reported{}.With("app", container("", 500).Resources).With("proxy", container("", 50).Resources),
	}
	check := func(what string, got, want int64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %dm, want %dm", what, got, want)
		}
	}
	check("while it shrinks", pod.Counted().Requests.CPUMillis, 550)
	smaller := pod.Footprint().With(func(workload.Container) workload.Resources { return container("", 600).Resources })
	check("with 600m for each", pod.CountedWith(smaller).Requests.CPUMillis, 1200)

	pod.Containers[1] = container("app", 800)
	check("while it grows", pod.Counted().Requests.CPUMillis, 850)
	pod.Resize.Infeasible = true
	check("while it can never grow", pod.Counted().Requests.CPUMillis, 550)
	pod.Ended = true
	check("once it has ended", pod.Counted().Requests.CPUMillis, 0)
}

func container(name string, cpu int64) workload.Container {
	return workload.Container{Name: name, Resources: workload.Resources{Requests: amounts(cpu, 0)}}
}

// after is an init container that starts after the given number of sidecars.
func after(sidecars int, c workload.Container) workload.Container {
	c.SidecarsBefore = sidecars
	return c
}

func sidecar(c workload.Container) workload.Container {
	c.IsSidecar = true
	return c
}
