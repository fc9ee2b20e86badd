// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// evicting sizes new pods, and lets the operators evict.
func evicting(t *testing.T) *fixture {
	t.Helper()
	must.Succeed(t, env.InstallComponents(t.Context(), "recreate"))
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

// evictions are the pods that the operator has tried to evict, once for each dry run, and how many evictions were granted.
func (w *fixture) evictions() (asked []string, granted int) {
	w.Helper()
	for _, write := range w.writes(w.began) {
		if write.Resource == "pods/eviction" {
			switch {
			case write.DryRun:
				asked = append(asked, write.Name)
			case write.Code < 300:
				granted++
			}
		}
	}
	return asked, granted
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

	w.Reports("web", "Applied", "False", "DisruptionBudget", "web", "Requires pod replacement")
	w.Reports("web", "Ready", "True", "OperatingNormally")
	w.rounds(30)
	if asked, granted := w.evictions(); granted > 0 || len(slices.Compact(asked)) != 1 || len(asked) > 3 {
		t.Errorf("%d evictions were granted, and asked for: %q", granted, asked)
	}
	w.Patch(pdb, `{"spec":{"maxUnavailable":1}}`)

	away := int32(0)
	w.eventually(func() string {
		d := w.Deployment("web")
		away = max(away, *d.Spec.Replicas-d.Status.AvailableReplicas)
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
	if _, granted := w.evictions(); granted != 3 {
		t.Errorf("%d evictions", granted)
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
		t.Errorf("the operator does not become idle: %v", writes)
	}

	w.Patch(testkit.Scaler(w.Namespace, "web", "web"), `{"spec":{"updatePolicy":{"fallback":"Wait","newPods":"AsTemplate"}}}`)
	w.hasSizesOf()
}
