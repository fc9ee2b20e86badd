// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The scheduler counts a raise as soon as a pod declares it, also while the kubelet has no room for it (Deferred). A raise
// beyond the room of its node would keep all new pods from that node, and the pod would get no part of it. So a running pod
// asks for the part that fits, and for the rest when there is room. Nothing that a pod has is lowered because of its node.
//
// Several raises may ask for the same room at once. The node is then overcommitted: its pods request more than it can
// allocate. The raises that the kubelet defers are withdrawn at once, and ask for the room that is left.

const (
	// roomRetry is when to look again at a node that has no room. Other pods of the node trigger no reconcile.
	roomRetry = time.Minute
	// leastPart is the divisor of the least part of a raise that is asked for. Otherwise each small pod that ends on a
	// full node would lead to a resize.
	leastPart = 10
)

// withinRoom is the target without the part of its raises that the node of the pod has no room for.
//
// The fallback follows after the time that a kubelet may defer a resize. It counts from the decision and from the last
// resize of the pod, so nothing has to be remembered. It may have passed already for a pod whose node fills up later.
func (p planner) withinRoom(pod workload.Pod, t target) target {
	if _, isKnown := p.Room[pod.Node]; !isKnown {
		return t
	}
	asked := t.sizes
	for _, r := range []model.Resource{model.Memory, model.CPU} {
		t.sizes = p.fitting(r, pod, t.sizes)
	}
	for i, size := range t.sizes {
		for _, r := range []model.Resource{model.Memory, model.CPU} {
			if wanted := r.Request(asked[i].Resources); r.Request(size.Resources) < wanted {
				has, _ := pod.Container(size.Container)
				t.retry = roomRetry
				t.dropped = append(t.dropped, model.Obstacle{
					Reason: v1beta1.ReasonDeferred,
					Message: fmt.Sprintf("container %s has %s of %s of %s; its node has no more",
						size.Container, r.Format(r.Request(has.Resources)), r.Format(wanted), r),
					NeedsNewPod: !p.now.Before(p.askedAt(pod).Add(pendingGrace)),
				})
			}
		}
	}
	t.sizes = keepBurstable(pod, t.sizes)
	return t
}

// fitting is the sizes with as much of a resource as the node has room for.
func (p planner) fitting(r model.Resource, pod workload.Pod, sizes []model.Size) []model.Size {
	over := func(sizes []model.Size) int64 {
		return r.Request(pod.CountedWith(p.resizedPod(pod, sizes))) - r.Request(pod.Counted()) - r.Of(p.Room[pod.Node])
	}
	if !p.isOvercommitted(pod) {
		if over(sizes) <= 0 {
			return sizes
		}
		if part := p.lessRaised(r, pod, sizes, over(sizes)); over(part) <= 0 {
			return part
		}
	}
	return p.lessRaised(r, pod, sizes, math.MaxInt64) // the kubelet would defer any raise
}

// isOvercommitted reports whether the node of the pod has less than its pods request. A kubelet then grants no raise, of the
// other resource either.
func (p planner) isOvercommitted(pod workload.Pod) bool {
	room, isKnown := p.Room[pod.Node]
	return isKnown && min(room.CPUMillis, room.MemoryBytes) < 0
}

// lessRaised is the sizes with raises of a resource that are smaller by an amount, those of the last containers first.
func (p planner) lessRaised(r model.Resource, pod workload.Pod, sizes []model.Size, by int64) []model.Size {
	raised := int64(0)
	for _, size := range sizes {
		c, _ := pod.Container(size.Container)
		raised += max(0, r.Request(size.Resources)-r.Request(c.Resources))
	}
	if raised-by < raised/leastPart {
		by = raised
	}
	out := slices.Clone(sizes)
	for i, size := range slices.Backward(sizes) {
		c, _ := pod.Container(size.Container)
		if cut := min(by, r.Request(size.Resources)-r.Request(c.Resources)); cut > 0 {
			out[i] = p.withRequest(r, c, size, r.Request(size.Resources)-cut)
			by -= cut
		}
	}
	return out
}

// withRequest is the size with a lower request, rounded down, and with the limit that follows. It is no less than the
// container has.
func (p planner) withRequest(r model.Resource, c workload.Container, size model.Size, request int64) model.Size {
	unit := int64(1)
	switch {
	case r.IsMemory():
		unit = 1 << 20
	case decision.HasWholeCores(p.Situation, p.policy, c):
		unit = 1000
	}
	requests := size.Requests
	r.Set(&requests, request/unit*unit)
	if r.Of(requests) <= r.Request(c.Resources) {
		r.Copy(&size.Resources, c.Resources)
		return size
	}
	r.Copy(&size.Resources, decision.LimitRulesFor(p.Situation, p.policy, c).Apply(c.Resources, requests))
	return size
}

// mostBoosted is the most CPU that a pod may request while it starts; 0 for any.
func (p planner) mostBoosted(pod workload.Pod) int64 {
	most := decision.MostPerPod(p.Situation, p.policy, model.CPU)
	room, isKnown := p.Room[pod.Node]
	if !isKnown {
		return most
	}
	if p.isOvercommitted(pod) {
		room.CPUMillis = 0
	}
	return min(cmp.Or(most, math.MaxInt64), max(1, pod.Counted().Requests.CPUMillis+room.CPUMillis))
}
