// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/ensemble"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// start is the need of the container's starts after the CPU limit has capped one.
type start struct {
	need int64         // CPU, in millicores; 0 if no start was capped
	at   time.Duration // the observed time when a start last used a fair part of it
}

const (
	// startFor is the time for which the need is remembered without a start that uses 1/fairPart of it. A raise by
	// ensemble.NextRaise may request almost that multiple of the starts' usage.
	startFor = 8 * 24 * time.Hour
	fairPart = 4
)

// StartCPU is the CPU request that starts of the container need, in millicores; 0 unless the CPU limit has capped one within
// eight days of observed time.
func (c *Container) StartCPU() int64 {
	if c.observed-c.start.at >= startFor {
		return 0
	}
	return c.start.need
}

// IsCappedStart reports whether the CPU limit caps a start. One sample shows that: most starts are too short for two.
func IsCappedStart(s usage.Sample) bool {
	return s.Starting && s.LimitFactor > 0 && s.CPULimitMillis > 0 && float64(s.CPUMillis) > ensemble.CappedShare*float64(s.CPULimitMillis)
}

// useStart takes the CPU usage of a start into account, and reports whether it counts only for starts. After a capped
// start, starting pods get their need, and their usage does not raise the request.
func (c *Container) useStart(s usage.Sample) (isOnlyStart bool) {
	if !s.Starting || s.LimitFactor <= 0 {
		return false
	}
	need, used := c.StartCPU(), int64(float64(min(max(s.CPUMillis, 0), quantity.MaxCPUMillis))/max(s.LimitFactor, 1))
	if IsCappedStart(s) {
		need = min(max(need, ensemble.NextRaise*used), quantity.MaxCPUMillis)
	}
	if need > 0 && fairPart*used >= need {
		c.start = start{need: need, at: c.observed}
	}
	return need > 0 && c.KnowsCPU()
}
