// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
)

func TestEvents(t *testing.T) {
	appliedBefore := func(s *v1beta1.VerticalScaler) {
		s.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: "True", Reason: "Applied"}}
	}
	stalledBefore := func(s *v1beta1.VerticalScaler) {
		s.Status.Conditions = []metav1.Condition{{Type: "Stalled", Status: "True", Reason: "QoSChange"}}
	}
	qos := []func(*scope){planned("QoSChange", "pod a: …"), func(p *scope) { p.plan.Verdict.State = plan.Stalled }}
	cases := map[string]struct {
		scaler *v1beta1.VerticalScaler
		scope  *scope
		want   []string
	}{
		"new sizes are decided": {
			checkout(), aScope(planned("Resizing", "…"), func(p *scope) { p.plan.Decided = true }),
			[]string{"Normal Decided ScaleUp: app cpu 200m, memory 256Mi"},
		},
		"all pods have them":            {checkout(), aScope(), []string{"Normal Applied cpu 200m, memory 256Mi on 2/2 pods; the operator restarted none of them"}},
		"a rollout restarts pods":       {checkout(withMode("Rollout")), aScope(), []string{"Normal Applied cpu 200m, memory 256Mi on 2/2 pods"}},
		"all pods have had them before": {checkout(appliedBefore), aScope(), nil},
		"all pods have them, and there is more to say": {
			checkout(), aScope(func(p *scope) { p.plan.Verdict.Reason = "HPAConflict" }),
			[]string{"Normal Applied cpu 200m, memory 256Mi on 2/2 pods; the operator restarted none of them"},
		},
		"nothing was decided, so nothing is applied": {checkout(), aScope(func(p *scope) { p.plan.Decision = nil }), nil},
		"a user must act":       {checkout(), aScope(qos...), []string{"Warning Blocked QoSChange: pod a: …"}},
		"a user must still act": {checkout(stalledBefore), aScope(qos...), nil},
		"another scaler is first": {
			checkout(), &scope{now: noon, standing: precedence.Standing{Winner: "elder"}},
			[]string{"Warning Conflict Conflict: VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two"},
		},
		"what was decided stands where the step failed": {
			checkout(), aScope(planned("Resizing", "…"), func(p *scope) { p.plan.Decided, p.err = true, errors.New("no") }),
			[]string{"Normal Decided ScaleUp: app cpu 200m, memory 256Mi"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			// None of them is new to the operator: that they become Ready is the next test.
			tc.scaler.Status.Conditions = append(tc.scaler.Status.Conditions, metav1.Condition{Type: "Ready", Status: "True", Reason: "Learning"})
			completeFor(tc.scaler, tc.scope)
			(&Reconciler{Recorder: recorder}).recordEvents(tc.scope)
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				if len(got) == 0 || got[len(got)-1] != e { // on the scaler and on its Deployment
					got = append(got, e)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
	quiet := aScope()
	completeFor(checkout(), quiet)
	(&Reconciler{}).recordEvents(quiet) // without a recorder, no events
}

// Ready is recorded once, when a scaler becomes Ready: at first, and after a user has acted. Neither the next reconcile nor one of
// an operator that has restarted, nor one after a failed one, records it again.
func TestReadyIsRecordedOnce(t *testing.T) {
	vs, recorder := checkout(), events.NewFakeRecorder(20)
	for _, step := range []struct {
		name  string
		scope *scope
		want  []string
	}{
		{"the first reconcile", aScope(), []string{"Normal Ready OperatingNormally: Operating normally"}},
		{"the next reconcile", aScope(), nil},
		{"a failed one", &scope{now: noon, err: errors.New("timeout")}, nil},
		{"one after a failed one", aScope(), nil},
		{"a user must act", aScope(planned("QoSChange", "pod a: …"), func(p *scope) { p.plan.Verdict.State = plan.Stalled }), nil},
		{"a user has acted", aScope(), []string{"Normal Ready OperatingNormally: Operating normally"}},
		{"after a restart", aScope(), nil},
	} {
		vs = reconciled(vs, step.scope)
		(&Reconciler{Recorder: recorder}).recordEvents(step.scope)
		var got []string
		for len(recorder.Events) > 0 {
			if e := <-recorder.Events; strings.HasPrefix(e, "Normal Ready ") {
				got = append(got, e)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
