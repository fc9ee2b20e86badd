// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
)

// policyConditions are conditions, each as "Type Status Reason Message".
func policyConditions(lines ...string) (all []metav1.Condition) {
	for _, s := range lines {
		words := strings.SplitN(s, " ", 4)
		all = append(all, metav1.Condition{
			Type: words[0], Status: metav1.ConditionStatus(words[1]), Reason: words[2], Message: words[3], LastTransitionTime: ago(90 * time.Minute),
		})
	}
	return all
}

// fleetPolicy is a ClusterScalingPolicy in the middle of its promotion, as the API server stores it.
func fleetPolicy(changes ...func(*v1beta1.ClusterScalingPolicy)) *v1beta1.ClusterScalingPolicy {
	p := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Generation: 2}}
	p.Spec.NamespaceSelector = metav1.LabelSelector{MatchLabels: map[string]string{"sizing": "auto"}}
	p.Spec.DeploymentSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "NotIn", Values: []string{"test"}}}}
	p.Spec.SystemNamespaces = v1beta1.SystemNamespacesExclude
	p.Spec.Exclude = &v1beta1.ClusterExclusions{
		Namespaces: []string{"bank", "lab"}, DeploymentExclusions: v1beta1.DeploymentExclusions{Deployments: strings.Fields("a b c d e f g h i j k l")},
	}
	p.Spec.Rollout.Start, p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend, v1beta1.UpdateModeInPlace
	q := func(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }
	p.Status = v1beta1.ScalingPolicyStatus{
		ObservedGeneration: 2, Summary: &v1beta1.PolicySummary{Deployments: "480/500", Promoted: "24/480"}, Selected: 500, Scaled: 480,
		Skipped: []v1beta1.PolicyCount{
			{Reason: "OtherScaler", Count: 19, Examples: []string{"shop/a", "shop/b", "shop/c"}},
			{Reason: "OtherPolicy", Count: 1, Examples: []string{"shop/x\x1b[31m"}, Message: "Such as ScalingPolicy shop/web, which comes first"},
		},
		States: []v1beta1.PolicyCount{{Reason: "RecommendOnly", Count: 450, Examples: []string{"shop/d"}}, {Reason: "Applied", Count: 30}},
		UnsizedNewPods: []v1beta1.PolicyCount{
			{Reason: "AdmissionUnavailable", Count: 24, Examples: []string{"shop/a"}, Message: "New pods start as in the pod template: the policy is not installed: kubectl apply -f new-pods.yaml"},
		},
		Rollout: &v1beta1.PolicyRolloutStatus{Collecting: 440, Waiting: 16, Verifying: 20, Promoted: 24, Harmed: 1, HarmedExamples: []string{"shop/web"}},
		Savings: &v1beta1.PolicySavings{Applied: v1beta1.Savings{CPU: q("12"), Memory: q("-3Gi")}, Recommended: v1beta1.Savings{CPU: q("210")}},
		Conditions: policyConditions(
			"Ready True OperatingNormally Each selected Deployment has the scaler of the policy, or is listed in status.skipped",
			"Reconciling False OperatingNormally No change in progress", "Stalled False OperatingNormally No action required",
			"Promoting True PromotionInProgress 24 of 480 scalers are promoted"),
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func status(f func(*v1beta1.ScalingPolicyStatus)) func(*v1beta1.ClusterScalingPolicy) {
	return func(p *v1beta1.ClusterScalingPolicy) { f(&p.Status) }
}

// webPolicy is a ScalingPolicy that no operator has observed.
func webPolicy() *v1beta1.ScalingPolicy {
	p := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1}}
	p.Spec.Rollout.Start, p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInitial, v1beta1.UpdateModeInitial
	p.Spec.Exclude = &v1beta1.DeploymentExclusions{DeploymentSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"release": "canary"}}}
	p.Status.ObservedGeneration = -1
	return p
}

func policyCases() map[string]explain.PolicyEvidence {
	of := func(p *v1beta1.ClusterScalingPolicy) explain.PolicyEvidence {
		return explain.PolicyEvidence{Policy: explain.PolicyOf(p), Now: noon}
	}
	silent := of(fleetPolicy())
	silent.Operators = explain.Operators{{Namespace: "verticalscaler-system", LastHeard: ago(10 * time.Minute)}}
	return map[string]explain.PolicyEvidence{
		"policy-promoting": of(fleetPolicy()),
		"policy-halted": of(fleetPolicy(status(func(s *v1beta1.ScalingPolicyStatus) {
			s.Rollout.Harmed, s.Rollout.HarmedExamples = 3, []string{"shop/c", "shop/b", "shop/a"}
			s.Conditions = policyConditions("Ready False PromotionHalted 3 of 24 promoted scalers did harm", "Reconciling False OperatingNormally -",
				"Stalled True PromotionHalted 3 of 24 promoted scalers did harm", "Promoting False PromotionHalted 3 of 24 promoted scalers did harm")
		}))),
		"policy-forbidden": of(fleetPolicy(func(p *v1beta1.ClusterScalingPolicy) {
			p.Spec.Exclude, p.Spec.SystemNamespaces, p.Spec.Rollout.AfterSeconds = nil, v1beta1.SystemNamespacesInclude, ptr.To[int32](0)
			p.Status = v1beta1.ScalingPolicyStatus{ObservedGeneration: 2, Conditions: policyConditions(
				"Ready False Forbidden The operator may not create verticalscalers, which policies need. An administrator can grant it: kubectl apply --server-side -f https://github.com/verticalscaler/verticalscaler-operator/releases/latest/download/policies.yaml")}
		})),
		"policy-creating": of(fleetPolicy(func(p *v1beta1.ClusterScalingPolicy) {
			p.Generation = 3
			p.Status.Conditions[1] = policyConditions("Reconciling True CreatingScalers Scalers are created, changed or deleted")[0]
		})),
		"policy-silent":       silent,
		"policy-not-observed": {Policy: explain.PolicyOf(webPolicy()), Now: noon, Missing: []string{"Whether the operator runs: forbidden"}},
	}
}

// The explanations of policies are texts that a person can review.
func TestPoliciesAreExplained(t *testing.T) {
	for name, e := range policyCases() {
		got := explain.OfPolicy(e).Text(noon)
		golden.Compare(t, name+".txt", got)
	}
	goldenData(t, "policy-promoting.yaml", explain.OfPolicy(policyCases()["policy-promoting"]))
}

// generated makes the scaler one of a policy, with the condition ReadyForPromotion, unless it is empty.
func generated(readiness string, annotations map[string]string) change {
	return func(e *explain.Evidence) {
		e.Scaler.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ClusterScalingPolicyKind, Name: "fleet", Controller: ptr.To(true)},
		}
		e.Scaler.Annotations = annotations
		if readiness != "" {
			conditions("ReadyForPromotion " + readiness)(e)
		}
	}
}

func recommendOnly(e *explain.Evidence) {
	e.Scaler.Spec.UpdatePolicy.UpdateMode, e.Scaler.Status.Decision = "Recommend", nil
	conditions("Ready True RecommendOnly Recommendations are not applied", "Applied False RecommendOnly updateMode is Recommend: recommendations are not applied")(e)
}

// The text about a policy's scaler has its creator, how to change it, and when it is promoted. Its advice is about the policy.
func TestScalersOfPoliciesAreExplained(t *testing.T) {
	promoted := map[string]string{v1beta1.PromotedAnnotation: noon.Add(-26 * time.Hour).Format(time.RFC3339)}
	harmed := map[string]string{v1beta1.PromotedAnnotation: "some day", v1beta1.HarmedAnnotation: noon.Add(-time.Hour).Format(time.RFC3339)}
	for name, e := range map[string]explain.Evidence{
		"generated-collecting": checkout(recommendOnly, generated("False CollectingEvidence 2d of 7d of usage would have been enough", nil)),
		"generated-waiting":    checkout(recommendOnly, generated("True EnoughEvidence 7d of usage would have been enough", nil)),
		"generated-recommends": checkout(recommendOnly, generated("", nil)),
		"generated-promoted":   checkout(generated("", promoted)),
		"generated-harmed":     checkout(generated("", harmed)),
		"generated-detaching":  checkout(generated("", map[string]string{v1beta1.DetachedAnnotation: "true"})),
		"generated-suspended": checkout(generated("", nil), spec(func(s *v1beta1.VerticalScalerSpec) { s.Suspend = true }),
			conditions("Ready True Suspended Nothing is changed while the scaler is suspended", "Applied False Suspended Nothing is changed while the scaler is suspended")),
	} {
		got := explain.Of(e).Text(noon)
		// The rest is the same for each scaler.
		head, _, _ := strings.Cut(got, "\nContainer ")
		golden.Compare(t, name+".txt", head)
	}
	waiting := explain.RowOf(checkout(recommendOnly, generated("True EnoughEvidence -", nil)))
	if waiting.Policy != "ClusterScalingPolicy/fleet" || waiting.Owner != "" || waiting.Ends != explain.ByItself || !strings.HasPrefix(waiting.Advice, "Wait: ClusterScalingPolicy/fleet promotes") {
		t.Errorf("%+v", waiting)
	}
	other := checkout(func(e *explain.Evidence) {
		e.Scaler.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: v1beta1.ScalingPolicyKind, Name: "fleet", Controller: ptr.To(true)}}
	})
	if origin := explain.OriginOf(other.Scaler); origin != nil {
		t.Errorf("a policy of another API has created the scaler: %+v", origin)
	}
}

// Policies are the last table of an overview. A policy that is not Ready fails a check.
func TestPoliciesInAnOverview(t *testing.T) {
	rows := []explain.PolicyRow{}
	for _, name := range []string{"policy-halted", "policy-not-observed", "policy-creating", "policy-promoting"} {
		rows = append(rows, explain.PolicyRowOf(policyCases()[name].Policy, nil, noon))
	}
	o := explain.Overview{Scalers: []explain.Row{explain.RowOf(checkout(generated("", nil)))}, Policies: rows}
	golden.Compare(t, "overview-policies.txt", o.Table(noon, explain.Columns{})+"\n"+o.Table(noon, explain.Columns{Namespace: true, Wide: true})+"\n"+o.CSV(true))

	if got := o.Tally(); got.NotReady != 3 || got.NeedUser != 2 || o.IsEmpty() || len(o.Actions()) != 2 || !strings.HasPrefix(o.Actions()[0], "ClusterScalingPolicy/fleet: PromotionHalted: ") {
		t.Errorf("%+v, %q", got, o.Actions())
	}
	row := explain.PolicyRowOf(policyCases()["policy-promoting"].Policy, explain.Operators{{Namespace: "ops", LastHeard: ago(time.Hour)}}, noon)
	if row.Reason != "OperatorSilent" || row.Ready != metav1.ConditionUnknown {
		t.Errorf("what a silent operator has reported is believed: %+v", row)
	}
}

// A policy reports the number of its scalers without usage. It is not Ready if nearly all do.
func TestPoliciesAreBlindWithTheirScalers(t *testing.T) {
	for blind, want := range map[int32]struct{ reason, ready, text string }{
		140: {"PromotionInProgress", "True", "140 of 480 are without usage"},
		470: {"MetricsIncomplete", "False", "Usage is missing for nearly all pods: metrics are down (470 of 480 scalers)"},
	} {
		p := explain.PolicyOf(fleetPolicy(status(func(s *v1beta1.ScalingPolicyStatus) {
			s.States = []v1beta1.PolicyCount{{Reason: "Applied", Count: 480 - blind}, {Reason: "MetricsIncomplete", Count: blind - 3}, {Reason: "MetricsUnavailable", Count: 3}}
		})))
		x := explain.OfPolicy(explain.PolicyEvidence{Policy: p, Now: noon})
		got := x.Text(noon)
		savings := fmt.Sprintf("Savings, compared with the pod templates of %d of 480 scalers", 480-blind)
		if x.Reason != want.reason || string(x.Ready) != want.ready || x.WithoutUsage != blind || !strings.Contains(got, want.text) || !strings.Contains(got, savings) {
			t.Errorf("%d without usage: %s %s:\n%s", blind, x.Ready, x.Reason, got)
		}
	}
}
