// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration && fleet

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const (
	fleetNamespaces = 50
	// settling is longer than a policy's states wait to be written.
	settling = 12 * time.Second
	// quiet is how long a settled fleet is watched for writes.
	quiet = time.Minute
	// onboarding may take this long on a busy machine.
	onboarding = 5 * time.Minute
)

// One apply on-boards 5,000 Deployments in 50 namespaces. Once that has settled, nothing is written. Deleting the policy
// deletes its scalers, and touches no Deployment.
func TestFleetOfFiveThousand(t *testing.T) {
	value := strings.ToLower(env.Namespace(t))
	namespaces := make([]string, fleetNamespaces)
	for i := range namespaces {
		namespaces[i] = fleetNamespace(t, value)
	}
	const size = 5000
	// Every fiftieth Deployment is excluded, and each namespace has a Deployment that a user sizes.
	excluded := func(i int) bool { return i%50 == 7 }
	testkit.InParallel(t, size, func(i int) error {
		d := testkit.Deployment(namespaces[i%fleetNamespaces], fmt.Sprintf("web-%d", i/fleetNamespaces))
		if excluded(i / fleetNamespaces) {
			d.Annotations = map[string]string{v1beta1.ExcludeAnnotation: "true"}
		}
		return env.Client.Create(t.Context(), d)
	})
	t.Cleanup(func() { removeAll(t, namespaces) })
	wanted := 0
	for i := range size {
		if !excluded(i / fleetNamespaces) {
			wanted++
		}
	}
	for _, namespace := range namespaces {
		env.Create(t, testkit.Scaler(namespace, "by-hand", "web-0"))
		wanted--
	}
	operator := fleetOperator(t)
	mark := env.Mark()
	policy := clusterPolicy(value, value)

	start := time.Now()
	env.Create(t, policy)
	testkit.Eventually(t, onboarding, func() string { return isOnboarded(t, policy.Name, wanted) })
	took := time.Since(start)
	sent := len(env.Writes(t, mark, operator.Agent))
	t.Logf("%d Deployments in %d namespaces are on-boarded after %.1f s; %d writes", wanted, fleetNamespaces, took.Seconds(), sent)

	// Each scaler has been reconciled, and the last status of the policy is written.
	testkit.Eventually(t, onboarding, func() string {
		mark = env.Mark()
		<-time.After(settling)
		if n := len(env.Writes(t, mark, operator.Agent)); n > 0 {
			return fmt.Sprintf("%d writes in %s", n, settling)
		}
		return ""
	})
	mark = env.Mark()
	<-time.After(quiet)
	writes := env.Writes(t, mark, operator.Agent)
	if len(writes) > 0 {
		t.Errorf("%d writes in a minute in which nothing changes, such as %v", len(writes), writes[:min(len(writes), 3)])
	}
	t.Logf("settled: %d writes in %s", len(writes), quiet)

	// A change of one Deployment costs what that Deployment costs.
	start = time.Now()
	env.Create(t, testkit.Deployment(namespaces[0], "late"))
	testkit.Eventually(t, soon, func() string {
		return testkit.MessageOf(env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespaces[0], Name: "late"}, &v1beta1.VerticalScaler{}))
	})
	t.Logf("a new Deployment has its scaler after %d ms", time.Since(start).Milliseconds())
	expectSmallStatus(t, policy.Name)

	start = time.Now()
	patchObject(t, &v1beta1.ClusterScalingPolicy{}, types.NamespacedName{Name: policy.Name}, `{"spec":{"template":{"updatePolicy":{"tolerancePercent":20}}}}`)
	testkit.Eventually(t, onboarding, func() string { return isCarriedOut(t, policy.Name) })
	t.Logf("an edit of the policy has reached all scalers after %.1f s", time.Since(start).Seconds())
	expectTolerance(t, policy.Name, wanted+1, 20)

	mark, start = env.Mark(), time.Now()
	remove(t, policy)
	testkit.Eventually(t, onboarding, func() string { return isGone(t, policy.Name) })
	t.Logf("deleting the policy has deleted all its scalers after %.1f s", time.Since(start).Seconds())
	if writes := writesOf(t, mark, operator.Agent, "deployments", "pods", "pods/resize", "replicasets"); len(writes) > 0 {
		t.Errorf("deleting the policy has changed workloads: %v", writes[:min(len(writes), 3)])
	}
}

// isOnboarded says what is missing until the policy has that many scalers, and its status says so.
func isOnboarded(t *testing.T, policy string, wanted int) string {
	t.Helper()
	var p v1beta1.ClusterScalingPolicy
	if err := env.Client.Get(t.Context(), types.NamespacedName{Name: policy}, &p); err != nil {
		return err.Error()
	}
	if int(p.Status.Scaled) != wanted {
		return fmt.Sprintf("%d of %d Deployments have a scaler: %+v", p.Status.Scaled, wanted, p.Status)
	}
	return ""
}

// isCarriedOut says what is missing until the policy has nothing more to change.
func isCarriedOut(t *testing.T, policy string) string {
	t.Helper()
	var p v1beta1.ClusterScalingPolicy
	if err := env.Client.Get(t.Context(), types.NamespacedName{Name: policy}, &p); err != nil {
		return err.Error()
	}
	if p.Status.ObservedGeneration != p.Generation || !meta.IsStatusConditionFalse(p.Status.Conditions, v1beta1.ConditionReconciling) {
		return fmt.Sprintf("generation %d: %+v", p.Generation, p.Status.Conditions)
	}
	return ""
}

// expectTolerance fails unless the policy has that many scalers, all with that tolerance.
func expectTolerance(t *testing.T, policy string, scalers int, percent int32) {
	t.Helper()
	var list v1beta1.VerticalScalerList
	must.Succeed(t, env.Client.List(t.Context(), &list, client.MatchingLabels{v1beta1.PolicyLabel: policy}))
	if len(list.Items) != scalers {
		t.Errorf("the policy has %d scalers, want %d", len(list.Items), scalers)
	}
	for i := range list.Items {
		if s := &list.Items[i]; *s.Spec.UpdatePolicy.TolerancePercent != percent {
			t.Errorf("scaler %s/%s has a tolerance of %d %%, want %d", s.Namespace, s.Name, *s.Spec.UpdatePolicy.TolerancePercent, percent)
		}
	}
}

// isGone says what is missing until the policy has no scalers.
func isGone(t *testing.T, policy string) string {
	t.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("VerticalScalerList"))
	must.Succeed(t, env.Client.List(t.Context(), list, client.MatchingLabels{v1beta1.PolicyLabel: policy}, client.Limit(1)))
	if len(list.Items) > 0 {
		return fmt.Sprintf("there is still scaler %s/%s", list.Items[0].Namespace, list.Items[0].Name)
	}
	return ""
}

// expectSmallStatus fails if the status of a policy grows with its fleet.
func expectSmallStatus(t *testing.T, policy string) {
	t.Helper()
	var p v1beta1.ClusterScalingPolicy
	must.Succeed(t, env.Client.Get(t.Context(), types.NamespacedName{Name: policy}, &p))
	p.ManagedFields = nil
	if text := fmt.Sprintf("%+v", p.Status); len(text) > 8000 {
		t.Errorf("the status has %d characters: %s", len(text), text)
	}
	t.Logf("status: %+v", p.Status)
}

// removeAll deletes what the test has left: the API server is shared, and nothing deletes the objects of namespaces.
func removeAll(t *testing.T, namespaces []string) {
	t.Helper()
	for _, namespace := range namespaces {
		for _, kind := range []client.Object{&appsv1.Deployment{}, &v1beta1.VerticalScaler{}} {
			if err := env.Client.DeleteAllOf(context.Background(), kind, client.InNamespace(namespace)); err != nil {
				t.Error(err)
			}
		}
	}
}
