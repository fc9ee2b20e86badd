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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

func orRollout(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Rollout" }

func TestTheFallbackRollsTheDeploymentOut(t *testing.T) {
	t.Parallel()
	// rolledOut waits until all pods are new and have the decided size.
	rolledOut := func(w *fixture, before *appsv1.Deployment) {
		w.Helper()
		w.eventually(func() string {
			if d := w.deployment("web"); d.Generation == before.Generation {
				return "the template is as it was"
			}
			return ""
		})
		requests := w.sized("web")
		w.between("cpu", *requests.Cpu(), "330m", "380m")
		w.between("memory", *requests.Memory(), "307Mi", "309Mi")
		d := w.runs("web")
		ownsOnlyResources(w.T, d)
		if sets := w.sets("web"); len(sets) != 2 {
			w.Errorf("%d ReplicaSets: one rollout should leave two", len(sets))
		}
		if n := count(accepted(w.writes(w.began)), "deployments"); total(n) != 1 {
			w.Errorf("writes of Deployments: %v", n)
		}
		w.says("web", "Ready", "True", "OperatingNormally")
	}
	for name, tc := range map[string]struct {
		change func(*appsv1.Deployment)
		qos    corev1.PodQOSClass
	}{
		"where a container restarts for its memory": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: "RestartContainer"}}
		}, corev1.PodQOSBurstable},
		"where pods are BestEffort": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		}, corev1.PodQOSBurstable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Tidy(t, "a sidecar with requests makes every pod Burstable", testkit.Sidecars)
			w := newFixture(t)
			before := w.deploy("web", tc.change)
			w.uses("web", "app", 300, 240)
			w.scale("web", orRollout)
			rolledOut(w, before)
			for _, pod := range w.pods("web") {
				if pod.Status.QOSClass != tc.qos {
					t.Errorf("pod %s is %s", pod.Name, pod.Status.QOSClass)
				}
			}
			w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"updatePolicy":{"fallback":"Wait"}}}`)
			w.restored(before)
			w.runs("web")
		})
	}
	t.Run("where no resize can ever fit the node", func(t *testing.T) {
		t.Parallel()
		env.NeedKwok(t)
		w := newFixture(t)
		before := w.deploy("web")
		held := w.pods("web")[0]
		w.annotate(&held, resizeAnnotation, "infeasible")
		w.uses("web", "app", 300, 240)
		w.scale("web", orRollout)
		rolledOut(w, before)
		mark := env.Mark()
		w.rounds(20)
		if writes := w.writes(mark); len(count(writes, "deployments"))+len(count(writes, "pods/resize")) > 0 {
			w.tell("once it is rolled out", writes)
			t.Error("the Deployment is still being written")
		}

		// The original values are restored when the scaler is deleted.
		w.remove(testkit.Scaler(w.namespace, "web", "web"))
		w.gone(testkit.Scaler(w.namespace, "web", "web"))
		w.restored(before)
		w.runs("web")
	})
	t.Run("where a node is too small", func(t *testing.T) {
		t.Parallel()
		env.NeedKwok(t)
		w := newFixture(t)
		w.node("small-"+w.namespace, "1")
		w.node("large-"+w.namespace, "8")
		before := w.deploy("web", func(d *appsv1.Deployment) {
			spec := &d.Spec.Template.Spec
			d.Spec.Replicas = ptr.To(int32(1))
			spec.NodeSelector = map[string]string{"test": w.namespace}
			spec.Tolerations = []corev1.Toleration{{Key: "test", Operator: corev1.TolerationOpExists}}
			spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 100,
				Preference: corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
					Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"small-" + w.namespace},
				}}},
			}}}}
		})
		if on := w.pods("web")[0].Spec.NodeName; on != "small-"+w.namespace {
			t.Fatalf("the pod is on node %s", on)
		}
		w.uses("web", "app", 1500, 100)
		w.scale("web", orRollout)
		w.eventually(func() string {
			if d := w.deployment("web"); d.Generation == before.Generation {
				return "the template is as it was"
			}
			return ""
		})
		w.runs("web")
		w.sized("web")
		if on := w.pods("web")[0].Spec.NodeName; on != "large-"+w.namespace {
			t.Errorf("the new pod is on node %s", on)
		}
	})
}

// The kubelet retries indefinitely, and does not change the time of its condition when
// consecutive resizes have the same problem.
func TestTheFallbackWaitsForADeferredResize(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	before := w.deploy("web")
	held := w.pods("web")[0]
	w.annotate(&held, resizeAnnotation, "deferred")
	w.uses("web", "app", 300, 240)
	w.scale("web", orRollout)
	w.says("web", "Applied", "False", "Deferred", held.Name, "room")

	w.saidBefore(held.Name, time.Hour)
	w.rounds(20)
	w.says("web", "Applied", "False", "Deferred", held.Name)
	if n := count(w.writes(w.began), "deployments"); total(n) > 0 || w.deployment("web").Generation != before.Generation {
		t.Fatalf("rolled out at once: %v", n)
	}

	w.resizedBefore(held.Name, 30*time.Minute)
	w.saidBefore(held.Name, 2*time.Hour)
	w.eventually(func() string {
		if d := w.deployment("web"); d.Generation == before.Generation {
			return "the template is as it was: " + w.condition("web", "Applied").Message
		}
		return ""
	})
	w.sized("web")
	recordsFirst := w.scaler("web").Status.OriginalResources
	if recordsFirst == nil || recordsFirst.Containers[0].Requests.CPU.String() != "100m" {
		t.Errorf("held: %+v", recordsFirst)
	}
}

// A pod that declares what its node does not have keeps others from being scheduled there. So the
// resize is withdrawn after the grace, and the other pods have their turn.
func TestADeferredResizeIsWithdrawn(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	w.deploy("web")
	held := w.pods("web")[0]
	before := held.Spec.Containers[0].Resources.Requests.Cpu()
	w.annotate(&held, resizeAnnotation, "deferred")
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.says("web", "Applied", "False", "Deferred", held.Name, "room")
	declares := func() *resource.Quantity { return w.pod(held.Name).Spec.Containers[0].Resources.Requests.Cpu() }
	if now := declares(); now.Cmp(*before) <= 0 {
		t.Fatalf("the pod declares %s, and %s was expected to be more", now, before)
	}
	w.rounds(20)
	if n := count(w.writes(w.began), "pods/resize"); total(n) != 1 {
		t.Errorf("resizes by pod, while one is deferred: %v", n)
	}

	w.resizedBefore(held.Name, 30*time.Minute)
	w.saidBefore(held.Name, 2*time.Hour)
	w.atSize("web", "330m", held.Name)
	w.eventually(func() string {
		if now := declares(); now.Cmp(*before) != 0 {
			return fmt.Sprintf("pod %s declares %s of cpu, and has %s", held.Name, now, before)
		}
		return ""
	})
	w.says("web", "Applied", "False", "Deferred", held.Name)
	asked := total(count(w.writes(w.began), "pods/resize"))
	w.rounds(20)
	if n := count(w.writes(w.began), "pods/resize"); total(n) != asked {
		t.Errorf("resizes by pod: %v, %d before", n, asked)
	}
}

func (w *fixture) pod(name string) *corev1.Pod {
	w.Helper()
	var pod corev1.Pod
	if err := env.Client.Get(w.Context(), w.key(name), &pod); err != nil {
		w.Fatal(err)
	}
	return &pod
}

// saidBefore moves the kubelet's condition about the resize into the past.
func (w *fixture) saidBefore(name string, age time.Duration) {
	w.Helper()
	w.eventually(func() string {
		pod := w.pod(name)
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
				c.LastTransitionTime = metav1.NewTime(time.Now().Add(-age))
			}
		}
		return said(env.Client.Status().Update(w.Context(), pod))
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
	if err != nil {
		w.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"managedFields":%s}}`, fields))
	if err := env.Client.Patch(w.Context(), pod, patch); err != nil {
		w.Fatal(err)
	}
}
