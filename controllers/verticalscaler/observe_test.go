// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
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
