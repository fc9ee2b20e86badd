// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		removePolicyAfter(t, cluster)
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

// Each wrong policy is rejected with a message that says what to write instead.
func TestFleetRejectsWrongPolicies(t *testing.T) {
	namespace := env.Namespace(t)
	const all = "namespaceSelector: {matchLabels: {env: live}}"
	const emptyNamespaces = "must not be empty: select namespaces by their labels, or all of them with {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}"
	const emptyDeployments = "must not be empty: select Deployments by their labels, or leave deploymentSelector out to select all"
	for name, tc := range map[string]struct {
		kind, spec string
		want       refusal
	}{
		"the least that a ClusterScalingPolicy needs": {"ClusterScalingPolicy", "{" + all + "}", refusal{}},
		"the least that a ScalingPolicy needs":        {"ScalingPolicy", "{}", refusal{}},
		"a ScalingPolicy without a spec":              {"ScalingPolicy", "null", refusal{"spec", "Required value"}},
		"no namespaceSelector":                        {"ClusterScalingPolicy", "{}", refusal{"spec.namespaceSelector", "Required value"}},
		"an empty namespaceSelector":                  {"ClusterScalingPolicy", "{namespaceSelector: {}}", refusal{"spec.namespaceSelector", emptyNamespaces}},
		"a namespaceSelector with empty parts":        {"ClusterScalingPolicy", "{namespaceSelector: {matchLabels: {}, matchExpressions: []}}", refusal{"spec.namespaceSelector", emptyNamespaces}},
		"an empty deploymentSelector":                 {"ScalingPolicy", "{deploymentSelector: {}}", refusal{"spec.deploymentSelector", emptyDeployments}},
		"an empty deploymentSelector of a cluster":    {"ClusterScalingPolicy", "{" + all + ", deploymentSelector: {matchLabels: {}}}", refusal{"spec.deploymentSelector", emptyDeployments}},
		"an empty selector of exclusions":             {"ScalingPolicy", "{exclude: {deploymentSelector: {}}}", refusal{"spec.exclude.deploymentSelector", "must not be empty: an empty selector would exclude all Deployments"}},
		"an unknown start":                            {"ScalingPolicy", "{rollout: {start: Auto}}", refusal{"spec.rollout.start", `Unsupported value: "Auto": supported values: "Recommend", "Initial", "InPlace", "Rollout"`}},
		"an unknown value of systemNamespaces":        {"ClusterScalingPolicy", "{" + all + ", systemNamespaces: Some}", refusal{"spec.systemNamespaces", `Unsupported value: "Some": supported values: "Exclude", "Include"`}},
		"nobody may be verified":                      {"ScalingPolicy", "{rollout: {maxConcurrentPercent: 0}}", refusal{"spec.rollout.maxConcurrentPercent", "should be greater than or equal to 1"}},
		"a priority that is too high":                 {"ScalingPolicy", "{priority: 1001}", refusal{"spec.priority", "should be less than or equal to 1000"}},
		"an excluded Deployment without a name":       {"ScalingPolicy", `{exclude: {deployments: [""]}}`, refusal{"spec.exclude.deployments[0]", "should be at least 1 chars long"}},
		"a Deployment that is excluded twice":         {"ScalingPolicy", `{exclude: {deployments: [web, web]}}`, refusal{"spec.exclude.deployments[1]", "Duplicate value"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := objectWith(t, tc.kind, namespace, tc.spec)
			if tc.kind == "ClusterScalingPolicy" {
				policy.SetNamespace("")
			}
			err := env.Client.Create(t.Context(), policy, client.DryRunAll)
			switch {
			case tc.want != refusal{}:
				refusedWith(t, err, tc.want)
			case err != nil:
				t.Errorf("refused: %v", err)
			}
		})
	}
	for _, policy := range []client.Object{policyOf(namespace, strings.Repeat("p", 63)), clusterPolicy(strings.Repeat("p", 63), "x")} {
		if err := env.Client.Create(t.Context(), policy, client.DryRunAll); err != nil {
			t.Errorf("a name of 63 characters is refused: %v", err)
		}
		policy.SetName(policy.GetName() + "p")
		policy.SetResourceVersion("")
		refusedWith(t, env.Client.Create(t.Context(), policy, client.DryRunAll), refusal{"<nil>", "metadata.name must have at most 63 characters: it is used as a label value"})
	}
}

// A template that a scaler would refuse is refused with the same message.
func TestFleetRejectsTemplatesAsScalers(t *testing.T) {
	namespace := env.Namespace(t)
	for _, fields := range []string{
		"updatePolicy: {updateMode: Auto}",
		"updatePolicy: {tolerancePercent: 101}",
		"updatePolicy: {cooldownSeconds: -1}",
		"resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 2}, maxAllowed: {cpu: 1}}]}",
		"resourcePolicy: {containerPolicies: [{containerName: App}]}",
		"resourcePolicy: {containerPolicies: [{containerName: app}, {containerName: app}]}",
		"resourcePolicy: {containerPolicies: [{containerName: app, minAllowed: {cpu: 100u}}]}",
		"suspend: maybe",
	} {
		t.Run(fields, func(t *testing.T) {
			causes := func(err error, prefix string) (out []string) {
				t.Helper()
				var status apierrors.APIStatus
				if err == nil || !errors.As(err, &status) || status.Status().Details == nil {
					t.Fatalf("not refused: %v", err)
				}
				for _, cause := range status.Status().Details.Causes {
					out = append(out, strings.ReplaceAll(cause.Field+": "+cause.Message, prefix, ""))
				}
				return out
			}
			want := causes(env.Client.Create(t.Context(), scalerWith(t, namespace, "{deploymentName: web, "+fields+"}"), client.DryRunAll), "spec.")
			if len(want) == 0 {
				t.Fatal("a scaler is refused without a cause")
			}
			for _, policy := range []client.Object{
				objectWith(t, "ScalingPolicy", namespace, "{template: {"+fields+"}}"),
				objectWith(t, "ClusterScalingPolicy", "", "{namespaceSelector: {matchLabels: {a: b}}, template: {"+fields+"}}"),
			} {
				if got := causes(env.Client.Create(t.Context(), policy, client.DryRunAll), "spec.template."); !slices.Equal(got, want) {
					t.Errorf("a policy is refused with %q, a scaler with %q", got, want)
				}
			}
		})
	}
}
