// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The operator's ceilings bound a pod, also as a share of the largest node, and RaiseLimit each container. What they leave is shared out to its
// containers by size of the demand, the smallest first, so that one container whose demand cannot be met does not take it
// from the others. With room for 10:
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

// demand is what one container requests, and what it should.
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

// ceilings are what the operator's configuration lets the containers of a pod request; 0 for any.
type ceilings struct {
	container, pod int64
	// nodePercent is the share of the largest node that the ceiling of the pod is; 0 if it is a setting of its own.
	nodePercent int64
}

func ceilingsFor(s model.Situation, policy model.Policy, r model.Resource) ceilings {
	c := ceilings{container: r.Of(s.Ceilings.Container), pod: r.Of(s.Ceilings.Pod)}
	if !policy.InPlace() {
		return c
	}
	if part := mulDiv(r.Of(s.LargestNode), s.Ceilings.NodePercent, 100, false); unlimited(part) < unlimited(c.pod) {
		c.pod, c.nodePercent = part, s.Ceilings.NodePercent
	}
	return c
}

// unlimited is a bound as an amount to compare with: 0 is none.
func unlimited(bound int64) int64 { return cmp.Or(bound, math.MaxInt64) }

// MostPerPod is the most that a pod may be raised to; 0 for any.
func MostPerPod(s model.Situation, policy model.Policy, r model.Resource) int64 {
	return ceilingsFor(s, policy, r).pod
}

// bound notes what the ceilings leave to the requests of one resource.
func (c ceilings) bound(requests []request, beside int64) {
	demands := make([]demand, len(requests))
	for i, q := range requests {
		demands[i] = demand{q.container.Name, q.granted, max(q.granted, c.capped(q, q.largestOutcome()))}
	}
	for i, left := range share(cmp.Or(c.pod, math.MaxInt64/2)-beside, demands) {
		requests[i].ceiling = c.capped(requests[i], left)
	}
}

// capped is an amount below the ceiling of a container, and below what it may be raised to, unless it has more.
func (c ceilings) capped(q request, v int64) int64 {
	return min(v, max(q.granted, min(unlimited(c.container), unlimited(q.raiseLimit))))
}

// says is the ceiling that keeps a request from getting more.
func (c ceilings) says(q request) string {
	r := q.resource
	switch {
	case q.ceiling >= unlimited(c.container):
		return fmt.Sprintf("at most %s for a container (ceilings.container)", r.Format(c.container))
	case c.nodePercent > 0:
		return fmt.Sprintf("at most %s for a pod, which is %d %% of the largest node (ceilings.nodePercent)", r.Format(c.pod), c.nodePercent)
	}
	return fmt.Sprintf("at most %s for a pod (ceilings.pod)", r.Format(c.pod))
}

// keptBelow is why a request does not get what is wanted, and the message of that.
func (q request) keptBelow(c ceilings) (reason, message string) {
	wanted := q.resource.Format(q.wanted)
	if q.ceiling >= unlimited(q.raiseLimit) {
		return v1beta1.ReasonRaiseLimit, fmt.Sprintf("%s is recommended, but without maxAllowed it is raised to %s at most (ceilings.raiseFactor); set maxAllowed if it needs more",
			wanted, q.resource.Format(q.raiseLimit))
	}
	return v1beta1.ReasonOperatorCeiling, fmt.Sprintf("%s is recommended or required by minAllowed, but the operator's configuration allows %s", wanted, c.says(q))
}

// leastRaiseLimit is what any container may be raised to: little enough for any node.
var leastRaiseLimit = quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1 << 30}

// RaiseLimit is the most that a request or a limit of a container is raised to if its policy has no
// maxAllowed; 0 for any. It bounds amounts with a wrong unit, usage that follows the size, and hostile usage:
//
//	RaiseFactor * what the user has set, but at least 1 CPU and 1Gi, minAllowed, and the least of a LimitRange
//
// What the user has set is the larger one of request and limit in the template, before it was rewritten, or else the
// default of a LimitRange. Without either, there is nothing to compare with, and only the ceilings bound a request.
func RaiseLimit(s model.Situation, policy model.Policy, c workload.Container, r model.Resource) int64 {
	p, factor := policy.Containers[c.Name], s.Ceilings.RaiseFactor
	base := userSize(s, c, r)
	switch {
	case base == 0, factor == 0, r.Of(p.MaxAllowed) > 0:
		return 0
	}
	return min(r.Most(), max(mulDiv(base, factor, 1, true), r.Of(leastRaiseLimit), r.Of(p.MinAllowed), r.Of(s.Bounds.ContainerMin)))
}

// userSize is the larger one of the request and the limit that the user has set, or else the default of a
// LimitRange; 0 for none.
func userSize(s model.Situation, c workload.Container, r model.Resource) int64 {
	written := Written(s, c)
	return cmp.Or(max(r.Request(written), r.Limit(written)), r.Of(s.Bounds.ContainerDefault))
}

// MostRaised is the most that a request may be raised to, by its policy and by what bounds any request; 0 if nothing says.
func MostRaised(s model.Situation, policy model.Policy, c workload.Container, r model.Resource) int64 {
	most := cmp.Or(r.Of(policy.Containers[c.Name].MaxAllowed), RaiseLimit(s, policy, c, r))
	if most == 0 {
		return 0
	}
	return min(most, unlimited(r.Of(s.Ceilings.Container)), unlimited(MostPerPod(s, policy, r)))
}
