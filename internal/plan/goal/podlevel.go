// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A pod that declares pod-level resources shares them among its containers. The API server requires that
// the pod-level request covers the requests of all containers, and the pod-level limit each of their
// limits. So both follow the containers, in the same resize:
//
//   - The part of the pod-level request beyond the containers' requests is for containers without a request,
//     or for all. A first request of a container is taken from it. Otherwise it stays, because usage of
//     containers does not tell what it is for: the pod-level request rises and falls with the containers.
//   - The pod-level limit keeps its proportion to the pod-level request if limits change with requests. It never
//     falls below a container's limit, and by default it never falls. Then a Guaranteed pod keeps its pod-level request as well.
//
// The values depend only on what the pod declares and on the sizes, so nothing is remembered. A pod that
// is raised and lowered again ends with the pod-level request that it had.

// PodLevel has the pod-level resources that follow the sizes. Amounts that are not set stay unset.
func (cs Changes) PodLevel(pod workload.Pod) (out workload.Resources) {
	if !pod.PodLevelResources {
		return out
	}
	after := pod
	after.Containers = resized(pod.Footprint(), cs.Sizes()).Running
	for _, r := range model.Resources {
		request := podLevelRequest(pod, after, r)
		limit := cs.podLevelLimit(pod, after, request, r)
		if isGuaranteed := podLevelQoS(pod.PodLevel) == corev1.PodQOSGuaranteed; isGuaranteed && cs.limitRule() == model.LimitsRise {
			request = limit
		}
		r.Put(&out, request, limit)
	}
	return out
}

// podLevelRequest is the pod-level request of the pod once its containers are as in after; 0 if it has none.
func podLevelRequest(pod, after workload.Pod, r model.Resource) int64 {
	has := r.Request(pod.PodLevel)
	if has == 0 {
		return 0
	}
	spare := has - r.Request(pod.ContainersSum())
	for i, before := range pod.Containers {
		if r.Request(before.Resources) == 0 {
			spare -= r.Request(after.Containers[i].Resources)
		}
	}
	return r.Request(after.ContainersSum()) + max(0, spare)
}

// podLevelLimit is the pod-level limit beside a pod-level request; 0 if the pod has none.
func (cs Changes) podLevelLimit(pod, after workload.Pod, request int64, r model.Resource) int64 {
	limit, from, to := r.Limit(pod.PodLevel), r.Request(pod.PodLevel), request
	least := request
	switch rule := cs.limitRule(); {
	case limit == 0, rule == model.LimitsStay:
		return limit
	case rule == model.LimitsRise:
		least = max(least, limit)
	}
	if from == 0 { // its containers' requests count
		from, to = r.Request(pod.ContainersSum()), r.Request(after.ContainersSum())
	}
	if from > 0 {
		limit = row.ScaleTo(limit, from, to)
	}
	for _, c := range after.Containers {
		limit = max(limit, r.Limit(c.Resources))
	}
	return max(limit, least)
}

// limitRule is the rule of the container whose limit may change most. The pod-level limits follow it.
func (cs Changes) limitRule() (rule model.LimitRule) {
	for _, c := range cs {
		rule = max(rule, c.Goal.Policy.Limits)
	}
	return rule
}

// Resized is the footprint of the pod with the sizes.
func (cs Changes) Resized(pod workload.Pod) workload.Footprint {
	f := resized(pod.Footprint(), cs.Sizes())
	f.PodLevel = cs.PodLevel(pod)
	return f
}

// overPodLevelLimit reports whether the pod would request more than a pod-level limit that stays.
func (cs Changes) overPodLevelLimit(pod workload.Pod) model.Obstacle {
	next := cs.PodLevel(pod)
	for _, r := range model.Resources {
		if limit := r.Limit(next); limit > 0 && r.Request(next) > limit {
			return model.Stall(v1beta1.ReasonUnsupported,
				"its containers need %s of %s, and its pod-level limit stays at %s: raise it in the Deployment, or use controlledValues RequestsAndLimitRaises",
				r.Format(r.Request(next)), r, r.Format(limit))
		}
	}
	return model.Obstacle{}
}

// podLevelQoSObstacle reports whether the pod-level resources of the sizes change the QoS class.
func (cs Changes) podLevelQoSObstacle(pod workload.Pod) model.Obstacle {
	before, after := podLevelQoS(pod.PodLevel), podLevelQoS(cs.PodLevel(pod))
	if before == after || pod.PodLevel == (workload.Resources{}) {
		return model.Obstacle{}
	}
	return model.Stall(v1beta1.ReasonQoSChange,
		"its pod-level resources would change its QoS class from %s to %s, which cannot be done in place: raise the pod-level limit in the Deployment, or use controlledValues RequestsAndLimits", before, after)
}

// podLevelQoS is the QoS class of a pod with these pod-level resources: they alone decide it.
func podLevelQoS(of workload.Resources) corev1.PodQOSClass {
	return workload.QoSOf([]workload.Container{{Resources: of}})
}
