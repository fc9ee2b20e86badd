// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// A LimitRange that is newer than a pod adds its default limit to any resize of the pod: here to one of CPU, as a dry run.
func TestNoResizeBringsTheDefaultLimitOfALimitRange(t *testing.T) {
	namespace := env.Namespace(t)
	must.Succeed(t, scaled(t.Context(), namespace, "web", v1beta1.UpdateModeInPlace, func(d *appsv1.Deployment) {
		delete(d.Spec.Template.Spec.Containers[0].Resources.Limits, corev1.ResourceMemory)
	}))
	later := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "later"}}
	later.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}}}
	env.Create(t, later)
	limit := func(pod *corev1.Pod) string { return pod.Spec.Containers[0].Resources.Limits.Memory().String() }
	testkit.Eventually(t, busy, func() string { // the API server reads LimitRanges from a cache
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podOf("web")}}
		patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"101m"}}}]}}`))
		if err := env.Client.SubResource("resize").Patch(t.Context(), pod, patch, client.DryRunAll); err != nil || limit(pod) != "512Mi" {
			return fmt.Sprintf("a resize of CPU leads to a memory limit of %s: %v", limit(pod), err)
		}
		return ""
	})

	c := testkit.OperatorConfig()
	use := testkit.NewUsage()
	use.Set(namespace, podOf("web"), "app", 300, 240<<20)
	mark := env.Mark()
	operator := env.StartOperator(t, c, use, namespace)
	kubelets(t)
	testkit.Eventually(t, busy, func() string {
		operator.Collect(t)
		const want = "LimitRange later would add a memory limit of 512Mi to container app when the pod is resized: set resources.limits.memory of container app in the Deployment"
		applied := meta.FindStatusCondition(scaler(t, namespace, "web").Status.Conditions, v1beta1.ConditionApplied)
		if applied == nil || applied.Reason != v1beta1.ReasonLimitRange || !strings.HasSuffix(applied.Message, want) {
			return fmt.Sprintf("Applied is %+v", applied)
		}
		return ""
	})
	if writes := writesOf(t, mark, operator.Agent, "pods/resize"); len(writes) > 0 {
		t.Errorf("resizes: %v", writes)
	}

	must.Succeed(t, env.Client.Delete(t.Context(), later))
	testkit.Eventually(t, busy, func() string {
		if got := inShort(t, namespace, "web"); got != v1beta1.ReasonApplied {
			return "it is " + got
		}
		return ""
	})
	pod := &corev1.Pod{}
	if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: podOf("web")}, pod); err != nil || limit(pod) != "0" {
		t.Errorf("the pod has a memory limit of %s: %v", limit(pod), err)
	}
}
