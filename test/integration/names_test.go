// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// A scaler whose Deployment or container is misspelt warns at once. If an operator that restarts finds the
// name without a match for ten minutes, the scaler is Stalled, until the match exists.
func TestMisspeltNamesStall(t *testing.T) {
	testkit.Tidy(t, "the conditions have times of this machine", testkit.SkewedClocks)
	namespace := env.Namespace(t)
	createScaler(t, namespace, "lost", "paymnets")
	guard := testkit.Scaler(namespace, "guard", "web")
	guard.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: "aap"}}}
	create(t, guard)
	if err := scaled(t.Context(), namespace, "other", v1beta1.UpdateModeInPlace); err != nil {
		t.Fatal(err)
	}
	create(t, testkit.Deployment(namespace, "web"))
	operator := env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace)
	warned(t, namespace, "lost", "DeploymentNotFound: Waiting for Deployment "+namespace+"/paymnets to be created")
	warned(t, namespace, "guard", "ContainerNotFound: A policy without a container has no effect: containerPolicies[0] names aap. Deployment "+namespace+"/web has: app")
	for name, reason := range map[string]string{"lost": "WaitingForDeployment", "guard": "NoPods", "other": "Learning"} {
		says(t, namespace, name, "True", reason)
	}

	operator.Stop(t)
	for _, name := range []string{"lost", "guard"} {
		writeStatus(t, namespace, name, func(s *v1beta1.VerticalScalerStatus) {
			for i := range s.Conditions {
				s.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-11 * time.Minute))
			}
		})
	}
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace)
	says(t, namespace, "lost", "False", "DeploymentNotFound")
	says(t, namespace, "guard", "False", "ContainerNotFound")
	create(t, testkit.Deployment(namespace, "paymnets"))
	guard = scaler(t, namespace, "guard")
	if err := env.Client.Patch(t.Context(), guard, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"app"}]}}}`))); err != nil {
		t.Fatal(err)
	}
	says(t, namespace, "lost", "True", "NoPods")
	says(t, namespace, "guard", "True", "NoPods")
}

// The emergency stop takes any value, and shows it.
func TestAnyValueOfTheAnnotationPauses(t *testing.T) {
	namespace := env.Namespace(t)
	createScaler(t, namespace, "web", "web")
	create(t, testkit.Deployment(namespace, "web"))
	env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace)
	says(t, namespace, "web", "True", "NoPods")
	for _, step := range []struct{ value, reason, message string }{
		{`"incident 42"`, "Paused", "The annotation autoscaling.verticalscaler.io/paused is set: incident 42"},
		{`"incident 43"`, "Paused", "The annotation autoscaling.verticalscaler.io/paused is set: incident 43"},
		{`"false"`, "NoPods", ""},
		{`""`, "Paused", "The annotation autoscaling.verticalscaler.io/paused is set"},
		{`null`, "NoPods", ""},
	} {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1beta1.PausedAnnotation, step.value)
		if err := env.Client.Patch(t.Context(), testkit.Scaler(namespace, "web", ""), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		if says(t, namespace, "web", "True", step.reason); step.message == "" {
			continue
		}
		testkit.Eventually(t, soon, func() string {
			if c := meta.FindStatusCondition(scaler(t, namespace, "web").Status.Conditions, "Ready"); c.Message != step.message {
				return fmt.Sprintf("with %s it says %q", step.value, c.Message)
			}
			return ""
		})
	}
}

// says waits until a scaler is Ready, or not, and kubectl get shows the reason for it.
func says(t *testing.T, namespace, name, ready, reason string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		c := meta.FindStatusCondition(scaler(t, namespace, name).Status.Conditions, "Ready")
		if got := inShort(t, namespace, name); c == nil || string(c.Status) != ready || got != reason {
			return fmt.Sprintf("scaler %s is %q, with %+v; want %s", name, got, c, reason)
		}
		return ""
	})
}

// warned waits for a Warning event of the scaler.
func warned(t *testing.T, namespace, name, note string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		var list eventsv1.EventList
		if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		for _, event := range list.Items {
			if event.Regarding.Name == name && event.Type == "Warning" && event.Reason == "NotFound" && strings.Contains(event.Note, note) {
				return ""
			}
		}
		return "no event of " + name + " says: " + note
	})
}
