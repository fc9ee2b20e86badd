// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/refusal"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/reasons"
)

// Whatever a pass has found, each condition that it writes has a reason that is explained
// to people, and a message; and every place of the status that gives a reason is come to.
func TestEveryConditionHasADocumentedReason(t *testing.T) {
	owner := &v1beta1.ScaledDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1beta1.ScaledDeploymentSpec{Scaling: &v1beta1.Scaling{}}}
	sized := &v1beta1.VerticalScaler{Status: v1beta1.VerticalScalerStatus{Conditions: []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonLearning, Message: "Usage is being observed",
	}}}}
	passes := []*scope{
		{err: errors.New("etcd")},
		{err: errors.New("etcd"), deployment: aDeployment()},
		{waiting: "Deployment old is going", deployment: aDeployment()},
		{deployment: aDeployment(), scaledBy: "load"},
		{deployment: aDeployment(), scaler: &v1beta1.VerticalScaler{}},
		{deployment: aDeployment(), scaler: sized},
		{deployment: aDeployment(withCondition("Progressing", "False", v1beta1.ReasonProgressDeadlineExceeded, ""))},
		{deployment: aDeployment(withCondition("ReplicaFailure", "True", "FailedCreate", ""))},
		{deployment: aDeployment(withReplicas(4, 2, 3))},
	}
	for _, reason := range []string{
		v1beta1.ReasonNotControlled, v1beta1.ReasonForbidden, v1beta1.ReasonQuotaExceeded, v1beta1.ReasonNamespaceTerminating, v1beta1.ReasonRejected,
	} {
		passes = append(passes, &scope{rejection: refusal.Rejection{Reason: reason, Message: "No"}})
	}
	said := map[string][]string{}
	for _, p := range passes {
		p.now = noon
		for _, c := range statusOf(owner, p).Conditions {
			said[c.Reason] = append(said[c.Reason], c.Message)
			if _, ok := explain.ReasonFor(c.Reason); !ok || strings.TrimSpace(c.Message) == "" {
				t.Errorf("%s=%s has the reason %q, and says %q", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
	places := 0
	for _, site := range reasons.Sites(t, ".", "../../api/v1beta1") {
		if !strings.HasPrefix(site.At, "status.go:") {
			continue // steps that were tried; they have tests of their own
		}
		places++
		if !slices.ContainsFunc(said[site.Reason], site.Message.MatchString) {
			t.Errorf("no pass comes to %s, which gives %s (%q): add one", site.At, site.Reason, site.Message)
		}
	}
	if places < 7 {
		t.Errorf("only %d places give a reason: the test looks for the wrong thing", places)
	}
}
