// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// These tests have no resync: an event that only a resync would make up for counts as lost.

const soon = 30 * time.Second

// many is the number of scalers of the tests about lost events.
func many() int {
	if testing.Short() {
		return 200
	}
	return 1000
}

// TestNoEventIsLostInAnyOrder walks all orders of such events without an API server.
func TestADeploymentFindsItsScaler(t *testing.T) {
	namespace := env.Namespace(t)
	start := func() *testkit.Operator {
		return env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace)
	}
	operator := start()
	env.Create(t, testkit.Scaler(namespace, "a", "web"))
	sees(t, namespace, "a", absent)
	env.Create(t, testkit.Deployment(namespace, "web"))
	sees(t, namespace, "a", present)
	operator.Stop(t)
	change(t, namespace, "web", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(2)) })
	env.Create(t, testkit.Scaler(namespace, "api", "api"), testkit.Deployment(namespace, "api"))
	start()
	sees(t, namespace, "a", present)
	sees(t, namespace, "api", present)
	remove(t, testkit.Deployment(namespace, "api"))
	sees(t, namespace, "api", absent)

	env.Create(t, testkit.Scaler(namespace, "b", "web")) // in the same second or later: second by name or age
	standsBack(t, namespace, "b", true)
	remove(t, testkit.Scaler(namespace, "a", "web"))
	standsBack(t, namespace, "b", false)
	change(t, namespace, "web", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(3)) })
	sees(t, namespace, "b", present)
}

// Each Deployment is changed within two write round trips of its scaler's creation, while
// its claim is being written.
func TestNoEarlyChangeIsLost(t *testing.T) {
	namespace := env.Namespace(t)
	testkit.InParallel(t, many(), func(i int) error {
		return env.Client.Create(t.Context(), testkit.Deployment(namespace, nameOf(i)))
	})
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage())
	testkit.InParallel(t, many(), func(i int) error {
		if err := env.Client.Create(t.Context(), testkit.Scaler(namespace, nameOf(i), nameOf(i))); err != nil {
			return err
		}
		// Odd Deployments are changed at once, even ones a round trip later.
		if i%2 == 0 {
			if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: nameOf(i)}, &appsv1.Deployment{}); err != nil {
				return err
			}
		}
		return scaleTo(t.Context(), namespace, nameOf(i), 2)
	})
	allSeen(t, namespace)
}

func nameOf(i int) string { return fmt.Sprintf("d-%04d", i) }

// allSeen waits until every scaler's status is based on the latest generation of its
// Deployment, and claims it.
func allSeen(t *testing.T, namespace string) {
	t.Helper()
	testkit.Eventually(t, 2*time.Minute, func() string {
		var deployments appsv1.DeploymentList
		var scalers v1beta1.VerticalScalerList
		for _, list := range []client.ObjectList{&deployments, &scalers} {
			if err := env.Client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
				return err.Error()
			}
		}
		generations := map[string]int64{}
		for _, d := range deployments.Items {
			generations[d.Name] = d.Generation
		}
		stale, unclaimed := 0, 0
		for _, s := range scalers.Items {
			if s.Status.Target == nil || s.Status.Target.Generation != generations[s.Spec.DeploymentName] {
				stale++
			}
			if s.Status.Annotations[v1beta1.ClaimAnnotation] != namespace+"/"+s.Spec.DeploymentName {
				unclaimed++
			}
		}
		if stale+unclaimed > 0 || len(scalers.Items) != many() {
			return fmt.Sprintf("of %d scalers %d have not seen the latest change, %d have no claim", len(scalers.Items), stale, unclaimed)
		}
		return ""
	})
}

func remove(t *testing.T, obj client.Object) {
	t.Helper()
	must.Succeed(t, client.IgnoreNotFound(env.Client.Delete(t.Context(), obj)))
}

func change(t *testing.T, namespace, name string, f func(*appsv1.Deployment)) {
	t.Helper()
	var d appsv1.Deployment
	must.Succeed(t, env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &d))
	f(&d)
	must.Succeed(t, env.Client.Update(t.Context(), &d))
}

func scaleTo(ctx context.Context, namespace, name string, replicas int) error {
	d := testkit.Deployment(namespace, name)
	return env.Client.Patch(ctx, d, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)))
}

func scaler(t *testing.T, namespace, name string) *v1beta1.VerticalScaler {
	t.Helper()
	var s v1beta1.VerticalScaler
	must.Succeed(t, env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &s))
	return &s
}

// writeStatus writes a status as a restore or a forgery would, and retries on conflicts
// with the operator.
func writeStatus(t *testing.T, namespace, name string, f func(*v1beta1.VerticalScalerStatus)) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		s := scaler(t, namespace, name)
		f(&s.Status)
		return testkit.MessageOf(env.Client.Status().Update(t.Context(), s))
	})
}

const (
	present = true
	absent  = false
)

// sees waits until the scaler's status is based on the latest generation of its Deployment,
// or reports its absence, and claims it.
func sees(t *testing.T, namespace, name string, there bool) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		s := scaler(t, namespace, name)
		if got, want := s.Status.Annotations[v1beta1.ClaimAnnotation], namespace+"/"+s.Spec.DeploymentName; got != want {
			return fmt.Sprintf("scaler %s claims %q, not %q", name, got, want)
		}
		var d appsv1.Deployment
		err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: s.Spec.DeploymentName}, &d)
		found := meta.IsStatusConditionTrue(s.Status.Conditions, "TargetFound")
		switch {
		case there && err != nil:
			return err.Error()
		case there && (s.Status.Target == nil || s.Status.Target.UID != d.UID || s.Status.Target.Generation != d.Generation || !found):
			return fmt.Sprintf("scaler %s has seen %+v, found %v; the Deployment is at generation %d", name, s.Status.Target, found, d.Generation)
		case !there && (s.Status.Target != nil || found || meta.FindStatusCondition(s.Status.Conditions, "TargetFound") == nil):
			return fmt.Sprintf("scaler %s still tells of %+v", name, s.Status.Target)
		}
		return ""
	})
}

func standsBack(t *testing.T, namespace, name string, want bool) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		c := meta.FindStatusCondition(scaler(t, namespace, name).Status.Conditions, "Stalled")
		if c == nil || (c.Status == metav1.ConditionTrue && c.Reason == "Conflict") != want {
			return fmt.Sprintf("scaler %s: %+v", name, c)
		}
		return ""
	})
}
