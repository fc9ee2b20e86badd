// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Deploy creates a Deployment and lets its pods start.
func (w *World) Deploy(d *appsv1.Deployment) *appsv1.Deployment {
	w.Helper()
	w.Create(d)
	w.Settle()
	return w.Deployment(d.Name)
}

// Says lets minutes pass until a condition of a scaler has the status and the reason, and its message all the words.
func (w *World) Says(name, kind, status, reason string, words ...string) {
	w.Helper()
	w.Within(patience, func() string {
		c := w.Condition(name, kind)
		wrong := string(c.Status) != status || c.Reason != reason
		for _, word := range words {
			wrong = wrong || !strings.Contains(c.Message, word)
		}
		if wrong {
			return fmt.Sprintf("%s is %s, %s: %q; want %s, %s, with %q", kind, c.Status, c.Reason, c.Message, status, reason, words)
		}
		return ""
	})
}

// Sized lets minutes pass until a scaler says that all is applied, and every pod has the decided requests. It returns
// those of the first container.
func (w *World) Sized(name string) (first corev1.ResourceList) {
	w.Helper()
	w.Within(patience, func() string {
		var wrong string
		first, wrong = w.sizeOf(name)
		return wrong
	})
	return first
}

// sizeOf returns the decided requests of the first container, and describes what is not applied.
func (w *World) sizeOf(name string) (first corev1.ResourceList, wrong string) {
	w.Helper()
	s := w.Scaler(name)
	if c := w.Condition(name, v1beta1.ConditionApplied); c.Status != metav1.ConditionTrue || c.Reason != v1beta1.ReasonApplied {
		return nil, fmt.Sprintf("Applied is %+v", c)
	}
	if s.Status.Decision == nil {
		return nil, "there is no decision"
	}
	d := w.Deployment(s.Spec.DeploymentName)
	pods := w.Pods(d.Spec.Template.Labels[AppLabel])
	if len(pods) != int(ptr.Deref(d.Spec.Replicas, 1)) {
		return nil, fmt.Sprintf("there are %d pods", len(pods))
	}
	for _, c := range s.Status.Decision.Containers {
		requests := corev1.ResourceList{}
		if c.Requests.CPU != nil {
			requests[corev1.ResourceCPU] = *c.Requests.CPU
		}
		if c.Requests.Memory != nil {
			requests[corev1.ResourceMemory] = *c.Requests.Memory
		}
		if first == nil || c.ContainerName == d.Spec.Template.Spec.Containers[0].Name {
			first = requests
		}
		if wrong := unapplied(pods, c.ContainerName, requests); wrong != "" {
			return nil, wrong
		}
	}
	return first, ""
}

// unapplied describes a pod whose kubelet has not applied the requests of a container; empty for none.
func unapplied(pods []corev1.Pod, container string, requests corev1.ResourceList) string {
	for _, pod := range pods {
		for kind, amount := range requests {
			if got := Actual(&pod, container).Requests[kind]; got.Cmp(amount) != 0 {
				return fmt.Sprintf("pod %s has %s of %s applied, not %s", pod.Name, got.String(), kind, amount.String())
			}
		}
	}
	return ""
}

// Actual is the resources that the kubelet reports as applied.
func Actual(pod *corev1.Pod, container string) *corev1.ResourceRequirements {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.Name == container && status.Resources != nil {
			return status.Resources
		}
	}
	return &corev1.ResourceRequirements{}
}

// Asked is the resources in the pod's spec.
func Asked(pod *corev1.Pod, container string) *corev1.ResourceRequirements {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container {
			return &c.Resources
		}
	}
	return &corev1.ResourceRequirements{}
}

// Between fails the test unless the amount is in the range, with both ends.
func (w *World) Between(what string, got resource.Quantity, least, most string) {
	w.Helper()
	if got.Cmp(resource.MustParse(least)) < 0 || got.Cmp(resource.MustParse(most)) > 0 {
		w.Errorf("%s is %s, not between %s and %s", what, got.String(), least, most)
	}
}

// Noted lets minutes pass until the operator has recorded an event about an object whose note contains all the words.
func (w *World) Noted(uid types.UID, reason string, words ...string) {
	w.Helper()
	w.Within(patience, func() string {
		for _, e := range w.events {
			if e.UID == uid && e.Reason == reason && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Note, word) }) {
				return ""
			}
		}
		return fmt.Sprintf("no event %s with %q among %v", reason, words, w.events)
	})
}

// Events are the events that the operator has recorded about an object.
func (w *World) Events(uid types.UID) []Event {
	return slices.DeleteFunc(slices.Clone(w.events), func(e Event) bool { return e.UID != uid })
}

// Gone fails the test if the object exists once nobody has anything to do.
func (w *World) Gone(object client.Object) {
	w.Helper()
	w.Settle()
	if err := w.Client.Get(w.ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
		w.Fatalf("%T %s is still there: %v", object, object.GetName(), err)
	}
}

// itemsOf are the objects of a list.
func itemsOf(list client.ObjectList) (objects []client.Object) {
	_ = meta.EachListItem(list, func(item runtime.Object) error { // the function returns no error
		if o, ok := item.(client.Object); ok {
			objects = append(objects, o)
		}
		return nil
	})
	return objects
}
