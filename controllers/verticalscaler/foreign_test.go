// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A Rollout of Argo with a workloadRef scales the Deployment to 0 and runs pods of the same labels. The API server is asked
// for them once for each version of the Deployment, and again after a restart.
func TestPodsOfAnotherOwnerAreNamed(t *testing.T) {
	labels := map[string]string{"app": "checkout"}
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "rollout-abc-1", Labels: labels, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rollout-abc", UID: "set", Controller: ptr.To(true)},
	}}}
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", Labels: map[string]string{"app": "other"}}}
	asked, isDown := 0, true
	r := apiServer(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		asked++
		if isDown {
			return apierrors.NewServiceUnavailable("down")
		}
		return c.List(ctx, list, opts...)
	}}, foreign, other)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", UID: "uid", ResourceVersion: "1"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	key := types.NamespacedName{Namespace: "shop", Name: "checkout"}
	if _, err := r.foreignPodsOf(t.Context(), key, d); err == nil || asked != 1 {
		t.Errorf("while the API server is down: %v after %d requests", err, asked)
	}
	isDown, asked = false, 0
	for _, step := range []struct {
		name   string
		change func()
		asked  int
	}{
		{"at first", func() {}, 1},
		{"as before", func() {}, 1},
		{"a new version", func() { d.ResourceVersion = "2" }, 2},
		{"a new Deployment", func() { d.UID = "another" }, 3},
		{"a restart", func() { r.memory = memories{} }, 4},
	} {
		step.change()
		got, err := r.foreignPodsOf(t.Context(), key, d)
		must.Succeed(t, err)
		if want := []string{"rollout-abc-1 (ReplicaSet rollout-abc)"}; !slices.Equal(got, want) || asked != step.asked {
			t.Errorf("%s: %q after %d requests, want %q after %d", step.name, got, asked, want, step.asked)
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
