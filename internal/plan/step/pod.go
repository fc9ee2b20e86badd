// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// stuckAfter is how long a kubelet may take to apply a resize before the pod no longer
	// delays others.
	stuckAfter = 10 * time.Minute
	// pendingGrace is how long a resize may be Deferred or Infeasible before it is withdrawn. A
	// kubelet tries again after 30 seconds and then every 3 minutes.
	pendingGrace = 10 * time.Minute
	// shrinkGrace is how long a kubelet may fail to lower a memory limit before the limit is
	// restored. It tries again with every sync of the pod, and may merely not have read the
	// usage yet.
	shrinkGrace = 2 * time.Minute
)

// podVerdict says where one pod stands.
type podVerdict struct {
	activity activity
	// step is the resize of the pod, whether it is still to be made or not.
	step         model.Resize
	obstacles    model.Obstacles
	requeueAfter time.Duration
	isLeaving    bool // a rollout is about to replace the pod
}

type activity int

const (
	blocked        activity = iota // it cannot have its size
	leavingAtSize                  // it is about to be replaced, and has the decided size
	asks                           // it is to be resized
	asksFreeing                    // it is to be resized, which frees capacity for others
	asksBoost                      // it is to be resized because it is starting
	asksReduction                  // it is to be lowered, which needs verification
	asksInstead                    // it is to be resized, instead of to another size that waits for room
	asksAgain                      // it is to be resized to a part of a size that was withdrawn
	asksWithdrawal                 // its resize is to be withdrawn
	deferred                       // its resize waits for room on its node
	inFlight                       // a resize is in progress
	boosting                       // a boost is in progress
	withheld                       // it is to be lowered once usage is complete
	settled                        // it has all that it can get
	complete                       // it has the decided size
	leaving                        // it keeps another size until it is replaced
	activities                     // how many there are
)

// classify says where a pod stands.
func (p planner) classify(pod workload.Pod) podVerdict {
	t := p.targetOf(pod)
	sizes, refusal := p.admissible(pod, t.sizes)
	v := podVerdict{
		step:      model.Resize{Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Sizes: sizes, Boost: t.isBoosted()},
		obstacles: t.dropped, requeueAfter: t.retry,
	}
	if refusal.Exists() {
		v.obstacles = append(v.obstacles, refusal)
	}
	if refusal.Reason == v1beta1.ReasonQuotaExceeded {
		v = v.within(quotaRetry)
	}
	if t.isBoosted() {
		v = v.within(t.until.Sub(p.now))
	}
	if differsFrom(pod, sizes) {
		v = p.classifyRequest(pod, v, refusal)
	} else {
		v = p.classifyAnswer(pod, v)
	}
	for i, o := range v.obstacles {
		v.obstacles[i] = o.On(subjectOf(pod))
	}
	if p.IsLeaving(p.policy, pod) {
		return p.classifyLeaving(pod, v)
	}
	return v
}

func subjectOf(pod workload.Pod) string { return "pod " + pod.Name }

// classifyRequest is the verdict on a pod that has not been asked for its sizes yet. refusal is why they are not all that it
// should have.
func (p planner) classifyRequest(pod workload.Pod, v podVerdict, refusal model.Obstacle) podVerdict {
	blocker, frees := p.blockerOf(pod, v.step.Sizes), raisesNothing(pod, v.step.Sizes)
	switch {
	case blocker.Reason == v1beta1.ReasonUnsupported: // until its node has had time to report the applied resources
		return v.within(pod.Started.Add(stuckAfter).Sub(p.now)).blockedBy(blocker)
	case blocker.Exists():
		return v.blockedBy(blocker)
	case v.step.Boost:
		return v.as(asksBoost)
	case frees && isStarting(pod) && !p.startedBoosted(pod):
		return v.blockedBy(model.Obstacle{Reason: v1beta1.ReasonPodsUnavailable, Message: "is lowered once it is Ready"})
	case p.Decision.Verification != nil && lowersRequest(pod, v.step.Sizes):
		if raised := raised(pod, v.step.Sizes); p.isPossibleChange(pod, raised) { // which does not wait for the verification
			v.step.Sizes = raised
			return v.as(asks)
		}
		return v.as(asksReduction)
	case frees:
		return v.as(asksFreeing)
	case pod.Resize.Deferred:
		return v.as(asksInstead)
	case isPending(refusal.Reason):
		return v.as(asksAgain)
	}
	return v.as(asks)
}

// isStarting reports whether a pod has never been Ready with the size that it was created with: it may need that to start.
func isStarting(pod workload.Pod) bool {
	switch {
	case !pod.Current, pod.Ready, pod.ReadyChanged.IsZero(), model.WasResized(pod), len(pod.Kills) > 0:
		return false
	}
	return true
}

// classifyAnswer is the verdict on a pod that declares its sizes. It depends on what the
// kubelet reports.
func (p planner) classifyAnswer(pod workload.Pod, v podVerdict) podVerdict {
	switch {
	case pod.Resize.Infeasible, pod.Resize.Deferred:
		return p.classifyPending(pod, v)
	case pod.Resize.Failed:
		return p.classifyFailed(pod, v)
	case pod.Resize.InProgress, !isApplied(pod, v.step.Sizes):
		return p.classifyInProgress(pod, v)
	case isWithheld(v.obstacles):
		return v.as(withheld)
	case len(v.obstacles) > 0:
		return v.as(settled)
	}
	return v.as(complete)
}

// classifyPending is the verdict on a pod whose kubelet does not grant the resize, at least not
// now. After the grace the resize is withdrawn, and at once if it keeps other pods from the node.
func (p planner) classifyPending(pod workload.Pod, v podVerdict) podVerdict {
	left := p.answeredSince(pod).Add(pendingGrace).Sub(p.now)
	pending := model.Obstacle{
		Reason: v1beta1.ReasonInfeasible, Message: cmp.Or(pod.Resize.Message, "its node can never hold the new size"), Stalled: true, NeedsNewPod: true,
	}
	if !pod.Resize.Infeasible { // which reserves nothing on its node: the resync is soon enough
		pending = model.Obstacle{
			Reason: v1beta1.ReasonDeferred, Message: cmp.Or(pod.Resize.Message, "its node has no room for the new size yet"), NeedsNewPod: left <= 0,
		}
		v = v.within(min(left, pendingGrace))
	}
	v = v.blockedBy(pending)
	if pending.Reason == v1beta1.ReasonDeferred {
		v = v.as(deferred)
	}
	takesRoom := pod.Resize.Deferred && p.isOvercommitted(pod)
	if left > 0 && !takesRoom {
		return v
	}
	v = p.withdrawn(pod, v, pending)
	if takesRoom { // which bounds what is asked for next
		v.step.Withdraws = nil
	}
	return v
}

// classifyFailed is the verdict on a pod whose kubelet could not apply the resize. It tries again by itself. A memory limit that
// it cannot lower is restored: otherwise it would be lowered in a moment of less usage, and the pod might be OOM-killed in the next.
func (p planner) classifyFailed(pod workload.Pod, v podVerdict) podVerdict {
	failed := model.Obstacle{
		Reason:  v1beta1.ReasonResizeError,
		Message: cmp.Or(pod.Resize.Message, "the kubelet could not actuate the resize and tries again"),
	}
	isShrinking := func(c workload.Container) bool {
		return model.IsBelow(c.Limits.MemoryBytes, pod.Actual[c.Name].Limits.MemoryBytes)
	}
	if !slices.ContainsFunc(pod.Containers, isShrinking) {
		left := p.stuckIn(pod)
		failed.NeedsNewPod = left <= 0 && !v.step.Boost
		return v.within(max(0, left)).blockedBy(failed)
	}
	left := p.answeredSince(pod).Add(shrinkGrace).Sub(p.now)
	v = v.within(max(0, left)).blockedBy(failed)
	if left > 0 {
		return v
	}
	return p.withdrawn(pod, v, failed)
}

// withdrawn is the verdict on a pod that declares again what it has, if it can.
func (p planner) withdrawn(pod workload.Pod, v podVerdict, why model.Obstacle) podVerdict {
	sizes, ok := p.withoutPending(pod, v.step.Sizes)
	if !ok {
		return v
	}
	v.step.Withdraws = &model.RejectedResize{Sizes: v.step.Sizes, Reason: why.Reason, Message: why.Message}
	v.step.Sizes = sizes
	return v.as(asksWithdrawal)
}

func (p planner) classifyInProgress(pod workload.Pod, v podVerdict) podVerdict {
	left := p.stuckIn(pod)
	switch {
	case left <= 0:
		return v.blockedBy(model.Obstacle{
			Reason: v1beta1.ReasonResizeError, Message: "the kubelet has not applied the new size for " + stuckAfter.String(), NeedsNewPod: !v.step.Boost,
		})
	case !v.step.Boost, slices.ContainsFunc(v.step.Sizes, func(size model.Size) bool { return model.Memory.Differs(pod.Actual[size.Container], size.Resources) }):
		return v.as(inFlight).within(left)
	}
	return v.as(boosting).within(left)
}

func (v podVerdict) as(a activity) podVerdict {
	v.activity = a
	return v
}

func (v podVerdict) blockedBy(o model.Obstacle) podVerdict {
	v.obstacles = append(v.obstacles, o)
	return v.as(blocked)
}

func (v podVerdict) within(d time.Duration) podVerdict {
	v.requeueAfter = model.Sooner(v.requeueAfter, d)
	return v
}

// stuckIn is the time until a resize in progress has taken too long.
func (p planner) stuckIn(pod workload.Pod) time.Duration {
	return min(p.askedAt(pod).Add(stuckAfter).Sub(p.now), stuckAfter)
}

// askedAt is when the pod was asked to have its size. If that is unknown: not before the
// decision, nor before the pod started.
func (p planner) askedAt(pod workload.Pod) time.Time {
	return model.Latest(p.Decision.Time, pod.Started, pod.Resized)
}

// answeredSince is the time since which the kubelet has reported the same about this size.
func (p planner) answeredSince(pod workload.Pod) time.Time {
	if pod.Resize.Since.IsZero() {
		return p.askedAt(pod)
	}
	return pod.Resize.Since
}
