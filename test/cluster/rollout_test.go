// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// The only node has room for two of three pods. Their rollout never ends by itself, and the size that
// would end it used to wait for it.
func TestUnschedulablePodsBecomeSmaller(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t, world.Quick)
	w.node("only-"+w.Namespace, "1")
	d := testkit.Deployment(w.Namespace, "web")
	d.Spec.Replicas = ptr.To(int32(3))
	spec := &d.Spec.Template.Spec
	spec.NodeSelector = map[string]string{"test": w.Namespace}
	spec.Tolerations = []corev1.Toleration{{Key: "test", Operator: corev1.TolerationOpExists}}
	spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("340m") // leaves room for the first new pods
	spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("680m")
	w.Add(d)
	w.eventually(func() string {
		unschedulable := 0
		for _, pod := range w.Pods("web") {
			for _, c := range pod.Status.Conditions {
				if workload.IsUnschedulable(c) {
					unschedulable++
				}
			}
		}
		if available := w.Deployment("web").Status.AvailableReplicas; unschedulable != 1 || available != 2 {
			return fmt.Sprintf("%d pods are unschedulable and %d available", unschedulable, available)
		}
		return ""
	})
	w.uses("web", "app", 50, 100)
	w.Scale("web", world.InMode("Rollout"))
	w.runs("web")
	if requests := w.Sized("web"); requests.Cpu().Cmp(resource.MustParse("340m")) >= 0 {
		t.Errorf("the pods request %s", requests.Cpu())
	}
	w.Reports("web", "Applied", "True", "Applied")
}
