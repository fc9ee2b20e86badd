// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// headroom is what is left to each container of one resource, beside the other containers of
// the pod. That of the largest node keeps the operator from asking for resizes that no
// node of the cluster can grant.
//
// It bounds only what is resized in place, because such a pod stays on its node. In the
// mode Rollout new pods may bring a new node, from a pool that has none now, so a template
// may ask for more than any node has.
//
// Headroom is granted by size of the demand, the smallest first, so that one container
// whose demand no node can meet does not take it from the others. With a node of 10:
//
//	has     wants   headroom
//	1       12      10
//	12      14      12
//	1, 3    6, 3    7, 9
//	1, 1    6, 6    9, 4
//	1, 1    20, 4   6, 9
//	1, 1    9, 9    9, 1
//
// A container that has more than its headroom keeps it, because its node may only be away
// for a while: a node is no reason to lower anything. The pod's native sidecars and overhead count,
// and other pods on a node do not. So a request above the headroom cannot fit, and one within it may
// not fit either.
type headroom []demand

// nodeHeadroomFor is nil if the largest node is unknown or does not matter. beside is what a pod requests
// besides the containers.
func nodeHeadroomFor(s model.Situation, policy model.Policy, r model.Resource, beside quantity.Amounts) headroom {
	node := r.Of(s.LargestNode)
	if node == 0 || !policy.InPlace() {
		return nil
	}
	demands := make([]demand, 0, len(s.Deployment.Containers))
	for _, container := range s.Deployment.Containers {
		d := demand{container: container.Name}
		d.has, _ = currentRequest(s, policy, container, r)
		d.wants = d.has
		if !container.Unreadable && s.IsManaged(policy, container.Name, r) {
			d.wants = max(d.has, targetFor(s, allowedFor(s, policy, container, r), container, r))
		}
		demands = append(demands, d)
	}
	return grant(node-r.Of(beside), demands)
}

// demand is what one container requests and what it should, and what is left to it.
type demand struct {
	container        string
	has, wants, left int64
}

// grant shares out what a node has. It sorts the demands.
func grant(node int64, demands []demand) headroom {
	free := node
	for _, d := range demands {
		free -= d.has
	}
	slices.SortFunc(demands, func(a, b demand) int {
		return cmp.Or(cmp.Compare(a.wants, b.wants), cmp.Compare(a.container, b.container))
	})
	for i := range demands {
		d := &demands[i]
		d.left = d.has + max(0, free)
		free -= min(d.wants, d.left) - d.has
	}
	return demands
}

// of is what is left to a container. It is bounded unless the headroom does not matter.
func (h headroom) of(container string) (left int64, isBounded bool) {
	for _, d := range h {
		if d.container == container {
			return d.left, true
		}
	}
	return 0, false
}

// fit caps a request.
func (h headroom) fit(container string, v int64) int64 {
	if left, isBounded := h.of(container); isBounded {
		return min(v, left)
	}
	return v
}

// bound is the headroom as a bound of the request. It is never less than the current request, so
// that by itself it moves nothing.
func (h headroom) bound(container string) bound {
	left, _ := h.of(container)
	return bound{most: left}
}
