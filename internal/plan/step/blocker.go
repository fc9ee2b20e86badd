// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
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
	for _, part := range [][]model.Size{only(model.Memory, pod, sizes), only(model.CPU, pod, sizes), lowered(pod, sizes)} {
		if p.isPossibleChange(pod, part) {
			return part, refusal
		}
	}
	if declared := asDeclared(pod, sizes); p.isPossible(pod, declared) {
		return declared, refusal
	}
	return nil, refusal
}

// isPossible reports whether nothing is known to keep the pod from these sizes.
func (p planner) isPossible(pod workload.Pod, sizes []model.Size) bool {
	return !p.refusalFor(pod, sizes).Exists() && !p.blockerOf(pod, sizes).Exists()
}

// isPossibleChange reports whether the sizes change the pod, and nothing is known to keep it from them.
func (p planner) isPossibleChange(pod workload.Pod, sizes []model.Size) bool {
	return differsFrom(pod, sizes) && p.isPossible(pod, sizes)
}

// refusalFor reports whether the API server has refused the sizes, or would because of a quota or of a pod-level
// limit, or that the kubelet has not granted them, nor less.
func (p planner) refusalFor(pod workload.Pod, sizes []model.Size) model.Obstacle {
	for _, rejected := range p.RejectedResizes[pod.UID] {
		if slices.Equal(rejected.Sizes, sizes) || isPending(rejected.Reason) && asksFor(sizes, rejected.Sizes) {
			return model.Obstacle{
				Reason: rejected.Reason, Message: rejected.Message,
				Stalled: !endsByItself(rejected.Reason), NeedsNewPod: isAboutPod(rejected.Reason),
			}
		}
	}
	if o := p.overPodLevelLimit(pod, sizes); o.Exists() {
		return o
	}
	return overQuota(p.Quotas, p.growth(pod, sizes))
}

// endsByItself reports whether no user must act.
func endsByItself(reason string) bool {
	switch reason {
	case v1beta1.ReasonNamespaceTerminating, v1beta1.ReasonDeferred:
		return true
	}
	return false
}

// isAboutPod tells the refusals that concern this pod or its node, so that another pod may
// help, from those that another pod would meet as well.
func isAboutPod(reason string) bool {
	switch reason {
	case v1beta1.ReasonNodeCapacity, v1beta1.ReasonUnsupported, v1beta1.ReasonQoSChange, v1beta1.ReasonDeferred, v1beta1.ReasonInfeasible:
		return true
	}
	return false
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
		return p.qosObstacle(before, after, sizes)
	}
	return decision.OutOfBounds(p.resizedPod(pod, sizes), sizes, p.Bounds)
}

func (p planner) qosObstacle(before, after corev1.PodQOSClass, sizes []model.Size) model.Obstacle {
	o := model.Obstacle{Reason: v1beta1.ReasonQoSChange, Stalled: true, NeedsNewPod: true}
	if before == corev1.PodQOSBestEffort {
		o.Message = "has no requests, and the first requests cannot be set in place: set requests in the Deployment, or use Rollout as the updateMode or fallback"
		return o
	}
	for _, size := range sizes {
		policy := p.policy.Containers[size.Container]
		if before == corev1.PodQOSGuaranteed && addsHeadroom(policy) {
			o.Message = fmt.Sprintf("container %s would get limits above its requests. That changes the pod's QoS class to %s, which cannot be done in place: set limits.headroomPercent to 0, or use Rollout as the updateMode or fallback", size.Container, after)
			return o
		}
		if policy.Limits && size.Limits.MemoryBytes > size.Requests.MemoryBytes {
			o.Message = fmt.Sprintf("container %s is known to need more memory than is allowed, and its limit is not lowered below that: raise maxAllowed", size.Container)
			o.NeedsNewPod = false
			return o
		}
	}
	o.Message = fmt.Sprintf("its QoS class would change from %s to %s, which cannot be done in place: use controlledValues RequestsAndLimits, or Rollout as the updateMode or fallback", before, after)
	return o
}

// addsHeadroom reports whether the policy itself puts limits above requests.
func addsHeadroom(policy model.ContainerPolicy) bool {
	return policy.Limits && policy.LimitPolicy != model.LimitPolicy{} && !policy.LimitPolicy.IsExact()
}
