// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// aboveLimitPercent is the percentage by which memory may exceed the limit without a rejection:
	// sources round, and count slightly differently.
	aboveLimitPercent = 10

	// afterResize is the time after a resize in which a sample may be older, or the cache may not
	// have the resize yet. It is the largest age that sources accept.
	afterResize = 5 * time.Minute
)

// memoryOf is the memory of a sample. If that is more than the container can have, it is not ok,
// and the sample must be rejected. One such sample would be the peak of the whole memory window. A
// container without a memory limit can have any amount.
//
// The limit is the higher one of the declared and the applied limit, as a resize may not be applied
// yet. Slightly above the limit, and around a resize, the sample counts as memory at the limit.
func memoryOf(pod workload.Pod, sample usage.Sample) (bytes int64, ok bool) {
	container, _ := pod.Container(sample.Container)
	limit := container.Limits.MemoryBytes
	if actual, isReported := pod.Actual.Get(sample.Container); isReported && limit > 0 {
		limit = max(limit, actual.Limits.MemoryBytes)
		if actual.Limits.MemoryBytes == 0 {
			limit = 0
		}
	}
	if limit == 0 || sample.MemoryBytes <= limit {
		return sample.MemoryBytes, true
	}
	isClose := sample.MemoryBytes <= limit+limit/100*aboveLimitPercent
	isResized := sample.Time.Sub(pod.Resized).Abs() <= afterResize
	return limit, isClose || isResized
}
