// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The resource that an HPA scales on is named in every state, not only once everything else is applied.
func TestALeftAloneResourceIsNamedInEveryState(t *testing.T) {
	hpa := func(w *world) { w.situation.Scaled = workload.Scaled{CPU: "web"} }
	const note = "cpu: not managed, because HorizontalPodAutoscaler web scales on its utilization"
	for name, tc := range map[string]struct {
		w      world
		reason string
	}{
		"deciding":    {given(hpa), "Resizing"},
		"resizing":    {given(hpa, decidedBefore(memoryOnly)), "Resizing"},
		"in cooldown": {given(hpa, decidedBefore(recently, memoryOnly), recommends(rec(amounts(250, 300), amounts(150, 192), amounts(300, 384))), atSize()), "InCooldown"},
		"without pods": {
			given(hpa, decidedBefore(memoryOnly), pods(), deployment(func(d *workload.Deployment) { d.Replicas = 0 })), "NoPods",
		},
	} {
		if v := tc.w.next(noon).Verdict; v.Reason != tc.reason || strings.Count(v.Message, note) != 1 {
			t.Errorf("%s: %s: %q, want %s and once %q", name, v.Reason, v.Message, tc.reason, note)
		}
	}
}

func memoryOnly(d *plan.Decision) {
	for name, requests := range d.Requests {
		requests.CPUMillis = 0
		d.Requests[name] = requests
	}
}

// Without pods, nothing is learned and nothing is applied.
func TestWithoutPodsNothingIsSaidToBeApplied(t *testing.T) {
	none := func(w *world) {
		w.situation.Pods = nil
		w.situation.Deployment.Replicas = 0
	}
	for name, w := range map[string]world{
		"learning":         given(none, recommends()),
		"within tolerance": given(none, recommends(rec(amounts(105, 130), amounts(100, 128), amounts(300, 384)))),
		"within bounds":    given(none, recommends(rec(amounts(50, 64), amounts(10, 64), amounts(300, 384)))),
		"decided":          given(none, decidedBefore()),
	} {
		if v := w.next(noon).Verdict; v.Reason != "NoPods" || v.State != plan.Waiting {
			t.Errorf("%s: %s: %q", name, v.Reason, v.Message)
		}
	}
	if v := given(none, recommends(), template(workload.Container{Name: "app", Unreadable: true})).next(noon).Verdict; v.Reason != "Rejected" {
		t.Errorf("what a user must correct: %s: %q", v.Reason, v.Message)
	}
}
