// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// TestAThrottledStartGetsMoreCPU: a pod that is not Ready yet has reached its CPU limit.
func TestAThrottledStartGetsMoreCPU(t *testing.T) {
	p := newPlant(t, 85)
	p.actuates = true
	var pod corev1.Pod
	read := func() {
		must.Succeed(t, p.server.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "checkout-1-a"}, &pod))
	}
	read()
	since := metav1.NewTime(noon.Add(-time.Minute))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: since}}
	pod.Status.ContainerStatuses[0].State.Running.StartedAt = since
	must.Succeed(t, p.server.Status().Update(t.Context(), &pod))
	p.Histories.With(p.key, func(histories history.Histories) {
		histories.Add(usage.Sample{
			Container: "app", Pod: pod.Name, Time: noon, CPUMillis: 200, MemoryBytes: 100 * mebi, LimitFactor: 2, CPULimitMillis: 200, Starting: true,
		}, p.Params.History)
	})
	var vs *v1beta1.VerticalScaler
	for range 4 {
		vs = p.mustReconcile()
	}
	read()
	if got := pod.Spec.Containers[0].Resources; got.Requests.Cpu().String() != "300m" || got.Limits.Cpu().String() != "600m" {
		t.Errorf("the starting pod has %v (%+v)", got, condition(vs, v1beta1.ConditionApplied))
	}
}
