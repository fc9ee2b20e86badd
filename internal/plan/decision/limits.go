// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// LimitRules shape a container's resources beside the decided requests.
type LimitRules struct {
	shape  workload.Resources // as the user wrote it in the template
	rule   model.LimitRule
	limits model.LimitPolicy
	bounds workload.Bounds
	// isGuaranteed is true if the container keeps limits equal to its requests, so that its pods keep their QoS class.
	isGuaranteed bool
	// needed is the memory below which a limit is never lowered: the container is known to use it, or a flag lets its heap
	// grow to it.
	needed quantity.Amounts
	// raised is what a limit may be raised to, and mostRatio the highest ratio to its request that is kept; 0 for any.
	raised    quantity.Amounts
	mostRatio int64
}

// LimitRulesFor are the rules for one container, of a pod or of the template.
func LimitRulesFor(s model.Situation, policy model.Policy, c workload.Container) LimitRules {
	rec, _ := s.Recommendation(c.Name)
	return LimitRules{
		shape:        Written(s, c),
		rule:         policy.Containers[c.Name].Limits,
		limits:       policy.Containers[c.Name].LimitPolicy,
		bounds:       s.Bounds,
		isGuaranteed: KeepsGuaranteed(s, policy, c.Name),
		needed:       quantity.Amounts{MemoryBytes: max(knownNeed(rec), s.Deployment.Heaps[c.Name].Bytes)},
		raised: quantity.Amounts{
			CPUMillis: RaiseLimit(s, policy, c, model.CPU), MemoryBytes: RaiseLimit(s, policy, c, model.Memory),
		},
		mostRatio: s.Ceilings.RaiseFactor,
	}
}

// KeepsGuaranteed reports whether limits rise with their requests, and the pods stay Guaranteed. Then a limit is the request: the
// memory of a running container is only raised, and its CPU is lowered to what its starts have needed.
func KeepsGuaranteed(s model.Situation, policy model.Policy, container string) bool {
	p := policy.Containers[container]
	return p.Limits == model.LimitsRise && p.LimitPolicy == model.LimitPolicy{} && isGuaranteed(s)
}

// knownNeed is the memory that the container has used, or was OOM-killed with. The bounds of
// the recommendation do not show it if the policy caps them.
func knownNeed(rec recommend.Container) int64 {
	need := rec.OOMFloor
	for _, reason := range rec.Reasons {
		if reason.Resource == recommend.Memory && reason.Code == recommend.Peak {
			need = max(need, reason.Value)
		}
	}
	if end, why := rec.ClimbEnd(); why == recommend.RaiseDidNotHelp {
		return min(need, end) // no size is enough
	}
	return need
}

// Written are a container's resources in the template as the user wrote it. They give the limits' proportion to the
// requests. With a pod's own values, each resize would add a rounding error.
func Written(s model.Situation, c workload.Container) workload.Resources {
	shape := c.Resources
	if t, ok := s.Deployment.Readable(c.Name); ok {
		shape = t.Resources
	}
	original, _ := s.Original(c.Name)
	for _, r := range model.Resources {
		if original.Has(r) {
			r.Copy(&shape, original.Resources)
		}
	}
	return shape
}

// Apply puts requests on a running container. Limits are neither added nor removed, because a resize can do only one of the
// two and a changed template would be a surprise.
func (l LimitRules) Apply(current workload.Resources, requests quantity.Amounts) workload.Resources {
	out := current
	for _, r := range model.Resources {
		request, limit := r.Of(requests), r.Limit(current)
		switch {
		case request == 0:
		case limit == 0:
			r.Set(&out.Requests, request)
		case l.rule == model.LimitsStay:
			r.Set(&out.Requests, min(request, limit))
		case l.isGuaranteed && r.IsMemory():
			r.Put(&out, max(request, limit), max(request, limit))
		case l.isGuaranteed:
			r.Put(&out, request, request)
		default:
			limit = l.limitFor(request, limit, r)
			request = max(request, leastRequest(limit, r.Ratio(l.bounds.ContainerRatio)))
			r.Put(&out, min(request, limit), limit)
		}
	}
	return out
}

// New is what a new container of a template gets. No process has seen a limit that a raise has left in the template. The
// process may need the CPU of the template to start, so that of a Guaranteed pod is lowered later.
func (l LimitRules) New(template workload.Resources, requests quantity.Amounts) workload.Resources {
	for _, r := range model.Resources {
		if l.rule == model.LimitsRise && min(r.Of(requests), r.Limit(template), r.Limit(l.shape)) > 0 {
			r.Set(&template.Limits, max(r.Limit(l.shape), min(r.Limit(template), r.Of(l.needed))))
		}
	}
	if l.isGuaranteed && requests.CPUMillis > 0 {
		requests.CPUMillis = max(requests.CPUMillis, l.shape.Limits.CPUMillis)
	}
	return l.Apply(template, requests)
}

// limitFor is the limit beside a request: in the template's proportion, or with the headroom that the policy gives it, within
// the policy's bounds for limits, and then within the LimitRange, which the API server enforces. It is never below the request
// if the LimitRange allows the request itself. A limit that only rises stays where it is above that.
func (l LimitRules) limitFor(request, current int64, r model.Resource) int64 {
	limit := l.withinReason(proportional(request, r.Request(l.shape), r.Limit(l.shape), current, r.Most()), request, r)
	if headroom := r.Headroom(l.limits); headroom != nil {
		limit = min(mulDiv(request, 100+*headroom, 100, true), r.Most())
	}
	limit = max(limit, r.Of(l.limits.MinAllowed))
	limit = max(request, min(limit, unlimited(r.Of(l.limits.MaxAllowed))))
	limit = min(limit, mostLimit(request, r.Ratio(l.bounds.ContainerRatio)), unlimited(r.Of(l.bounds.ContainerMax)))
	switch {
	case l.rule == model.LimitsRise:
		return max(limit, current, r.Limit(l.shape))
	case limit < min(current, r.Of(l.needed)):
		return current
	}
	return limit
}

// withinReason is a limit in the template's proportion, unless that makes it absurd: a ratio above mostRatio
// raises no limit above the template's, and no limit is raised above RaiseLimit.
//
//	mostRatio 8, shape 100m/4: request 50m → 2   200m → 4   1 → 8      shape 1 B/512Mi: request 140Mi → 1120Mi
func (l LimitRules) withinReason(limit, request int64, r model.Resource) int64 {
	written := r.Limit(l.shape)
	if written == 0 {
		return limit
	}
	limit = min(limit, max(written, mulDiv(request, unlimited(l.mostRatio), 1, true)))
	return max(request, min(limit, unlimited(r.Of(l.raised))))
}

// proportional keeps the limit's proportion to the request, rounded up so that it never
// falls below. A shape without a request counts as one whose request equals its limit,
// which is what the API server makes of it. A shape without a limit gives no proportion:
// the current limit stays, but never below the request. So does the limit of a shape that requests nothing, or next to
// nothing: such a proportion would be absurd.
//
//	request 300, shape 100/200 → 600    request 300, shape -/200 → 300    request 300, shape 0/200 → 300    request 100, shape 0/200 → 200
func proportional(request, shapeRequest, shapeLimit, current, most int64) int64 {
	if shapeLimit == 0 {
		return max(current, request)
	}
	switch shapeRequest {
	case 0:
		shapeRequest = shapeLimit
	case quantity.Smallest:
		return max(shapeLimit, request)
	}
	return max(request, min(mulDiv(request, shapeLimit, shapeRequest, true), most))
}

// mostLimit is the highest limit that a limit:request ratio allows a request. 0 is no ratio.
func mostLimit(request, ratio int64) int64 {
	if ratio == 0 {
		return math.MaxInt64
	}
	limit := mulDiv(request, ratio, 1000, false)
	for limit > request && exceeds(limit, request, ratio) {
		limit--
	}
	return limit
}

// leastRequest is the least request that a limit:request ratio allows a limit; 0 without
// one of the two.
func leastRequest(limit, ratio int64) int64 {
	if min(limit, ratio) == 0 {
		return 0
	}
	request := mulDiv(limit, 1000, ratio, true)
	for request < limit && exceeds(limit, request, ratio) {
		request++
	}
	return request
}

// exceeds is the API server's own rule for a ratio, with its own rounding. 0 is no ratio.
func exceeds(limit, request, ratio int64) bool {
	return float64(limit)/float64(request)*1000 > cmp.Or(float64(ratio), math.Inf(1))
}

// Scale is a percentage of an amount, rounded up, without overflow on the way.
func Scale(amount, percent int64) int64 { return mulDiv(amount, percent, 100, true) }

// ScaleTo is the limit once its request moves from one amount to another, in the same proportion. It is
// rounded up if it rises, and down if it falls, so that the way back ends where it began.
func ScaleTo(limit, from, to int64) int64 { return mulDiv(limit, to, from, to > from) }

// mulDiv is a*b/c for positive amounts, without overflow on the way.
func mulDiv(a, b, c int64, up bool) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if up {
		var carry uint64
		low, carry = bits.Add64(low, uint64(c-1), 0)
		high += carry
	}
	if high >= uint64(c) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, math.MaxInt64))
}
