// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"math"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
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
// that stays or is capped. The ratio to a limit that is not lowered comes first, so the other bounds win over it. A request that breaks
// the ratio is then refused as a whole (OutOfBounds).
func spanOf(s model.Situation, policy model.Policy, container workload.Container, r model.Resource, least, most int64) span {
	var fixed, capped int64 // 0 for none
	limit, p := currentLimit(s, policy, container, r), policy.Containers[container.Name]
	inNewPods := limit
	if !policy.InPlace() { // a template without a limit that requests more than the default creates no pods at all
		inNewPods = cmp.Or(limit, r.Of(s.Bounds.ContainerDefault))
	}
	switch {
	case p.Limits == model.LimitsStay:
		fixed = inNewPods
	case limit > 0:
		capped = r.Of(p.LimitPolicy.MaxAllowed)
	case policy.RollsOut():
		fixed = inNewPods
	}
	kept := fixed
	if p.Limits == model.LimitsRise {
		kept = r.Limit(Written(s, container)) // the request of a pod with a higher limit is higher than decided
	}
	return anyRequest.
		within(leastRequest(kept, r.Ratio(s.Bounds.ContainerRatio)), 0).
		within(least, most).
		within(0, capped).
		within(r.Of(s.Bounds.ContainerMin), r.Of(s.Bounds.ContainerMax)).
		within(0, fixed)
}

// currentLimit is the largest limit of the running pods if they are resized in place, or
// else the template's.
func currentLimit(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) int64 {
	var limits []int64
	for _, c := range s.Active(policy, container.Name) {
		limits = append(limits, r.Limit(c.Resources))
	}
	if !policy.InPlace() || len(limits) == 0 {
		return r.Limit(container.Resources)
	}
	return slices.Max(limits)
}

// limitsAreOff reports whether a limit is not what its own policy says, although no decision has
// set the request that it follows.
func limitsAreOff(s model.Situation, policy model.Policy, container workload.Container, request int64, r model.Resource) bool {
	switch p := policy.Containers[container.Name]; {
	case p.Limits == model.LimitsStay, p.LimitPolicy == model.LimitPolicy{}, request == 0, s.Decision.Request(container.Name, r) > 0:
		return false
	}
	isOff := func(c workload.Container) bool {
		var requests quantity.Amounts
		r.Set(&requests, request)
		return r.Limit(LimitRulesFor(s, policy, c).Apply(c.Resources, requests)) != r.Limit(c.Resources)
	}
	if !policy.InPlace() {
		return isOff(container) // new pods are created from the template
	}
	for _, c := range s.Active(policy, container.Name) {
		if isOff(c) {
			return true
		}
	}
	return false
}
