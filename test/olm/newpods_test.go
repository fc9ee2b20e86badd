// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// TestNewPods installs the operator as OperatorHub does, in a namespace of its own choice, and lets it size new pods: in the
// default mode and in Initial, before and after the documented command. These tests run before TestOLM, which compares the
// rights that all of them have used.
func TestNewPods(t *testing.T) {
	counted(t)
	const at = "rolled-out"
	namespaced(t, at, nil)
	for _, name := range []string{"web", "sessions"} {
		deploy(t, at, name, 2)
	}
	i := &installation{namespace: "operators", bundle: released(t)}
	i.install(t)
	scale(t, at, "web", v1beta1.UpdateModeInPlace)
	scale(t, at, "sessions", v1beta1.UpdateModeInitial)
	sized(t, at, "web", "300m")
	says(t, at, "web", v1beta1.ConditionNewPodsSized, metav1.ConditionFalse, v1beta1.ReasonAdmissionUnavailable, "new-pods.yaml")
	says(t, at, "sessions", v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonAdmissionUnavailable, "kubectl apply --server-side -f https://", "new-pods.yaml")
	rollOut(t, at, "web", "1")
	t.Log("without the policy, running pods are resized in place, and the message of the mode Initial has the command")

	i.run(t, applies+"new-pods.yaml")
	for _, name := range []string{"web", "sessions"} {
		says(t, at, name, v1beta1.ConditionNewPodsSized, metav1.ConditionTrue, v1beta1.ReasonApplied)
		isTold(t, at, name)
		rollOut(t, at, name, "2")
		createdAtSize(t, at, name)
	}
	var webhooks admissionv1.MutatingWebhookConfigurationList
	if err := env.Client.List(t.Context(), &webhooks); err != nil || len(webhooks.Items) > 0 {
		t.Errorf("%d webhooks: %v", len(webhooks.Items), err)
	}
	t.Log("with it, new pods of both modes are created at their size")

	// The size follows its scaler.
	patch(t, testkit.Scaler(at, "web", "web"), `{"spec":{"updatePolicy":{"newPods":"AsTemplate"}}}`)
	if err := env.Client.Delete(t.Context(), testkit.Scaler(at, "sessions", "sessions")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		var left v1beta1.NewPodSizesList
		if err := env.Client.List(t.Context(), &left, client.InNamespace(at)); err != nil || len(left.Items) > 0 {
			return fmt.Sprintf("%d objects with sizes are left: %v", len(left.Items), err)
		}
		return ""
	})
	i.isAllowed(t)
	i.run(t, withdraw)
}

// TestRecreate lets an operator that is installed for one namespace evict pods that cannot be resized, first without the
// right and then with the documented command.
func TestRecreate(t *testing.T) {
	counted(t)
	const at, name = "replaced", "web"
	namespaced(t, at, nil)
	deploy(t, at, name, 2)
	runs(t, at, name)
	annotatePods(t, at, name, "kwok.verticalscaler.io/resize", "infeasible")
	i := &installation{namespace: "operators", bundle: released(t), targets: []string{at}}
	i.install(t)
	i.run(t, applies+"new-pods.yaml")
	s := testkit.Scaler(at, name, name)
	s.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRecreate
	s.Spec.UpdatePolicy.CooldownSeconds = ptr.To[int32](0)
	s.Spec.ResourcePolicy = enough()
	create(t, s)
	says(t, at, name, v1beta1.ConditionApplied, metav1.ConditionFalse, v1beta1.ReasonForbidden, "pods/eviction", "recreate.yaml | sed 's/namespace: .*/namespace: operators/'")
	t.Log("without the right to evict, the message has the command that grants it")
	before := pods(t, at, name)

	i.run(t, "curl -sSL "+downloads+"recreate.yaml | sed 's/namespace: .*/namespace: NAMESPACE/' | kubectl apply --server-side -f -", "NAMESPACE", i.namespace)
	edits := 10
	eventually(t, func() string { // The API server knows the right a moment later. An edit of the scaler tries again at once.
		edits++
		patch(t, testkit.Scaler(at, name, name), `{"spec":{"updatePolicy":{"tolerancePercent":%d}}}`, 10+edits%10)
		if c := meta.FindStatusCondition(scaler(t, at, name).Status.Conditions, v1beta1.ConditionApplied); c.Reason == v1beta1.ReasonForbidden {
			return c.Message
		}
		return ""
	})
	sized(t, at, name, "300m")
	runs(t, at, name)
	createdAtSize(t, at, name)
	for _, pod := range pods(t, at, name) {
		if slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID }) {
			t.Errorf("pod %s was not replaced", pod.Name)
		}
	}
	t.Log("with it, the pods are replaced one by one, at their size")
	i.run(t, withdraw)
}

// says waits until a condition of the scaler has a status, a reason and a message with these words.
func says(t *testing.T, namespace, name, kind string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	eventually(t, func() string {
		s := scaler(t, namespace, name)
		c := meta.FindStatusCondition(s.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Sprintf("scaler %s/%s: %s is not %s, %s: %s", namespace, name, kind, status, reason, sayConditions(s))
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return fmt.Sprintf("scaler %s/%s: %s does not say %q: %s", namespace, name, kind, word, c.Message)
			}
		}
		return ""
	})
}

// isTold waits until the API server is told the sizes in the scaler's status. It learns them at once.
func isTold(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		var all v1beta1.NewPodSizesList
		if err := env.Client.List(t.Context(), &all, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		if s := scaler(t, namespace, name); s.Status.NewPods != nil {
			for i := range all.Items {
				if admission.HasLine(all.Items[i].Spec.Deployments, admission.Line(name, s.Status.NewPods.Containers)) {
					return ""
				}
			}
		}
		return fmt.Sprintf("the sizes of %s/%s are not in %d objects", namespace, name, len(all.Items))
	})
}

// rollOut replaces the Deployment's pods, as kubectl rollout restart does.
func rollOut(t *testing.T, namespace, name, version string) {
	t.Helper()
	patch(t, deployment(t, namespace, name), `{"spec":{"template":{"metadata":{"annotations":{"version":%q}}}}}`, version)
	runs(t, namespace, name)
}

// createdAtSize checks that the Deployment's pods were created with the size in the scaler's status: none was resized.
func createdAtSize(t *testing.T, namespace, name string) {
	t.Helper()
	s := scaler(t, namespace, name)
	if s.Status.NewPods == nil {
		t.Fatalf("scaler %s/%s gives new pods nothing: %s", namespace, name, sayConditions(s))
	}
	want := s.Status.NewPods.Containers[0].Requests
	for _, pod := range pods(t, namespace, name) {
		got := pod.Spec.Containers[0].Resources.Requests
		if pod.Generation != 1 || got.Cpu().Cmp(*want.CPU) != 0 || got.Memory().Cmp(*want.Memory) != 0 {
			t.Errorf("pod %s/%s of generation %d requests %s and %s, not %s and %s", namespace, pod.Name, pod.Generation, got.Cpu(), got.Memory(), want.CPU, want.Memory)
		}
	}
}
