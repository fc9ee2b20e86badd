// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The scheduler counts a raise as soon as a pod declares it, also while the kubelet has no room for it (Deferred). A raise
// beyond the room of its node would keep all new pods from that node, and the pod would get no part of it. So a running pod
// asks for the part that fits, and for the rest when there is room. Nothing that a pod has is lowered because of its node.
//
// Several raises may ask for the same room at once. The node is then overcommitted: its pods request more than it can
// allocate. The raises that the kubelet defers are withdrawn at once, and ask for the room that is left.

// leastPart is the divisor of the least part of a raise that is asked for. Otherwise each small pod that ends on a
// full node would lead to a resize.
const leastPart = 10

// memoryFirst is the order in which resources get the room of a node.
var memoryFirst = [...]model.Resource{model.Memory, model.CPU}

// WithinRoom is the sizes without the part of their raises that the node of the pod has no room for, and what is missing.
func (p Pod) WithinRoom(wanted Changes) (sizes Changes, missing model.Obstacles) {
	sizes = wanted
	if _, isKnown := p.Room[p.Node]; !isKnown {
		return sizes, nil
	}
	for _, r := range memoryFirst {
		sizes = p.fitting(r, sizes)
	}
	for i, c := range sizes {
		for _, r := range memoryFirst {
			if whole := r.Request(wanted[i].Size); r.Request(c.Size) < whole {
				missing = append(missing, model.Wait(v1beta1.ReasonDeferred, "container %s has %s of %s of %s; its node has no more",
					c.Has.Name, r.Format(r.Request(c.Has.Resources)), r.Format(whole), r))
			}
		}
	}
	return sizes.KeepingBurstable(p.Pod), missing
}

func (p Pod) fitting(r model.Resource, sizes Changes) Changes {
	over := func(sizes Changes) int64 {
		return r.Request(p.CountedWith(sizes.Resized(p.Pod))) - r.Request(p.Counted()) - r.Of(p.Room[p.Node])
	}
	if !p.IsOvercommitted() {
		if over(sizes) <= 0 {
			return sizes
		}
		if part := sizes.lessRaised(r, over(sizes)); over(part) <= 0 {
			return part
		}
	}
	return sizes.lessRaised(r, model.Any) // the kubelet would defer any raise
}

// IsOvercommitted reports whether the node of the pod has less than its pods request. A kubelet then grants no raise, of the
// other resource either.
func (p Pod) IsOvercommitted() bool {
	room, isKnown := p.Room[p.Node]
	return isKnown && min(room.CPUMillis, room.MemoryBytes) < 0
}

// lessRaised is the sizes with raises of a resource that are smaller by an amount. The last containers lose theirs first.
func (cs Changes) lessRaised(r model.Resource, by int64) Changes {
	raised := int64(0)
	for _, c := range cs {
		raised += max(0, r.Request(c.Size)-r.Request(c.Has.Resources))
	}
	if raised-by < raised/leastPart {
		by = raised
	}
	out := slices.Clone(cs)
	for i, c := range slices.Backward(cs) {
		if cut := min(by, r.Request(c.Size)-r.Request(c.Has.Resources)); cut > 0 {
			out[i].Size = c.withRequest(r, r.Request(c.Size)-cut)
			by -= cut
		}
	}
	return out
}

// withRequest is the size with a lower request, rounded down, and with the limit that follows. It is no less than the
// container has.
func (c Change) withRequest(r model.Resource, request int64) workload.Resources {
	unit := int64(1)
	switch {
	case r.IsMemory():
		unit = 1 << 20
	case c.Goal.HasWholeCores:
		unit = row.Core
	}
	size, requests := c.Size, c.Size.Requests
	r.Set(&requests, request/unit*unit)
	if r.Of(requests) <= r.Request(c.Has.Resources) {
		r.Copy(&size, c.Has.Resources)
	} else {
		r.Copy(&size, c.Goal.Resize(c.Has.Resources, requests))
	}
	return size
}
