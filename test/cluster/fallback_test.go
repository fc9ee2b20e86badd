// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func orRollout(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Rollout" }

// The scheduler puts the new pod on a node that has the room.
func TestTheFallbackRollsOutWhereANodeIsTooSmall(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	w.node("small-"+w.Namespace, "1")
	w.node("large-"+w.Namespace, "8")
	before := w.deploy("web", func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		d.Spec.Replicas = ptr.To(int32(1))
		spec.NodeSelector = map[string]string{"test": w.Namespace}
		spec.Tolerations = []corev1.Toleration{{Key: "test", Operator: corev1.TolerationOpExists}}
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"small-" + w.Namespace},
			}}},
		}}}}
	})
	if on := w.Pods("web")[0].Spec.NodeName; on != "small-"+w.Namespace {
		t.Fatalf("the pod is on node %s", on)
	}
	w.uses("web", "app", 1500, 100)
	w.Scale("web", orRollout)
	w.eventually(func() string {
		if d := w.Deployment("web"); d.Generation == before.Generation {
			return "the template is as it was"
		}
		return ""
	})
	w.runs("web")
	w.Sized("web")
	if on := w.Pods("web")[0].Spec.NodeName; on != "large-"+w.Namespace {
		t.Errorf("the new pod is on node %s", on)
	}
}

func (w *fixture) pod(name string) *corev1.Pod {
	w.Helper()
	var pod corev1.Pod
	must.Succeed(w, env.Client.Get(w.Context(), w.Key(name), &pod))
	return &pod
}

// backdate moves a pod's conditions into the past.
func (w *fixture) backdate(name string, age time.Duration, which func(corev1.PodCondition) bool) {
	w.Helper()
	w.eventually(func() string {
		pod := w.pod(name)
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; which(*c) {
				c.LastTransitionTime = metav1.NewTime(time.Now().Add(-age))
			}
		}
		return testkit.MessageOf(env.Client.Status().Update(w.Context(), pod))
	})
}

// resizedBefore moves the API server's record of the pod's latest resize into the past.
func (w *fixture) resizedBefore(name string, age time.Duration) {
	w.Helper()
	pod := w.pod(name)
	found := false
	for i := range pod.ManagedFields {
		if entry := &pod.ManagedFields[i]; entry.Subresource == "resize" {
			entry.Time, found = ptr.To(metav1.NewTime(time.Now().Add(-age))), true
		}
	}
	if !found {
		w.Fatalf("no managed field records when pod %s was resized: %+v", name, pod.ManagedFields)
	}
	fields, err := json.Marshal(pod.ManagedFields)
	must.Succeed(w, err)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"managedFields":%s}}`, fields))
	must.Succeed(w, env.Client.Patch(w.Context(), pod, patch))
}
