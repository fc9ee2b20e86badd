// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// waitForEvidence makes the scaler web keep 230m until 256 minutes have been observed, of which its status
// has 116.
func waitForEvidence(s *apiServer, written time.Time) {
	s.edit("web", func(web *v1beta1.VerticalScaler) {
		web.UID = "" // its evidence doubles at 64, 128, 256 minutes
		web.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "operator", Subresource: "status", Time: ptr.To(metav1.NewTime(written))}}
		applied := &web.Status.Conditions[1]
		applied.Reason, applied.Message = v1beta1.ReasonWithinBounds, "app cpu: 230m stays until the upper bound of 437m falls below it"
		web.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{
			ContainerName: "app", ObservedSeconds: 116 * 60, Target: amounts("66m", ""), LowerBound: amounts("60m", ""), UpperBound: amounts("437m", ""),
		}}}
	})
}

func TestEveryViewSaysWhenARequestIsLowered(t *testing.T) {
	s := newAPIServer(t)
	waitForEvidence(s, time.Now())
	const want = "app cpu is lowered in about 2 h 20 min, when enough usage has been observed"
	views := map[string]string{}
	for _, args := range [][]string{
		{"status", "-o", "wide"}, {"status", "-o", "json"}, {"explain", "web"}, {"top", "web", "--once"}, {"top", "web", "-o", "yaml"}, {"top", "-A", "-o", "json"},
	} {
		out, errOut, code := run(t, nil, args...)
		if code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, errOut)
		}
		views[strings.Join(args, " ")] = out
	}
	address, _ := startDashboard(t, "-A")
	_, views["dashboard"] = pageAt(t, address+"scalers/shop/web")
	for view, out := range views {
		if got := strings.Join(strings.Fields(out), " "); !strings.Contains(got, want) {
			t.Errorf("%s does not say %q:\n%s", view, want, out)
		}
	}
	waitForEvidence(s, time.Now().Add(-10*time.Minute))
	s.lastHeard(5 * time.Minute)
	for _, args := range [][]string{{"status", "-o", "wide"}, {"explain", "web"}, {"top", "web", "--once"}} {
		if out, _, _ := run(t, nil, args...); strings.Contains(out, "in about") {
			t.Errorf("%v: a silent operator lowers nothing:\n%s", args, out)
		}
	}
}
