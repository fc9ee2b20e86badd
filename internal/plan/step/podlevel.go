// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A pod that declares pod-level resources shares them among its containers. The API server requires that
// the pod-level request covers the requests of all containers, and the pod-level limit each of their
// limits. So both follow the containers, in the same resize:
//
//   - What the pod-level request has beyond the containers' requests is for containers without a request,
//     or for all. A first request of a container is taken from it. Otherwise it stays, because usage of
//     containers does not tell what it is for: the pod-level request rises and falls with the containers.
//   - The pod-level limit keeps its proportion to the pod-level request if limits change with requests. It never
//     falls below a container's limit, and by default it never falls. Then a Guaranteed pod keeps its pod-level request as well.
//
// The values depend only on what the pod declares and on the sizes, so nothing is remembered. A pod that
// is raised and lowered again ends with the pod-level request that it had.

// withPodLevel is the resize with the pod-level resources that follow its sizes.
func (p planner) withPodLevel(resize model.Resize) model.Resize {
	pod, _ := p.Pod(resize.UID)
	resize.PodLevel = p.podLevelWith(pod, resize.Sizes)
	return resize
}

// podLevelWith is what the pod-level resources become with the sizes. What is not set stays so.
func (p planner) podLevelWith(pod workload.Pod, sizes []model.Size) (out workload.Resources) {
	if !pod.PodLevelResources {
		return out
	}
	after := pod
	after.Containers = withSizes(pod.Containers, sizes)
	for _, r := range model.Resources {
		request := podLevelRequest(pod, after, r)
		limit := p.podLevelLimit(pod, after, sizes, request, r)
		if isGuaranteed := podLevelQoS(pod.PodLevel) == corev1.PodQOSGuaranteed; isGuaranteed && p.limitRule(sizes) == model.LimitsRise {
			request = limit
		}
		r.Put(&out, request, limit)
	}
	return out
}

// podLevelRequest is the pod-level request of the pod once its containers are as in after; 0 if it has
// none.
func podLevelRequest(pod, after workload.Pod, r model.Resource) int64 {
	has := r.Request(pod.PodLevel)
	if has == 0 {
		return 0
	}
	spare := has - r.Request(pod.ContainersSum())
	for _, c := range after.Containers {
		if before, _ := pod.Container(c.Name); r.Request(before.Resources) == 0 {
			spare -= r.Request(c.Resources)
		}
	}
	return r.Request(after.ContainersSum()) + max(0, spare)
}

// podLevelLimit is the pod-level limit beside a pod-level request; 0 if the pod has none.
func (p planner) podLevelLimit(pod, after workload.Pod, sizes []model.Size, request int64, r model.Resource) int64 {
	limit, from, to := r.Limit(pod.PodLevel), r.Request(pod.PodLevel), request
	least := request
	switch rule := p.limitRule(sizes); {
	case limit == 0, rule == model.LimitsStay:
		return limit
	case rule == model.LimitsRise:
		least = max(least, limit)
	}
	if from == 0 { // its containers' requests count
		from, to = r.Request(pod.ContainersSum()), r.Request(after.ContainersSum())
	}
	if from > 0 {
		limit = decision.ScaleTo(limit, from, to)
	}
	for _, c := range after.Containers {
		limit = max(limit, r.Limit(c.Resources))
	}
	return max(limit, least)
}

// resizedPod is the footprint of the pod with the sizes.
func (p planner) resizedPod(pod workload.Pod, sizes []model.Size) workload.Footprint {
	f := resized(pod.Footprint(), sizes)
	f.PodLevel = p.podLevelWith(pod, sizes)
	return f
}

// limitRule is the rule of the pod-level limits: that of the container whose limit may change most.
func (p planner) limitRule(sizes []model.Size) (rule model.LimitRule) {
	for _, size := range sizes {
		rule = max(rule, p.policy.Containers[size.Container].Limits)
	}
	return rule
}

// overPodLevelLimit reports whether the pod would request more than a pod-level limit that stays.
func (p planner) overPodLevelLimit(pod workload.Pod, sizes []model.Size) model.Obstacle {
	next := p.podLevelWith(pod, sizes)
	for _, r := range model.Resources {
		if limit := r.Limit(next); limit > 0 && r.Request(next) > limit {
			return model.Obstacle{
				Reason: v1beta1.ReasonUnsupported, Stalled: true,
				Message: fmt.Sprintf("its containers need %s of %s, and its pod-level limit stays at %s: raise it in the Deployment, or use controlledValues RequestsAndLimitRaises",
					r.Format(r.Request(next)), r.String(), r.Format(limit)),
			}
		}
	}
	return model.Obstacle{}
}

// podLevelQoSObstacle reports whether the pod-level resources of the sizes change the QoS class.
func (p planner) podLevelQoSObstacle(pod workload.Pod, sizes []model.Size) model.Obstacle {
	before, after := podLevelQoS(pod.PodLevel), podLevelQoS(p.podLevelWith(pod, sizes))
	if before == after || pod.PodLevel == (workload.Resources{}) {
		return model.Obstacle{}
	}
	return model.Obstacle{
		Reason: v1beta1.ReasonQoSChange, Stalled: true,
		Message: fmt.Sprintf("its pod-level resources would change its QoS class from %s to %s, which cannot be done in place: raise the pod-level limit in the Deployment, or use controlledValues RequestsAndLimits", before, after),
	}
}

// podLevelQoS is the QoS class of a pod with these pod-level resources: they alone decide it.
func podLevelQoS(of workload.Resources) corev1.PodQOSClass {
	return workload.QoSOf([]workload.Container{{Resources: of}})
}
