// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestThePlanKnowsWhichUsageIsMissing(t *testing.T) {
	const unknown = "pods that have just started, or whose last sample was lost"
	for name, tc := range map[string]struct {
		problems collect.Problems
		want     string
	}{
		"nothing is missing":    {},
		"past usage is missing": {problems: collect.Problems{Past: "Prometheus is down"}},
		"a new pod":             {problems: collect.Problems{Silent: true}, want: unknown},
		"a silent pod":          {problems: collect.Problems{Silent: true, Incomplete: "pod a: Stale"}, want: "pod a: Stale"},
		"an outage":             {problems: collect.Problems{Silent: true, Outage: "metrics.k8s.io is not served"}, want: "metrics.k8s.io is not served"},
	} {
		if got := missingUsage(tc.problems); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A Deployment that was deleted and created again with the same name starts from its own template.
func TestARecreatedDeploymentInheritsNoDecision(t *testing.T) {
	reverted := []plan.RevertedChange{{Container: "app", Resource: "cpu", Value: 100, Good: 200, At: noon}}
	for uid, isInherited := range map[types.UID]bool{"deployment-1": true, "deployment-2": false} {
		s := sizing(withUpdate(inPlace))
		s.status.Target = &v1beta1.Target{UID: "deployment-1"}
		s.status.Decision = scaler.APIDecision(s.observation.situation.Decision)
		s.status.RevertedChanges = scaler.APIRevertedChanges(reverted)
		situation := plan.Situation{Deployment: workload.Deployment{UID: uid}}
		new(Reconciler).addRecorded(s, &situation)
		for what, got := range map[string]bool{
			"the decision":              situation.Decision != nil,
			"the recorded decision":     s.status.Decision != nil,
			"reverted changes":          len(situation.RevertedChanges) > 0,
			"recorded reverts":          len(s.status.RevertedChanges) > 0,
			"the sizes of its new pods": len(situation.NewPods.Sizes) > 0,
		} {
			if got != isInherited {
				t.Errorf("%s has %s of deployment-1: %t", uid, what, got)
			}
		}
	}
}
