// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// room is what the largest node leaves to each container of one resource, beside the
// other containers of the pod. It keeps the operator from asking for resizes that no
// node of the cluster could grant.
//
// It bounds what is resized in place, and nothing else: a pod that exists stays on its
// node. In the mode Rollout new pods may bring a new node, from a pool that has none
// now, so that a template may ask for more than any node has.
//
// Room is granted by size of the wish, the smallest first, so that one container whose
// wish no node can fulfil does not keep the others from theirs. With a node of 10:
//
//	has     wants   room
//	1       12      10
//	12      14      12
//	1, 3    6, 3    7, 9
//	1, 1    6, 6    9, 4
//	1, 1    20, 4   6, 9
//	1, 1    9, 9    9, 1
//
// A container that has more than its room keeps it, for the node that it came from
// may only be away for a while: nothing is lowered because of a node. What else runs on
// a node, native sidecars of the pod among it, is not counted. So this refuses what
// cannot fit, and promises nothing about what can.
type room map[string]int64

// roomFor is nil where the largest node is not known or does not matter.
func roomFor(s Situation, policy Policy, r resource) room {
	node := r.of(s.LargestNode)
	if node == 0 || policy.Mode != v1beta1.UpdateModeInPlace {
		return nil
	}
	var wishes []wish
	for _, container := range s.Deployment.Containers {
		w := wish{container: container.Name}
		w.has, _ = currentRequest(s, container, r)
		w.wants = w.has
		if !container.Unreadable && policy.controls(container.Name, r) && takenBy(s, container.Name, r).reason == "" {
			w.wants = max(w.has, targetFor(s, allowedFor(s, policy, container, r), container, r))
		}
		wishes = append(wishes, w)
	}
	return grant(node-injected(s, r), wishes)
}

// wish is what one container requests and what it should.
type wish struct {
	container  string
	has, wants int64
}

// grant shares out what a node has.
func grant(node int64, wishes []wish) room {
	free := node
	for _, w := range wishes {
		free -= w.has
	}
	slices.SortFunc(wishes, func(a, b wish) int {
		return cmp.Or(cmp.Compare(a.wants, b.wants), cmp.Compare(a.container, b.container))
	})
	left := room{}
	for _, w := range wishes {
		left[w.container] = w.has + max(0, free)
		free -= min(w.wants, left[w.container]) - w.has
	}
	return left
}

// injected is what containers request that the pods have and the template has not. Pods
// of an older template count too, for the next ones are likely to be injected alike.
func injected(s Situation, r resource) (most int64) {
	for _, pod := range s.Pods {
		if pod.Terminating {
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
