// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// The API server merges the sizes in a namespace into new pods of its Deployments, and into no other pods. These tests create
// pods as the ReplicaSet controller does. No other test runs meanwhile: the policy is for all namespaces.
func TestTheAPIServerSizesNewPods(t *testing.T) {
	namespace := env.Namespace(t)
	sizes := &v1beta1.NewPodSizes{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1beta1.NewPodSizesName},
		Spec: v1beta1.NewPodSizesSpec{Deployments: "\n" + strings.Join([]string{
			"we/5 app,9,9Gi,9,9Gi",
			"web/5 app,310m,640Mi,620m,1280Mi;log,,64Mi,,;side,20m,20Mi,40m,40Mi;gone,1,1Gi,,",
			"web-canary/5 app,1,1Gi,1,1Gi",
			"mine/5 @set;app,50m,640Mi,100m,1280Mi",
			"theirs/5 @other;app,50m,640Mi,100m,1280Mi;side,1,20Mi,2,40Mi",
			"new/5 @;app,1,64Mi,2,128Mi",
			"garbage/5 app,many,lots,,;log",
			"short/5 app",
			"refused/5 app,2,128Mi,1,256Mi",
		}, "\n") + "\n"},
	}
	env.Create(t, sizes)
	second := &v1beta1.NewPodSizes{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1beta1.NewPodSizesName + "-2"},
		Spec:       v1beta1.NewPodSizesSpec{Deployments: "\nzebra/5 app,77m,77Mi,78m,78Mi\n"},
	}
	env.Create(t, second, admission.Policy(), admission.Binding())
	t.Cleanup(func() {
		for _, object := range []client.Object{admission.Policy(), admission.Binding()} {
			if err := env.Client.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		}
	})
	tried := func(pod *corev1.Pod) (string, error) {
		err := env.Client.Create(t.Context(), pod, client.DryRunAll)
		return formatPod(pod), err
	}
	becomes := func(what, want string) {
		t.Helper()
		testkit.Eventually(t, time.Minute, func() string { // the API server observes objects with a delay
			got, err := tried(podOfSet(namespace, "web", "web-5d4f8c"))
			must.Succeed(t, err)
			if got != want {
				return what + ": a new pod has " + got
			}
			return ""
		})
	}
	const template, bare, large = "100m 128Mi of 200m 256Mi", "100m 128Mi of 0 0", "app 310m 640Mi of 620m 1280Mi"
	becomes("at first", large)

	withContainer := func(name, resources string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: "example.com/app:1", Resources: resourcesOf(resources)})
		}
	}
	withInit := func(name string, policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: name, Image: "example.com/side:1", RestartPolicy: policy, Resources: resourcesOf(template)}}
		}
	}
	ofSet := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences[0].Name = name }
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"a pod of the Deployment":                  {func(*corev1.Pod) {}, large},
		"a pod that has its size":                  {func(p *corev1.Pod) { p.Spec.Containers[0].Resources = resourcesOf("310m 640Mi of 620m 1280Mi") }, large},
		"a container that has no size":             {withContainer("other", template), large + ", other " + template},
		"one resource of a container":              {withContainer("log", bare), large + ", log 100m 64Mi of 0 0"},
		"a container that got a limit later":       {withContainer("log", template), large + ", log " + template},
		"a container that lost its limit later":    {func(p *corev1.Pod) { p.Spec.Containers[0].Resources = resourcesOf(bare) }, "app " + bare},
		"one that has lost the CPU limit":          {func(p *corev1.Pod) { p.Spec.Containers[0].Resources = resourcesOf("100m 128Mi of 0 256Mi") }, "app 100m 128Mi of 0 256Mi"},
		"a container without resources":            {withContainer("log", "0 0 of 0 0"), large + ", log 0 64Mi of 0 0"},
		"a renamed container":                      {func(p *corev1.Pod) { p.Spec.Containers[0].Name = "application" }, "application " + template},
		"a native sidecar":                         {withInit("side", ptr.To(corev1.ContainerRestartPolicyAlways)), large + ", side 20m 20Mi of 40m 40Mi"},
		"an init container that ends":              {withInit("side", nil), large + ", side " + template},
		"another Deployment of the same labels":    {ofSet("website-5d4f8c"), "app " + template},
		"one whose name begins with it":            {ofSet("web-canary-5d4f8c"), "app 1 1Gi of 1 1Gi"},
		"one whose name ends with it":              {ofSet("the-web-5d4f8c"), "app " + template},
		"one of the ReplicaSet that has proved it": {ofSet("mine-5d4f8c"), "app 50m 640Mi of 100m 1280Mi"},
		"another ReplicaSet: what is larger":       {ofSet("theirs-5d4f8c"), "app 100m 640Mi of 200m 1280Mi"},
		"its sidecar, too": {func(p *corev1.Pod) {
			ofSet("theirs-5d4f8c")(p)
			withInit("side", ptr.To(corev1.ContainerRestartPolicyAlways))(p)
		}, "app 100m 640Mi of 200m 1280Mi, side 1 128Mi of 2 256Mi"},
		"a container without what is in the line": {func(p *corev1.Pod) {
			ofSet("theirs-5d4f8c")(p)
			p.Spec.Containers[0].Resources = resourcesOf("0 128Mi of 0 256Mi")
		}, "app 0 128Mi of 0 256Mi"},
		"none has proved it yet":                     {ofSet("new-5d4f8c"), "app 1 128Mi of 2 256Mi"},
		"one in the second object":                   {ofSet("zebra-5d4f8c"), "app 77m 77Mi of 78m 78Mi"},
		"one with a line that makes no sense":        {ofSet("garbage-5d4f8c"), "app " + template},
		"one with a line that is too short":          {ofSet("short-5d4f8c"), "app " + template},
		"a ReplicaSet of another hash":               {ofSet("web-777777"), "app " + template},
		"a pod of a ReplicaSet without a Deployment": {func(p *corev1.Pod) { delete(p.Labels, appsv1.DefaultDeploymentUniqueLabelKey) }, "app " + template},
		"a pod of another kind of controller":        {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" }, "app " + template},
		"a pod whose owner does not control it":      {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, "app " + template},
		"a pod with resources for all its containers": {func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("150m")}}
		}, "app " + template},
		"a pod without owner": {func(p *corev1.Pod) { p.OwnerReferences = nil }, "app " + template},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOfSet(namespace, "web", "web-5d4f8c")
			tc.change(pod)
			before := pod.DeepCopy()
			got, err := tried(pod)
			must.Succeed(t, err)
			assert.Equal(t, "resources", tc.want, got)
			for i, c := range before.Spec.Containers {
				if got := pod.Spec.Containers[i]; got.Name != c.Name || got.Image != c.Image || len(got.Env) != len(c.Env) {
					t.Errorf("more than resources has changed: %+v", got)
				}
			}
		})
	}
	t.Run("a request above its limit is refused, so nothing may write one", func(t *testing.T) {
		pod := podOfSet(namespace, "web", "refused-5d4f8c")
		if got, err := tried(pod); !apierrors.IsInvalid(err) {
			t.Errorf("the pod has %s: %v", got, err)
		}
		if line := admission.Line("refused", []v1beta1.NewPodContainer{{
			ContainerName: "app", Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("2"))}, Limits: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("1"))},
		}}); line != "" {
			t.Errorf("the operator writes %q", line)
		}
	})
	t.Run("a pod of another namespace", func(t *testing.T) {
		got, err := tried(podOfSet(env.Namespace(t), "web", "web-5d4f8c"))
		must.Succeed(t, err)
		assert.Equal(t, "resources", "app "+template, got)
	})
	t.Run("the policy and its binding are stored as they are written", func(t *testing.T) {
		policy, binding := admission.Policy(), admission.Binding()
		for _, object := range []client.Object{policy, binding} {
			must.Succeed(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		}
		assert.Equal(t, "policy", admission.Policy().Spec, policy.Spec)
		want := admission.Binding().Spec
		want.MatchResources = binding.Spec.MatchResources // The API server's default, which matches all.
		assert.Equal(t, "binding", want, binding.Spec)
	})
	t.Run("the longest names in the longest text", func(t *testing.T) {
		long := strings.Repeat("d", 240)
		lines := map[string]string{long: admission.Line(long, []v1beta1.NewPodContainer{{
			ContainerName: "app", Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("333m"))}, Limits: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("333m"))},
		}})}
		lines[long] = strings.Replace(lines[long], " ", " @other;", 1)
		for i := range 800 {
			name := fmt.Sprintf("a%0230d", i)
			lines[name] = name + "/5 @" + strings.Repeat("u", 36) + ";app,1,1Gi,1,1Gi;log,1,1Gi,1,1Gi"
		}
		texts := admission.Texts(lines, admission.MaxText)
		sizes.Spec.Deployments = texts[0]
		must.Succeed(t, env.Client.Update(t.Context(), sizes))
		testkit.Eventually(t, time.Minute, func() string {
			pod := podOfSet(namespace, "web", long+"-5d4f8c")
			if got, err := tried(pod); err != nil || got != "app 333m 128Mi of 333m 256Mi" {
				return fmt.Sprintf("a text of %d bytes: the pod has %s: %v", len(texts[0]), got, err)
			}
			return ""
		})
		if len(texts[0]) < 200_000 {
			t.Errorf("the text has only %d bytes", len(texts[0]))
		}
	})
	t.Run("without sizes, new pods are as in the template", func(t *testing.T) {
		for _, object := range []client.Object{sizes, second} {
			must.Succeed(t, env.Client.Delete(t.Context(), object))
		}
		becomes("at last", "app "+template)
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

// resourcesOf parses what formatPod reports about a container.
func resourcesOf(text string) (r corev1.ResourceRequirements) {
	var cpu, memory, cpuLimit, memoryLimit string
	if _, err := fmt.Sscanf(text, "%s %s of %s %s", &cpu, &memory, &cpuLimit, &memoryLimit); err != nil {
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

func formatPod(pod *corev1.Pod) string {
	var parts []string
	for _, c := range append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...) {
		if c.Name == "mesh-proxy" { // The test's world injects it, before or after our policy.
			continue
		}
		r := c.Resources
		parts = append(parts, fmt.Sprintf("%s %s %s of %s %s", c.Name, r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory()))
	}
	return strings.Join(parts, ", ")
}
