// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// withProxy gives the template a native sidecar between two init containers that end.
func withProxy(d *appsv1.Deployment) {
	proxy := testkit.Container("proxy")
	proxy.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	d.Spec.Template.Spec.InitContainers = []corev1.Container{testkit.Container("first"), proxy, testkit.Container("second")}
}

// hasSidecarBetween fails unless the init containers are in their order, with their own resources where
// they end.
func hasSidecarBetween(t *testing.T, what string, spec corev1.PodSpec) {
	t.Helper()
	var names []string
	for _, c := range spec.InitContainers {
		if c.Name == testkit.Sidecar {
			continue
		}
		names = append(names, c.Name)
		if c.Name != "proxy" && c.Resources.Requests.Cpu().String() != "100m" {
			t.Errorf("%s: init container %s requests %s of CPU", what, c.Name, c.Resources.Requests.Cpu())
		}
	}
	if diff := cmp.Diff([]string{"first", "proxy", "second"}, names); diff != "" {
		t.Errorf("%s: init containers (-want +got):\n%s", what, diff)
	}
}

func TestANativeSidecarIsSizedInPlace(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web", withProxy)
	w.uses("web", "app", 300, 240)
	w.uses("web", "proxy", 200, 100)
	w.scale("web", func(s *v1beta1.VerticalScaler) {
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{
			{ContainerName: "proxy", ControlledResources: []v1beta1.ControlledResource{v1beta1.ControlledCPU}},
		}}
	})
	w.sized("web")
	pods := w.pods("web")
	for _, pod := range pods {
		w.between("cpu of proxy", *actual(pod, "proxy").Requests.Cpu(), "210m", "280m")
		w.between("cpu of app", *actual(pod, "app").Requests.Cpu(), "320m", "390m")
		if got := actual(pod, "proxy").Requests.Memory().String(); got != "128Mi" {
			t.Errorf("pod %s: the sidecar's memory is not controlled, and is %s", pod.Name, got)
		}
		hasSidecarBetween(t, pod.Name, pod.Spec)
	}
	if n := restarts(pods); len(n) > 0 {
		t.Errorf("restarts: %v", n)
	}
	hasSidecarBetween(t, "the template", w.deployment("web").Spec.Template.Spec)
	for _, write := range w.writes(w.began) {
		if write.Resource == "pods/resize" && write.Code >= 400 && write.Code != 409 {
			t.Errorf("refused: %s", write)
		}
	}
}

func TestANativeSidecarIsSizedInTheTemplateAndRestored(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web", withProxy)
	w.uses("web", "app", 300, 240)
	w.uses("web", "proxy", 200, 100)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRollout })
	w.sized("web")
	w.runs("web")
	template := w.deployment("web").Spec.Template.Spec
	hasSidecarBetween(t, "the template", template)
	w.between("cpu of proxy", *template.InitContainers[1].Resources.Requests.Cpu(), "210m", "280m")

	scaler := w.scaler("web")
	w.remove(scaler)
	w.gone(scaler)
	template = w.deployment("web").Spec.Template.Spec
	hasSidecarBetween(t, "the restored template", template)
	if diff := cmp.Diff(testkit.Container("proxy").Resources, template.InitContainers[1].Resources); diff != "" {
		t.Errorf("the sidecar's resources (-original +restored):\n%s", diff)
	}
	for _, entry := range w.deployment("web").ManagedFields {
		if entry.Manager == "verticalscaler" {
			t.Errorf("fields are still ours: %s", entry.FieldsV1)
		}
	}
}

func TestANativeSidecarOfANewPodIsSized(t *testing.T) {
	t.Parallel()
	w := newPods(t)
	w.deploy("web", withProxy)
	w.uses("web", "app", 300, 240)
	w.uses("web", "proxy", 200, 100)
	w.scale("web", inMode("Initial"))
	w.hasSizesOf("web")
	w.eventually(func() string {
		pod := w.pods("web")[0]
		w.remove(&pod)
		w.gone(&pod)
		w.runs("web")
		for _, pod := range w.pods("web") {
			if resourcesOf(pod, "proxy").Requests.Cpu().String() == "100m" {
				continue
			}
			w.between("cpu of proxy", *resourcesOf(pod, "proxy").Requests.Cpu(), "210m", "280m")
			w.between("cpu of app", *resourcesOf(pod, "app").Requests.Cpu(), "320m", "390m")
			hasSidecarBetween(t, "a new pod", pod.Spec)
			return ""
		}
		return "no new pod has a sized sidecar"
	})
}

// A sidecar that admission adds is in no template. It keeps what it has, and the scaler says so.
func TestAnInjectedSidecarKeepsItsSize(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.uses("web", testkit.Sidecar, 200, 100)
	w.scale("web")
	w.sized("web")
	for _, pod := range w.pods("web") {
		if got := actual(pod, testkit.Sidecar).Requests.Cpu().String(); got != "20m" {
			t.Errorf("pod %s: the injected sidecar has %s", pod.Name, got)
		}
	}
	w.says("web", "TargetFound", "True", "DeploymentFound", "Not sized", testkit.Sidecar)
	if names := fmt.Sprint(recommended(w.scaler("web"))); names != "[app]" {
		t.Errorf("recommended for %s", names)
	}
}

func recommended(s *v1beta1.VerticalScaler) (names []string) {
	if s.Status.Recommendation != nil {
		for _, c := range s.Status.Recommendation.ContainerRecommendations {
			names = append(names, c.ContainerName)
		}
	}
	return names
}
