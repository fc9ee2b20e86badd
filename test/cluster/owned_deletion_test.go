// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// These tests delete a ScaledDeployment with its owned objects. The garbage collector
// deletes all of them. A scaler in mode Rollout has a finalizer of the operator.

// bothModes runs a test in parallel for a scaler without and one with a finalizer.
func bothModes(t *testing.T, f func(w *fixture, name string)) {
	t.Helper()
	w := newFixture(t)
	env.AwaitGarbageCollector(t, soon, testkit.Scaler("", "", "probe"))
	for _, mode := range []v1beta1.UpdateMode{"InPlace", "Rollout"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w, name := w.in(t), strings.ToLower(string(mode))
			w.uses(name, "app", 300, 240)
			w.Own(name, world.Scaled(mode))
			w.Sized(name)
			if n := len(w.Scaler(name).Finalizers); (n == 1) != (mode == "Rollout") {
				t.Fatalf("the scaler has %d finalizers", n)
			}
			f(w, name)
		})
	}
}

func (w *fixture) removeOwner(name string, how metav1.DeletionPropagation) {
	w.Helper()
	must.Succeed(w, env.Client.Delete(w.Context(), w.NewOwner(name), client.PropagationPolicy(how)))
}

// allGone waits until no owned object is left, and fails if one is recreated.
func (w *fixture) allGone(name string) {
	w.Helper()
	w.gone(w.NewOwner(name))
	w.gone(testkit.Scaler(w.Namespace, name, ""))
	w.gone(testkit.Deployment(w.Namespace, name))
	w.eventually(func() string {
		if pods := w.Pods(name); len(pods) > 0 {
			return fmt.Sprintf("%d pods are still there", len(pods))
		}
		return ""
	})
}

func TestForegroundDeletionRemovesOwnedObjectsFirst(t *testing.T) {
	t.Parallel()
	bothModes(t, func(w *fixture, name string) {
		w.removeOwner(name, metav1.DeletePropagationForeground)
		w.gone(w.NewOwner(name))
		for _, owned := range []client.Object{testkit.Deployment(w.Namespace, name), testkit.Scaler(w.Namespace, name, "")} {
			if err := env.Client.Get(w.Context(), w.Key(name), owned); !apierrors.IsNotFound(err) {
				w.Errorf("the owner was deleted before its %T: %v", owned, err)
			}
		}
		w.allGone(name)
	})
}

func TestOrphansStay(t *testing.T) {
	t.Parallel()
	bothModes(t, func(w *fixture, name string) {
		d, s, pods := w.Deployment(name), w.Scaler(name), w.Pods(name)
		before := w.Sized(name)
		w.removeOwner(name, metav1.DeletePropagationOrphan)
		w.gone(w.NewOwner(name))
		if now := w.Deployment(name); now.UID != d.UID || now.DeletionTimestamp != nil || len(now.OwnerReferences) > 0 {
			w.Errorf("the Deployment is %+v", now.ObjectMeta)
		}
		if now := w.Scaler(name); now.UID != s.UID || now.DeletionTimestamp != nil || len(now.OwnerReferences) > 0 {
			w.Errorf("the scaler is %+v", now.ObjectMeta)
		}
		if len(w.Pods(name)) != len(pods) {
			w.Errorf("%d pods are left of %d", len(w.Pods(name)), len(pods))
		}
		// The scaler continues to work.
		w.uses(name, "app", 600, 500)
		w.eventually(func() string {
			if now := w.Sized(name); now.Cpu().Cmp(*before.Cpu()) <= 0 {
				return "cpu is still " + now.Cpu().String()
			}
			return ""
		})
		// A new owner does not adopt the orphans of another owner.
		w.Add(w.NewOwner(name))
		w.OwnerReports(name, "Stalled", "True", "NotControlled", "has no controller")
	})
}

// A ScaledDeployment can be deleted without the operator.
func TestAnOwnerIsDeletedWithoutTheOperator(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Own("plain")
	w.Own("inplace", world.Scaled("InPlace"))
	w.uses("rollout", "app", 300, 240)
	w.Own("rollout", world.Scaled("Rollout"))
	w.Sized("rollout")
	w.operator.Stop(t)
	w.removeOwner("plain", metav1.DeletePropagationForeground)
	w.removeOwner("inplace", metav1.DeletePropagationForeground)
	w.removeOwner("rollout", metav1.DeletePropagationForeground)
	w.allGone("plain")
	w.allGone("inplace")
	w.gone(testkit.Deployment(w.Namespace, "rollout"))
	if s := w.Scaler("rollout"); s.DeletionTimestamp == nil || len(s.Finalizers) == 0 {
		t.Errorf("the scaler does not wait: %+v", s.ObjectMeta)
	}
	w.start()
	w.allGone("rollout")
	var list appsv1.DeploymentList
	if err := env.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("Deployments: %v, %v", len(list.Items), err)
	}
}
