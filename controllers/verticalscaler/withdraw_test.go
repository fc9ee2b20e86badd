// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// edit changes the pods whose names end with one of the letters.
func (p *plant) edit(letters string, change func(*corev1.Pod)) {
	p.t.Helper()
	for _, letter := range letters {
		var pod corev1.Pod
		must.Succeed(p.t, p.server.Get(p.t.Context(), client.ObjectKey{Namespace: "shop", Name: "checkout-1-" + string(letter)}, &pod))
		change(&pod)
		status := pod.Status.DeepCopy()
		must.Succeed(p.t, p.server.Update(p.t.Context(), &pod))
		pod.Status = *status
		must.Succeed(p.t, p.server.Status().Update(p.t.Context(), &pod))
	}
}

// resizes reconciles at that time, and compares the pods that are resized and the reason of Applied.
func (p *plant) resizes(at time.Time, reason string, want ...string) *v1beta1.VerticalScaler {
	p.t.Helper()
	p.clock.SetTime(at)
	p.resized = nil
	vs := p.mustReconcile()
	if got := condition(vs, v1beta1.ConditionApplied); got.Reason != reason || !slices.Equal(p.resized, want) {
		p.t.Fatalf("%s: resized %v, want %v: %s, want %s: %s", at.Format(time.TimeOnly), p.resized, want, got.Reason, reason, got.Message)
	}
	return vs
}

// withoutNode replaces the pod by an unschedulable one of the same name.
func withoutNode(pod *corev1.Pod) {
	pod.Spec.NodeName = ""
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: pod.Status.QOSClass, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(noon),
		Message: "0/3 nodes are available: 3 Insufficient cpu, 1 Insufficient memory.",
	}}}
}

// A new pod that finds no node gets the requests of its template, and later ones start with those for a while.
func TestAPodWithoutANodeIsSetBack(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	p.actuates = true
	p.create(admission.Policy())
	p.create(admission.Binding())
	reconcile := func(at time.Time, reason, newPods string, want ...string) {
		t.Helper()
		vs := p.resizes(at, reason, want...)
		if got := condition(vs, v1beta1.ConditionNewPodsSized); got.Reason != newPods {
			t.Fatalf("%s: new pods: %s, want %s: %s", at.Format(time.TimeOnly), got.Reason, newPods, got.Message)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		reconcile(noon, v1beta1.ReasonResizing, v1beta1.ReasonApplied, "checkout-1-"+name)
	}
	reconcile(noon, v1beta1.ReasonApplied, v1beta1.ReasonApplied)
	p.edit("b", withoutNode)
	recorder, ok := p.Recorder.(*events.FakeRecorder)
	if !ok {
		t.Fatalf("%T records events", p.Recorder)
	}
	for len(recorder.Events) > 0 {
		<-recorder.Events
	}
	p.actuates = false // it has no kubelet
	reconcile(noon.Add(2*time.Minute), v1beta1.ReasonApplied, v1beta1.ReasonNodeCapacity)
	reconcile(noon.Add(5*time.Minute), v1beta1.ReasonApplied, v1beta1.ReasonNodeCapacity, "checkout-1-b") // the status reports progress later
	if event := <-recorder.Events; event != "Normal Decided VerticalScaler checkout: NodeCapacity: app cpu 421m->100m" {
		t.Errorf("the event of the pod is %q", event)
	}
	if event := <-recorder.Events; !strings.Contains(event, "SetBack") || !strings.Contains(event, "checkout-1-b") {
		t.Errorf("the event is %q", event)
	}
	p.edit("b", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
	})
	reconcile(noon.Add(6*time.Minute), v1beta1.ReasonApplied, v1beta1.ReasonNodeCapacity)
	reconcile(noon.Add(34*time.Minute), v1beta1.ReasonApplied, v1beta1.ReasonNodeCapacity)
	reconcile(noon.Add(36*time.Minute), v1beta1.ReasonApplied, v1beta1.ReasonApplied)
}

// A resize that was withdrawn is asked for again after a while, and not before.
func TestAWithdrawnResizeIsAskedForAgainLater(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	vs := p.resizes(noon, v1beta1.ReasonResizing, "checkout-1-a")
	before := corev1.PodSpec{}
	declare := func(pod *corev1.Pod) {
		before = *pod.Spec.DeepCopy()
		for _, d := range vs.Status.Decision.Containers {
			resize(&pod.Spec.Containers[0], corev1.ResourceCPU, d.Requests.CPU)
			resize(&pod.Spec.Containers[0], corev1.ResourceMemory, d.Requests.Memory)
		}
	}
	p.edit("a", func(pod *corev1.Pod) {
		declare(pod)
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "no room",
			ObservedGeneration: pod.Generation + 1, LastTransitionTime: metav1.NewTime(noon),
		}}
	})
	p.resizes(noon.Add(9*time.Minute), v1beta1.ReasonDeferred)
	p.resizes(noon.Add(12*time.Minute), v1beta1.ReasonDeferred, "checkout-1-a") // the status reports progress later
	p.edit("a", func(pod *corev1.Pod) {
		pod.Spec = before
		pod.Status.Conditions = nil
	})
	p.resizes(noon.Add(12*time.Minute+progressDelay), v1beta1.ReasonResizing, "checkout-1-b")
	p.edit("bc", func(pod *corev1.Pod) {
		declare(pod)
		pod.Status.ContainerStatuses[0].Resources = pod.Spec.Containers[0].Resources.DeepCopy()
	})
	p.resizes(noon.Add(13*time.Minute), v1beta1.ReasonDeferred)
	p.resizes(noon.Add(41*time.Minute), v1beta1.ReasonDeferred)
	p.resizes(noon.Add(43*time.Minute), v1beta1.ReasonDeferred, "checkout-1-a")
}

// The time until a withdrawn resize is asked for again grows, and starts over after a long time without
// a withdrawal.
func TestWithdrawalsBackOff(t *testing.T) {
	var pod remembered
	withdrawn := plan.RejectedResize{Sizes: []plan.Size{{Container: "app"}}, Reason: v1beta1.ReasonDeferred}
	var got []string
	now := noon
	for range 5 {
		pod.withdraw(withdrawn, now)
		until := pod.rejected[len(pod.rejected)-1].until
		got = append(got, until.Sub(now).String())
		before, left := pod.rejectedAt(until.Add(-time.Second))
		if after, _ := pod.rejectedAt(until); len(before) == 0 || left != time.Second || len(after) > 0 {
			t.Errorf("a withdrawal of %s does not count until %s", now, until)
		}
		now = until.Add(11 * time.Minute)
	}
	now = now.Add(2 * mostWithdrawal)
	pod.withdraw(withdrawn, now)
	got = append(got, pod.rejected[len(pod.rejected)-1].until.Sub(now).String())
	assert.Equal(t, "waits", []string{"30m0s", "1h0m0s", "2h0m0s", "2h0m0s", "2h0m0s", "30m0s"}, got)
}

// resize sets a request, and a limit of twice that. nil sets nothing.
func resize(c *corev1.Container, name corev1.ResourceName, request *resource.Quantity) {
	if request == nil {
		return
	}
	limit := request.DeepCopy()
	limit.Add(*request)
	c.Resources.Requests[name], c.Resources.Limits[name] = *request, limit
}
