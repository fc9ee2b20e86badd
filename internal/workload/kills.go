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

// IsKilledSince reports whether a container of the pod was OOM-killed since before. For a pod that was not
// known before, which is nil, any kill counts.
func IsKilledSince(before, now *Pod) bool {
	return slices.ContainsFunc(now.Kills, func(kill OOMKill) bool {
		return before == nil || !slices.ContainsFunc(before.Kills, func(known OOMKill) bool {
			return known.Container == kill.Container && known.Termination == kill.Termination
		})
	})
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
