// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

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

func TestANativeSidecarIsSizedInTheTemplateAndRestored(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web", withProxy)
	w.Uses("web", "app", 300, 240)
	w.Uses("web", "proxy", 200, 100)
	w.scale("web", inMode("Rollout"))
	w.Sized("web")
	template := w.Deployment("web").Spec.Template.Spec
	hasSidecarBetween(t, "the template", template)
	w.Between("cpu of proxy", *template.InitContainers[1].Resources.Requests.Cpu(), "210m", "280m")

	scaler := w.Scaler("web")
	w.Remove(scaler)
	w.Gone(scaler)
	template = w.Deployment("web").Spec.Template.Spec
	hasSidecarBetween(t, "the restored template", template)
	if diff := cmp.Diff(testkit.Container("proxy").Resources, template.InitContainers[1].Resources); diff != "" {
		t.Errorf("the sidecar's resources (-original +restored):\n%s", diff)
	}
	for _, entry := range w.Deployment("web").ManagedFields {
		if entry.Manager == "verticalscaler" {
			t.Errorf("fields are still ours: %s", entry.FieldsV1)
		}
	}
}
