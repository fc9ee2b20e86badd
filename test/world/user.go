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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Key is the key of an object in the namespace.
func (w *World) Key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: name}
}

// Create creates objects as a user.
func (w *World) Create(objects ...client.Object) {
	w.Helper()
	for _, object := range objects {
		if err := w.Client.Create(w.ctx, object, client.FieldOwner("user")); err != nil {
			w.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// Remove deletes an object as kubectl does.
func (w *World) Remove(object client.Object) {
	w.Helper()
	must.Succeed(w, w.Client.Delete(w.ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// Patch sends a merge patch, as kubectl patch does.
func (w *World) Patch(object client.Object, format string, args ...any) {
	w.Helper()
	must.Succeed(w, w.Client.Patch(w.ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...)), client.FieldOwner("user")))
}

// read reads an object of the namespace.
func read[T client.Object](w *World, name string, into T) T {
	w.Helper()
	must.Succeed(w, w.Client.Get(w.ctx, w.Key(name), into))
	return into
}

// Deployment reads a Deployment.
func (w *World) Deployment(name string) *appsv1.Deployment {
	w.Helper()
	return read(w, name, &appsv1.Deployment{})
}

// Change updates a Deployment as a user who replaces it as a whole.
func (w *World) Change(name, manager string, change func(*appsv1.Deployment)) {
	w.Helper()
	d := w.Deployment(name)
	change(d)
	must.Succeed(w, w.Client.Update(w.ctx, d, client.FieldOwner(manager)))
}

// Pods are the pods of an app that are not being deleted, by name.
func (w *World) Pods(app string, options ...client.ListOption) []corev1.Pod {
	w.Helper()
	var list corev1.PodList
	must.Succeed(w, w.Client.List(w.ctx, &list, append(options, client.InNamespace(w.Namespace), client.MatchingLabels{AppLabel: app})...))
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// Scaler reads a scaler.
func (w *World) Scaler(name string) *v1beta1.VerticalScaler {
	w.Helper()
	return read(w, name, &v1beta1.VerticalScaler{})
}

// Owner reads a ScaledDeployment.
func (w *World) Owner(name string) *v1beta1.ScaledDeployment {
	w.Helper()
	return read(w, name, &v1beta1.ScaledDeployment{})
}

// Condition reads a condition of a scaler; the zero value if there is none.
func (w *World) Condition(name, kind string) metav1.Condition {
	w.Helper()
	return ptr.Deref(meta.FindStatusCondition(w.Scaler(name).Status.Conditions, kind), metav1.Condition{})
}

// podsInOrder are the pods of an app that are not being deleted, by their ordinals. They must not be modified.
func (w *World) podsInOrder(app string) []corev1.Pod {
	w.Helper()
	pods := w.Pods(app, client.UnsafeDisableDeepCopy)
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return w.Kubelet.Ordinal(&a) - w.Kubelet.Ordinal(&b) })
	return pods
}
