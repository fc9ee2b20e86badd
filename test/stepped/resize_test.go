// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func TestUsageAboveTheRequestsRaisesThePodsInPlace(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web")

	requests := w.Sized("web")
	w.Between("cpu", *requests.Cpu(), "330m", "380m")         // usage, 15 %, and a little for its noise
	w.Between("memory", *requests.Memory(), "307Mi", "309Mi") // twice the margin while history is limited
	pods := w.Pods("web")
	for _, pod := range pods {
		for kind, request := range requests {
			limit := request.DeepCopy()
			limit.Add(request) // the ratio of the template
			if got := world.Actual(&pod, "app").Limits[kind]; got.Cmp(limit) != 0 {
				t.Errorf("pod %s has a %s limit of %s beside a request of %s", pod.Name, kind, got.String(), request.String())
			}
		}
	}
	if n := restarts(pods); len(n) > 0 {
		t.Errorf("restarts: %v", n)
	}
	after := w.Deployment("web")
	if after.Generation != before.Generation || after.UID != before.UID {
		t.Errorf("the Deployment went from generation %d to %d", before.Generation, after.Generation)
	}

	for kind, want := range map[string]string{
		"Ready": "True OperatingNormally", "TargetFound": "True DeploymentFound", "RecommendationProvided": "True EnoughHistory",
		"Applied": "True Applied", "Reconciling": "False OperatingNormally", "Stalled": "False OperatingNormally",
	} {
		status, reason, _ := strings.Cut(want, " ")
		w.Reports("web", kind, status, reason)
	}
	s := w.Scaler("web")
	cpu, memory := requests.Cpu(), requests.Memory()
	if s.Status.Summary == nil || s.Status.Summary.CPU != cpu.String() || s.Status.Summary.Memory != memory.String() || s.Status.Summary.Pods != "3/3" {
		t.Errorf("summary %+v of requests %v", s.Status.Summary, requests)
	}
	if s.Status.ObservedGeneration != s.Generation || s.Status.Target == nil || s.Status.Target.UID != after.UID || s.Status.Target.Replicas != 3 {
		t.Errorf("observed generation %d of %d, target %+v", s.Status.ObservedGeneration, s.Generation, s.Status.Target)
	}
	if len(s.Finalizers) > 0 || s.Status.OriginalResources != nil {
		t.Errorf("finalizers %v, original resources %+v: nothing of the Deployment is taken over in place", s.Finalizers, s.Status.OriginalResources)
	}
	steps := []string{"cpu 100m->" + cpu.String(), "memory 128Mi->" + memory.String()}
	if len(s.Status.History) != 1 || !strings.Contains(s.Status.History[0].Message, steps[0]) || !strings.Contains(s.Status.History[0].Message, steps[1]) {
		t.Errorf("history %+v without %q", s.Status.History, steps)
	}
	w.Noted(after.UID, "Decided", steps...)

	writes := w.Writes()
	for pod, n := range count(accepted(writes), "pods/resize") {
		if n != 1 {
			t.Errorf("pod %s was resized %d times", pod, n)
		}
	}
	for _, write := range writes {
		if write.Code >= 400 && write.Code != 409 {
			t.Errorf("refused: %s", write)
		}
	}
}

func TestRolloutsOfTheUserKeepTheDecidedSize(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web")
	want := w.Sized("web")
	for _, image := range []string{"example.com/app:2", "example.com/app:3", "example.com/app:4"} { // each before the previous rollout is complete
		w.Change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
	}
	w.runs("web")
	if got := w.Sized("web"); !got.Cpu().Equal(*want.Cpu()) || !got.Memory().Equal(*want.Memory()) {
		t.Errorf("a rollout changed the decision from %v to %v", want, got)
	}

	w.Change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(0)) })
	w.Reports("web", "Applied", "False", "NoPods")
	w.Reports("web", "Ready", "True", "OperatingNormally")
	w.Change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(2)) })
	w.runs("web")
	if got := w.Sized("web"); !got.Cpu().Equal(*want.Cpu()) || !got.Memory().Equal(*want.Memory()) {
		t.Errorf("no pods for a while changed the decision from %v to %v", want, got)
	}

	w.Uses("web", "renamed", 200, 200)
	w.Change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Name = "renamed" })
	w.Until(func() string {
		s := w.Scaler("web")
		if s.Status.Decision == nil || len(s.Status.Decision.Containers) != 1 || s.Status.Decision.Containers[0].ContainerName != "renamed" {
			return "the decision is not about the container's new name"
		}
		return ""
	})
	got := w.Sized("web")
	w.Between("cpu", *got.Cpu(), "220m", "260m")
	if n := restarts(w.Pods("web")); len(n) > 0 {
		t.Errorf("restarts: %v", n)
	}
}
