// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package row

import (
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// limitRules shape the limits of a container beside its requests.
type limitRules struct {
	shape  workload.Resources // as the user wrote it in the template
	rule   model.LimitRule
	policy model.LimitPolicy
	bounds workload.Bounds
	// isGuaranteed is true if the container keeps limits equal to its requests, so that its pods keep their QoS class.
	isGuaranteed bool
	// needed is the memory below which a limit is never lowered: the container is known to use it, or a flag lets its heap
	// grow to it.
	needed quantity.Amounts
	// mostRaised is the highest limit by a raise, and mostRatio the highest ratio to its request that is kept.
	mostRaised [len(model.Resources)]int64
	mostRatio  int64
}

// Resize puts requests on a running container. Limits are neither added nor removed, because a resize can do only one of the
// two and a changed template would be a surprise.
func (c *Container) Resize(current workload.Resources, requests quantity.Amounts) workload.Resources {
	l := &c.limits
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

// Create is the resources of a new container of a template. No process has seen a limit that a raise has left in the template. The
// process may need the CPU of the template to start, so that of a Guaranteed pod is lowered later.
func (c *Container) Create(template workload.Resources, requests quantity.Amounts) workload.Resources {
	l := &c.limits
	for _, r := range model.Resources {
		if l.rule == model.LimitsRise && min(r.Of(requests), r.Limit(template), r.Limit(l.shape)) > 0 {
			r.Set(&template.Limits, max(r.Limit(l.shape), min(r.Limit(template), r.Of(l.needed))))
		}
	}
	if l.isGuaranteed && requests.CPUMillis > 0 {
		requests.CPUMillis = max(requests.CPUMillis, l.shape.Limits.CPUMillis)
	}
	return c.Resize(template, requests)
}

// limitFor is the limit for a request: in the template's proportion, or with the headroom of the policy. It is within the
// policy's bounds for limits, and then within the LimitRange, which the API server enforces. It is never below the request if
// the LimitRange allows the request itself. A limit that only rises stays where it is above that.
func (l *limitRules) limitFor(request, current int64, r model.Resource) int64 {
	limit := l.withinReason(proportional(request, r.Request(l.shape), r.Limit(l.shape), current, r.Most()), request, r)
	if headroom := r.Headroom(l.policy); headroom != nil {
		limit = min(MulDiv(request, 100+*headroom, 100, true), r.Most())
	}
	limit = max(limit, r.Of(l.policy.MinAllowed))
	limit = max(request, min(limit, model.BoundOf(r.Of(l.policy.MaxAllowed))))
	limit = min(limit, mostLimit(request, r.Ratio(l.bounds.ContainerRatio)), model.BoundOf(r.Of(l.bounds.ContainerMax)))
	switch {
	case l.rule == model.LimitsRise:
		return max(limit, current, r.Limit(l.shape))
	case limit < min(current, r.Of(l.needed)):
		return current
	}
	return limit
}

// withinReason is a limit in the template's proportion, unless that makes it absurd. A ratio above
// mostRatio raises no limit above the template's, and no limit is raised above the raise limit.
//
//	mostRatio 8, shape 100m/4: request 50m → 2   200m → 4   1 → 8      shape 1 B/512Mi: request 140Mi → 1120Mi
func (l *limitRules) withinReason(limit, request int64, r model.Resource) int64 {
	written := r.Limit(l.shape)
	if written == 0 {
		return limit
	}
	limit = min(limit, max(written, MulDiv(request, l.mostRatio, 1, true)))
	return max(request, min(limit, l.mostRaised[r]))
}
