// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// The reasons of a decision. The most urgent that applies names it.
const (
	DecidedOOMKill    = "OOMKill"    // memory is below the floor that an OOM kill has set
	DecidedReverted   = "Reverted"   // pods were worse with the last decision, which is reverted
	DecidedBounds     = "Bounds"     // a request is outside what the policy, the LimitRange or a fixed limit allows
	DecidedLowerBound = "LowerBound" // a request is below the lower bound: usage needs more now
	DecidedScaleUp    = "ScaleUp"    // a request is below its target
	DecidedScaleDown  = "ScaleDown"  // a request is above its upper bound
	DecidedAdopted    = "Adopted"    // no decision tells the request, and the pods do not all have it applied, or new pods would not get it: what the pods have is kept
)

// Requests are requests by container.
type Requests = map[string]quantity.Amounts

// SetRequest sets one request. 0 changes nothing.
func SetRequest(of Requests, container string, r Resource, v int64) {
	if v == 0 {
		return
	}
	a := of[container]
	r.Set(&a, v)
	of[container] = a
}

// Decision has the requests to apply.
type Decision struct {
	Time   time.Time
	Reason string
	// Requests holds the decided requests, by container. 0 leaves the resource unchanged.
	Requests Requests
	// AppliedToTemplate is true if the template has carried the decision once.
	AppliedToTemplate bool
	// Reverts counts how often another controller has undone it, or a decision before it,
	// on the template or on pods; LastRevert is when that was seen last.
	Reverts    int
	LastRevert time.Time
	// ContestedBy names the field managers of what was contested, when it was last looked at.
	ContestedBy []string
	// MemoryRaised holds, by container, when a decision last raised its memory limit. A process that
	// started before keeps the heap that it has sized from its limit.
	MemoryRaised map[string]time.Time
	// Verification is the progress of verifying what was changed; nil if nothing is verified.
	Verification *Verification
}

// Verification is the progress of verifying a decision.
type Verification struct {
	// Began is the time at which the operator decided to leave the values in Good.
	Began time.Time
	// Good holds the requests before the change that is verified, by container.
	Good Requests
	// UnhealthyPods are the pods that were unhealthy before.
	UnhealthyPods []types.UID
	// ObservedSince is the time at which the last of the pods to change, as far as they may change
	// now, was found changed; zero before.
	ObservedSince time.Time
	// FirstPodsVerified is the time at which the first pods were verified, so that the others may follow; zero before.
	FirstPodsVerified time.Time
}

// RevertedChange is a value that was reverted.
type RevertedChange struct {
	Container, Resource string
	// Value has failed, and Good was restored.
	Value, Good int64
	At          time.Time
	// Observed is the length of the usage that Value was based on.
	Observed time.Duration
	// Evidence says what was seen, and on which pods.
	Evidence string
}

// IsReduction reports whether the value that failed was the lower one.
func (c RevertedChange) IsReduction() bool { return c.Value < c.Good }

// IsLike reports whether two changes moved the same request in the same direction.
func (c RevertedChange) IsLike(other RevertedChange) bool {
	type kind struct {
		container, resource string
		isReduction         bool
	}
	return kind{c.Container, c.Resource, c.IsReduction()} == kind{other.Container, other.Resource, other.IsReduction()}
}

// With is a changed copy of the decision; nil for none.
func (d *Decision) With(edit func(*Decision)) *Decision {
	if d == nil {
		return nil
	}
	next := *d
	edit(&next)
	return &next
}

// Request is the decided request; 0 for none.
func (d *Decision) Request(container string, r Resource) int64 {
	if d == nil {
		return 0
	}
	return r.Of(d.Requests[container])
}

// Verifying is the verification in progress; nil for none.
func (d *Decision) Verifying() *Verification {
	if d == nil {
		return nil
	}
	return d.Verification
}

// WithVerification is the decision with another verification; nil for none.
func (d *Decision) WithVerification(v *Verification) *Decision {
	return d.With(func(next *Decision) { next.Verification = v })
}

// HasReason reports whether there is a decision, for that reason.
func (d *Decision) HasReason(reason string) bool { return d != nil && d.Reason == reason }

// IsUrgentRestart reports whether the decision helps pods that may not become available without it.
func (d *Decision) IsUrgentRestart() bool {
	return d.Reason == DecidedOOMKill || d.Reason == DecidedReverted
}

// NotAfter is the decision, made by now at the latest: a clock that was set back must not
// delay changes for longer than the cooldown.
func (d *Decision) NotAfter(now time.Time) *Decision {
	if d == nil || !d.Time.After(now) {
		return d
	}
	return d.With(func(next *Decision) { next.Time = now })
}

// Only is the decision with no more than these requests; nil for none. It drops what is no longer managed: containers that are
// gone, and resources that the policy, an HPA or a VPA has taken out.
func (d *Decision) Only(requests Requests) *Decision {
	if d == nil || len(requests) == 0 {
		return nil
	}
	return d.With(func(next *Decision) {
		next.Requests = requests
		if !maps.Equal(requests, d.Requests) {
			next.AppliedToTemplate = false // no template has carried less of it
		}
	})
}

// Applied is the decision once the template carries it.
func (d *Decision) Applied() *Decision {
	return d.With(func(next *Decision) { next.AppliedToTemplate = true })
}

// NotApplied is the decision before any template has carried it.
func (d *Decision) NotApplied() *Decision {
	return d.With(func(next *Decision) { next.AppliedToTemplate = false })
}

// UndoneAt is the decision with one more revert. Reverts that are longer ago than the period do not count.
func (d *Decision) UndoneAt(now time.Time, period time.Duration) *Decision {
	return d.With(func(next *Decision) {
		if now.Sub(d.LastRevert) > period {
			next.Reverts = 0
		}
		next.Reverts++
		next.LastRevert = now
		next.AppliedToTemplate = false // or the same revert would count again
	})
}

// maxReverts limits how often another controller undoes our values before we stop writing them.
const maxReverts = 2

// IsContested reports whether another controller has undone the decision too often.
func (d *Decision) IsContested() bool { return d != nil && d.Reverts >= maxReverts }

// Uncontested is the decision as if no controller had ever undone it.
func (d *Decision) Uncontested() *Decision {
	return d.With(func(next *Decision) {
		next.AppliedToTemplate, next.Reverts, next.LastRevert, next.ContestedBy = false, 0, time.Time{}, nil
	})
}
