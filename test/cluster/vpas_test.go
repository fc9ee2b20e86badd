// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// vpaOf returns a VerticalPodAutoscaler of a Deployment.
func (w *fixture) vpaOf(name, deployment, mode string, containerPolicies ...any) *unstructured.Unstructured {
	vpa := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef":      map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
		"updatePolicy":   map[string]any{"updateMode": mode},
		"resourcePolicy": map[string]any{"containerPolicies": containerPolicies},
	}}}
	vpa.SetGroupVersionKind(schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"})
	vpa.SetNamespace(w.namespace)
	vpa.SetName(name)
	return vpa
}

func TestAVPAKeepsItsResources(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	t.Run("all of it", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web")
		vpa := w.vpaOf("old", "web", "Recreate")
		w.create(vpa)
		w.uses("web", "app", 300, 240)
		w.scale("web")
		w.says("web", "Applied", "False", "VPAConflict", "app cpu", "app memory", "VerticalPodAutoscaler old")
		w.says("web", "Ready", "True", "OperatingNormally")
		w.rounds(10)
		if n := count(w.writes(w.began), "pods/resize"); total(n) > 0 {
			t.Errorf("resizes: %v", n)
		}
		// A VPA that only recommends is no conflict. Once it acts again, it is.
		w.patch(vpa, `{"spec":{"updatePolicy":{"updateMode":"Off"}}}`)
		w.sized("web")
		w.patch(vpa, `{"spec":{"updatePolicy":{"updateMode":"InPlaceOrRecreate"}}}`)
		w.says("web", "Applied", "False", "VPAConflict", "old")
		w.patch(vpa, `{"spec":{"targetRef":{"name":"other"}}}`)
		w.says("web", "Applied", "True", "WithinTolerance") // the pods have kept their resources
		w.patch(vpa, `{"spec":{"targetRef":{"name":"web"}}}`)
		w.says("web", "Applied", "False", "VPAConflict", "old")
		w.remove(vpa)
		w.says("web", "Applied", "True", "WithinTolerance")
		w.uses("web", "app", 900, 240)
		w.sized("web")
	})
	t.Run("its memory only", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web", twoContainers)
		w.create(w.vpaOf("memory", "web", "Auto",
			map[string]any{"containerName": "*", "controlledResources": []any{"memory"}},
			map[string]any{"containerName": "agent", "mode": "Off"}))
		w.uses("web", "app", 300, 240)
		w.uses("web", "agent", 300, 240)
		w.scale("web")
		w.says("web", "Applied", "True", "VPAConflict", "app memory: not managed")
		for _, pod := range w.pods("web") {
			app, agent := resourcesOf(pod, "app").Requests, resourcesOf(pod, "agent").Requests
			w.between("cpu of app", *app.Cpu(), "330m", "400m")
			w.between("cpu of agent", *agent.Cpu(), "330m", "400m")
			w.between("memory of agent", *agent.Memory(), "270Mi", "330Mi")
			if app.Memory().String() != "128Mi" {
				t.Errorf("pod %s: app has %s of memory", pod.Name, app.Memory())
			}
		}
	})
	t.Run("the template is restored when a VPA is created later", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		before := w.deploy("web")
		w.uses("web", "app", 300, 240)
		w.scale("web", inMode("Rollout"))
		w.sized("web")
		w.create(w.vpaOf("late", "web", "Initial"))
		w.restored(before)
		w.says("web", "Applied", "False", "VPAConflict", "late")
	})
}
