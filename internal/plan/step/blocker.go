// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// admissible is as much of the sizes as the API server accepts: all of them, or else the
// first of these parts that changes the pod: its memory, its CPU, or what is lowered. A pod
// is resized as a whole. But if there is no room for its CPU, it can still get its memory,
// and a boost can still end.
func (p planner) admissible(pod workload.Pod, sizes []model.Size) ([]model.Size, model.Obstacle) {
	if !differsFrom(pod, sizes) {
		return sizes, model.Obstacle{} // whatever was refused before, it is what the pod declares
	}
	refusal := p.refusalFor(pod, sizes)
	if !refusal.Exists() {
		return sizes, refusal
	}
	parts := [][]model.Size{only(model.Memory, pod, sizes), only(model.CPU, pod, sizes), lowered(pod, sizes)}
	if refusal.Reason == v1beta1.ReasonResizeError {
		parts = slices.Insert(parts, 0, withLimitsOf(pod, sizes))
	}
	for _, part := range parts {
		if p.isPossibleChange(pod, part) {
			return part, refusal
		}
	}
	declared := partOf(pod, sizes, func(model.Resource, workload.Resources, workload.Resources) bool { return false })
	if p.isPossible(pod, declared) {
		return declared, refusal
	}
	return nil, refusal
}

// isPossible reports whether nothing is known to keep the pod from these sizes.
func (p planner) isPossible(pod workload.Pod, sizes []model.Size) bool {
	return cmp.Or(p.refusalFor(pod, sizes), p.blockerOf(pod, sizes)) == model.Obstacle{}
}

// isPossibleChange reports whether the sizes change the pod, and nothing is known to keep it from them.
func (p planner) isPossibleChange(pod workload.Pod, sizes []model.Size) bool {
	return differsFrom(pod, sizes) && p.isPossible(pod, sizes)
}

// refusalFor reports whether the API server has refused the sizes, or would because of a quota or of a pod-level
// limit, or that the kubelet has not granted them, nor less.
func (p planner) refusalFor(pod workload.Pod, sizes []model.Size) model.Obstacle {
	for _, rejected := range p.RejectedResizes[pod.UID] {
		o := model.Obstacle{Reason: rejected.Reason, Message: rejected.Message, Stalled: true}
		isRepeated := slices.Equal(rejected.Sizes, sizes)
		switch o.Reason {
		case v1beta1.ReasonNamespaceTerminating: // which ends by itself
			o.Stalled = false
		case v1beta1.ReasonNodeCapacity, v1beta1.ReasonUnsupported, v1beta1.ReasonQoSChange: // which another pod may not meet
			o.NeedsNewPod = true
		case v1beta1.ReasonResizeError: // more memory is in use than the lower limit
			o.Stalled = false
			isRepeated = lowersMemoryLimit(pod, sizes)
		case v1beta1.ReasonDeferred, v1beta1.ReasonInfeasible:
			o.Stalled, o.NeedsNewPod = o.Reason == v1beta1.ReasonInfeasible, true
			isRepeated = isRepeated || asksFor(sizes, rejected.Sizes)
		}
		if isRepeated {
			return o
		}
	}
	if o := p.overPodLevelLimit(pod, sizes); o.Exists() {
		return o
	}
	return overQuota(p.Quotas, p.growth(pod, sizes))
}

// blockerOf says what keeps the pod from being resized to these sizes in place.
func (p planner) blockerOf(pod workload.Pod, sizes []model.Size) model.Obstacle {
	for _, size := range sizes {
		if _, ok := pod.Actual[size.Container]; !ok {
			return model.Obstacle{
				Reason:      v1beta1.ReasonUnsupported,
				Message:     "its node has not reported the applied resources, which a resize in place requires",
				NeedsNewPod: !p.now.Before(pod.Started.Add(stuckAfter)),
			}
		}
	}
	if pod.PodLevelResources {
		if o := p.podLevelQoSObstacle(pod, sizes); o.Exists() {
			return o
		}
	} else if before, after := qosOf(pod), QoSAfter(pod, sizes); before != after {
		return p.qosObstacle(pod, after, sizes)
	}
	return p.limitRangeObstacle(pod, sizes)
}

func (p planner) qosObstacle(pod workload.Pod, after corev1.PodQOSClass, sizes []model.Size) model.Obstacle {
	before := qosOf(pod)
	o := model.Obstacle{Reason: v1beta1.ReasonQoSChange, Stalled: true, NeedsNewPod: true}
	if before == corev1.PodQOSBestEffort {
		o.Message = "has no requests, and the first requests cannot be set in place: set requests in the Deployment, or use Rollout as the updateMode or fallback"
		return o
	}
	for _, size := range sizes {
		c, _ := pod.Container(size.Container)
		has, is := model.Memory.Pair(c.Resources), model.Memory.Pair(size.Resources)
		switch {
		case p.policy.Containers[size.Container].Limits != model.LimitsFollow:
		case is[1] == has[1] && is[0] < is[1]: // its limit stays, and its request does not
			o.Message = fmt.Sprintf("container %s is known to need more memory than is allowed, and its limit is not lowered below that: raise maxAllowed", size.Container)
			o.NeedsNewPod = false
			return o
		}
	}
	o.Message = fmt.Sprintf("its QoS class would change from %s to %s, which cannot be done in place: use controlledValues RequestsAndLimits with limits.headroomPercent 0, or Rollout as the updateMode or fallback", before, after)
	return o
}
