// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// historyLength is the largest number of entries in the history of a status.
const historyLength = 10

// Harm is the first time at which a scaler reverted a change or answered an OOM kill, after its promotion
// and before its verification ends. ok is false if it did neither.
//
// An OOM kill is not counted while no decision before it has changed anything: the promotion did not cause it. In
// Recommend, there is no decision, so a container that was OOM-killed before the promotion gets more memory with the
// first decision after it.
func Harm(status *v1beta1.VerticalScalerStatus, promoted time.Time, verification time.Duration) (at time.Time, ok bool) {
	if status == nil || promoted.IsZero() {
		return time.Time{}, false
	}
	consider := func(t time.Time) {
		if t.After(promoted) && !t.After(promoted.Add(verification)) && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	for _, change := range status.RevertedChanges {
		consider(change.Time.Time)
	}
	hasChanged := len(status.History) == 0 || len(status.History) >= historyLength // Earlier decisions are not known.
	for _, d := range decisionsOf(status) {
		if d.reason == model.DecidedReverted || d.reason == model.DecidedOOMKill && hasChanged {
			consider(d.at)
		}
		hasChanged = hasChanged || d.reason != model.DecidedAdopted
	}
	return at, ok
}

// decided is one decision of a scaler.
type decided struct {
	at     time.Time
	reason string
}

// decisionsOf are the decisions in a status, the oldest one first.
func decisionsOf(status *v1beta1.VerticalScalerStatus) (all []decided) {
	for _, entry := range slices.Backward(status.History) {
		reason, _, _ := strings.Cut(entry.Message, ": ")
		all = append(all, decided{at: entry.Time.Time, reason: reason})
	}
	// The last decision is also in the history, unless the history was lost.
	if d := status.Decision; d != nil && (len(all) == 0 || d.Time.After(all[len(all)-1].at)) {
		all = append(all, decided{at: d.Time.Time, reason: d.Reason})
	}
	return all
}
