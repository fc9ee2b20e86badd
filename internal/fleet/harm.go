// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// historyLength is the largest number of entries in the history of a status.
const historyLength = 10

// Harm is the harm of a promoted scaler to its workload.
type Harm struct {
	At time.Time
	// Words describe it, such as "app was OOM-killed at 200Mi, lowered from 512Mi".
	Words string
}

// HarmOf is the first harm of a scaler after its promotion and before its verification ends; ok is false without harm. The
// scaler reverted a change, or answered an OOM kill of a container that had less memory than before its first change. An OOM
// kill at that size, or after a raise, has another cause. If the history does not tell the first size, the OOM kill counts.
func HarmOf(status *v1beta1.VerticalScalerStatus, promoted time.Time, verification time.Duration) (first Harm, ok bool) {
	if status == nil || promoted.IsZero() {
		return Harm{}, false
	}
	consider := func(at time.Time, what string) {
		if at.After(promoted) && !at.After(promoted.Add(verification)) && (!ok || at.Before(first.At)) {
			first, ok = Harm{at, what}, true
		}
	}
	for _, c := range status.RevertedChanges {
		consider(c.Time.Time, "a change of "+c.ContainerName+" "+string(c.Resource)+" was reverted")
	}
	originals := memory{}
	isComplete := len(status.History) > 0 && len(status.History) < historyLength
	for _, d := range decisionsOf(status) {
		lowered, isTold := originals.note(d.message)
		switch {
		case d.reason == model.DecidedReverted:
			consider(d.at, "a change was reverted")
		case d.reason != model.DecidedOOMKill:
		case lowered != "":
			consider(d.at, lowered)
		case !isTold || !isComplete:
			consider(d.at, "a container was OOM-killed")
		}
	}
	return first, ok
}

// memory has the memory of containers before their first change, by name.
type memory map[string]string

// note adds the containers in the message of a decision. lowered names one that had less before the decision than before its
// first change; isTold is true if the message names any.
func (m memory) note(message string) (lowered string, isTold bool) {
	for c := range scaler.ChangesIn(message) {
		if c.Resource != model.Memory.String() {
			continue
		}
		isTold = true
		had, isKnown := m[c.Container]
		switch {
		case !isKnown:
			m[c.Container] = c.From
		case isLess(c.From, had):
			lowered = c.Container + " was OOM-killed at " + c.From + ", lowered from " + had
		}
	}
	return lowered, isTold
}

// isLess reports whether an amount of memory is less than another one.
func isLess(amount, than string) bool {
	a, err := resource.ParseQuantity(amount)
	b, wrong := resource.ParseQuantity(than)
	return err == nil && wrong == nil && a.Cmp(b) < 0
}

// decided is one decision of a scaler.
type decided struct {
	at              time.Time
	reason, message string
}

// decisionsOf are the decisions in a status, the oldest one first.
func decisionsOf(status *v1beta1.VerticalScalerStatus) (all []decided) {
	for _, entry := range slices.Backward(status.History) {
		reason, _, _ := strings.Cut(entry.Message, ": ")
		all = append(all, decided{entry.Time.Time, reason, entry.Message})
	}
	// The last decision is also in the history, unless the history was lost.
	if d := status.Decision; d != nil && (len(all) == 0 || d.Time.After(all[len(all)-1].at)) {
		all = append(all, decided{at: d.Time.Time, reason: d.Reason})
	}
	return all
}
