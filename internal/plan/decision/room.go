// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
)

// The operator's ceilings bound a pod, also as a share of the largest node, and the raise limit each container. The room
// that they leave is shared out to its containers by size of the demand, the smallest first. So one container whose demand
// cannot be met does not take it from the others. With room for 10:
//
//	has     wants   left
//	1       12      10
//	12      14      12
//	1, 3    6, 3    7, 9
//	1, 1    6, 6    9, 4
//	1, 1    20, 4   6, 9
//	1, 1    9, 9    9, 1
//
// All of them only limit increases: a container that has more than is left keeps it. A node may only be away for a while. A decision
// that no kubelet has applied is not what a container has: otherwise a template that requested much for a moment would lift
// the ceiling for ever.
//
// The share of the largest node bounds only what is resized in place, because new pods may bring a new node. Other pods on
// a node do not count, so a request within it may not fit either.

// demand is the request of one container, and the request that it should have.
type demand struct {
	container  string
	has, wants int64
}

// share shares out what a pod may request, and returns what is left to each of the containers.
func share(room int64, demands []demand) (left []int64) {
	order := make([]int, len(demands))
	free := room
	for i, d := range demands {
		order[i] = i
		free -= d.has
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := demands[i], demands[j]
		return cmp.Or(cmp.Compare(a.wants, b.wants), cmp.Compare(a.container, b.container))
	})
	left = make([]int64, len(demands))
	for _, i := range order {
		d := demands[i]
		left[i] = d.has + max(0, free)
		free -= min(d.wants, left[i]) - d.has
	}
	return left
}

// bound notes what the ceilings leave to the requests of one resource.
func bound(requests []request, pod row.Ceiling, beside int64) {
	demands := make([]demand, len(requests))
	for i, q := range requests {
		demands[i] = demand{q.container.Name, q.granted, max(q.granted, q.capped(q.largestOutcome()))}
	}
	for i, left := range share(min(pod.Most, model.Any/2)-beside, demands) {
		requests[i].ceiling = requests[i].capped(left)
	}
}

// capped is an amount below the ceiling of a container, and below what it may be raised to, unless it has more.
func (q request) capped(v int64) int64 {
	return min(v, max(q.granted, min(q.ContainerCeiling, q.raiseLimit())))
}

// raiseLimit is the row's, for requests that are managed.
func (q request) raiseLimit() int64 {
	if !q.IsManaged {
		return model.Any
	}
	return q.RaiseLimit
}

func (q request) ceilingName(pod row.Ceiling) string {
	r := q.Resource
	switch {
	case q.ceiling >= q.ContainerCeiling:
		return fmt.Sprintf("at most %s for a container (ceilings.container)", r.Format(q.ContainerCeiling))
	case pod.NodePercent > 0:
		return fmt.Sprintf("at most %s for a pod, which is %d %% of the largest node (ceilings.nodePercent)", r.Format(pod.Most), pod.NodePercent)
	}
	return fmt.Sprintf("at most %s for a pod (ceilings.pod)", r.Format(pod.Most))
}

func (q request) keptBelow(pod row.Ceiling) model.Obstacle {
	wanted := q.Resource.Format(q.wanted)
	switch {
	case q.sum != "":
		return model.Wait(v1beta1.ReasonLimitRange, "%s is recommended or required by minAllowed, but %s", wanted, q.sum)
	case q.ceiling >= q.raiseLimit():
		return model.Wait(v1beta1.ReasonRaiseLimit, "%s is recommended, but without maxAllowed it is raised to %s at most (ceilings.raiseFactor); set maxAllowed if it needs more",
			wanted, q.Resource.Format(q.RaiseLimit))
	}
	return model.Wait(v1beta1.ReasonOperatorCeiling, "%s is recommended or required by minAllowed, but the operator's configuration allows %s", wanted, q.ceilingName(pod))
}
