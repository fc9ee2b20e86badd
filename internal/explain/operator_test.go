// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
)

// lease was renewed so long before noon.
func lease(namespace string, before time.Duration) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "verticalscaler.autoscaling.verticalscaler.io"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("operator-0"), LeaseDurationSeconds: ptr.To[int32](30), RenewTime: &metav1.MicroTime{Time: noon.Add(-before)}},
	}
}

func TestASilentOperatorIsNotGreen(t *testing.T) {
	foreign := lease("system", 0)
	foreign.Name = "of-something-else"
	never := lease("system", 0)
	never.Spec.RenewTime = nil
	released := lease("system", 5*time.Minute)
	released.Spec.HolderIdentity = ptr.To("")
	justReleased := lease("system", 2*time.Second)
	justReleased.Spec.HolderIdentity = ptr.To("")
	for name, tc := range map[string]struct {
		leases []coordinationv1.Lease
		silent bool
		report string
	}{
		"no lease, so nothing is known":     {},
		"a lease that was never held":       {leases: []coordinationv1.Lease{never}},
		"a foreign lease":                   {leases: []coordinationv1.Lease{foreign}},
		"renewed just now":                  {leases: []coordinationv1.Lease{lease("system", 0)}, report: "The operator in namespace system was last heard of 0s ago"},
		"renewed by a clock that is ahead":  {leases: []coordinationv1.Lease{lease("system", -time.Hour)}, report: "The operator in namespace system was last heard of 0s ago"},
		"not expired yet":                   {leases: []coordinationv1.Lease{lease("system", 30*time.Second)}, report: "The operator in namespace system was last heard of 30s ago"},
		"crashed":                           {leases: []coordinationv1.Lease{lease("system", 31*time.Second)}, silent: true, report: "The operator in namespace system was last heard of 31s ago"},
		"stopped":                           {leases: []coordinationv1.Lease{released}, silent: true, report: "The operator in namespace system was stopped 5m ago"},
		"stopped just now":                  {leases: []coordinationv1.Lease{justReleased}, silent: true, report: "The operator in namespace system was stopped 2s ago"},
		"an older installation is gone":     {leases: []coordinationv1.Lease{lease("old", time.Hour), lease("system", time.Second)}, report: "The operator in namespace system was last heard of 1s ago"},
		"the operator of the namespace":     {leases: []coordinationv1.Lease{lease("system", time.Second), lease("shop", time.Hour)}, silent: true, report: "The operator in namespace shop was last heard of 60m ago"},
		"the operator of another namespace": {leases: []coordinationv1.Lease{lease("shop", time.Second), lease("system", 0)}, report: "The operator in namespace shop was last heard of 1s ago"},
	} {
		t.Run(name, func(t *testing.T) {
			e := checkout()
			e.Operators, e.Now = explain.OperatorsOf(tc.leases), noon
			operator, ok := e.Operators.For("shop")
			if ok != (tc.report != "") || ok && operator.Report(noon) != tc.report {
				t.Errorf("%v, %q, want %q", ok, operator.Report(noon), tc.report)
			}
			overview := explain.Overview{Scalers: []explain.Row{explain.RowOf(e)}}
			row := overview.Scalers[0]
			x := explain.Of(e)
			text := x.Text(noon)
			for what, isSilent := range map[string]bool{
				"the row": row.Ready == "Unknown" && row.Reason == "OperatorSilent", "--check": overview.Tally().NotReady > 0,
				"the first line": len(overview.Headlines(noon)) == 1, "explain": x.Findings[0].Reason.Reason == "OperatorSilent",
				"the first line of explain": strings.HasPrefix(text, "No operator is in charge: "), "the advice": !strings.Contains(text, "No action needed"),
			} {
				if isSilent != tc.silent {
					t.Errorf("%s: silent %v, want %v: %+v", what, isSilent, tc.silent, row)
				}
			}
			if last := x.Findings[len(x.Findings)-1].Reason.Reason; last != "Applied" {
				t.Errorf("the last known state %s is gone", last)
			}
		})
	}
}

// An object edited after the last reconcile is not Ready because its previous spec was. Deleting an object also changes
// its generation.
func TestAnEditIsNotReadyBeforeItIsObserved(t *testing.T) {
	e := checkout()
	e.Scaler.Generation++
	if row := explain.RowOf(e); row.Ready != metav1.ConditionUnknown || row.Reason != "Outdated" {
		t.Errorf("%+v", row)
	}
	e.Scaler.DeletionTimestamp = ptr.To(ago(time.Minute))
	if row := explain.RowOf(e); row.Ready != metav1.ConditionUnknown || row.Reason != "Deleting" || row.Ends != explain.ByItself {
		t.Errorf("%+v", row)
	}
}

// A missing profile applies as Balanced, and the advice names the place to set another: in the policy, for its scalers.
func TestAMissingProfileIsReported(t *testing.T) {
	for profile, want := range map[v1beta1.RecommendationProfile]string{"": "", "Balanced": "", "Safe": "", "Calm": "The profile Calm counts as Balanced"} {
		e := checkout()
		e.Scaler.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{Profile: profile}
		findings := explain.Of(e).Findings
		i := slices.IndexFunc(findings, func(f explain.Finding) bool { return f.Reason.Reason == "ProfileRemoved" })
		if got := i >= 0; got != (want != "") || got && (findings[i].Message != want || findings[i].Ends != explain.ByUser) {
			t.Errorf("%q: %+v", profile, findings)
		}
	}
	e := checkout(generated("", nil))
	e.Scaler.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{Profile: "Calm"}
	if text := explain.Of(e).Text(noon); !strings.Contains(text, "in spec.template of ") {
		t.Error(text)
	}
}

func TestTextOfASilentOperator(t *testing.T) {
	e := checkout()
	e.Operators, e.Now = explain.OperatorsOf([]coordinationv1.Lease{lease("verticalscaler-system", 3*time.Minute)}), noon
	got := explain.Of(e).Text(noon)
	if strings.Contains(got, "Applied: yes; 2 of 2 pods have the decided size\n") {
		t.Error("a claim of the operator is shown as if it were of now")
	}
	golden.Compare(t, "operator-silent.txt", got)
}

// A scaler without usage of its pods is never green and claims no savings, also if its status differs.
func TestMissingUsageIsNeverGreen(t *testing.T) {
	for reason, e := range map[string]explain.Evidence{
		"Applied":           checkout(),
		"RecommendOnly":     checkout(recommendOnly),
		"Learning":          cases()["learning"],
		"Suspended":         cases()["suspended"],
		"WithinBounds":      waiting(),
		"Paused":            cases()["paused"],
		"NodeCapacity":      cases()["node-capacity"],
		"OperatingNormally": checkout(conditions("Applied False MetricsIncomplete waits until all running pods report usage")),
	} {
		conditions("Ready False MetricsIncomplete Usage of running pods is missing: pod checkout-1: no usage reported",
			"RecommendationProvided False MetricsIncomplete Usage of running pods is missing: pod checkout-1: no usage reported")(&e)
		row, x := explain.RowOf(e), explain.Of(e)
		if row.Ready != metav1.ConditionFalse || row.Reason != "MetricsIncomplete" || row.Ends != explain.ByUser || row.Saved != nil || x.Findings[0].Reason.Reason != row.Reason {
			t.Errorf("%s: %+v", reason, row)
		}
	}
	blind := explain.RowOf(cases()["metrics-unavailable"])
	for want, scalers := range map[string][]explain.Row{
		"": {explain.RowOf(checkout())},
		"1 of 2 scalers has no usage of some or all pods":                         {explain.RowOf(checkout()), blind},
		"Usage is missing for nearly all pods: metrics are down (3 of 3 scalers)": {blind, blind, blind, explain.RowOf(cases()["deployment-not-found"])},
	} {
		if got := strings.Join((explain.Overview{Scalers: scalers}).Headlines(noon), "; "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// While usage of nearly all pods is missing, only the operator reports it, and all views follow it.
func TestMissingMetricsAreReportedOnce(t *testing.T) {
	down := lease("system", 0)
	down.Labels = map[string]string{v1beta1.UsageLabel: v1beta1.UsageMissing}
	operators := explain.OperatorsOf([]coordinationv1.Lease{down})
	o := explain.Overview{Policies: []explain.PolicyRow{explain.PolicyRowOf(policyCases()["policy-promoting"].Policy, operators, noon)}}
	for _, name := range []string{"applied", "recommend", "resizing", "contested", "deployment-not-found"} {
		e := cases()[name]
		e.Operators, e.Now = operators, noon
		o.Scalers = append(o.Scalers, explain.RowOf(e))
	}
	for i, want := range []string{"MetricsUnavailable", "MetricsUnavailable", "MetricsUnavailable", "Contested", "DeploymentNotFound"} {
		if row := o.Scalers[i]; row.Reason != want || (row.Ready == "True") != (want == "DeploymentNotFound") {
			t.Errorf("%+v, want %s", row, want)
		}
	}
	if row := o.Policies[0]; row.Ready != "False" || row.Reason != "MetricsIncomplete" || row.WithoutUsage != row.Scaled {
		t.Errorf("%+v", row)
	}
}
