// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// While usage of running pods is missing, nothing is lowered: neither by a new decision nor by
// one that was made before. What a decision raises is applied meanwhile. These are lowered all
// the same, because usage is not the reason:
//
//   - a request outside of its bounds, as far as the bound;
//   - the CPU of a startup boost that ends;
//   - a pod template whose raised request is reverted.

// withhold replaces the requests that the sizes lower on a container by those that it has.
// isExempt names what may be lowered. The obstacle says what the rest waits for.
func (p planner) withhold(has workload.Container, size model.Size, isExempt func(model.Resource) bool) (model.Size, model.Obstacle) {
	waits := p.WaitsForUsage()
	if !waits.Exists() {
		return size, waits
	}
	isWithheld := false
	for _, r := range model.Resources {
		if r.Request(size.Resources) >= r.Request(has.Resources) || isExempt(r) {
			continue
		}
		kept := p.withinBounds(has, r)
		if r.Request(kept) > r.Request(size.Resources) {
			r.Copy(&size.Resources, kept)
			isWithheld = true
		}
	}
	if !isWithheld {
		return size, model.Obstacle{}
	}
	return size, waits
}

// withinBounds is what the container has of the resource, as far as it is allowed.
func (p planner) withinBounds(has workload.Container, r model.Resource) workload.Resources {
	of := has
	if template, ok := p.Deployment.Container(has.Name); ok {
		of = template
	}
	request := r.Request(has.Resources)
	allowed := decision.AllowedRequest(p.Situation, p.policy, of, r, request)
	if allowed >= request {
		return has.Resources
	}
	requests := model.Requests{}
	model.SetRequest(requests, has.Name, r, allowed)
	return decision.LimitRulesFor(p.Situation, p.policy, has).Apply(has.Resources, requests[has.Name])
}

// withholdFromPod is the target without what it lowers. boosts are the pod's containers that may
// have a boost.
func (p planner) withholdFromPod(pod workload.Pod, t target, boosts []boostable) target {
	if !p.WaitsForUsage().Exists() {
		t.sizes = keepBurstable(pod, t.sizes)
		return t
	}
	for i, size := range t.sizes {
		has, _ := pod.Container(size.Container)
		endsBoost := func(r model.Resource) bool {
			return !r.IsMemory() && slices.ContainsFunc(boosts, func(b boostable) bool {
				return b.Name == size.Container && b.raisedAtStart
			})
		}
		var waits model.Obstacle
		if t.sizes[i], waits = p.withhold(has, size, endsBoost); waits.Exists() {
			t.dropped = append(t.dropped, waits)
		}
	}
	t.sizes = keepBurstable(pod, t.sizes)
	return t
}

// isWithheld reports whether one of the obstacles is missing usage.
func isWithheld(obstacles model.Obstacles) bool {
	return slices.ContainsFunc(obstacles, func(o model.Obstacle) bool { return o.Reason == v1beta1.ReasonMetricsIncomplete })
}

// withholdFromTemplate is the size of a template's container without what it lowers.
func (p planner) withholdFromTemplate(c workload.Container, size templateSize) (templateSize, model.Obstacle) {
	isExempt := func(r model.Resource) bool {
		return p.Decision.Reason == model.DecidedReverted || p.Decision.Request(c.Name, r) == 0
	}
	kept, waits := p.withhold(c, model.Size{Container: c.Name, Resources: size.want}, isExempt)
	size.want = kept.Resources
	for _, r := range model.Resources {
		if size.original.Has(r) {
			r.Copy(&size.own, size.want)
		}
	}
	return size, waits
}

// withholdEvictions leaves out the pods whose replacements would have a lower request. An urgent
// decision replaces them all the same.
func (p planner) withholdEvictions(candidates []workload.Pod) ([]workload.Pod, model.Obstacle) {
	waits := p.WaitsForUsage()
	if !waits.Exists() || decision.IsUrgent(p.Decision.Reason) {
		return candidates, model.Obstacle{}
	}
	left := slices.DeleteFunc(slices.Clone(candidates), func(pod workload.Pod) bool {
		pod.Containers = model.AppliedTo(pod)
		return lowersRequest(pod, covering(pod.Footprint(), p.newPods.Sizes))
	})
	if len(left) > 0 {
		return left, model.Obstacle{}
	}
	return nil, waits.On("the next eviction")
}
