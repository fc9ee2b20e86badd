// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// revision returns the revision of a Deployment's latest rollout.
const revision = "deployment.kubernetes.io/revision"

func TestRolloutTakesTheTemplateOver(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web", twoContainers, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[1].Resources = corev1.ResourceRequirements{} // "agent" has no resources
	})
	w.uses("web", "app", 300, 240)
	w.uses("web", "agent", 50, 64)
	old := w.pods("web")
	w.scale("web", inMode("Rollout"))
	w.says("web", "Applied", "True", "Applied")
	requests := w.sized("web")
	w.between("cpu", *requests.Cpu(), "330m", "380m")
	w.between("memory", *requests.Memory(), "307Mi", "309Mi")

	// The Deployment controller has replaced the pods. No pod was resized in place.
	d := w.runs("web")
	for _, pod := range w.pods("web") {
		for _, o := range old {
			if o.UID == pod.UID {
				t.Errorf("pod %s was not replaced", pod.Name)
			}
		}
		r := actual(pod, "app")
		w.between("cpu limit", *r.Limits.Cpu(), "660m", "760m")
		if agent := actual(pod, "agent"); agent.Requests.Cpu().IsZero() || len(agent.Limits) > 0 {
			t.Errorf("pod %s: agent has %+v", pod.Name, agent)
		}
	}
	if sets := w.sets("web"); len(sets) != 2 {
		t.Errorf("%d ReplicaSets: one rollout should leave two", len(sets))
	}

	s := w.scaler("web")
	if len(s.Finalizers) != 1 || s.Finalizers[0] != "autoscaling.verticalscaler.io/restore-original-resources" {
		t.Errorf("finalizers %v", s.Finalizers)
	}
	if s.Status.OriginalResources == nil || s.Status.OriginalResources.UID != d.UID || len(s.Status.OriginalResources.Containers) != 2 {
		t.Fatalf("held: %+v", s.Status.OriginalResources)
	}
	agent, app := s.Status.OriginalResources.Containers[0], s.Status.OriginalResources.Containers[1]
	if app.Requests.CPU.String() != "100m" || app.Requests.Memory.String() != "128Mi" || app.Limits.CPU.String() != "200m" || app.Limits.Memory.String() != "256Mi" {
		t.Errorf("original resources of app: %+v", app)
	}
	if !agent.Requests.CPU.IsZero() || !agent.Requests.Memory.IsZero() {
		t.Errorf("original resources of agent: %+v", agent)
	}
	ownsOnlyResources(t, d)
	recordsFirst(t, w.writes(w.began))
	w.tell("a rollout", w.writes(w.began))

	mark := env.Mark()
	w.remove(testkit.Scaler(w.namespace, "web", "web"))
	w.gone(testkit.Scaler(w.namespace, "web", "web"))
	w.restored(before)
	w.runs("web")
	w.tell("restoring", w.writes(mark))
}

// ownsOnlyResources fails unless the operator owns only resources of the Deployment, and none
// of its containers.
func ownsOnlyResources(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	found := false
	for _, entry := range d.ManagedFields {
		if entry.Manager != "verticalscaler" {
			continue
		}
		if found || entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" {
			t.Errorf("managed by %s %s %s", entry.Manager, entry.Operation, entry.Subresource)
		}
		found = true
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
			t.Fatal(err)
		}
		set.Iterate(func(path fieldpath.Path) {
			p := path.String()
			isResource := strings.HasPrefix(p, ".spec.template.spec.containers[name=") && strings.Contains(p, "].resources.")
			if !isResource {
				t.Errorf("the operator owns %s", p)
			}
		})
	}
	if !found {
		t.Error("no field is managed by verticalscaler")
	}
}

// recordsFirst fails unless the finalizer and then the original values were recorded before
// the Deployment was changed, and it was changed once.
func recordsFirst(t *testing.T, writes []testkit.Write) {
	t.Helper()
	stage := 0
	for _, write := range writes {
		switch {
		case write.Code >= 300:
		case stage == 0 && write.Resource == "verticalscalers" && write.Verb == "patch":
			stage = 1
		case stage == 1 && write.Resource == "verticalscalers/status":
			stage = 2
		case write.Resource == "deployments":
			if stage != 2 {
				t.Errorf("%s at stage %d: the finalizer and the status come first", write, stage)
			}
		}
	}
	if n := count(writes, "deployments"); total(n) != 1 {
		t.Errorf("writes of Deployments: %v", n)
	}
	if n := count(writes, "pods/resize"); total(n) != 0 {
		t.Errorf("resizes: %v", n)
	}
}

// restored waits until the Deployment has its original values, and the operator owns no
// field of it.
func (w *fixture) restored(before *appsv1.Deployment) {
	w.Helper()
	w.eventually(func() string {
		now := w.deployment(before.Name)
		for _, entry := range now.ManagedFields {
			if entry.Manager == "verticalscaler" {
				return fmt.Sprintf("verticalscaler still manages (%s) %s", entry.Operation, entry.FieldsV1.GetRawBytes())
			}
		}
		a, b := before.DeepCopy(), now.DeepCopy()
		delete(a.Annotations, revision)
		delete(b.Annotations, revision)
		if !equality.Semantic.DeepEqual(a.Spec, b.Spec) {
			return fmt.Sprintf("the spec was\n%+v\nand is\n%+v", a.Spec, b.Spec)
		}
		if !equality.Semantic.DeepEqual(a.Annotations, b.Annotations) || !equality.Semantic.DeepEqual(a.Labels, b.Labels) ||
			!equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) || !equality.Semantic.DeepEqual(a.Finalizers, b.Finalizers) {
			return fmt.Sprintf("the metadata was\n%+v\nand is\n%+v", a.ObjectMeta, b.ObjectMeta)
		}
		return ""
	})
}

func TestRolloutWaits(t *testing.T) {
	t.Parallel()
	untouched := func(w *fixture) {
		w.Helper()
		if n := count(w.writes(w.began), "deployments"); total(n) > 0 {
			w.Errorf("writes of Deployments: %v", n)
		}
	}
	t.Run("while the Deployment is paused", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web")
		w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Paused = true })
		w.uses("web", "app", 300, 240)
		w.scale("web", inMode("Rollout"))
		w.says("web", "Applied", "False", "RolloutPaused")
		w.rounds(10)
		untouched(w)
		w.says("web", "Stalled", "False", "OperatingNormally")
		w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Paused = false })
		w.sized("web")
	})
	t.Run("while another rollout is in progress", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web")
		w.change("web", "kubectl", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.NodeSelector = map[string]string{"there-is": "none"}
		})
		w.uses("web", "app", 300, 240)
		w.scale("web", inMode("Rollout"))
		w.says("web", "Applied", "False", "RolloutInProgress")
		w.rounds(10)
		untouched(w)
		w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = nil })
		w.sized("web")
	})
}

// The only node has room for two of three pods. Their rollout never ends by itself, and the size that
// would end it used to wait for it.
func TestUnschedulablePodsBecomeSmaller(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t, quick)
	w.node("only-"+w.namespace, "1")
	d := testkit.Deployment(w.namespace, "web")
	d.Spec.Replicas = ptr.To(int32(3))
	spec := &d.Spec.Template.Spec
	spec.NodeSelector = map[string]string{"test": w.namespace}
	spec.Tolerations = []corev1.Toleration{{Key: "test", Operator: corev1.TolerationOpExists}}
	spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("340m") // leaves room for the first new pods
	spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("680m")
	w.create(d)
	w.eventually(func() string {
		unschedulable := 0
		for _, pod := range w.pods("web") {
			for _, c := range pod.Status.Conditions {
				if workload.IsUnschedulable(c) {
					unschedulable++
				}
			}
		}
		if available := w.deployment("web").Status.AvailableReplicas; unschedulable != 1 || available != 2 {
			return fmt.Sprintf("%d pods are unschedulable and %d available", unschedulable, available)
		}
		return ""
	})
	w.uses("web", "app", 50, 100)
	w.scale("web", inMode("Rollout"))
	w.runs("web")
	if requests := w.sized("web"); requests.Cpu().Cmp(resource.MustParse("340m")) >= 0 {
		t.Errorf("the pods request %s", requests.Cpu())
	}
	w.says("web", "Applied", "True", "Applied")
}
