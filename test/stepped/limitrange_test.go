// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server sets the defaults of a LimitRange on each resize. The pods here are older than it, and have no memory limit.
func TestNoResizeBringsTheDefaultsOfALimitRange(t *testing.T) {
	memory := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}
	}
	for name, item := range map[string]corev1.LimitRangeItem{
		"a default":                     {Default: memory("512Mi"), DefaultRequest: memory("64Mi")},
		"a default below the requests":  {Default: memory("100Mi")},
		"a maximum below what they use": {Max: memory("200Mi")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.deploy("web", func(d *appsv1.Deployment) {
				delete(d.Spec.Template.Spec.Containers[0].Resources.Limits, corev1.ResourceMemory)
			})
			item.Type = corev1.LimitTypeContainer
			limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "later"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
			w.Create(limits)
			w.Uses("web", "app", 300, 240)
			w.Scale("web")
			w.Reports("web", "Applied", "False", "LimitRange", "LimitRange later would add a memory limit of ", " to container app", "set resources.limits.memory of container app in the Deployment")
			w.Reports("web", "Stalled", "True", "LimitRange")
			w.Minutes(20)
			if got := count(w.Writes(), "pods/resize"); len(got) > 0 {
				t.Errorf("resizes: %v", got)
			}

			w.Remove(limits)
			w.Sized("web")
			for _, pod := range w.Pods("web") {
				if limit, ok := pod.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]; ok {
					t.Errorf("pod %s has a memory limit of %s", pod.Name, limit.String())
				}
			}
		})
	}
}
