// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// A scaler whose Deployment or container is misspelt warns at once. After ten minutes it is Stalled, until the match exists.
func TestMisspeltNamesStall(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	lost := testkit.Scaler(w.Namespace, "lost", "paymnets")
	guard := testkit.Scaler(w.Namespace, "guard", "web")
	guard.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: "aap"}}}
	w.create(lost)
	w.create(guard)
	w.deploy("other")
	w.scale("other")
	w.deploy("web")
	w.Settle()
	w.Noted(lost.UID, "NotFound", "DeploymentNotFound: Waiting for Deployment "+w.Namespace+"/paymnets to be created")
	w.Noted(guard.UID, "NotFound", "ContainerNotFound: A policy without a container has no effect: containerPolicies[0] names aap. Deployment "+w.Namespace+"/web has: app")
	for name, reason := range map[string]string{"lost": "WaitingForDeployment", "guard": "Learning", "other": "Learning"} {
		w.isReady(name, "True", reason)
	}

	w.Pass(11 * time.Minute)
	w.isReady("lost", "False", "DeploymentNotFound")
	w.isReady("guard", "False", "ContainerNotFound")
	w.deploy("paymnets")
	w.Patch(guard, `{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"app"}]}}}`)
	w.Settle()
	w.isReady("lost", "True", "Learning")
	w.isReady("guard", "True", "Learning")
}

// The emergency stop takes any value, and shows it.
func TestAnyValueOfTheAnnotationPauses(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.scale("web")
	w.Settle()
	w.isReady("web", "True", "Learning")
	for _, step := range []struct{ value, reason, message string }{
		{`"incident 42"`, "Paused", "The annotation autoscaling.verticalscaler.io/paused is set: incident 42"},
		{`"incident 43"`, "Paused", "The annotation autoscaling.verticalscaler.io/paused is set: incident 43"},
		{`"false"`, "Learning", ""},
		{`""`, "Paused", "The annotation autoscaling.verticalscaler.io/paused is set"},
		{`null`, "Learning", ""},
	} {
		w.Patch(testkit.Scaler(w.Namespace, "web", ""), `{"metadata":{"annotations":{%q:%s}}}`, v1beta1.PausedAnnotation, step.value)
		w.Settle()
		w.isReady("web", "True", step.reason)
		if c := w.Condition("web", v1beta1.ConditionReady); step.message != "" && c.Message != step.message {
			t.Errorf("with %s it says %q", step.value, c.Message)
		}
	}
}

// isReady fails the test unless a scaler is Ready, or not, and kubectl get shows the reason for it.
func (w *fixture) isReady(name, ready, reason string) {
	w.Helper()
	c, shown := w.Condition(name, v1beta1.ConditionReady), ""
	if summary := w.Scaler(name).Status.Summary; summary != nil {
		shown = summary.Reason
	}
	if string(c.Status) != ready || shown != reason {
		w.Errorf("scaler %s is %q, with %+v; want %s", name, shown, c, reason)
	}
}
