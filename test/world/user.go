// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// User acts in a namespace, as people and their tools do, and sees what happens there.
type User struct {
	testing.TB
	Surroundings

	// Namespace is where everything happens.
	Namespace string
	// Client is an administrator's.
	Client client.WithWatch

	ctx context.Context //nolint:containedctx // it ends with the test
}

// Surroundings are what a scenario scripts, beside what its users do.
type Surroundings interface {
	// Script sets the answers of the kubelet to the resizes of a pod.
	Script(app string, ordinal int, answers ...Answer)
	// Ordinal is the pod's place among the pods of its app.
	Ordinal(pod *corev1.Pod) int
	// Kill lets a container run out of memory.
	Kill(pod *corev1.Pod, container string)
	// Silence says of which pods there is no usage, from now on.
	Silence(of Silence)
	// Await lets time pass until f describes nothing that lacks.
	Await(what string, f func() string)
	// AwaitUsage lets rounds of usage pass.
	AwaitUsage(rounds int)
}

// Silence is of which pods there is no usage.
type Silence int

const (
	// Gaps is the last pod of each Deployment, in the second and in the fifth round.
	Gaps Silence = iota
	// NoPod is none. A scenario in which requests fall needs it: the operator lowers nothing until a silent pod has had
	// usage for ten rounds in a row, unless the pod has just started.
	NoPod
	// LastPod is the last pod of each Deployment, in all rounds.
	LastPod
)

// Covers reports whether a round has no usage of a pod. Rounds are counted from 0.
func (s Silence) Covers(ordinal, round int) bool {
	return ordinal%replicas == replicas-1 && (s == LastPod || s == Gaps && (round == 1 || round == 4))
}

// NewUser returns a user of a namespace that is no World.
func NewUser(ctx context.Context, t testing.TB, api client.WithWatch, namespace string, around Surroundings) *User {
	t.Helper()
	return &User{TB: t, Surroundings: around, Namespace: namespace, Client: api, ctx: ctx}
}

// Key is the key of an object in the namespace.
func (u *User) Key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: u.Namespace, Name: name}
}

// Create creates objects as a user.
func (u *User) Create(objects ...client.Object) {
	u.Helper()
	for _, object := range objects {
		if err := u.Client.Create(u.ctx, object, client.FieldOwner("user")); err != nil {
			u.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// Remove deletes an object as kubectl does.
func (u *User) Remove(object client.Object) {
	u.Helper()
	if err := u.Client.Delete(u.ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		u.Fatal(err)
	}
}

// Patch sends a merge patch, as kubectl patch does.
func (u *User) Patch(object client.Object, format string, args ...any) {
	u.Helper()
	if err := u.Client.Patch(u.ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...)), client.FieldOwner("user")); err != nil {
		u.Fatal(err)
	}
}

// Deployment reads a Deployment.
func (u *User) Deployment(name string) *appsv1.Deployment {
	u.Helper()
	var d appsv1.Deployment
	if err := u.Client.Get(u.ctx, u.Key(name), &d); err != nil {
		u.Fatal(err)
	}
	return &d
}

// Change updates a Deployment as a user who replaces it as a whole.
func (u *User) Change(name, manager string, change func(*appsv1.Deployment)) {
	u.Helper()
	d := u.Deployment(name)
	change(d)
	if err := u.Client.Update(u.ctx, d, client.FieldOwner(manager)); err != nil {
		u.Fatal(err)
	}
}

// Pods are the pods of an app that are not being deleted, by name.
func (u *User) Pods(app string) []corev1.Pod {
	u.Helper()
	return u.podsOf(app)
}

func (u *User) podsOf(app string, options ...client.ListOption) []corev1.Pod {
	u.Helper()
	var list corev1.PodList
	if err := u.Client.List(u.ctx, &list, append(options, client.InNamespace(u.Namespace), client.MatchingLabels{AppLabel: app})...); err != nil {
		u.Fatal(err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// Scaler reads a scaler.
func (u *User) Scaler(name string) *v1beta1.VerticalScaler {
	u.Helper()
	var s v1beta1.VerticalScaler
	if err := u.Client.Get(u.ctx, u.Key(name), &s); err != nil {
		u.Fatal(err)
	}
	return &s
}

// Condition reads a condition of a scaler; the zero value if there is none.
func (u *User) Condition(name, kind string) metav1.Condition {
	u.Helper()
	return ptr.Deref(meta.FindStatusCondition(u.Scaler(name).Status.Conditions, kind), metav1.Condition{})
}

// podsInOrder are the pods of an app that are not being deleted, by their ordinals. They must not be modified.
func (u *User) podsInOrder(app string) []corev1.Pod {
	u.Helper()
	pods := u.podsOf(app, client.UnsafeDisableDeepCopy)
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return u.Ordinal(&a) - u.Ordinal(&b) })
	return pods
}
