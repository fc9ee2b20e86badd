// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
)

// The functions in this file whose names begin with a small letter describe how the world differs from what is expected, and
// answer "" if it does not. The others let time pass until it does not, or fail the test.

// firstOf is the first text that is not empty.
func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// lacks expects a condition of an object, about its latest generation, whose message contains all the words.
func lacks(o client.Object, conditions []metav1.Condition, kind, status, reason string, words ...string) string {
	c := ptr.Deref(meta.FindStatusCondition(conditions, kind), metav1.Condition{})
	isMissing := func(word string) bool { return !strings.Contains(c.Message, word) }
	if string(c.Status) != status || c.Reason != reason || c.ObservedGeneration != o.GetGeneration() || slices.ContainsFunc(words, isMissing) {
		return fmt.Sprintf("%s of generation %d of %s is %s, %s: %q; want generation %d, %s, %s, with %q",
			kind, c.ObservedGeneration, o.GetName(), c.Status, c.Reason, c.Message, o.GetGeneration(), status, reason, words)
	}
	return ""
}

func (w *World) reports(scaler, kind, status, reason string, words ...string) string {
	w.Helper()
	s := w.existing(scaler)
	return lacks(&s, s.Status.Conditions, kind, status, reason, words...)
}

// Reports lets minutes pass until a condition of a scaler has the status and the reason, and its message all the words.
func (w *World) Reports(name, kind, status, reason string, words ...string) {
	w.Helper()
	w.Until(func() string { return w.reports(name, kind, status, reason, words...) })
}

// OwnerReports lets time pass until a ScaledDeployment has a condition, about its latest generation, whose message contains all
// the words.
func (w *World) OwnerReports(name, kind, status, reason string, words ...string) {
	w.Helper()
	w.Until(func() string {
		o := w.Owner(name)
		return lacks(o, o.Status.Conditions, kind, status, reason, words...)
	})
}

// isApplied expects a scaler to say that the pods have the size and that their usage is
// known, and the pods to have the size. The operator takes ten rounds to trust usage again. If its
// decision was lost and all pods agree, it says that they have about what is recommended.
func (w *World) isApplied(scaler, deployment string, s size) string {
	applied := w.reports(scaler, v1beta1.ConditionApplied, "True", v1beta1.ReasonApplied)
	if applied != "" && w.hasDecision(scaler) != "" && w.reports(scaler, v1beta1.ConditionApplied, "True", v1beta1.ReasonWithinTolerance) == "" {
		applied = ""
	}
	return firstOf(applied, w.podsHave(deployment, s), w.knowsUsage(scaler))
}

// knowsUsage expects a scaler to trust the usage of its pods.
func (w *World) knowsUsage(scaler string) string {
	return w.reports(scaler, v1beta1.ConditionRecommendationProvided, "True", v1beta1.ReasonEnoughHistory)
}

// existing is a scaler; the zero value if it does not exist.
func (w *World) existing(name string) (s v1beta1.VerticalScaler) {
	w.Helper()
	if err := w.Client.Get(w.ctx, w.Key(name), &s, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return s
}

// hasSeen expects the status of a scaler to be about the latest generation of a Deployment. It can be older: a
// connection that is cut takes the watches with it, and they are opened again less and less often.
func (w *World) hasSeen(scaler, deployment string) string {
	s, d := w.Scaler(scaler), w.Deployment(deployment)
	if s.Status.Target == nil || s.Status.Target.Generation != d.Generation {
		return fmt.Sprintf("the status of scaler %s is not about generation %d of %s", scaler, d.Generation, deployment)
	}
	return ""
}

// hasDecision expects a scaler to have decided something.
func (w *World) hasDecision(scaler string) string {
	if w.existing(scaler).Status.Decision == nil {
		return fmt.Sprintf("scaler %s has not decided", scaler)
	}
	return ""
}

// isPublished expects the API server to be told the sizes of new pods that the scalers have in their status, and no others.
func (w *World) isPublished() string {
	var scalers v1beta1.VerticalScalerList
	var published v1beta1.NewPodSizesList
	here := client.InNamespace(w.Namespace)
	if err := errors.Join(w.Client.List(w.ctx, &scalers, here), w.Client.List(w.ctx, &published, here)); err != nil {
		return err.Error()
	}
	var want, got []string
	for _, s := range scalers.Items {
		if n := s.Status.NewPods; n != nil && len(n.Containers) > 0 {
			want = append(want, admission.LineOf(&s, *n))
		}
	}
	for _, object := range published.Items {
		got = append(got, strings.FieldsFunc(object.Spec.Deployments, func(r rune) bool { return r == '\n' })...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("the API server is told to give new pods %q, and the status says %q", got, want)
	}
	return ""
}

// templateIs expects the template of a Deployment to have a size, with its containers in
// their order.
func (w *World) templateIs(deployment string, s size) string {
	got, want := sizesOf(w.Deployment(deployment).Spec.Template.Spec.Containers), sizesOf(template(nil, s).Spec.Containers)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("the template of %s has %q", deployment, got)
	}
	return ""
}

// podsHave expects a Deployment to be complete, and its pods to have a size applied.
func (w *World) podsHave(deployment string, s size) string {
	return firstOf(w.IsRunning(deployment), w.podsAre(deployment, func(pod *corev1.Pod) string {
		if IsResized(pod) {
			return "waits for its kubelet"
		}
		return asks(pod, s)
	}))
}

// podsAre expects something of each pod of a Deployment.
func (w *World) podsAre(deployment string, expect func(*corev1.Pod) string) string {
	pods := w.podsInOrder(deployment)
	for i := range pods {
		if wrong := expect(&pods[i]); wrong != "" {
			return fmt.Sprintf("pod %s %s", pods[i].Name, wrong)
		}
	}
	return ""
}

// asks expects the pod's spec to have a size.
func asks(pod *corev1.Pod, s size) string {
	if got, want := sizesOf(pod.Spec.Containers), sizesOf(template(nil, s).Spec.Containers); !slices.Equal(got, want) {
		return fmt.Sprintf("has %q, not %q", got, want)
	}
	return ""
}

// sizesOf are the resources of containers, in order.
func sizesOf(containers []corev1.Container) (lines []string) {
	for _, c := range containers {
		lines = append(lines, c.Name+" "+resourceLine(c.Resources))
	}
	return lines
}

// IsRunning describes what a Deployment lacks to be rolled out; "" if it is.
func (w *World) IsRunning(name string) string {
	var d appsv1.Deployment
	if err := w.Client.Get(w.ctx, w.Key(name), &d, client.UnsafeDisableDeepCopy); err != nil {
		return err.Error()
	}
	s, want := d.Status, ptr.Deref(d.Spec.Replicas, 1)
	if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want {
		return fmt.Sprintf("Deployment %s has %d of %d pods available, %d updated", name, s.AvailableReplicas, want, s.UpdatedReplicas)
	}
	if pods := w.podsInOrder(name); len(pods) != int(want) {
		return fmt.Sprintf("Deployment %s has %d pods", name, len(pods))
	}
	return ""
}

// Deploy creates a Deployment and lets its pods start.
func (w *World) Deploy(d *appsv1.Deployment) *appsv1.Deployment {
	w.Helper()
	w.Create(d)
	w.Settle()
	return w.Deployment(d.Name)
}

// Sized lets minutes pass until a scaler says that all is applied, and every pod has the decided requests. It returns
// those of the first container.
func (w *World) Sized(name string) corev1.ResourceList {
	w.Helper()
	w.Until(func() string {
		return firstOf(w.reports(name, v1beta1.ConditionApplied, "True", v1beta1.ReasonApplied), w.hasDecided(name))
	})
	s := w.Scaler(name)
	containers, first := s.Status.Decision.Containers, w.Deployment(s.Spec.DeploymentName).Spec.Template.Spec.Containers[0].Name
	i := slices.IndexFunc(containers, func(c v1beta1.ContainerDecision) bool { return c.ContainerName == first })
	return requestsOf(containers[max(i, 0)])
}

// hasDecided expects all pods of a scaler to have the decided requests applied.
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
		for _, pod := range pods {
			for kind, amount := range requestsOf(c) {
				if got := Actual(&pod, c.ContainerName).Requests[kind]; got.Cmp(amount) != 0 {
					return fmt.Sprintf("pod %s has %s of %s applied, not %s", pod.Name, got.String(), kind, amount.String())
				}
			}
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
	w.Until(func() string {
		for _, e := range w.Events(uid) {
			if e.Reason == reason && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Note, word) }) {
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

// Gone fails the test if the object exists once the world has settled.
func (w *World) Gone(object client.Object) {
	w.Helper()
	w.Settle()
	if wrong := w.isGone(object); wrong != "" {
		w.Fatal(wrong)
	}
}

// isGone expects an object not to exist.
func (w *World) isGone(object client.Object) string {
	err := w.Client.Get(w.ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return ""
	}
	return fmt.Sprintf("%T %s is still there: %v", object, object.GetName(), err)
}
