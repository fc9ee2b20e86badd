// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

// Policies of the same kind: the priority decides, then the age, then the name. An edit of the priority changes the owner at once.
func TestFleetOfPoliciesOfTheSameKind(t *testing.T) {
	namespace := env.Namespace(t)
	create(t, testkit.Deployment(namespace, "web"))
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage())
	create(t, policyOf(namespace, "z-first"))
	hasScalers(t, "creating a policy", namespace, "web by z-first Recommend")
	second := policyOf(namespace, "a-second")
	for { // Creation times are in whole seconds, and within a second the name decides.
		probe := second.DeepCopy()
		if err := env.Client.Create(t.Context(), probe, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if first := createdAt(t, policyOf(namespace, "z-first")); probe.CreationTimestamp.After(first) {
			break
		}
	}
	create(t, second)
	policySays(t, policyOf(namespace, "a-second"), "True NoDeployments|True OperatingNormally", "Skipped OtherPolicy 1: Such as ScalingPolicy "+namespace+"/z-first, which comes first")
	hasScalers(t, "creating a younger one", namespace, "web by z-first Recommend")
	key := types.NamespacedName{Namespace: namespace, Name: "a-second"}
	patchObject(t, &v1beta1.ScalingPolicy{}, key, `{"spec":{"priority":1}}`)
	hasScalers(t, "raising its priority", namespace, "web by a-second Recommend")
	policySays(t, policyOf(namespace, "z-first"), "True OperatingNormally", "Skipped OtherPolicy 1: Such as ScalingPolicy "+namespace+"/a-second, which comes first")
	isOwned(t, namespace)
	patchObject(t, &v1beta1.ScalingPolicy{}, key, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/paused":""}},"spec":{"priority":-1}}`)
	policySays(t, policyOf(namespace, "a-second"), "True Paused", "Skipped OtherPolicy 1")
	hasScalers(t, "lowering it, while that policy is paused", namespace, "web by a-second Recommend")
	patchObject(t, &v1beta1.ScalingPolicy{}, key, `{"metadata":{"annotations":null}}`)
	hasScalers(t, "continuing", namespace, "web by z-first Recommend")
}

// createdAt is when the API server created an object.
func createdAt(t *testing.T, o client.Object) time.Time {
	t.Helper()
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	return o.GetCreationTimestamp().Time
}

// policySays waits until the status of a policy describes its spec, Ready is one of the conditions ("True Paused|…"),
// and the text of what is skipped contains the words.
func policySays(t *testing.T, policy client.Object, ready, skipped string) (message string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
			t.Fatal(err)
		}
		status := statusOfPolicy(policy)
		var text []string
		for _, c := range status.Skipped {
			text = append(text, fmt.Sprintf("Skipped %s %d: %s", c.Reason, c.Count, c.Message))
		}
		c := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
		if c == nil || status.ObservedGeneration != policy.GetGeneration() || !slices.Contains(strings.Split(ready, "|"), string(c.Status)+" "+c.Reason) || !strings.Contains(strings.Join(text, "\n"), skipped) {
			return fmt.Sprintf("policy %s at generation %d says %+v, want %s, %s", policy.GetName(), policy.GetGeneration(), status, ready, skipped)
		}
		message = c.Message
		return ""
	})
	return message
}

// hasSummary waits until the policy has scalers for so many Deployments of so many.
func hasSummary(t *testing.T, policy client.Object, deployments string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
			t.Fatal(err)
		}
		if summary := statusOfPolicy(policy).Summary; summary == nil || summary.Deployments != deployments {
			return fmt.Sprintf("policy %s has the summary %+v, want %s", policy.GetName(), summary, deployments)
		}
		return ""
	})
}

func statusOfPolicy(policy client.Object) v1beta1.ScalingPolicyStatus {
	if p, ok := policy.(*v1beta1.ClusterScalingPolicy); ok {
		return p.Status
	}
	return policy.(*v1beta1.ScalingPolicy).Status
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

// What the schema cannot see, the status tells: a selector that cannot be parsed, and Deployments that are left alone.
func TestFleetSaysWhatIsWrong(t *testing.T) {
	value := strings.ToLower(env.Namespace(t))
	namespace := fleetNamespace(t, value)
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage())
	removePolicyAfter(t, value)
	long := testkit.Deployment(namespace, "web")
	long.Name = strings.Repeat("n", 64) // its labels are shorter
	for _, d := range []client.Object{testkit.Deployment(namespace, "web"), testkit.Deployment(namespace, "api"), long} {
		create(t, d)
	}
	local := policyOf(namespace, "local", func(p *v1beta1.ScalingPolicy) {
		p.Spec.DeploymentSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like", Values: []string{"f*"}}}}
	})
	create(t, local)
	const want = `spec.deploymentSelector: "Like" is not a valid label selector operator. The policy selects nothing, and its scalers stay as they are`
	if got := policySays(t, local, "False InvalidSelector", ""); got != want {
		t.Errorf("Ready says %q", got)
	}
	if c := meta.FindStatusCondition(local.Status.Conditions, v1beta1.ConditionStalled); c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1beta1.ReasonInvalidSelector || c.Message != want {
		t.Errorf("Stalled: %+v", c)
	}
	cluster := clusterPolicy(value, value)
	create(t, cluster)
	hasScalers(t, "creating a ClusterScalingPolicy", namespace, "api by "+value+" Recommend, web by "+value+" Recommend")
	hasSummary(t, cluster, "2/3")
	policySays(t, cluster, "True OperatingNormally", "Skipped NameTooLong 1: ")

	// The selector is repaired, and both policies select the same Deployments.
	patchObject(t, &v1beta1.ScalingPolicy{}, client.ObjectKeyFromObject(local), `{"spec":{"deploymentSelector":null,"exclude":{"deployments":["api"]}}}`)
	hasScalers(t, "repairing the selector", namespace, "api by "+value+" Recommend, web by local Recommend")
	policySays(t, cluster, "True OperatingNormally", "Skipped OtherPolicy 1: Such as ScalingPolicy "+namespace+"/local, which comes first")
	policySays(t, local, "True OperatingNormally", "Skipped Excluded 1: ")

	// Broken again, it keeps its scalers, and a user's edits of them.
	patchObject(t, &v1beta1.ScalingPolicy{}, client.ObjectKeyFromObject(local), `{"spec":{"deploymentSelector":{"matchExpressions":[{"key":"tier","operator":"In"}]}}}`)
	policySays(t, local, "False InvalidSelector", "")
	patchObject(t, &v1beta1.VerticalScaler{}, types.NamespacedName{Namespace: namespace, Name: "web"}, `{"spec":{"suspend":true}}`)
	create(t, testkit.Deployment(namespace, "late"))
	hasScalers(t, "breaking the selector", namespace, "api by "+value+" Recommend, late by "+value+" Recommend, web by local Recommend")
	if !scaler(t, namespace, "web").Spec.Suspend {
		t.Error("an edit of a scaler was reverted although its policy cannot be read")
	}
}

// A policy that selects all namespaces leaves the system's alone. It is paused, and shows what it would do.
func TestFleetThatSelectsEverythingLeavesTheSystemAlone(t *testing.T) {
	name := strings.ToLower(env.Namespace(t))
	dns := testkit.Deployment("kube-system", name)
	create(t, dns)
	removePolicyAfter(t, name)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(env.Client.Delete(context.WithoutCancel(t.Context()), dns)); err != nil {
			t.Error(err)
		}
	})
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage())
	policy := clusterPolicy(name, "", func(p *v1beta1.ClusterScalingPolicy) {
		p.Annotations = map[string]string{v1beta1.PausedAnnotation: "only to see what it selects"}
		p.Spec.NamespaceSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpExists}}}
		p.Spec.DeploymentSelector = nil
	})
	create(t, policy)
	if got := policySays(t, policy, "True Paused", "Skipped SystemNamespace 1: "); !strings.HasSuffix(got, "promoted: only to see what it selects") {
		t.Errorf("Ready says %q", got)
	}
	examples := func() string {
		for _, c := range policy.Status.Skipped {
			if c.Reason == v1beta1.ReasonSystemNamespace {
				return strings.Join(c.Examples, " ")
			}
		}
		return ""
	}
	if got := examples(); got != "kube-system/"+name {
		t.Errorf("skipped %q", got)
	}
	if got := scalersOf(t, "kube-system"); got != "" {
		t.Errorf("kube-system has %s", got)
	}
}

// A paused policy creates, changes and deletes nothing, until it continues.
func TestFleetThatIsPaused(t *testing.T) {
	namespace := env.Namespace(t)
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage())
	for _, name := range []string{"web", "old"} {
		create(t, testkit.Deployment(namespace, name))
	}
	policy := policyOf(namespace, "local")
	key := client.ObjectKeyFromObject(policy)
	create(t, policy)
	hasScalers(t, "creating the policy", namespace, "old by local Recommend, web by local Recommend")
	patchObject(t, &v1beta1.ScalingPolicy{}, key, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/paused":"incident 42"}},"spec":{"rollout":{"start":"InPlace"}}}`)
	if got := policySays(t, policy, "True Paused", ""); !strings.HasSuffix(got, ": incident 42") {
		t.Errorf("Ready says %q", got)
	}
	create(t, testkit.Deployment(namespace, "late"))
	deleteObject(t, testkit.Deployment(namespace, "old"))
	patchObject(t, &v1beta1.VerticalScaler{}, types.NamespacedName{Namespace: namespace, Name: "web"}, `{"spec":{"suspend":true}}`)
	hasSummary(t, policy, "1/2") // web has a scaler, and late has none
	hasScalers(t, "pausing", namespace, "old by local Recommend, web by local Recommend")
	patchObject(t, &v1beta1.ScalingPolicy{}, key, `{"metadata":{"annotations":{"autoscaling.verticalscaler.io/paused":"false"}}}`)
	hasScalers(t, "continuing", namespace, "late by local InPlace, web by local InPlace")
	testkit.Eventually(t, soon, func() string {
		if scaler(t, namespace, "web").Spec.Suspend {
			return "the edit was not reverted"
		}
		return ""
	})
}
