// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// While usage of running pods is missing, nothing is lowered: neither by a new decision nor by one that was made before. Raises
// of a decision are applied meanwhile. These are lowered all the same, because usage is not the reason:
//
//   - a request outside of its bounds, as far as the bound;
//   - the CPU of a startup boost that ends;
//   - a pod template whose raised request is reverted.

// withheld is the size of a container without the requests that it lowers. isExempt names what may be lowered.
func (c Change) withheld(isExempt func(model.Resource) bool) (size workload.Resources, isWithheld bool) {
	size = c.Size
	for _, r := range model.Resources {
		if r.Request(size) >= r.Request(c.Has.Resources) || isExempt(r) {
			continue
		}
		if kept := c.withinBounds(r); r.Request(kept) > r.Request(size) {
			r.Copy(&size, kept)
			isWithheld = true
		}
	}
	return size, isWithheld
}

// withinBounds is the container's amount of the resource, as far as it is allowed.
func (c Change) withinBounds(r model.Resource) workload.Resources {
	request := r.Request(c.Has.Resources)
	allowed := c.Goal.Of(r).Allowed.Fit(request)
	if allowed >= request {
		return c.Has.Resources
	}
	return c.Goal.Resize(c.Has.Resources, r.Alone(allowed))
}

// Withholding keeps what sizes would lower while usage is missing, and returns what that waits for. plain are the sizes without
// boosts.
func (p Pod) Withholding(plain, sizes Changes) (out Changes, waits model.Obstacles) {
	out = slices.Clone(sizes)
	if why := p.WaitsForUsage(); why.Exists() {
		boosts := p.boostables(plain)
		for i, c := range out {
			endsBoost := func(r model.Resource) bool {
				return !r.IsMemory() && slices.ContainsFunc(boosts, func(b boostable) bool { return b.index == i && b.raisedAtStart })
			}
			size, isWithheld := c.withheld(endsBoost)
			if out[i].Size = size; isWithheld {
				waits = append(waits, why)
			}
		}
	}
	return out.KeepingBurstable(p.Pod), waits
}

// IsWithheld reports whether one of the obstacles is missing usage.
func IsWithheld(obstacles model.Obstacles) bool {
	return slices.ContainsFunc(obstacles, func(o model.Obstacle) bool {
		return o.Reason == v1beta1.ReasonMetricsIncomplete || o.Reason == v1beta1.ReasonMetricsRecovering
	})
}
