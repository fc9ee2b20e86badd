// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"math"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// span is the range of a request that is allowed.
type span struct{ least, most int64 }

var anyRequest = span{0, math.MaxInt64}

// within is what is left of the range by another bound, which wins. A most of 0 is no upper end.
func (s span) within(least, most int64) span {
	fit := func(v int64) int64 { return min(max(v, least), cmp.Or(most, math.MaxInt64)) }
	return span{fit(s.least), fit(s.most)}
}

// fit is the amount nearest to v in the range. 0 is no amount and stays.
func (s span) fit(v int64) int64 {
	if v == 0 {
		return 0
	}
	return min(max(v, s.least), s.most)
}

// AllowedRequest is the request nearest to v that is allowed.
func AllowedRequest(s model.Situation, policy model.Policy, container workload.Container, r model.Resource, v int64) int64 {
	p := policy.Containers[container.Name]
	return spanOf(s, policy, container, r, r.Of(p.MinAllowed), r.Of(p.MaxAllowed)).fit(v)
}

// spanOf is the range that the policy allows, within the LimitRange, which the API server enforces, and below the limit, if
// that stays or is capped. The ratio to a limit that stays comes first, so the other bounds win over it. A request that breaks
// the ratio is then refused as a whole (OutOfBounds).
func spanOf(s model.Situation, policy model.Policy, container workload.Container, r model.Resource, least, most int64) span {
	limit := fixedLimit(s, policy, container, r)
	return anyRequest.
		within(leastRequest(limit, r.Ratio(s.Bounds.ContainerRatio)), 0).
		within(least, most).
		within(0, limitCap(s, policy, container, r)).
		within(r.Of(s.Bounds.ContainerMin), r.Of(s.Bounds.ContainerMax)).
		within(0, limit)
}

// fixedLimit is the limit that stays, whatever is requested; 0 for none. Limits stay with
// RequestsOnly. A LimitRange may give a limit to each new pod although the template has
// none: a template that requests more creates no pods at all.
func fixedLimit(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) int64 {
	limit := currentLimit(s, policy, container, r)
	switch follows := policy.Containers[container.Name].Limits; {
	case policy.RollsOut() && r.Limit(container.Resources) == 0:
		return r.Of(s.Bounds.ContainerDefault)
	case follows:
		return 0
	case policy.SizesOnlyNewPods():
		return cmp.Or(limit, r.Of(s.Bounds.ContainerDefault))
	}
	return limit
}

// limitCap is the largest value of a limit that follows, and so of its request; 0 for no
// cap. If there is no limit, nothing caps the request: none is added.
func limitCap(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) int64 {
	p := policy.Containers[container.Name]
	most := r.Of(p.LimitPolicy.MaxAllowed)
	if p.Limits && currentLimit(s, policy, container, r) > 0 {
		return most
	}
	return 0
}

// currentLimit is the largest limit of the running pods if they are resized in place, or
// else the template's.
func currentLimit(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) (limit int64) {
	pods := s.Running(policy, container.Name)
	if !policy.InPlace() || len(pods) == 0 {
		return r.Limit(container.Resources)
	}
	for _, c := range pods {
		limit = max(limit, r.Limit(c.Resources))
	}
	return limit
}

// limitsAreOff reports whether a limit is not what its own policy says, although no decision has
// set the request that it follows.
func limitsAreOff(s model.Situation, policy model.Policy, container workload.Container, request int64, r model.Resource) bool {
	p := policy.Containers[container.Name]
	switch {
	case !p.Limits, !p.LimitPolicy.Shapes(r), request == 0, s.Decision.Request(container.Name, r) > 0:
		return false
	}
	affected := []workload.Container{container} // new pods are created from the template
	if policy.InPlace() {
		affected = s.Running(policy, container.Name)
	}
	for _, c := range affected {
		limit := r.Limit(c.Resources)
		if limit > 0 && LimitRulesFor(s, policy, c).limitFor(request, limit, r) != limit {
			return true
		}
	}
	return false
}
