// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// room is what the largest node leaves to each container of one resource, beside the
// other containers of the pod. It keeps a pod from growing to a size that no node of
// the cluster could hold.
//
// The other containers count with the request that they have or want, whichever is
// more. All requests together then stay within the node, in whatever order they are
// looked at. With a node of 10:
//
//	has     wants   room        has     wants   room
//	1       12      10          1, 3    6, -    7, 9
//	12      14      12          1, 1    6, 6    4, 4
//
// A container that has more than its room keeps it, for the node that it came from
// may only be away for a while: nothing is lowered because of a node. What runs on
// every node besides, and what only init containers request, is not known here. So
// this refuses what cannot fit, and promises nothing about what can.
type room map[string]int64

// roomFor is nil where the largest node is not known.
func roomFor(s Situation, policy Policy, r resource) room {
	node := r.of(s.LargestNode)
	if node == 0 {
		return nil
	}
	sum, most := injected(s, r), map[string]int64{}
	for _, container := range s.Deployment.Containers {
		current, _ := currentRequest(s, container, r)
		most[container.Name] = current
		if !container.Unreadable && policy.controls(container.Name, r) && scaledBy(s.Scaled, r) == "" {
			most[container.Name] = max(current, targetFor(s, allowedFor(s, policy, container, r), container, r))
		}
		sum += most[container.Name]
	}
	left := room{}
	for _, container := range s.Deployment.Containers {
		current, _ := currentRequest(s, container, r)
		left[container.Name] = max(current, node-(sum-most[container.Name]))
	}
	return left
}

// injected is what containers request that the pods have and the template has not.
func injected(s Situation, r resource) (most int64) {
	for _, pod := range s.Pods {
		if !counts(pod) {
			continue
		}
		var sum int64
		for _, c := range pod.Containers {
			if _, ok := s.Deployment.Container(c.Name); !ok {
				sum += r.of(c.Requests)
			}
		}
		most = max(most, sum)
	}
	return most
}

// fit caps a request.
func (m room) fit(container string, v int64) int64 {
	if left, ok := m[container]; ok {
		return min(v, left)
	}
	return v
}

// bound adds the room to what a request may be. It is never less than the request in
// force, so that by itself it moves nothing.
func (m room) bound(container string, allowed spans) spans {
	if left, ok := m[container]; ok && left > 0 {
		return append(allowed, span{0, left})
	}
	return allowed
}

// keptByNode notes that a container does not get what it should have.
func (w *weighing) keptByNode(container workload.Container, r resource, wanted int64) {
	w.kept.add(v1beta1.ReasonNodeCapacity, container.Name+" "+r.name,
		fmt.Sprintf("%s would be right, but no node has room for it beside the pod's other containers", r.format(wanted)), false)
}
