// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// oomKilled is the reason of a termination because a container exceeded its memory limit.
const oomKilled = "OOMKilled"

// IsKilledSince reports whether a container of the pod was OOM-killed after the pod was as before. A pod that
// was not known before is nil: then any kill counts.
func IsKilledSince(before, now *corev1.Pod) bool {
	return slices.ContainsFunc(killsIn(now), func(k kill) bool { return !slices.Contains(killsIn(before), k) })
}

// kill identifies an OOM kill in the status of a pod.
type kill struct {
	container   string
	termination int32
}

// killsIn are the OOM kills in the status of a pod; none of no pod.
func killsIn(p *corev1.Pod) (kills []kill) {
	if p == nil {
		return nil
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range statuses {
			for n, terminated := range terminationsOf(&statuses[i]) {
				if terminated.Reason == oomKilled {
					kills = append(kills, kill{statuses[i].Name, n})
				}
			}
		}
	}
	return kills
}

// terminationsOf are the last two terminations in the status of a container, by their number. The first
// termination of a container is number 1.
func terminationsOf(status *corev1.ContainerStatus) iter.Seq2[int32, *corev1.ContainerStateTerminated] {
	return func(yield func(int32, *corev1.ContainerStateTerminated) bool) {
		if last := status.State.Terminated; last != nil && !yield(status.RestartCount+1, last) {
			return
		}
		if before := status.LastTerminationState.Terminated; before != nil {
			yield(status.RestartCount, before)
		}
	}
}
