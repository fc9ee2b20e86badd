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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
)

// The functions in this file describe how the world differs from what is expected, and
// answer "" if it does not.

// firstOf is the first text that is not empty.
func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// isApplied expects a scaler to say that the pods have the size and that their usage is
// known, and the pods to have the size. The operator takes ten rounds to trust usage again. If its
// decision was lost and all pods agree, it says that they have about what is recommended.
func (w *World) isApplied(scaler, deployment string, s size) string {
	applied := w.says(scaler, v1beta1.ConditionApplied, metav1.ConditionTrue, v1beta1.ReasonApplied)
	if applied != "" && w.hasDecision(scaler) != "" && w.says(scaler, v1beta1.ConditionApplied, metav1.ConditionTrue, v1beta1.ReasonWithinTolerance) == "" {
		applied = ""
	}
	return firstOf(
		applied,
		w.podsHave(deployment, s),
		w.says(scaler, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory),
	)
}

// existing is a scaler; the zero value if it does not exist.
func (w *World) existing(name string) (s v1beta1.VerticalScaler) {
	w.Helper()
	if err := w.Client.Get(w.ctx, w.Key(name), &s, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return s
}

// says expects a condition of a scaler, about its latest generation.
func (w *World) says(scaler, kind string, status metav1.ConditionStatus, reason string) string {
	s := w.existing(scaler)
	c := ptr.Deref(meta.FindStatusCondition(s.Status.Conditions, kind), metav1.Condition{})
	if c.Status != status || c.Reason != reason || c.ObservedGeneration != s.Generation {
		return fmt.Sprintf("scaler %s: %s of generation %d of %d is %s, %s: %s", scaler, kind, c.ObservedGeneration, s.Generation, c.Status, c.Reason, c.Message)
	}
	return ""
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

// isTold expects the API server to be told the sizes of new pods that the scalers have in their status, and no others.
func (w *World) isTold() string {
	var scalers v1beta1.VerticalScalerList
	var told v1beta1.NewPodSizesList
	here := client.InNamespace(w.Namespace)
	if err := errors.Join(w.Client.List(w.ctx, &scalers, here), w.Client.List(w.ctx, &told, here)); err != nil {
		return err.Error()
	}
	var want, got []string
	for _, s := range scalers.Items {
		if n := s.Status.NewPods; n != nil && len(n.Containers) > 0 {
			want = append(want, admission.LineOf(&s, *n))
		}
	}
	for _, object := range told.Items {
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
	got, want := sizesOf(w.Deployment(deployment).Spec.Template.Spec.Containers, true), sizesOf(template(nil, s).Spec.Containers, true)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("the template of %s has %q", deployment, got)
	}
	return ""
}

// podsHave expects a Deployment to be complete, and its pods to have a size applied.
func (w *World) podsHave(deployment string, s size) string {
	return firstOf(w.IsRunning(deployment), w.podsAre(deployment, func(pod podSizes) string {
		return firstOf(pod.asks(s), pod.isActuated())
	}))
}

// podsAre expects something of each pod of a Deployment, and a number of them if it is
// given.
func (w *World) podsAre(deployment string, expect func(podSizes) string, number ...int) string {
	pods := w.podsInOrder(deployment)
	if len(number) > 0 && len(pods) != number[0] {
		return fmt.Sprintf("there are %d pods of %s", len(pods), deployment)
	}
	for i := range pods {
		if wrong := expect(podSizes{&pods[i]}); wrong != "" {
			return fmt.Sprintf("pod %s %s", pods[i].Name, wrong)
		}
	}
	return ""
}

// podSizes is a pod whose size is looked at.
type podSizes struct{ pod *corev1.Pod }

// asks expects the pod's spec to have a size.
func (p podSizes) asks(s size) string {
	return p.compare(sizesOf(template(nil, s).Spec.Containers, true), true)
}

// requests expects the pod's spec to have the requests of a size, whatever its limits.
func (p podSizes) requests(s size) string {
	return p.compare(sizesOf(template(nil, s).Spec.Containers, false), false)
}

func (p podSizes) compare(want []string, limits bool) string {
	if got := sizesOf(p.pod.Spec.Containers, limits); !slices.Equal(got, want) {
		return fmt.Sprintf("has %q, not %q", got, want)
	}
	return ""
}

// isActuated expects the kubelet to have applied what the spec asks for.
func (p podSizes) isActuated() string {
	if IsResized(p.pod) {
		return "waits for its kubelet"
	}
	return ""
}

// sizesOf are the resources of containers, in order.
func sizesOf(containers []corev1.Container, limits bool) (lines []string) {
	for _, c := range containers {
		r := c.Resources
		if !limits {
			r.Limits = nil
		}
		lines = append(lines, c.Name+" "+resourceLine(r))
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

// isGone describes an object that still exists; "" if it does not.
func (w *World) isGone(object client.Object) string {
	err := w.Client.Get(w.ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%T %s is still there", object, object.GetName())
}
