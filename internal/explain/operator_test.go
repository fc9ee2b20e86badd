// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// lease was renewed so long before noon.
func lease(namespace string, before time.Duration) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "verticalscaler.autoscaling.verticalscaler.io"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("operator-0"), RenewTime: &metav1.MicroTime{Time: noon.Add(-before)}},
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
		"no lease":                          {},
		"a lease that was never held":       {leases: []coordinationv1.Lease{never}},
		"a foreign lease":                   {leases: []coordinationv1.Lease{foreign}},
		"renewed just now":                  {leases: []coordinationv1.Lease{lease("system", 0)}, report: "The operator in namespace system was last heard of 0s ago"},
		"renewed by a clock that is ahead":  {leases: []coordinationv1.Lease{lease("system", -time.Hour)}, report: "The operator in namespace system was last heard of 0s ago"},
		"a fail-over":                       {leases: []coordinationv1.Lease{lease("system", time.Minute)}, report: "The operator in namespace system was last heard of 60s ago"},
		"crashed":                           {leases: []coordinationv1.Lease{lease("system", 3*time.Minute)}, silent: true, report: "The operator in namespace system was last heard of 3m ago"},
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
			silent := overview.Doubt(e.Operators, noon)
			row := overview.Scalers[0]
			x := explain.Of(e)
			for what, isSilent := range map[string]bool{
				"the row": row.Ready == "Unknown" && row.Reason == "OperatorSilent", "--check": overview.NotReady(),
				"the operators": len(silent) == 1, "explain": x.Findings[0].Reason.Reason == "OperatorSilent",
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

// A lease that an earlier installation has left does not make an operator silent that runs without one.
func TestALeaseThatIsLeftOverSaysNothing(t *testing.T) {
	left := explain.OperatorsOf([]coordinationv1.Lease{lease("system", time.Hour)})
	for name, tc := range map[string]struct {
		change change
		silent bool
	}{
		"the status is older": {func(*explain.Evidence) {}, true},
		"written as the lease expired": {func(e *explain.Evidence) {
			e.Scaler.Status.Conditions[0].LastTransitionTime = ago(59 * time.Minute)
		}, true},
		"written later": {func(e *explain.Evidence) {
			e.Scaler.Status.Conditions[0].LastTransitionTime = ago(time.Minute)
		}, false},
		"written later, without a transition": {func(e *explain.Evidence) {
			e.Scaler.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "operator", Subresource: "status", Time: ptr.To(ago(time.Minute))}}
		}, false},
		"edited later by a user": {func(e *explain.Evidence) {
			e.Scaler.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: ptr.To(ago(time.Minute))}}
		}, true},
	} {
		e := checkout(tc.change)
		e.Operators, e.Now = left, noon
		x := explain.Of(e)
		if silent := x.Findings[0].Reason.Reason == "OperatorSilent"; silent != tc.silent {
			t.Errorf("%s: silent %v", name, silent)
		}
	}
}

func TestWhatIsNotReadyKeepsItsReason(t *testing.T) {
	e := checkout(stalled("QoSChange", "pod checkout-1: has no requests"))
	row := explain.RowOf(e).Doubt(explain.OperatorsOf([]coordinationv1.Lease{lease("system", time.Hour)}), e.Scaler.Namespace, noon)
	if row.Ready != metav1.ConditionFalse || row.Reason != "QoSChange" {
		t.Errorf("%+v", row)
	}
}

// What was edited after the last reconcile is not Ready because the previous spec was.
func TestAnEditIsNotReadyBeforeItIsObserved(t *testing.T) {
	e := checkout()
	e.Scaler.Generation++
	if row := explain.RowOf(e); row.Ready != metav1.ConditionUnknown || row.Reason != "Outdated" {
		t.Errorf("%+v", row)
	}
}

func TestTextOfASilentOperator(t *testing.T) {
	e := checkout()
	e.Operators, e.Now = explain.OperatorsOf([]coordinationv1.Lease{lease("verticalscaler-system", 3*time.Minute)}), noon
	var got bytes.Buffer
	if err := explain.Of(e).WriteText(&got, noon); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got.String(), "Applied: yes; 2 of 2 pods have the decided size\n") {
		t.Error("a claim of the operator is shown as if it were of now")
	}
	golden(t, "operator-silent.txt", got.String())
}

// A scaler that only recommends is not green while pods have no usage.
func TestMissingUsageIsSeenInRecommend(t *testing.T) {
	e := checkout(func(e *explain.Evidence) {
		e.Scaler.Status.Conditions = []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: "OperatingNormally"},
			{Type: "Applied", Status: metav1.ConditionFalse, Reason: "RecommendOnly"},
			{Type: "RecommendationProvided", Status: metav1.ConditionFalse, Reason: "MetricsIncomplete", Message: "pod checkout-1: no usage reported"},
		}
	})
	if row := explain.RowOf(e); row.Reason != "MetricsIncomplete" || row.Ends == explain.Fine {
		t.Errorf("%+v", row)
	}
}
