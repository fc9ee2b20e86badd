// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// line is what the API server is told of the Deployment web.
func (w *fixture) line() string {
	w.Helper()
	for _, o := range w.sizeTexts() {
		for line := range strings.SplitSeq(o, "\n") {
			if strings.HasPrefix(line, "web ") {
				return line
			}
		}
	}
	return ""
}

// provedBy lets time pass until new pods of the newest ReplicaSet of web get exactly the decided size.
func (w *fixture) provedBy(pod corev1.Pod) {
	w.Helper()
	w.eventually(func() string {
		if line := w.line(); !strings.HasPrefix(line, "web @"+string(pod.OwnerReferences[0].UID)+";") {
			return fmt.Sprintf("the ReplicaSet of %s has not proved its size: %q", pod.Name, line)
		}
		return ""
	})
}

// A pod of a new revision starts as in its template, even after its user has asked for more, and is lowered once it runs.
// Replacements of a revision that has run with less start with that.
func TestALowerSizeBelongsToTheRevisionThatProvedIt(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.deploy("web", func(d *appsv1.Deployment) {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
		c.Resources.Limits = c.Resources.Requests
	})
	w.Uses("web", "app", 20, 30)
	w.scale("web", sizingNewPods)
	w.Sized("web")
	first := w.Pods("web")[0]
	w.provedBy(first)
	lowered := world.Asked(&first, "app").Requests.Cpu().MilliValue()
	if lowered >= 1000 {
		t.Fatalf("the pods have %dm", lowered)
	}
	created := func(pod *corev1.Pod) *corev1.Pod {
		t.Helper()
		var probe *corev1.Pod
		testkit.Eventually(t, 2*time.Minute, func() string { // The API server learns of the line.
			probe = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: pod.Labels, OwnerReferences: pod.OwnerReferences}, Spec: *w.Deployment("web").Spec.Template.Spec.DeepCopy()}
			if err := env.Client.Create(t.Context(), probe, client.DryRunAll); err != nil {
				return err.Error()
			}
			if got := world.Asked(probe, "app").Requests.Cpu().MilliValue(); got != lowered {
				return fmt.Sprintf("a replacement has %dm, not %dm", got, lowered)
			}
			return ""
		})
		return probe
	}
	probe := created(&first)
	probe.ResourceVersion, probe.UID, probe.OwnerReferences[0].UID = "", "", "another"
	probe.Spec = *w.Deployment("web").Spec.Template.Spec.DeepCopy()
	if err := env.Client.Create(t.Context(), probe, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if got := world.Asked(probe, "app").Requests.Cpu().MilliValue(); got != 1000 {
		t.Errorf("a pod of another ReplicaSet starts with %dm", got)
	}

	w.Change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/app:2" })
	w.runs("web")
	w.Sized("web")
	second := w.Pods("web")[0]
	if second.OwnerReferences[0].UID == first.OwnerReferences[0].UID {
		t.Fatal("there is no new revision")
	}
	w.provedBy(second)
}

// A policy that is asked when pods are created, and not when they are resized, keeps no pod of ours from being created.
func TestPodsThatAPolicyRefusesStartAsInTheTemplate(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	d := w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.scale("web", sizingNewPods)
	w.Sized("web")
	w.hasSizesOf("web")
	w.untilAPIServerKnows(d)
	w.deny("", "pods", `object.spec.containers.all(c, quantity(string(c.resources.requests['cpu'])).compareTo(quantity('200m')) <= 0)`, "at most 200m", admissionregistrationv1.Create)
	testkit.Eventually(t, 2*time.Minute, func() string { // The API server learns of the policy.
		pod := w.Pods("web")[0]
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: pod.Labels, OwnerReferences: pod.OwnerReferences}, Spec: *d.Spec.Template.Spec.DeepCopy()}
		if err := env.Client.Create(t.Context(), probe, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "at most 200m") {
			return fmt.Sprintf("a large pod is not refused: %v", err)
		}
		return ""
	})
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"spec":{"replicas":5}}`)
	w.Says("web", "NewPodsSized", "False", "ReplicaFailure", "at most 200m")
	w.hasSizesOf()
	w.runs("web")
	w.Sized("web")
	w.Says("web", "Ready", "True", "OperatingNormally")
	w.Says("web", "NewPodsSized", "False", "ReplicaFailure", "at most 200m")
	if n := len(w.Pods("web")); n != 5 {
		t.Errorf("%d pods", n)
	}
}

// Where the API server refuses the resize, the fallback follows at once: no event tells that.
func TestTheFallbackFollowsARefusedResize(t *testing.T) {
	t.Parallel()
	const onSmallNode = "example.com/small-node"
	for reason, change := range map[string]func(*corev1.PodTemplateSpec){
		"Unsupported":  func(pod *corev1.PodTemplateSpec) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
		"NodeCapacity": func(pod *corev1.PodTemplateSpec) { pod.Annotations = map[string]string{onSmallNode: "yes"} },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := newServed(t)
			small, large := w.node("small", "250m"), w.node("large", "8")
			w.Kubelet.Place = func(pod *corev1.Pod) string {
				if pod.Annotations[onSmallNode] != "" && world.Asked(pod, "app").Requests.Cpu().MilliValue() <= 250 {
					return small
				}
				return large
			}
			waiting := w.deploy("waiting", func(d *appsv1.Deployment) { change(&d.Spec.Template) })
			w.Uses("waiting", "app", 300, 240)
			w.scale("waiting")
			w.Says("waiting", "Applied", "False", reason)
			if d := w.Deployment("waiting"); d.Generation != waiting.Generation {
				t.Errorf("with the fallback Wait, the template has %+v", d.Spec.Template.Spec.Containers)
			}

			before := w.deploy("web", func(d *appsv1.Deployment) { change(&d.Spec.Template) })
			w.Uses("web", "app", 300, 240)
			w.scale("web", orRollout)
			w.Says("web", "RecommendationProvided", "True", "EnoughHistory")
			w.Minutes(2) // less than the resync period
			if w.Deployment("web").Generation == before.Generation {
				t.Errorf("the template is as it was: %+v", w.Condition("web", "Applied"))
			}
			w.Sized("web")
		})
	}
}
