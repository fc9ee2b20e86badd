// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
)

// rolloutAt has n Deployments with all their pods, and scalers that have decided on 77m of CPU for the app.
func rolloutAt(second, n int) snapshot {
	s := snapshot{at: epoch.Add(time.Duration(second) * time.Second)}
	r := rollout{deployments: map[types.NamespacedName]*appsv1.Deployment{}, scalers: map[types.NamespacedName]*v1beta1.VerticalScaler{}, told: map[types.NamespacedName]bool{}}
	add := func(d *appsv1.Deployment) {
		d.Generation = 3
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: *d.Spec.Replicas, UpdatedReplicas: *d.Spec.Replicas, AvailableReplicas: *d.Spec.Replicas}
		r.deployments[client.ObjectKeyFromObject(d)] = d
	}
	for i := range n {
		d, scaler := scaledDeployment(i)
		add(d)
		decide(scaler, "77m")
		key := client.ObjectKeyFromObject(scaler)
		r.scalers[key], r.told[key] = scaler, true
	}
	for _, name := range unscaled {
		add(rolloutDeployment(rolloutNamespaces[0], name, 2, 1, 1))
	}
	s.rollout = r
	return s
}

func decide(s *v1beta1.VerticalScaler, cpu string) {
	a := v1beta1.Amounts{CPU: new(resource.MustParse(cpu))}
	s.Status.Decision = &v1beta1.Decision{Containers: []v1beta1.ContainerDecision{{ContainerName: "app", Requests: a}}}
	s.Status.NewPods = &v1beta1.NewPods{Containers: []v1beta1.NewPodContainer{{ContainerName: "app", Requests: a}}}
}

// newPodsOf are the pods of all Deployments as the API server must create them.
func newPodsOf(s snapshot) (pods []*corev1.Pod) {
	for _, key := range sortedKeys(s.rollout.deployments) {
		d := s.rollout.deployments[key]
		for i := range *d.Spec.Replicas {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: fmt.Sprintf("%s-%d", key.Name, i), Generation: 1, Labels: d.Spec.Template.Labels},
				Spec:       *d.Spec.Template.Spec.DeepCopy(),
			}
			if key.Namespace != rolloutNamespaces[2] {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, injected())
			}
			if s.rollout.scalers[key] != nil {
				pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("77m")
			}
			pods = append(pods, pod)
		}
	}
	return pods
}

func rolloutStep(t *testing.T, name string, snapshots ...snapshot) *progress {
	t.Helper()
	steps := rolloutScenario(8).steps
	at := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
	if at < 0 {
		t.Fatalf("there is no step %s", name)
	}
	p := &progress{step: steps[at], start: snapshots[0], end: snapshots[0], done: true}
	for _, s := range snapshots[1:] {
		p.add(s)
	}
	return p
}

// One pod that was created with something else is found, and so are pods that are missing.
func TestAllNewPodsMustBeCreatedAtTheirSize(t *testing.T) {
	podOf := func(pods []*corev1.Pod, app string) *corev1.Pod {
		return pods[slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Labels["app"] == app })]
	}
	request := func(app, cpu string) func(*snapshot) {
		return func(s *snapshot) {
			podOf(s.rollout.created, app).Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
	}
	for name, tc := range map[string]struct {
		change func(*snapshot)
		want   string // in the details; empty if all is right
	}{
		"all is right":            {func(*snapshot) {}, ""},
		"as in the template":      {request("app-6", "60m"), "79 of 80 new pods were created at the decided size (pod shop/app-6-0: container app has 60m 100Mi of 0 0, want 77m"},
		"seen after a resize":     {func(s *snapshot) { podOf(s.rollout.created, "app-1").Generation = 2 }, "seen at generation 2 first"},
		"a sized foreign pod":     {request("my-app-1", "77m"), "of those that no scaler is for, 7 of 8"},
		"a pod too few":           {func(s *snapshot) { s.rollout.created = s.rollout.created[1:] }, "79 of 79"},
		"a pod too many":          {func(s *snapshot) { s.rollout.created = append(s.rollout.created, podOf(s.rollout.created, "app-1")) }, "81 of 81"},
		"no sidecar":              {func(s *snapshot) { podOf(s.rollout.created, "app-0").Spec.InitContainers = nil }, "it has 1 containers, want 2"},
		"a resized native one":    {func(s *snapshot) { podOf(s.rollout.created, "app-3").Spec.InitContainers[1].Resources.Requests = nil }, "container log has 0 0 of 0 128Mi, want 20m 32Mi"},
		"a Deployment is gone":    {func(s *snapshot) { clear(s.rollout.deployments) }, "no Deployment has it"},
		"a webhook configuration": {func(s *snapshot) { s.rollout.webhooks = 1 }, "1 webhook configurations"},
		"an operator that runs":   {func(s *snapshot) { s.rollout.requests = 1 }, "1 requests of the operator"},
	} {
		t.Run(name, func(t *testing.T) {
			end := rolloutAt(9, 8)
			end.rollout.created = newPodsOf(end)
			tc.change(&end)
			p := rolloutStep(t, "again", rolloutAt(0, 8), end)
			if ok, details := p.proof(p); ok != (tc.want == "") || !strings.Contains(details, tc.want) {
				t.Errorf("proof() = %t, %q; want %q", ok, details, tc.want)
			}
		})
	}
}

// A size that was decided during the rollout is as good as the one before. One that was decided by nobody is not.
func TestASizeMayChangeDuringTheRollout(t *testing.T) {
	for _, cpu := range []string{"77m", "88m", "99m"} {
		changed := rolloutAt(5, 8)
		for _, s := range changed.rollout.scalers {
			decide(s, "88m")
		}
		changed.rollout.created = newPodsOf(rolloutAt(5, 8))
		for _, pod := range changed.rollout.created {
			if pod.Labels["app"] == "app-5" {
				pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(cpu)
			}
		}
		p := rolloutStep(t, "rollout", rolloutAt(0, 8), rolloutAt(1, 8), changed)
		if ok, details := p.proof(p); ok != (cpu != "99m") {
			t.Errorf("%s: proof() = %t, %s", cpu, ok, details)
		}
	}
}

func TestTheSizesOfAllScalersAreAwaited(t *testing.T) {
	first := client.ObjectKey{Namespace: rolloutNamespaces[0], Name: "app-0"}
	for name, change := range map[string]func(*rollout){
		"all are decided":    func(*rollout) {},
		"not told":           func(r *rollout) { r.told[first] = false },
		"no decision":        func(r *rollout) { r.scalers[first].Status.Decision = nil },
		"being verified":     func(r *rollout) { r.scalers[first].Status.Decision.Verification = &v1beta1.Verification{} },
		"as in the template": func(r *rollout) { decide(r.scalers[first], "60m") },
		"another size": func(r *rollout) {
			r.scalers[first].Status.NewPods.Containers[0].Requests.CPU = new(resource.MustParse("1"))
		},
		"no scaler": func(r *rollout) { delete(r.scalers, first) },
	} {
		early, late := rolloutAt(1, 8), rolloutAt(20, 8)
		change(&early.rollout)
		change(&late.rollout)
		p := rolloutStep(t, "decide", rolloutAt(0, 0), early)
		if p.missing(p) == "" {
			t.Errorf("%s: sizes that have just changed are not awaited", name)
		}
		p.add(late)
		if got := p.missing(p); (got == "") != (name == "all are decided") {
			t.Errorf("%s: missing() = %q", name, got)
		}
	}
}

func TestTemplatesMustBeThoseOfUsers(t *testing.T) {
	key := client.ObjectKey{Namespace: rolloutNamespaces[0], Name: "app-0"}
	for name, change := range map[string]func(*appsv1.Deployment){
		"all is right": func(*appsv1.Deployment) {},
		"a request":    func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Resources.Requests = nil },
		"once more":    func(d *appsv1.Deployment) { d.Generation = 4 },
		"a field of the operator": func(d *appsv1.Deployment) {
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: ownership.Scalers}}
		},
	} {
		end := rolloutAt(9, 8)
		change(end.rollout.deployments[key])
		p := rolloutStep(t, "templates", rolloutAt(0, 8), end)
		if ok, details := p.proof(p); ok != (name == "all is right") {
			t.Errorf("%s: %t, %s", name, ok, details)
		}
	}
}

func TestARolloutEndsWithAllPods(t *testing.T) {
	end := rolloutAt(9, 8)
	p := rolloutStep(t, "rollout", rolloutAt(0, 8), end)
	if got := p.missing(p); got != "" {
		t.Errorf("missing() = %q", got)
	}
	for _, d := range end.rollout.deployments {
		d.Status.UpdatedReplicas--
		break
	}
	if got, want := p.missing(p), "all pods of 12 Deployments: 11 have theirs"; got != want {
		t.Errorf("missing() = %q, want %q", got, want)
	}
}

// Pods are kept as they were created, and a watch that ends is an error.
func TestPodsAreKeptAsTheyWereCreated(t *testing.T) {
	n := &newPods{}
	n.add(watch.Event{Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 1}}})
	n.add(watch.Event{Type: watch.Modified, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 2}}})
	n.add(watch.Event{Type: watch.Bookmark, Object: &corev1.Pod{}})
	n.add(watch.Event{Type: watch.Deleted, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})
	pods, err := n.list()
	if err != nil || len(pods) != 1 || pods[0].Generation != 1 {
		t.Errorf("pods: %v, %v", pods, err)
	}
	n.add(watch.Event{Type: watch.Error, Object: &metav1.Status{Message: "too old"}})
	if _, err := n.list(); err == nil {
		t.Error("the end of a watch is no error")
	}
}
