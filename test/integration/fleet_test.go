// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// sizing is the label by which the policies of a test select the test's own namespaces.
const sizing = "sizing"

// fleetOperator starts an operator of all namespaces. It collects no usage.
func fleetOperator(t *testing.T) *testkit.Operator {
	t.Helper()
	return env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage())
}

// fleetNamespace creates a namespace that a policy with the value selects.
func fleetNamespace(t *testing.T, value string) string {
	t.Helper()
	name := env.Namespace(t)
	patchObject(t, &corev1.Namespace{}, types.NamespacedName{Name: name}, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, sizing, value))
	return name
}

// clusterPolicy is a policy for the namespaces with that value, without graduated trust unless changed.
func clusterPolicy(name, value string, changes ...func(*v1beta1.ClusterScalingPolicy)) *v1beta1.ClusterScalingPolicy {
	p := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NamespaceSelector.MatchLabels = map[string]string{sizing: value}
	for _, change := range changes {
		change(p)
	}
	return p
}

func policyOf(namespace, name string) *v1beta1.ScalingPolicy {
	p := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.Rollout.Start = v1beta1.UpdateModeRecommend // A spec is required.
	return p
}

// scalersOf describes the scalers of a namespace: "web by fleet Recommend".
func scalersOf(t *testing.T, namespace string) string {
	t.Helper()
	var list v1beta1.VerticalScalerList
	must.Succeed(t, env.Client.List(t.Context(), &list, client.InNamespace(namespace)))
	out := map[string]string{}
	for _, s := range list.Items {
		by := "a user"
		if fleet.IsGenerated(&s) {
			by = s.Labels[v1beta1.PolicyLabel]
		}
		out[s.Name] = fmt.Sprintf("%s by %s %s", s.Name, by, s.Spec.UpdatePolicy.UpdateMode)
	}
	lines := slices.Sorted(maps.Values(out))
	return strings.Join(lines, ", ")
}

// hasScalers waits until the namespace has exactly these scalers, and logs how long that took.
func hasScalers(t *testing.T, what, namespace, want string) {
	t.Helper()
	start := time.Now()
	testkit.Eventually(t, soon, func() string {
		if got := scalersOf(t, namespace); got != want {
			return fmt.Sprintf("after %s, namespace %s has %q, want %q", what, namespace, got, want)
		}
		return ""
	})
	t.Logf("%6d ms  %s", time.Since(start).Milliseconds(), what)
}

// A policy follows what users do to Deployments, namespaces, scalers and itself.
func TestFleetFollowsWhatUsersDo(t *testing.T) {
	value := strings.ToLower(env.Namespace(t))
	namespace := fleetNamespace(t, value)
	env.Create(t, testkit.Deployment(namespace, "web"))
	fleetOperator(t)
	policy := clusterPolicy(value, value, func(p *v1beta1.ClusterScalingPolicy) {
		p.Spec.Exclude = &v1beta1.ClusterExclusions{DeploymentExclusions: v1beta1.DeploymentExclusions{Deployments: []string{"legacy"}}}
	})
	env.Create(t, policy)
	hasScalers(t, "creating the policy", namespace, "web by "+value+" Recommend")

	env.Create(t, testkit.Deployment(namespace, "api"), testkit.Deployment(namespace, "legacy"))
	hasScalers(t, "creating a Deployment", namespace, "api by "+value+" Recommend, web by "+value+" Recommend")

	web := types.NamespacedName{Namespace: namespace, Name: "web"}
	patchObject(t, &v1beta1.VerticalScaler{}, web, `{"spec":{"suspend":true,"updatePolicy":{"updateMode":"InPlace"}}}`)
	hasScalers(t, "editing a scaler", namespace, "api by "+value+" Recommend, web by "+value+" Recommend")
	patchObject(t, &v1beta1.VerticalScaler{}, web, `{"spec":{"deploymentName":"api"}}`)
	testkit.Eventually(t, soon, func() string {
		var s v1beta1.VerticalScaler
		if err := env.Client.Get(t.Context(), web, &s); err != nil || s.Spec.DeploymentName != "web" || s.Spec.Suspend {
			return fmt.Sprintf("scaler web names %q, suspend %t: %v", s.Spec.DeploymentName, s.Spec.Suspend, err)
		}
		return ""
	})

	patchObject(t, testkit.Deployment("", ""), web, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/exclude":"team says no"}}}`)
	hasScalers(t, "excluding a Deployment", namespace, "api by "+value+" Recommend")
	patchObject(t, testkit.Deployment("", ""), web, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/exclude":"false"}}}`)
	hasScalers(t, "including it", namespace, "api by "+value+" Recommend, web by "+value+" Recommend")

	patchObject(t, &corev1.Namespace{}, types.NamespacedName{Name: namespace}, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/exclude":""}}}`)
	hasScalers(t, "excluding the namespace", namespace, "")
	patchObject(t, &corev1.Namespace{}, types.NamespacedName{Name: namespace}, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/exclude":null}}}`)
	hasScalers(t, "including the namespace", namespace, "api by "+value+" Recommend, web by "+value+" Recommend")

	patchObject(t, &v1beta1.VerticalScaler{}, web, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/detached":"true"}}}`)
	hasScalers(t, "detaching a scaler", namespace, "api by "+value+" Recommend, web by a user Recommend")

	patchObject(t, &v1beta1.ClusterScalingPolicy{}, types.NamespacedName{Name: value}, `{"spec":{"rollout":{"start":"InPlace"}}}`)
	hasScalers(t, "editing the policy", namespace, "api by "+value+" InPlace, web by a user Recommend")

	env.Create(t, testkit.Scaler(namespace, "mine", "api"))
	hasScalers(t, "creating a scaler by hand", namespace, "mine by a user InPlace, web by a user Recommend")
	remove(t, testkit.Scaler(namespace, "mine", "api"))
	hasScalers(t, "deleting it", namespace, "api by "+value+" InPlace, web by a user Recommend")

	local := policyOf(namespace, "local")
	env.Create(t, local)
	hasScalers(t, "creating a ScalingPolicy", namespace, "api by local Recommend, legacy by local Recommend, web by a user Recommend")
	remove(t, local)
	hasScalers(t, "deleting it", namespace, "api by "+value+" InPlace, web by a user Recommend")

	remove(t, testkit.Deployment(namespace, "api"))
	hasScalers(t, "deleting a Deployment", namespace, "web by a user Recommend")
	env.Create(t, testkit.Deployment(namespace, "api"))
	hasScalers(t, "creating it again", namespace, "api by "+value+" InPlace, web by a user Recommend")

	remove(t, policy)
	hasScalers(t, "deleting the policy", namespace, "web by a user Recommend")
}

// patchObject sends a JSON merge patch as the administrator.
func patchObject(t *testing.T, object client.Object, key types.NamespacedName, patch string) {
	t.Helper()
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	must.Succeed(t, env.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}
