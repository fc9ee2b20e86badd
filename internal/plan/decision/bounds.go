// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// bound is a range of requests; a most of 0 is no upper end.
type bound struct{ least, most int64 }

// bounds are applied one after the other: the last one wins.
type bounds struct {
	ratio     bound // to a limit that stays
	own       bound // of the policy
	capped    bound // by a limit with a maximum
	namespace bound // of the LimitRanges
	limit     bound // a limit that stays
	node      bound // what the largest node has left
	ceiling   bound // what the ceilings leave
}

// fit clamps an amount. 0 is no amount and stays.
func (b bounds) fit(v int64) int64 {
	if v == 0 {
		return 0
	}
	for _, each := range [...]bound{b.ratio, b.own, b.capped, b.namespace, b.limit, b.node, b.ceiling} {
		v = max(v, each.least)
		if each.most > 0 {
			v = min(v, each.most)
		}
	}
	return v
}

// AllowedRequest is the request nearest to v that is allowed.
func AllowedRequest(s model.Situation, policy model.Policy, container workload.Container, r model.Resource, v int64) int64 {
	return allowedFor(s, policy, container, r).fit(v)
}

// allowedFor is the range of a request: what the policy allows, within the LimitRange,
// which the API server enforces, and below the limit, if that stays or is capped. The ratio
// to a limit that stays comes first, so the other bounds win over it. A request that breaks
// the ratio is then refused as a whole (OutOfBounds).
func allowedFor(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) bounds {
	p := policy.Containers[container.Name]
	return boundsFor(s, policy, container, r, bound{r.Of(p.MinAllowed), r.Of(p.MaxAllowed)})
}

// enforcedFor is the range of a request without minAllowed and maxAllowed.
func enforcedFor(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) bounds {
	return boundsFor(s, policy, container, r, bound{})
}

func boundsFor(s model.Situation, policy model.Policy, container workload.Container, r model.Resource, own bound) bounds {
	limit := fixedLimit(s, policy, container, r)
	return bounds{
		ratio:     bound{least: leastRequest(limit, r.Ratio(s.Bounds.ContainerRatio))},
		own:       own,
		capped:    bound{most: limitCap(s, policy, container, r)},
		namespace: bound{r.Of(s.Bounds.ContainerMin), r.Of(s.Bounds.ContainerMax)},
		limit:     bound{most: limit},
	}
}

// fixedLimit is the limit that stays, whatever is requested; 0 for none. Limits stay with
// RequestsOnly. A LimitRange may give a limit to each new pod although the template has
// none: a template that requests more creates no pods at all.
func fixedLimit(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) int64 {
	follows := policy.Containers[container.Name].Limits
	hasDefault := r.Limit(container.Resources) == 0 && !policy.InPlace()
	switch {
	case hasDefault && policy.RollsOut(), hasDefault && !follows:
		return r.Of(s.Bounds.ContainerDefault)
	case follows:
		return 0
	}
	return currentLimit(s, policy, container, r)
}

// limitCap is the largest value of a limit that follows, and so of its request; 0 for no
// cap. If there is no limit, nothing caps the request: none is added.
func limitCap(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) int64 {
	p := policy.Containers[container.Name]
	most := r.Of(p.LimitPolicy.MaxAllowed)
	if most == 0 || !p.Limits || currentLimit(s, policy, container, r) == 0 {
		return 0
	}
	return most
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
	if !p.Limits || !p.LimitPolicy.Shapes(r) || request == 0 || s.Decision.Request(container.Name, r) > 0 {
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
