// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// evicting sizes new pods, and lets the operators evict.
func evicting(t *testing.T) *fixture {
	t.Helper()
	for _, object := range env.Rendered(t, filepath.Join(testkit.Root(), "config/recreate")) {
		grantTo(t, object, testkit.System, testkit.ServiceAccount)
	}
	return newPods(t)
}

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
	w.Add(pdb)
	return pdb
}

// evictions is the number of evictions that the API server granted.
func (w *fixture) evictions() int {
	w.Helper()
	return total(count(accepted(w.writes(w.began)), "pods/eviction"))
}

// mostAway follows the Deployment until done returns "". It returns the largest number of
// missing pods.
func (w *fixture) mostAway(name string, done func() string) (most int32) {
	w.Helper()
	w.eventually(func() string {
		d := w.Deployment(name)
		most = max(most, *d.Spec.Replicas-d.Status.AvailableReplicas)
		return done()
	})
	return most
}

func TestTheFallbackEvictsPodsOneByOne(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := evicting(t)
	before := w.deploy("web")
	old := w.Pods("web")
	for i := range old {
		w.annotate(&old[i], resizeAnnotation, "infeasible")
	}
	pdb := w.budget("web", "web", 0)
	w.uses("web", "app", 300, 240)
	w.Scale("web", orRecreate)
	w.hasSizesOf("web")

	w.Says("web", "Applied", "False", "DisruptionBudget", "web", "Requires pod replacement")
	w.Says("web", "Ready", "True", "OperatingNormally")
	w.rounds(30)
	if n := len(count(w.writes(w.began), "pods/eviction")); w.evictions() > 0 || n != 1 {
		t.Errorf("%d evictions, %d pods were asked for", w.evictions(), n)
	}
	if all := total(count(w.writes(w.began), "pods/eviction")); all > 3 {
		t.Errorf("the budget was asked %d times", all)
	}
	w.Patch(pdb, `{"spec":{"maxUnavailable":1}}`)

	away := w.mostAway("web", func() string {
		if c := w.Condition("web", "Applied"); c.Reason != "Applied" {
			return fmt.Sprintf("%s: %s", c.Reason, c.Message)
		}
		return ""
	})
	if away > 1 {
		t.Errorf("%d pods were missing at once", away)
	}
	requests := w.Sized("web")
	w.Between("cpu", *requests.Cpu(), "330m", "380m")
	for _, pod := range w.Pods("web") {
		if slices.ContainsFunc(old, func(o corev1.Pod) bool { return o.UID == pod.UID }) || pod.Generation != 1 {
			t.Errorf("pod %s of generation %d was not created with its size", pod.Name, pod.Generation)
		}
	}
	if n := w.evictions(); n != 3 {
		t.Errorf("%d evictions", n)
	}
	if d := w.Deployment("web"); d.Generation != before.Generation {
		t.Errorf("the template was written: generation %d", d.Generation)
	}
	w.noted(w.Deployment("web").UID, "Evicted", "Pod ", "decided size")
	if s := w.Scaler("web"); s.Status.NewPods == nil || s.Status.NewPods.EffectiveSince == nil || s.Status.NewPods.IneffectiveOnPod != "" {
		t.Errorf("new pods are sized by %+v", s.Status.NewPods)
	}
	mark := env.Mark()
	w.rounds(20)
	if writes := w.writes(mark); len(writes) > 2 {
		w.tell("once it is idle", writes)
		t.Error("the operator does not become idle")
	}

	w.Patch(testkit.Scaler(w.Namespace, "web", "web"), `{"spec":{"updatePolicy":{"fallback":"Wait","newPods":"AsTemplate"}}}`)
	w.hasSizesOf()
}
