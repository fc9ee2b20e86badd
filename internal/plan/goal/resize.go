// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Admissible are the sizes that the API server accepts. They are all of them, or else the first of
// these parts that changes the pod: its memory, its CPU, or the lowered amounts. A pod is resized as a
// whole. But if there is no room for its CPU, it can still get its memory, and a boost can still end.
func (p Pod) Admissible(sizes Changes) (Changes, model.Obstacle) {
	if !sizes.Differ() {
		return sizes, model.Obstacle{} // the pod declares them already
	}
	refusal := p.RefusalOf(sizes)
	if !refusal.Exists() {
		return sizes, refusal
	}
	parts := []Changes{sizes.Only(model.Memory), sizes.Only(model.CPU), sizes.Lowered()}
	if refusal.Reason == v1beta1.ReasonResizeError {
		parts = slices.Insert(parts, 0, sizes.WithMemoryLimits())
	}
	for _, part := range parts {
		if p.IsPossibleChange(part) {
			return part, refusal
		}
	}
	if declared := sizes.Unchanged(); p.IsPossible(declared) {
		return declared, refusal
	}
	return nil, refusal
}

// IsPossible reports whether nothing is known to keep the pod from these sizes.
func (p Pod) IsPossible(sizes Changes) bool {
	return cmp.Or(p.RefusalOf(sizes), p.BlockerOf(sizes)) == model.Obstacle{}
}

// IsPossibleChange reports whether the sizes change the pod, and nothing is known to keep it from them.
func (p Pod) IsPossibleChange(sizes Changes) bool {
	return sizes.Differ() && p.IsPossible(sizes)
}

// RefusalOf is the API server's refusal of the sizes, or an expected one because of a quota or of a pod-level
// limit. It is also set if the kubelet has granted neither them nor less.
func (p Pod) RefusalOf(sizes Changes) model.Obstacle {
	for _, rejected := range p.RejectedResizes[p.UID] {
		o := model.Obstacle{Reason: rejected.Reason, Message: rejected.Message, Stalled: true}
		isRepeated := slices.Equal(rejected.Sizes, sizes.Sizes())
		switch o.Reason {
		case v1beta1.ReasonNamespaceTerminating: // which ends by itself
			o.Stalled = false
		case v1beta1.ReasonNodeCapacity, v1beta1.ReasonUnsupported, v1beta1.ReasonQoSChange: // which another pod may not meet
			o.NeedsNewPod = true
		case v1beta1.ReasonResizeError: // more memory is in use than the lower limit
			o.Stalled = false
			isRepeated = sizes.LowerMemoryLimit()
		case v1beta1.ReasonDeferred, v1beta1.ReasonInfeasible:
			o.Stalled, o.NeedsNewPod = o.Reason == v1beta1.ReasonInfeasible, true
			isRepeated = isRepeated || asksFor(sizes.Sizes(), rejected.Sizes)
		}
		if isRepeated {
			return o
		}
	}
	return cmp.Or(sizes.overPodLevelLimit(p.Pod), overQuota(p.Quotas, sizes.growth(p.Pod), nil))
}

// asksFor reports whether the sizes ask for no less than others, for any container.
func asksFor(sizes, others []model.Size) bool {
	return slices.EqualFunc(sizes, others, func(size, other model.Size) bool {
		asksNoLess := !slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return r.Request(size.Resources) < r.Request(other.Resources) })
		return size.Container == other.Container && asksNoLess
	})
}

// BlockerOf is the obstacle that keeps the pod from being resized to these sizes in place.
func (p Pod) BlockerOf(sizes Changes) model.Obstacle {
	if slices.ContainsFunc(sizes, func(c Change) bool { return !c.IsReported }) {
		o := model.Wait(v1beta1.ReasonUnsupported, "its node has not reported the applied resources, which a resize in place requires")
		o.NeedsNewPod = !p.Now.Before(p.Started.Add(StuckAfter))
		return o
	}
	return cmp.Or(sizes.qosObstacle(p.Pod), p.LimitRangeObstacle(sizes))
}

func (cs Changes) qosObstacle(pod workload.Pod) model.Obstacle {
	if pod.PodLevelResources {
		return cs.podLevelQoSObstacle(pod)
	}
	before, after := QoSOf(pod), cs.QoSOf(pod)
	o := model.Obstacle{Reason: v1beta1.ReasonQoSChange, Stalled: true, NeedsNewPod: true}
	switch before {
	case after:
		return model.Obstacle{}
	case corev1.PodQOSBestEffort:
		o.Message = "has no requests, and the first requests cannot be set in place: set requests in the Deployment, or use Rollout as the updateMode or fallback"
		return o
	}
	for _, c := range cs {
		has, is := model.Memory.Pair(c.Has.Resources), model.Memory.Pair(c.Size)
		if c.Goal.Policy.Limits == model.LimitsFollow && is[1] == has[1] && is[0] < is[1] { // its limit stays, and its request does not
			o.Message = fmt.Sprintf("container %s is known to need more memory than is allowed, and its limit is not lowered below that: raise maxAllowed", c.Has.Name)
			o.NeedsNewPod = false
			return o
		}
	}
	o.Message = fmt.Sprintf("its QoS class would change from %s to %s, which cannot be done in place: use controlledValues RequestsAndLimits with limits.headroomPercent 0, or Rollout as the updateMode or fallback", before, after)
	return o
}
