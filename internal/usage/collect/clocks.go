// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// sameClock is how far the times of samples of one clock are apart at most: metrics-server may scrape once a minute.
const sameClock = 2 * time.Minute

// clocksError is the error of an answer in which all samples are refused for their time, by about the same amount.
// The pods are not silent then. Timestamps are those of the kubelets, of metrics-server or of an adapter.
type clocksError struct {
	age time.Duration // of the newest sample; negative if it is from the future
}

// Error implements error.
func (e *clocksError) Error() string {
	if e.age < 0 {
		return fmt.Sprintf("all usage is %s ahead: the clocks of the operator and of the metrics server or its nodes differ", (-e.age).Round(time.Minute))
	}
	return fmt.Sprintf("all usage is at least %s old: the clocks of the operator and of the metrics server or its nodes differ, or the metrics server has stopped",
		e.age.Truncate(time.Minute))
}

// clocksOf is a clocksError for such an answer, and nil for any other.
func clocksOf(samples []usage.Sample, refused []usage.Refused, now time.Time) error {
	hasOtherCause := func(r usage.Refused) bool { return r.Why != usage.Stale && r.Why != usage.FromTheFuture }
	if len(samples) > 0 || len(refused) == 0 || slices.ContainsFunc(refused, hasOtherCause) {
		return nil
	}
	byTime := func(a, b usage.Refused) int { return a.Time.Compare(b.Time) }
	oldest, newest := slices.MinFunc(refused, byTime).Time, slices.MaxFunc(refused, byTime).Time
	if newest.Sub(oldest) > sameClock {
		return nil
	}
	return &clocksError{age: now.Sub(newest)}
}
