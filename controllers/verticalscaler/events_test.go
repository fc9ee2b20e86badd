// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

func TestEvents(t *testing.T) {
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
		"all pods have them":    {checkout(), aScope(), nil}, // the status reports it
		"a user must act":       {checkout(), aScope(qos...), []string{"Warning Blocked QoSChange: pod a: …"}},
		"a user must still act": {checkout(stalledBefore), aScope(qos...), nil},
		"another scaler is first": {
			checkout(), &scope{now: noon, standing: precedence.Standing{Winner: "elder"}},
			[]string{"Warning Conflict Conflict: VerticalScaler elder, which is older, sizes Deployment shop/checkout: delete one of the two"},
		},
		"it becomes Ready": {
			checkout(func(s *v1beta1.VerticalScaler) {
				s.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: "True"}, {Type: "Ready", Status: "False"}}
			}),
			aScope(),
			[]string{"Normal Ready OperatingNormally: Operating normally"},
		},
		"what was decided stands where the step failed": {
			checkout(), aScope(planned("Resizing", "…"), func(p *scope) { p.plan.Decided, p.err = true, errors.New("no") }),
			[]string{"Normal Decided ScaleUp: app cpu 200m, memory 256Mi"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			if meta.FindStatusCondition(tc.scaler.Status.Conditions, "Ready") == nil {
				tc.scaler.Status.Conditions = append(tc.scaler.Status.Conditions, metav1.Condition{Type: "Ready", Status: "True", Reason: "Learning"})
			}
			completeFor(tc.scaler, tc.scope)
			(&Reconciler{Recorder: recorder}).recordEvents(tc.scope)
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				if len(got) == 0 || got[len(got)-1] != e { // on the scaler and on its Deployment
					got = append(got, e)
				}
			}
			assert.Equal(t, "events", tc.want, got)
		})
	}
}
