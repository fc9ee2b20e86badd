// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

func orRecreate(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Recreate" }

// budget creates a PodDisruptionBudget that allows that many unavailable pods.
func (w *fixture) budget(name, app string, unavailable int) *policyv1.PodDisruptionBudget {
	w.Helper()
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt(unavailable)),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	w.create(pdb)
	return pdb
}

// evictions is the number of evictions that the API server granted.
func (w *fixture) evictions() int {
	w.Helper()
	return total(count(accepted(w.Writes()), "pods/eviction"))
}

func restartsForMemory(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: "RestartContainer"}}
}

func TestTooFewReplicasForEviction(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.deploy("web", restartsForMemory, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(1)) })
	w.Uses("web", "app", 300, 240)
	w.scale("web", orRecreate)
	w.Says("web", "Applied", "False", "TooFewReplicas", "1 replicas", "minReplicas")
	w.Says("web", "Stalled", "True", "TooFewReplicas")
	if n := total(count(w.Writes(), "pods/eviction")); n > 0 {
		t.Errorf("%d evictions", n)
	}
	w.Patch(testkit.Scaler(w.Namespace, "web", "web"), `{"spec":{"updatePolicy":{"minReplicas":1}}}`)
	w.Sized("web")
	if n := w.evictions(); n != 1 {
		t.Errorf("%d evictions", n)
	}
}

func TestSeveralBudgetsForOnePod(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.deploy("web", restartsForMemory)
	w.budget("first", "web", 1)
	w.budget("second", "web", 1)
	w.Uses("web", "app", 300, 240)
	w.scale("web", orRecreate)
	w.Says("web", "Applied", "False", "ManyDisruptionBudgets")
	w.Says("web", "Stalled", "True", "ManyDisruptionBudgets")
	if n := w.evictions(); n > 0 {
		t.Errorf("%d evictions", n)
	}
}
