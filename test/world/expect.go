// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	w.Eventually(func() string {
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
func (w *World) Sized(name string) corev1.ResourceList {
	w.Helper()
	w.Eventually(func() string {
		return firstOf(w.says(name, v1beta1.ConditionApplied, metav1.ConditionTrue, v1beta1.ReasonApplied), w.hasDecided(name))
	})
	s := w.Scaler(name)
	containers, first := s.Status.Decision.Containers, w.Deployment(s.Spec.DeploymentName).Spec.Template.Spec.Containers[0].Name
	i := slices.IndexFunc(containers, func(c v1beta1.ContainerDecision) bool { return c.ContainerName == first })
	return requestsOf(containers[max(i, 0)])
}

// hasDecided expects all pods of a scaler to have the decided requests.
func (w *World) hasDecided(scaler string) string {
	s := w.Scaler(scaler)
	if s.Status.Decision == nil {
		return "there is no decision"
	}
	d := w.Deployment(s.Spec.DeploymentName)
	pods := w.Pods(d.Spec.Template.Labels[AppLabel])
	if len(pods) != int(ptr.Deref(d.Spec.Replicas, 1)) {
		return fmt.Sprintf("there are %d pods", len(pods))
	}
	for _, c := range s.Status.Decision.Containers {
		if wrong := unapplied(pods, c.ContainerName, requestsOf(c)); wrong != "" {
			return wrong
		}
	}
	return ""
}

func requestsOf(c v1beta1.ContainerDecision) corev1.ResourceList {
	requests := corev1.ResourceList{}
	if c.Requests.CPU != nil {
		requests[corev1.ResourceCPU] = *c.Requests.CPU
	}
	if c.Requests.Memory != nil {
		requests[corev1.ResourceMemory] = *c.Requests.Memory
	}
	return requests
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
	if s := statusOf(pod, container); s != nil && s.Resources != nil {
		return s.Resources
	}
	return &corev1.ResourceRequirements{}
}

// Asked is the resources in the pod's spec.
func Asked(pod *corev1.Pod, container string) *corev1.ResourceRequirements {
	for _, c := range containersOf(pod) {
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
	w.Eventually(func() string {
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
	if wrong := w.isGone(object); wrong != "" {
		w.Fatal(wrong)
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
