// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// The API server merges sizes from the scaler's status into new pods of its Deployment, and
// into no other pods. These tests create pods as the ReplicaSet controller does.
func TestTheAPIServerSizesNewPods(t *testing.T) {
	namespace := env.Namespace(t)
	sized := func(name string, requests, limits v1beta1.Amounts) v1beta1.NewPodContainer {
		return v1beta1.NewPodContainer{ContainerName: name, Requests: requests, Limits: limits}
	}
	amounts := func(cpu, memory string) (a v1beta1.Amounts) {
		if cpu != "" {
			a.CPU = ptr.To(resource.MustParse(cpu))
		}
		if memory != "" {
			a.Memory = ptr.To(resource.MustParse(memory))
		}
		return a
	}
	scaler := testkit.Scaler(namespace, "sizes", "web")
	create(t, scaler)
	scaler.Status.NewPods = &v1beta1.NewPods{Containers: []v1beta1.NewPodContainer{
		sized("app", amounts("310m", "640Mi"), amounts("620m", "1280Mi")),
		sized("log", amounts("", "64Mi"), v1beta1.Amounts{}),
		sized("gone", amounts("1", "1Gi"), v1beta1.Amounts{}),
	}}
	if err := env.Client.Status().Update(t.Context(), scaler); err != nil {
		t.Fatal(err)
	}
	create(t, admission.Policy())
	create(t, admission.Binding(client.ObjectKeyFromObject(scaler), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}))
	testkit.Eventually(t, time.Minute, func() string { // the API server observes the policy with a delay
		pod := podOfSet(namespace, "web", "web-5d4f8c")
		if err := env.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if got := sayPod(pod); !strings.Contains(got, "310m") {
			return "a new pod has " + got
		}
		return ""
	})

	const template, bare = "100m 128Mi of 200m 256Mi", "100m 128Mi of 0 0"
	withContainer := func(name, resources string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "example.com/app:1", Resources: resourcesOf(resources)})
		}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"a pod of the Deployment":               {func(*corev1.Pod) {}, "app 310m 640Mi of 620m 1280Mi"},
		"a container that has no size":          {withContainer("side", template), "app 310m 640Mi of 620m 1280Mi, side " + template},
		"one resource of a container":           {withContainer("log", bare), "app 310m 640Mi of 620m 1280Mi, log 100m 64Mi of 0 0"},
		"a container that got a limit later":    {withContainer("log", template), "app 310m 640Mi of 620m 1280Mi, log " + template},
		"a container that lost its limit later": {func(p *corev1.Pod) { p.Spec.Containers[0].Resources = resourcesOf(bare) }, "app " + bare},
		"a container without resources":         {withContainer("log", "0 0 of 0 0"), "app 310m 640Mi of 620m 1280Mi, log 0 64Mi of 0 0"},
		"a pod of another Deployment whose labels are the same": {func(p *corev1.Pod) {
			p.OwnerReferences[0].Name = "website-5d4f8c"
		}, "app " + template},
		"a pod of a Deployment whose name begins with it": {func(p *corev1.Pod) {
			p.OwnerReferences[0].Name = "web-canary-5d4f8c"
		}, "app " + template},
		"a pod of a ReplicaSet without a Deployment": {func(p *corev1.Pod) { delete(p.Labels, appsv1.DefaultDeploymentUniqueLabelKey) }, "app " + template},
		"a pod of another kind of controller":        {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" }, "app " + template},
		"a pod whose owner does not control it":      {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, "app " + template},
		"a pod without owner":                        {func(p *corev1.Pod) { p.OwnerReferences = nil }, "app " + template},
		"a pod with other labels":                    {func(p *corev1.Pod) { p.Labels["app"] = "other" }, "app " + template},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOfSet(namespace, "web", "web-5d4f8c")
			before := pod.DeepCopy()
			tc.change(pod)
			tc.change(before)
			if err := env.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, sayPod(pod)); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			for i, c := range before.Spec.Containers {
				if got := pod.Spec.Containers[i]; got.Name != c.Name || got.Image != c.Image || len(got.Env) != len(c.Env) {
					t.Errorf("more than resources has changed: %+v", got)
				}
			}
		})
	}
	t.Run("a pod of another namespace", func(t *testing.T) {
		pod := podOfSet(env.Namespace(t), "web", "web-5d4f8c")
		if err := env.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("app "+template, sayPod(pod)); diff != "" {
			t.Errorf("resources (-want +got):\n%s", diff)
		}
	})
	t.Run("the status is stored as it is written", func(t *testing.T) {
		policy, binding := admission.Policy(), admission.Binding(client.ObjectKeyFromObject(scaler), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
		wantPolicy, wantBinding := policy.DeepCopy(), binding.DeepCopy()
		for _, obj := range []client.Object{policy, binding} {
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(wantPolicy.Spec, policy.Spec); diff != "" {
			t.Errorf("policy (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantBinding.Spec, binding.Spec); diff != "" {
			t.Errorf("binding (-want +got):\n%s", diff)
		}
	})
	t.Run("a deleted scaler", func(t *testing.T) {
		if err := env.Client.Delete(t.Context(), scaler); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, time.Minute, func() string {
			pod := podOfSet(namespace, "web", "web-5d4f8c")
			if err := env.Client.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			if got := sayPod(pod); got != "app "+template {
				return "a new pod has " + got
			}
			return ""
		})
	})
}

// podOfSet returns a pod as the controller of that ReplicaSet creates it.
func podOfSet(namespace, app, set string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: set + "-",
			Labels: map[string]string{"app": app, appsv1.DefaultDeploymentUniqueLabelKey: "5d4f8c"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: "set", Controller: ptr.To(true)},
			},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "example.com/app:1", Env: []corev1.EnvVar{{Name: "LEVEL", Value: "debug"}}, Resources: resourcesOf("100m 128Mi of 200m 256Mi"),
		}}},
	}
}

// resourcesOf parses what sayPod reports about a container.
func resourcesOf(said string) (r corev1.ResourceRequirements) {
	var cpu, memory, cpuLimit, memoryLimit string
	if _, err := fmt.Sscanf(said, "%s %s of %s %s", &cpu, &memory, &cpuLimit, &memoryLimit); err != nil {
		panic(err)
	}
	r.Requests, r.Limits = corev1.ResourceList{}, corev1.ResourceList{}
	for _, v := range []struct {
		list  corev1.ResourceList
		name  corev1.ResourceName
		value string
	}{{r.Requests, "cpu", cpu}, {r.Requests, "memory", memory}, {r.Limits, "cpu", cpuLimit}, {r.Limits, "memory", memoryLimit}} {
		if v.value != "0" {
			v.list[v.name] = resource.MustParse(v.value)
		}
	}
	return r
}

func sayPod(pod *corev1.Pod) string {
	var parts []string
	for _, c := range pod.Spec.Containers {
		r := c.Resources
		parts = append(parts, fmt.Sprintf("%s %s %s of %s %s", c.Name, r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory()))
	}
	return strings.Join(parts, ", ")
}
