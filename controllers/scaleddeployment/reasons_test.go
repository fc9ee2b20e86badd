// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// Every condition that a reconcile writes has a message and a documented reason.
func TestEveryConditionHasADocumentedReason(t *testing.T) {
	owner := &v1beta1.ScaledDeployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1beta1.ScaledDeploymentSpec{Scaling: &v1beta1.Scaling{}}}
	sized := &v1beta1.VerticalScaler{Status: v1beta1.VerticalScalerStatus{Conditions: []metav1.Condition{{
		Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonLearning, Message: "Collecting usage",
	}}}}
	scopes := []*scope{
		{err: errors.New("etcd")},
		{err: errors.New("etcd"), deployment: aDeployment()},
		{waiting: "Waiting for Deployment old to be deleted", deployment: aDeployment()},
		{deployment: aDeployment(), scaledBy: "load"},
		{deployment: aDeployment(), scaler: &v1beta1.VerticalScaler{}},
		{deployment: aDeployment(), scaler: sized},
		{deployment: aDeployment(withCondition("Progressing", "False", v1beta1.ReasonProgressDeadlineExceeded, "late"))},
		{deployment: aDeployment(withCondition("ReplicaFailure", "True", "FailedCreate", ""))},
		{deployment: aDeployment(withReplicas(4, 2, 3))},
	}
	for _, reason := range []string{
		v1beta1.ReasonNotControlled, v1beta1.ReasonForbidden, v1beta1.ReasonQuotaExceeded, v1beta1.ReasonNamespaceTerminating, v1beta1.ReasonRejected,
	} {
		scopes = append(scopes, &scope{rejection: apierror.Rejection{Reason: reason, Message: "No"}})
	}
	for _, s := range scopes {
		s.owner, s.now = owner, noon
		for _, c := range statusOf(s).Conditions {
			if _, ok := explain.ReasonFor(c.Reason); !ok || strings.TrimSpace(c.Message) == "" {
				t.Errorf("%s=%s has the reason %q and the message %q", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
}
