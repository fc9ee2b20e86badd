// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A rollout leaves pods of an older template behind until it has replaced them. While it is paused or
// stuck they stay, and are resized in place like all others. While it makes progress they are about
// to be replaced: they only get the memory that an OOM kill has shown to be necessary, because a
// rollout may take hours. A resource that such a pod cannot have is not a reason to replace it.

// roomRetry is the time until the next look at a node that has no room. Other pods of the node trigger no reconcile.
const roomRetry = time.Minute

// target is the size that a pod should have now.
type target struct {
	sizes   goal.Changes
	dropped model.Obstacles
	// until is the end of the first boost of the pod; zero if there is none.
	until time.Time
	// retry is the time until the next look at the room of its node; 0 if there is enough.
	retry time.Duration
}

func (t target) isBoosted() bool { return !t.until.IsZero() }

// targetOf is the size that a pod should have now: the decided one, with these corrections, in this order.
//
//   - More CPU for a container that starts. If the pod cannot have more CPU, it gets none: a boost never keeps a pod
//     from its decided size.
//   - Nothing is lowered while usage is missing.
//   - The quotas and the node of the pod have room for it. It leaves a waiting rollout room in the quotas.
//   - Memory comes before CPU after an OOM kill.
func targetOf(pod goal.Pod) target {
	if pod.IsLeaving(pod.Policy, pod.Pod) {
		return target{sizes: pod.Rescued()}.withinQuotas(pod).givingBack(pod).withinRoom(pod)
	}
	plain, dropped := pod.Decided()
	t := target{sizes: plain, dropped: dropped}
	if !pod.Resize.Infeasible && !pod.Resize.Deferred {
		if sizes, until := pod.Boosted(plain); !until.IsZero() && pod.IsPossible(sizes) {
			t.sizes, t.until = sizes, until
		}
	}
	var waits model.Obstacles
	t.sizes, waits = pod.Withholding(plain, t.sizes)
	t.dropped = append(t.dropped, waits...)
	return t.withinQuotas(pod).givingBack(pod).withinRoom(pod).memoryFirst(pod)
}

// SizesOf are the sizes that a pod should have now.
func SizesOf(pod goal.Pod) goal.Changes { return targetOf(pod).sizes }

// withinQuotas is the target without the part of its raises that the quotas have no room for.
func (t target) withinQuotas(pod goal.Pod) target {
	var missing model.Obstacle
	if t.sizes, missing = pod.WithinQuotas(t.sizes); missing.Exists() {
		t.dropped, t.retry = append(t.dropped, missing), goal.QuotaRetry
	}
	return t
}

// givingBack is the target without the part of earlier raises that keeps a rollout waiting for a quota.
func (t target) givingBack(pod goal.Pod) target {
	var lacking model.Obstacle
	if t.sizes, lacking = pod.GivingBack(t.sizes); lacking.Exists() {
		t.dropped, t.retry = append(t.dropped, lacking), goal.QuotaRetry
	}
	return t
}

// withinRoom is the target without the part of its raises that the node of the pod has no room for.
//
// The fallback follows after the time that a kubelet may defer a resize. It counts from the decision and from the last
// resize of the pod, so nothing has to be remembered. It may have passed already for a pod whose node fills up later.
func (t target) withinRoom(pod goal.Pod) target {
	var missing model.Obstacles
	t.sizes, missing = pod.WithinRoom(t.sizes)
	for _, o := range missing {
		o.NeedsNewPod = !pod.Now.Before(askedAt(pod).Add(pendingGrace))
		t.dropped, t.retry = append(t.dropped, o), roomRetry
	}
	return t
}

// memoryFirst is the target without more CPU while the kubelet has not applied the memory that a pod gets after an OOM kill. A
// kubelet grants all of a resize or nothing, and the node may have room for the memory only.
func (t target) memoryFirst(pod goal.Pod) target {
	isRaised := func(c goal.Change) bool {
		return model.Memory.Raises(pod.Applied(c.Has.Name), c.Size)
	}
	if !pod.Decision.IsUrgentRestart() || !slices.ContainsFunc(t.sizes, isRaised) {
		return t
	}
	sizes := t.sizes.With(func(c goal.Change) workload.Resources {
		if model.CPU.Raises(c.Has.Resources, c.Size) {
			model.CPU.Copy(&c.Size, c.Has.Resources)
		}
		return c.Size
	})
	if sizes = sizes.KeepingBurstable(pod.Pod); pod.IsPossible(sizes) {
		t.sizes = sizes
	}
	return t
}

func (s Standing) classifyLeaving() Standing {
	s.IsLeaving = true
	s.Obstacles = slices.DeleteFunc(s.Obstacles, func(o model.Obstacle) bool { return o.NeedsNewPod })
	switch s.Activity {
	case Asks, AsksFreeing, AsksInstead, AsksAgain, InFlight:
		return s
	case Complete:
		if sizes, dropped := s.Decided(); len(dropped) == 0 && !sizes.Differ() {
			return s.as(LeavingAtSize)
		}
	}
	return s.as(Leaving)
}

// isPending reports whether the kubelet does not grant a resize for that reason.
func isPending(reason string) bool {
	return slices.Contains([]string{v1beta1.ReasonDeferred, v1beta1.ReasonInfeasible}, reason)
}
