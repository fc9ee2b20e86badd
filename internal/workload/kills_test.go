// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestIsKilledSince(t *testing.T) {
	oom, failed := &corev1.ContainerStateTerminated{Reason: "OOMKilled"}, &corev1.ContainerStateTerminated{Reason: "Error"}
	app := func(restarts int32, now, last *corev1.ContainerStateTerminated) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: "app", RestartCount: restarts,
			State: corev1.ContainerState{Terminated: now}, LastTerminationState: corev1.ContainerState{Terminated: last},
		}
	}
	read := func(p *corev1.Pod) *workload.Pod {
		pod := workload.ReadPod(p, true)
		return &pod
	}
	pod := func(statuses ...corev1.ContainerStatus) *workload.Pod {
		return read(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: statuses}})
	}
	proxy := app(0, oom, nil)
	proxy.Name = "proxy"
	withSidecar := &corev1.Pod{
		Spec:   corev1.PodSpec{InitContainers: []corev1.Container{{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}},
		Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{proxy}},
	}
	for name, tc := range map[string]struct {
		before, now *workload.Pod
		want        bool
	}{
		"nothing":                               {pod(app(0, nil, nil)), pod(app(0, nil, nil)), false},
		"a failure":                             {pod(app(0, nil, nil)), pod(app(0, failed, nil)), false},
		"a kill":                                {pod(app(0, nil, nil)), pod(app(0, oom, nil)), true},
		"a kill that was seen after the start":  {pod(app(0, nil, nil)), pod(app(1, nil, oom)), true},
		"the start after a kill":                {pod(app(0, oom, nil)), pod(app(1, nil, oom)), false},
		"a kill from before":                    {pod(app(1, nil, oom)), pod(app(1, nil, oom)), false},
		"a failure after a kill":                {pod(app(1, nil, oom)), pod(app(1, failed, oom)), false},
		"a second kill":                         {pod(app(1, nil, oom)), pod(app(1, oom, oom)), true},
		"a second kill, seen after the start":   {pod(app(1, nil, oom)), pod(app(2, nil, oom)), true},
		"a kill of another container":           {pod(app(0, oom, nil)), pod(app(0, oom, nil), proxy), true},
		"a kill of a native sidecar":            {pod(), read(withSidecar), true},
		"a new pod with a kill":                 {nil, pod(app(1, nil, oom)), true},
		"a new pod without one":                 {nil, pod(app(1, nil, failed)), false},
		"a status that was lost and comes back": {pod(), pod(app(1, nil, oom)), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := workload.IsKilledSince(tc.before, tc.now); got != tc.want {
				t.Errorf("IsKilledSince() = %t", got)
			}
		})
	}
}
