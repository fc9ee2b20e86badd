// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods tells where each pod stands on the way to its size: what it should have now, what keeps it from that, and what
// its kubelet has answered.
package pods

import (
	"cmp"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// pendingGrace is how long a resize may be Deferred or Infeasible before it is withdrawn. A
	// kubelet tries again after 30 seconds and then every 3 minutes.
	pendingGrace = 10 * time.Minute
	// shrinkGrace is how long a kubelet may fail to lower a memory limit before the limit is restored. It tries again with every
	// sync of the pod, and may merely not have read the usage yet.
	shrinkGrace = 2 * time.Minute
)

// Standing is where one pod stands.
type Standing struct {
	goal.Pod

	Activity Activity
	// Sizes are the sizes of its resize, whether it is still to be made or not.
	Sizes goal.Changes
	// IsBoosted is true if the pod is starting, and gets more CPU meanwhile.
	IsBoosted bool
	// Withdraws is the resize that the kubelet has not granted, if this one restores what it has applied; nil for none.
	Withdraws    *model.RejectedResize
	Obstacles    model.Obstacles
	RequeueAfter time.Duration
	IsLeaving    bool // a rollout is about to replace the pod
}

// Activity is a stage on the way to a size.
type Activity int

// The activities.
const (
	Blocked        Activity = iota // it cannot have its size
	LeavingAtSize                  // it is about to be replaced, and has the decided size
	Asks                           // it is to be resized
	AsksFreeing                    // it is to be resized, which frees capacity for others
	AsksBoost                      // it is to be resized because it is starting
	AsksReduction                  // it is to be lowered, which needs verification
	AsksInstead                    // it is to be resized, instead of to another size that waits for room
	AsksAgain                      // it is to be resized to a part of a size that was withdrawn
	AsksWithdrawal                 // its resize is to be withdrawn
	Deferred                       // its resize waits for room on its node
	InFlight                       // a resize is in progress
	Boosting                       // a boost is in progress
	Withheld                       // it is to be lowered once usage is complete
	Settled                        // it has all that it can get
	Complete                       // it has the decided size
	Leaving                        // it keeps another size until it is replaced
	Activities                     // how many there are
)

// Of is the standing of a pod.
func Of(pod goal.Pod) Standing {
	t := targetOf(pod)
	sizes, refusal := pod.Admissible(t.sizes)
	s := Standing{Pod: pod, Sizes: sizes, IsBoosted: t.isBoosted(), Obstacles: t.dropped, RequeueAfter: t.retry}
	if refusal.Exists() {
		s.Obstacles = append(s.Obstacles, refusal)
	}
	if refusal.Reason == v1beta1.ReasonQuotaExceeded {
		s = s.within(goal.QuotaRetry)
	}
	if t.isBoosted() {
		s = s.within(t.until.Sub(s.Now))
	}
	if sizes.Differ() {
		s = s.classifyRequest(refusal)
	} else {
		s = s.classifyAnswer()
	}
	for i, o := range s.Obstacles {
		s.Obstacles[i] = o.On(SubjectOf(pod.Pod))
	}
	if pod.IsLeaving(pod.Policy, pod.Pod) {
		return s.classifyLeaving()
	}
	return s
}

// SubjectOf is the pod as the subject of an obstacle.
func SubjectOf(pod workload.Pod) string { return "pod " + pod.Name }

// classifyRequest is the standing of a pod that has not been asked for its sizes yet. refusal is the reason why they are not
// all that it should have.
func (s Standing) classifyRequest(refusal model.Obstacle) Standing {
	blocker, frees := s.BlockerOf(s.Sizes), s.Sizes.RaiseNothing()
	switch {
	case blocker.Reason == v1beta1.ReasonUnsupported: // until its node has had time to report the applied resources
		return s.within(s.Started.Add(goal.StuckAfter).Sub(s.Now)).blockedBy(blocker)
	case blocker.Exists():
		return s.blockedBy(blocker)
	case s.IsBoosted:
		return s.as(AsksBoost)
	case frees && isStarting(s.Pod.Pod) && !s.StartedBoosted():
		return s.blockedBy(model.Wait(v1beta1.ReasonPodsUnavailable, "is lowered once it is Ready"))
	case s.Decision.Verification != nil && s.Sizes.LowerRequest():
		if raised, _ := s.WithinRoom(s.Sizes.Raised()); s.IsPossibleChange(raised) { // which does not wait for the verification
			s.Sizes = raised
			return s.as(Asks)
		}
		return s.as(AsksReduction)
	case frees:
		return s.as(AsksFreeing)
	case s.Resize.Deferred:
		return s.as(AsksInstead)
	case isPending(refusal.Reason):
		return s.as(AsksAgain)
	}
	return s.as(Asks)
}

// isStarting reports whether a pod has never been Ready with the size that it was created with: it may need that to start.
func isStarting(pod workload.Pod) bool {
	switch {
	case !pod.Current, pod.Ready, pod.ReadyChanged.IsZero(), model.WasResized(pod), len(pod.Kills) > 0:
		return false
	}
	return true
}

// classifyAnswer is the standing of a pod that declares its sizes. It depends on what the kubelet reports.
func (s Standing) classifyAnswer() Standing {
	switch {
	case s.Resize.Infeasible, s.Resize.Deferred:
		return s.classifyPending()
	case s.Resize.Failed:
		return s.classifyFailed()
	case s.Resize.InProgress, !s.Sizes.AreApplied():
		return s.classifyInProgress()
	case goal.IsWithheld(s.Obstacles):
		return s.as(Withheld)
	case len(s.Obstacles) > 0:
		return s.as(Settled)
	}
	return s.as(Complete)
}

// classifyPending is the standing of a pod whose kubelet does not grant the resize, at least not now. After the grace the resize
// is withdrawn. It is withdrawn at once if it keeps other pods from the node, or one of its resources from the pod.
func (s Standing) classifyPending() Standing {
	left := s.answeredSince().Add(pendingGrace).Sub(s.Now)
	pending := model.Obstacle{
		Reason: v1beta1.ReasonInfeasible, Message: cmp.Or(s.Resize.Message, "its node can never hold the new size"), Stalled: true, NeedsNewPod: true,
	}
	if !s.Resize.Infeasible { // which reserves nothing on its node: the resync is soon enough
		pending = model.Obstacle{
			Reason: v1beta1.ReasonDeferred, Message: cmp.Or(s.Resize.Message, "its node has no room for the new size yet"), NeedsNewPod: left <= 0,
		}
		s = s.within(min(left, pendingGrace))
	}
	s = s.blockedBy(pending)
	if pending.Reason == v1beta1.ReasonDeferred {
		s = s.as(Deferred)
	}
	takesRoom := s.Resize.Deferred && s.IsOvercommitted()
	if left > 0 && !takesRoom && !s.holdsBackOther() {
		return s
	}
	s = s.withdrawn(pending)
	if takesRoom { // which bounds what is asked for next
		s.Withdraws = nil
	}
	return s
}

// holdsBackOther reports whether the kubelet will never grant the resize, and the pod lacks both resources. A kubelet grants all
// of a resize or nothing, and may grant one resource alone. A fallback replaces the pod instead.
func (s Standing) holdsBackOther() bool {
	if !s.Resize.Infeasible || s.Policy.MayEvict() || s.Policy.MayRollOut() {
		return false
	}
	decided, _ := s.Decided()
	lacks := func(r model.Resource) bool {
		return slices.ContainsFunc(decided, func(c goal.Change) bool { return !r.IsApplied(c.Actual, c.Size) })
	}
	return lacks(model.CPU) && lacks(model.Memory)
}

// classifyFailed is the standing of a pod whose kubelet could not apply the resize. It tries again by itself. A memory limit that
// it cannot lower is restored: otherwise it would be lowered in a moment of less usage, and the pod might be OOM-killed in the next.
func (s Standing) classifyFailed() Standing {
	failed := model.Wait(v1beta1.ReasonResizeError, "%s", cmp.Or(s.Resize.Message, "the kubelet could not actuate the resize and tries again"))
	isShrinking := func(c workload.Container) bool {
		return model.IsBelow(c.Limits.MemoryBytes, s.Actual.Of(c.Name).Limits.MemoryBytes)
	}
	if !slices.ContainsFunc(s.Containers, isShrinking) {
		left := s.stuckIn()
		failed.NeedsNewPod = left <= 0 && !s.IsBoosted
		return s.within(max(0, left)).blockedBy(failed)
	}
	left := s.answeredSince().Add(shrinkGrace).Sub(s.Now)
	s = s.within(max(0, left)).blockedBy(failed)
	if left > 0 {
		return s
	}
	return s.withdrawn(failed)
}

// withdrawn is the standing of a pod that declares again what it has, if it can.
func (s Standing) withdrawn(why model.Obstacle) Standing {
	sizes, ok := s.withoutPending()
	if !ok {
		return s
	}
	s.Withdraws = &model.RejectedResize{Sizes: s.Sizes.Sizes(), Reason: why.Reason, Message: why.Message}
	s.Sizes = sizes
	return s.as(AsksWithdrawal)
}

func (s Standing) classifyInProgress() Standing {
	left := s.stuckIn()
	switch {
	case left <= 0:
		stuck := model.Wait(v1beta1.ReasonResizeError, "the kubelet has not applied the new size for %s", goal.StuckAfter)
		stuck.NeedsNewPod = !s.IsBoosted
		return s.blockedBy(stuck)
	case !s.IsBoosted, slices.ContainsFunc(s.Sizes, func(c goal.Change) bool { return model.Memory.Differs(c.Actual, c.Size) }):
		return s.as(InFlight).within(left)
	}
	return s.as(Boosting).within(left)
}

func (s Standing) as(a Activity) Standing {
	s.Activity = a
	return s
}

func (s Standing) blockedBy(o model.Obstacle) Standing {
	s.Obstacles = append(s.Obstacles, o)
	return s.as(Blocked)
}

func (s Standing) within(d time.Duration) Standing {
	s.RequeueAfter = model.Sooner(s.RequeueAfter, d)
	return s
}

// stuckIn is the time until a resize in progress has taken too long.
func (s Standing) stuckIn() time.Duration {
	return min(askedAt(s.Pod).Add(goal.StuckAfter).Sub(s.Now), goal.StuckAfter)
}

// askedAt is the time at which the pod was asked to have its size. If that is unknown: not before
// the decision, nor before the pod started.
func askedAt(pod goal.Pod) time.Time {
	return model.Latest(pod.Decision.Time, pod.Started, pod.Resized)
}

// answeredSince is the time since which the kubelet has reported the same about this size.
func (s Standing) answeredSince() time.Time {
	if s.Resize.Since.IsZero() {
		return askedAt(s.Pod)
	}
	return s.Resize.Since
}
