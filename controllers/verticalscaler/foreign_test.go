// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A Rollout of Argo with a workloadRef scales the Deployment to 0 and runs pods of the same labels.
func TestPodsOfAnotherOwnerAreNamed(t *testing.T) {
	labels := map[string]string{"app": "checkout"}
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "rollout-abc-1", Labels: labels, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rollout-abc", UID: "set", Controller: ptr.To(true)},
	}}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", Labels: map[string]string{"app": "other"}}}
	const none = "The Deployment has no running pods"
	const named = none + ". Pods that match its selector belong to another owner and are not sized: rollout-abc-1 (ReplicaSet rollout-abc)"
	for name, tc := range map[string]struct {
		reason string
		before metav1.Condition
		pods   []workload.Pod
		want   string
	}{
		"no pods":                {"NoPods", metav1.Condition{}, nil, named},
		"it has pods of its own": {"NoPods", metav1.Condition{}, []workload.Pod{{Name: "pending"}}, none},
		"another reason":         {"Suspended", metav1.Condition{}, nil, none},
		"as before":              {"NoPods", metav1.Condition{Type: "Applied", Reason: "NoPods", Message: "said before"}, nil, "said before"},
	} {
		r := apiServer(t, interceptor.Funcs{}, foreign, other)
		s := &scope{scaler: checkout(), now: noon}
		s.scaler.Status.Conditions = []metav1.Condition{tc.before}
		s.observation.deployment = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}}
		s.observation.situation.Pods = tc.pods
		s.plan.Verdict = plan.Waiting.Because(tc.reason, none)
		must.Succeed(t, r.nameForeignPods(t.Context(), s))
		if got := s.plan.Verdict.Message; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A container has no usage while it waits for its next start, and metrics-server is not the cause.
func TestACrashIsNotBlamedOnMetrics(t *testing.T) {
	const crashes = ". Container app of pod web-1 crashes: see kubectl logs --previous"
	const metrics = ". Check metrics-server and the kubelets of their nodes"
	for name, tc := range map[string]struct {
		pod  workload.Pod
		want string
	}{
		"it waits":          {workload.Pod{Name: "web-1", BackingOff: []string{"app"}}, crashes},
		"it runs, and will": {workload.Pod{Name: "web-1", Exits: []workload.Exit{{Container: "app", At: noon.Add(-exitedLately / 2)}}}, crashes},
		"it ran long since": {workload.Pod{Name: "web-1", Exits: []workload.Exit{{Container: "app", At: noon.Add(-exitedLately)}}}, metrics},
		"it terminates":     {workload.Pod{Name: "web-1", BackingOff: []string{"app"}, Terminating: true}, metrics},
	} {
		s := &scope{now: noon}
		s.observation.situation.Pods = []workload.Pod{{Name: "web-0"}, tc.pod}
		if got := remedyOf(s); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
