// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model holds the values that planning passes along: what a plan depends on, and
// what it is made of. It has no rules about what to do.
package model

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Plan is the next step and the reason for it, or for its absence. Only the rules create plans.
type Plan struct {
	// Decision is the decision once the plan is carried out; nil for none.
	Decision *Decision
	// Decided is true if Decision is new.
	Decided bool
	// Reverted is the evidence, if Decision reverts the decision before it; else empty.
	Reverted string
	// RevertedChanges are the changes that must not be tried again.
	RevertedChanges []RevertedChange
	// NewPods has the sizes that the API server puts into new pods, in Initial and InPlace, and what is known of that.
	NewPods NewPods
	// IsHeld is true if nothing may be changed or decided: what is recorded stays, also for new pods.
	IsHeld bool
	// Postponed is the decision that would be made now if the plan were not held; nil for none.
	Postponed *Decision
	// Contest has the fields whose owner the API server must name, for Situation.Writers; nil if nothing is contested.
	Contest *Contest
	// Step is the step to take; nil for none.
	Step     Step
	Verdict  Verdict
	Progress Progress
}

// Progress is true if PodsAtSize of Pods have the decided sizes.
type Progress struct {
	PodsAtSize, Pods int
}

// Step is one of Resize, TakeOver, Rewrite, Evict, Restore and Record.
type Step interface{ isStep() }

type (
	// Resize resizes one pod in place, all its containers at once.
	Resize struct {
		Pod             string
		UID             types.UID
		ResourceVersion string
		Sizes           []Size
		// PodLevel are the pod-level resources beside the sizes; 0 for what the pod does not declare.
		PodLevel workload.Resources
		// Boost is true if the pod is starting, and gets more CPU meanwhile.
		Boost bool
		// SetsBack is true if the pod has found no node, and now gets the requests of the template. New pods
		// start as in the template for a while then.
		SetsBack bool
		// Withdraws is the resize that the kubelet has not granted, if this one restores what
		// it has applied; nil for none. It is not to be repeated for a while.
		Withdraws *RejectedResize
	}
	// TakeOver records the original values of the pod template, before the next plan rewrites it.
	TakeOver struct {
		UID             types.UID
		ResourceVersion string
		Originals       []Original
	}
	// Rewrite writes sizes into the Deployment's pod template.
	Rewrite struct {
		UID             types.UID
		ResourceVersion string
		// Sizes holds, for each container, all that we own of it. A request of 0 is not ours to set.
		Sizes []Size
	}
	// Evict evicts the first of some pods, so that its replacement gets NewPods.
	Evict struct {
		Pods []EvictedPod
		// IfBusy is true if only a pod is evicted whose node has no CPU to spare.
		IfBusy bool
		// Otherwise is the verdict if there is none.
		Otherwise Verdict
		// Needs are the requests for which a node must have room. They are 0 after an OOM kill: an autoscaler may add a node only for
		// a pod that waits.
		Needs quantity.Amounts
	}
	// EvictedPod is a pod that may be evicted.
	EvictedPod struct {
		Name            string
		UID             types.UID
		ResourceVersion string
		Node            string
	}
	// Restore restores the original values of the pod template: none of the values taken over is managed any longer.
	Restore struct{}
	// Record records the plan before any other step. The values before a decision, or what
	// is known of new pods, would otherwise be lost if the operator restarts.
	Record struct{}
)

func (Resize) isStep()   {}
func (TakeOver) isStep() {}
func (Rewrite) isStep()  {}
func (Evict) isStep()    {}
func (Restore) isStep()  {}
func (Record) isStep()   {}

// Verdict is the plan's report on the Deployment.
type Verdict struct {
	// Reason is one of the reasons of the condition Applied; Message explains it to users and is the same for the same situation.
	Reason, Message string
	State           State
	// RequeueAfter is the time until the next reconcile if no event triggers one; 0 for never.
	RequeueAfter time.Duration
}

// State is where a Deployment stands.
type State int

const (
	// Waiting is true if the decision is not applied, and that the operator changes nothing until the reason no longer holds.
	Waiting State = iota
	// Changing is true if a change is in progress.
	Changing
	// Applied is true if everything is as decided.
	Applied
	// PartlyApplied is true if everything that can be decided is applied, and that a user must act for the rest.
	PartlyApplied
	// Stalled is true if a user must act.
	Stalled
)

// IsApplied reports whether everything decided is applied.
func (s State) IsApplied() bool { return s == Applied || s == PartlyApplied }

// IsStalled reports whether a user must act.
func (s State) IsStalled() bool { return s == Stalled || s == PartlyApplied }

// Because is the verdict with this state.
func (s State) Because(reason, message string) Verdict {
	return Verdict{State: s, Reason: reason, Message: message}
}

// Within is the verdict that requeues after d at the latest; 0 adds nothing.
func (v Verdict) Within(d time.Duration) Verdict {
	v.RequeueAfter = Sooner(v.RequeueAfter, d)
	return v
}

// Noting is the verdict with one more sentence.
func (v Verdict) Noting(sentence string) Verdict {
	v.Message += ". " + sentence
	return v
}

// AlsoNoting is the verdict with the message of another one, if it has one.
func (v Verdict) AlsoNoting(other Verdict) Verdict {
	if other.Message == "" {
		return v
	}
	return v.Noting(other.Message)
}

// Stalled is the verdict if a user must act, for another reason.
func (v Verdict) Stalled(reason, message string) Verdict {
	state := Stalled
	if v.State.IsApplied() {
		state = PartlyApplied
	}
	return state.Because(reason, message).Within(v.RequeueAfter)
}

// Remarking adds a remark to the verdict if everything is applied, for example about a resource for which a user must act. The
// remark's reason replaces the verdict's, except for WithinBounds.
func (v Verdict) Remarking(remark Verdict) Verdict {
	if !v.State.IsApplied() || remark.Message == "" {
		return v
	}
	next := v.Noting(remark.Message)
	if remark.Reason != v1beta1.ReasonWithinBounds {
		next.Reason = remark.Reason
	}
	if remark.State.IsStalled() {
		next.State = PartlyApplied
	}
	return next
}

// Sooner is the shorter of two waits. A wait of 0 or less stands for never.
func Sooner(a, b time.Duration) time.Duration {
	if min(a, b) <= 0 {
		return max(a, b, 0)
	}
	return min(a, b)
}

// Latest is the latest of some times.
func Latest(first time.Time, others ...time.Time) time.Time {
	for _, other := range others {
		if other.After(first) {
			first = other
		}
	}
	return first
}
