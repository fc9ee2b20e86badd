// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package row

import (
	"cmp"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// Span is the range of a request that is allowed.
type Span struct{ Least, Most int64 }

// Within is the range that another bound, which wins, leaves of the range.
func (s Span) Within(least, most int64) Span {
	fit := func(v int64) int64 { return min(max(v, least), most) }
	return Span{fit(s.Least), fit(s.Most)}
}

// Fit is the amount nearest to v in the range. 0 means no amount and stays.
func (s Span) Fit(v int64) int64 {
	if v == 0 {
		return 0
	}
	return min(max(v, s.Least), s.Most)
}

// WholeCores is the range of whole CPUs within the range; the range itself if it has none, or if only that would lower the current
// request.
func (s Span) WholeCores(current int64) Span {
	whole := Span{RoundUpToCore(s.Least), s.Most / Core * Core}
	if whole.Most < max(whole.Least, Core) || whole.Most < current && current <= s.Most {
		return s
	}
	return whole
}

// spanParts are the bounds of a request, apart from the policy's.
type spanParts struct {
	ratio         int64 // the least request that the ratio to a limit that is not lowered allows
	capped, fixed int64 // by a limit that follows, and by one that stays
	limitRange    Span
}

// span has the bounds of a row: the LimitRange, which the API server enforces, and the limit, if that stays or is capped.
func (of collector) span(c *Container, r model.Resource) spanParts {
	limit, ratio := r.Limit(c.Resources), r.Ratio(of.Bounds.ContainerRatio)
	inNewPods := limit
	if !of.policy.InPlace() { // a template without a limit that requests more than the default creates no pods at all
		inNewPods = cmp.Or(limit, r.Of(of.Bounds.ContainerDefault))
	} else if len(c.Running) > 0 {
		limit = 0
		for _, running := range c.Running {
			limit = max(limit, r.Limit(running.Resources))
		}
		inNewPods = limit
	}
	out := spanParts{capped: model.Any, fixed: model.Any, limitRange: Span{r.Of(of.Bounds.ContainerMin), model.BoundOf(r.Of(of.Bounds.ContainerMax))}}
	kept := int64(0) // the limit that is not lowered
	switch {
	case c.Policy.Limits == model.LimitsStay, limit == 0 && of.policy.RollsOut():
		kept, out.fixed = inNewPods, model.BoundOf(inNewPods)
	case limit > 0:
		out.capped = model.BoundOf(r.Of(c.Policy.LimitPolicy.MaxAllowed))
	}
	if c.Policy.Limits == model.LimitsRise {
		kept = r.Limit(c.Written) // the request of a pod with a higher limit is higher than decided
	}
	out.ratio = leastRequest(kept, ratio)
	return out
}

// within is the range that the policy allows within the other bounds. The ratio comes first, so that the other bounds win over
// it. A request that breaks the ratio is then refused as a whole.
func (p spanParts) within(least, most int64) Span {
	return Span{0, model.Any}.
		Within(p.ratio, model.Any).
		Within(least, most).
		Within(0, p.capped).
		Within(p.limitRange.Least, p.limitRange.Most).
		Within(0, p.fixed)
}

// A kubelet with the static CPU manager gives exclusive CPUs to the containers of Guaranteed pods
// that request whole CPUs. A new pod with a fraction would lose them without a word, so requests of
// such containers stay whole. In place, the kubelet refuses such a resize by itself (Infeasible).

// Core is one whole CPU, in millicores.
const Core = 1000

// keepsWholeCores reports whether a container of Guaranteed pods requests whole CPUs in the template as
// the user wrote it, and still may once its request has changed.
func (c *Container) keepsWholeCores() bool {
	limit, limits := c.Written.Limits.CPUMillis, c.Policy.LimitPolicy
	switch {
	case limit == 0, limit%Core != 0, c.Policy.Limits == model.LimitsStay:
		return false
	}
	return max(limits.MinAllowed.CPUMillis, limits.MaxAllowed.CPUMillis, ptr.Deref(limits.HeadroomCPU, 0)) == 0 // or it does not stay equal to its request
}

// RoundUpToCore is the next whole CPU.
func RoundUpToCore(millis int64) int64 { return (millis + Core - 1) / Core * Core }

// LosesWholeCores reports whether a new pod of the template may have exclusive CPUs for the container, and would not
// with that request. Requests that are decided for running pods alone are not rounded up.
func (c *Container) LosesWholeCores(cpuMillis int64) bool {
	return cpuMillis%Core != 0 && c.HasWholeCores
}
