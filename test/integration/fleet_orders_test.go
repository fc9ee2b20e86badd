// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// orders are all orders of three things.
var orders = [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// Two policies and a user want to size the same Deployment. In whatever order they come and go, and however late watch
// events are, the user's scaler comes first, then the ScalingPolicy, then the ClusterScalingPolicy.
func TestFleetInEveryOrder(t *testing.T) {
	value := strings.ToLower(env.Namespace(t))
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage())
	for i := range orders {
		// Both lists have each order once.
		comes, goes := orders[i], orders[(i+3)%len(orders)]
		namespace, cluster := fleetNamespace(t, fmt.Sprintf("%s-%d", value, i)), fmt.Sprintf("%s-%d", value, i)
		t.Cleanup(func() { deleteObjectAfter(t, clusterPolicy(cluster, cluster)) })
		create(t, testkit.Deployment(namespace, "web"))
		objects := []client.Object{clusterPolicy(cluster, cluster), policyOf(namespace, "local"), testkit.Scaler(namespace, "mine", "web")}
		names := []string{"the ClusterScalingPolicy", "the ScalingPolicy", "the user's scaler"}
		t.Run(fmt.Sprintf("%v, then %v", comes, goes), func(t *testing.T) {
			t.Parallel() // Each order has its own namespace, and mostly waits.
			var there [3]bool
			expect := func(what string) {
				t.Helper()
				want := ""
				for kind, name := range []string{"web by " + cluster + " Recommend", "web by local Recommend", "mine by a user InPlace"} {
					if there[kind] {
						want = name
					}
				}
				hasScalers(t, what, namespace, want)
				isOwned(t, namespace)
			}
			for _, kind := range comes {
				create(t, objects[kind])
				there[kind] = true
				expect("creating " + names[kind])
			}
			for _, kind := range goes {
				deleteObject(t, objects[kind])
				there[kind] = false
				expect("deleting " + names[kind])
			}
		})
	}
}

// isOwned waits until the controller of each scaler of a policy is the policy that the label names, and exists.
func isOwned(t *testing.T, namespace string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		var list v1beta1.VerticalScalerList
		if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			s := &list.Items[i]
			label := s.Labels[v1beta1.PolicyLabel]
			if !fleet.IsGenerated(s) {
				if label != "" {
					return fmt.Sprintf("scaler %s of a user has the label of policy %s", s.Name, label)
				}
				continue
			}
			controller := metav1.GetControllerOf(s)
			var policy client.Object = &v1beta1.ScalingPolicy{}
			key := types.NamespacedName{Namespace: namespace, Name: controller.Name}
			if controller.Kind == v1beta1.ClusterScalingPolicyKind {
				policy, key.Namespace = &v1beta1.ClusterScalingPolicy{}, ""
			}
			if err := env.Client.Get(t.Context(), key, policy); err != nil || policy.GetUID() != controller.UID || label != controller.Name || controller.BlockOwnerDeletion != nil {
				return fmt.Sprintf("scaler %s with label %q is controlled by %+v: %v", s.Name, label, controller, err)
			}
		}
		return ""
	})
}
