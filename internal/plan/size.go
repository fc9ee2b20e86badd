// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// cut is what shapes a container's resources besides the decided requests.
type cut struct {
	shape   workload.Resources
	follows bool // limits follow the requests
	limits  LimitPolicy
	bounds  workload.Bounds
	// needed is the memory below which a limit is never lowered, whatever the policy
	// allows to be requested: the container is known to use it.
	needed quantity.Amounts
	// kept is a memory limit that the kubelet could not lower, and that is kept for it.
	kept quantity.Amounts
}

func cutFor(s Situation, policy Policy, c workload.Container) cut {
	rec, _ := recommendationFor(s.Recommendations, c.Name)
	return cut{
		shape:   shapeOf(s, c),
		follows: policy.Containers[c.Name].Limits,
		limits:  policy.Containers[c.Name].LimitPolicy,
		bounds:  s.Bounds,
		needed:  quantity.Amounts{MemoryBytes: knownNeed(rec)},
		kept:    quantity.Amounts{MemoryBytes: s.Decision.keptLimit(c.Name)},
	}
}

// knownNeed is the memory that the container has used, or was killed for. The bounds
// do not tell it where the policy caps them.
func knownNeed(rec recommend.Container) int64 {
	need := rec.OOMFloor
	for _, reason := range rec.Reasons {
		if reason.Resource == recommend.Memory && reason.Code == recommend.Peak {
			need = max(need, reason.Value)
		}
	}
	return need
}

// shapeOf is what the limits' proportion to the requests is taken from: the
// template as the user wrote it. A pod's own values would lose a little of it to
// rounding with every resize.
func shapeOf(s Situation, c workload.Container) workload.Resources {
	shape := c.Resources
	if t, ok := s.Deployment.Container(c.Name); ok && !t.Unreadable {
		shape = t.Resources
	}
	held, _ := heldOf(s.Held, c.Name)
	for _, r := range resources {
		if held.holds(r) {
			r.set(&shape.Requests, r.of(held.Requests))
			r.set(&shape.Limits, r.of(held.Limits))
		}
	}
	return shape
}

func heldOf(held []Held, container string) (Held, bool) {
	for _, h := range held {
		if h.Container == container {
			return h, true
		}
	}
	return Held{}, false
}

// sized puts requests on a container: limits follow in the shape's proportion, or
// stay and cap the requests. Limits are neither added nor removed, since a resize
// can do only one of the two and a template change would be a surprise.
func (c cut) sized(current workload.Resources, requests quantity.Amounts) workload.Resources {
	out := current
	for _, r := range resources {
		request, limit := r.of(requests), r.of(current.Limits)
		if request == 0 {
			continue
		}
		if limit > 0 && c.follows {
			limit = c.limitFor(request, limit, r)
			request = c.besideKept(request, limit, current, r)
		}
		if limit > 0 {
			request = min(request, limit)
		}
		r.set(&out.Requests, request)
		r.set(&out.Limits, limit)
	}
	return out
}

// limitFor is the limit that follows a request: in the template's proportion, or with
// the headroom that the policy gives it, within the policy's bounds for limits, and then
// within the LimitRange, which the API server enforces. It is never below the request
// where the LimitRange allows the request itself.
func (c cut) limitFor(request, current int64, r resource) int64 {
	limit := proportional(request, r.of(c.shape.Requests), r.of(c.shape.Limits), current, r.most)
	if headroom := r.headroom(c.limits); headroom != nil {
		limit = min(mulDiv(request, 100+*headroom, 100, true), r.most)
	}
	limit = max(limit, r.of(c.limits.MinAllowed))
	if most := r.of(c.limits.MaxAllowed); most > 0 {
		limit = max(request, min(limit, most))
	}
	if ratio := r.ratio(c.bounds.ContainerRatio); ratio > 0 {
		limit = min(limit, mostLimit(request, ratio))
	}
	if most := r.of(c.bounds.ContainerMax); most > 0 {
		limit = min(limit, most)
	}
	if limit < current && limit < r.of(c.needed) {
		return current
	}
	return max(limit, min(current, r.of(c.kept)))
}

// besideKept is the request beside a limit that may be one that is kept: equal to it
// where it was equal, so that the QoS class stays, and within what a LimitRange allows.
func (c cut) besideKept(request, limit int64, current workload.Resources, r resource) int64 {
	switch {
	case limit > r.of(c.kept):
		return request
	case r.of(current.Requests) == r.of(current.Limits):
		return limit
	}
	return max(request, leastRequest(limit, r.ratio(c.bounds.ContainerRatio)))
}

// proportional keeps the limit's proportion to the request, rounded up so that it
// never falls below. A shape without a request counts as one whose request equals
// its limit, which is what the API server makes of it. A shape without a limit
// gives no proportion: the current limit stays, but never below the request.
//
//	request 300, shape 100/200 → 600    request 300, shape -/200 → 300
func proportional(request, shapeRequest, shapeLimit, current, most int64) int64 {
	if shapeLimit == 0 {
		return max(current, request)
	}
	if shapeRequest == 0 {
		shapeRequest = shapeLimit
	}
	return max(request, min(mulDiv(request, shapeLimit, shapeRequest, true), most))
}

// mostLimit is the highest limit that a limit:request ratio allows a request.
func mostLimit(request, ratio int64) int64 {
	limit := mulDiv(request, ratio, 1000, false)
	for limit > request && exceeds(limit, request, ratio) {
		limit--
	}
	return limit
}

// leastRequest is the least request that a limit:request ratio allows a limit; 0
// without one of the two.
func leastRequest(limit, ratio int64) int64 {
	if limit == 0 || ratio == 0 {
		return 0
	}
	request := mulDiv(limit, 1000, ratio, true)
	for request < limit && exceeds(limit, request, ratio) {
		request++
	}
	return request
}

// exceeds is the API server's own rule, with its own rounding.
func exceeds(limit, request, ratio int64) bool {
	return float64(limit)/float64(request)*1000 > float64(ratio)
}

// mulDiv is a*b/c for positive amounts, without overflow on the way.
func mulDiv(a, b, c int64, up bool) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64
	}
	quotient, rest := bits.Div64(high, low, uint64(c))
	if up && rest > 0 && quotient < math.MaxInt64 {
		quotient++
	}
	return int64(min(quotient, math.MaxInt64))
}

// outOfBounds says which rule of a LimitRange the containers break, which have these
// sizes already; empty for none. Other containers than these are not ours to judge,
// but count for the sum.
func outOfBounds(containers []workload.Container, sizes []Size, bounds workload.Bounds) string {
	sizes = slices.SortedFunc(slices.Values(sizes), func(a, b Size) int { return cmp.Compare(a.Container, b.Container) })
	for _, r := range resources {
		for _, size := range sizes {
			c, _ := find(containers, size.Container)
			if what := outOfContainerBounds(c.Resources, r, bounds); what != "" {
				return fmt.Sprintf("LimitRange %s allows a container %s", bounds.Name, what)
			}
		}
		if what := outOfPodBounds(containers, r, bounds); what != "" {
			return fmt.Sprintf("LimitRange %s allows a pod %s", bounds.Name, what)
		}
	}
	return ""
}

func find(containers []workload.Container, name string) (workload.Container, bool) {
	return workload.Pod{Containers: containers}.Container(name)
}

func outOfContainerBounds(c workload.Resources, r resource, bounds workload.Bounds) string {
	request, limit := r.of(c.Requests), r.of(c.Limits)
	least, most, ratio := r.of(bounds.ContainerMin), r.of(bounds.ContainerMax), r.ratio(bounds.ContainerRatio)
	switch {
	case request == 0:
		return "" // none, or one that we do not know
	case least > 0 && request < least:
		return fmt.Sprintf("no less than %s of %s", r.format(least), r.name)
	case most > 0 && max(request, limit) > most:
		return fmt.Sprintf("at most %s of %s", r.format(most), r.name)
	case limit > 0 && request > limit:
		return fmt.Sprintf("at most %s of %s, which is its default limit", r.format(limit), r.name)
	case ratio > 0 && limit > 0 && exceeds(limit, request, ratio):
		return fmt.Sprintf("a limit of at most %g times its request of %s", float64(ratio)/1000, r.name)
	}
	return ""
}

// outOfPodBounds sums as the API server does: what a container does not set counts
// for nothing, but a pod without any limit breaks a bound on it. A request that a
// template does not set may be filled in.
func outOfPodBounds(containers []workload.Container, r resource, bounds workload.Bounds) string {
	var (
		requests, limits int64
		unset            bool
	)
	for _, c := range containers {
		unset = unset || r.of(c.Requests) == 0
		requests += r.of(c.Requests)
		limits += r.of(c.Limits)
	}
	switch least, most := r.of(bounds.PodMin), r.of(bounds.PodMax); {
	case least > 0 && requests < least && !unset:
		return fmt.Sprintf("no less than %s of %s", r.format(least), r.name)
	case most > 0 && max(requests, limits) > most:
		return fmt.Sprintf("at most %s of %s", r.format(most), r.name)
	case most > 0 && limits == 0:
		return fmt.Sprintf("at most %s of %s, and this one has no limit", r.format(most), r.name)
	}
	return ""
}
