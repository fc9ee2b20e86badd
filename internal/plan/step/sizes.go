// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// sizesFor is what the pod's managed containers get, and what they do not get because only
// a restart or less memory in use could change it.
func (p planner) sizesFor(pod workload.Pod) (sizes []model.Size, dropped model.Obstacles) {
	sizes = make([]model.Size, 0, len(pod.Containers))
	for _, c := range pod.Containers {
		if p.isDecided(c) {
			size, without := p.sizeFor(pod, c)
			sizes = append(sizes, size)
			dropped = append(dropped, without...)
		}
	}
	return keepBurstable(pod, sizes), dropped
}

// isDecided reports whether something is decided for a container that can be changed.
func (p planner) isDecided(c workload.Container) bool {
	_, ok := p.Decision.Requests[c.Name]
	return ok && !c.Unreadable
}

func (p planner) sizeFor(pod workload.Pod, c workload.Container) (size model.Size, dropped model.Obstacles) {
	requests, own := p.requestsOf(pod, c)
	size = model.Size{Container: c.Name, Resources: decision.LimitRulesFor(p.Situation, p.policy, c).Apply(c.Resources, requests)}
	if own {
		dropped = append(dropped, model.Obstacle{
			Reason:  v1beta1.ReasonOutlierPod,
			Message: fmt.Sprintf("container %s was OOM-killed at a size that is enough for the other pods, and has more memory than they", c.Name),
		})
	}
	if own && size.Requests.MemoryBytes == c.Requests.MemoryBytes && size.Limits.MemoryBytes == c.Limits.MemoryBytes-1 {
		size.Limits.MemoryBytes = c.Limits.MemoryBytes // the smallest amount above the request keeps the QoS class
	}
	for _, r := range model.Resources {
		if r.Restarts(c) && r.Differs(c.Resources, size.Resources) {
			r.Copy(&size.Resources, c.Resources)
			dropped = append(dropped, model.Obstacle{
				Reason:  v1beta1.ReasonRestartRequired,
				Message: fmt.Sprintf("container %s restarts when its %s changes (resizePolicy)", c.Name, r.String()),
				Stalled: true, NeedsNewPod: true,
			})
		}
	}
	return size, dropped
}

// requestsOf are what a container of a pod gets: what is decided, and more memory if one pod of many was OOM-killed with
// that, as far as any could be raised. own reports whether it is more. The next decision ends that, unless memory is raise-only.
//
// A size that was hit is known until the pod is resized; after that, the pod keeps what it has.
func (p planner) requestsOf(pod workload.Pod, c workload.Container) (requests quantity.Amounts, own bool) {
	requests = p.Decision.Requests[c.Name]
	rec, _ := p.Recommendation(c.Name)
	_, hasEnded := rec.ClimbEnd()
	most := decision.MostRaised(p.Situation, p.policy, c, model.Memory)
	has, wanted := c.Requests.MemoryBytes, int64(0)
	switch {
	case requests.MemoryBytes == 0, has < requests.MemoryBytes, hasEnded != "", p.AlivePods() <= fewPods:
		return requests, false
	}
	for _, kill := range pod.Kills {
		switch isOld := kill.At.Before(p.Decision.Time.Add(-killSkew)); {
		case kill.Container != c.Name, isOld && !p.policy.IsRaiseOnly(model.Memory):
		case isOld:
			wanted = max(wanted, min(has, most))
		case kill.HitBytes >= requests.MemoryBytes && kill.At.After(pod.Resized.Add(killSkew)):
			wanted = max(wanted, doubled(has, most))
		default:
			wanted = max(wanted, min(has, most))
		}
	}
	requests.MemoryBytes = max(requests.MemoryBytes, min(wanted, decision.AllowedRequest(p.Situation, p.policy, c, model.Memory, wanted)))
	return requests, requests.MemoryBytes > p.Decision.Requests[c.Name].MemoryBytes
}

// doubled is twice an amount, or the most if twice that would reach it.
func doubled(v, most int64) int64 {
	if 4*v >= most {
		return most
	}
	return 2 * v
}

const (
	// fewPods is how many pods are too few for an outlier.
	fewPods = 2
	// killSkew is how far the clock of a node, which says when a container was killed, may be behind ours.
	killSkew = 30 * time.Second
)

// keepBurstable takes the smallest amount off a request if all requests would equal their
// limits: that is another QoS class, and no pod may change its own.
func keepBurstable(pod workload.Pod, sizes []model.Size) []model.Size {
	switch {
	case pod.PodLevelResources: // which alone decide the class
		return sizes
	case !differsFrom(pod, sizes), qosOf(pod) != corev1.PodQOSBurstable, QoSAfter(pod, sizes) != corev1.PodQOSGuaranteed:
		return sizes
	}
	for _, r := range model.Resources {
		for i, size := range sizes {
			c, _ := pod.Container(size.Container)
			if r.Request(size.Resources) > 1 && r.Differs(c.Resources, size.Resources) {
				r.Set(&sizes[i].Requests, r.Request(size.Resources)-1)
				return sizes
			}
		}
	}
	return sizes
}

func qosOf(pod workload.Pod) corev1.PodQOSClass {
	if pod.QoS != "" {
		return pod.QoS
	}
	return workload.QoSOf(pod.Containers, pod.Others)
}

// QoSAfter is the pod's QoS class once it has the sizes.
func QoSAfter(pod workload.Pod, sizes []model.Size) corev1.PodQOSClass {
	return workload.QoSOf(withSizes(pod.Containers, sizes), pod.Others)
}

// withSizes are the containers with these sizes.
func withSizes(containers []workload.Container, sizes []model.Size) []workload.Container {
	out := slices.Clone(containers)
	for i := range out {
		for _, size := range sizes {
			if size.Container == out[i].Name {
				out[i].Resources = size.Resources
			}
		}
	}
	return out
}

// resized is the footprint with these sizes.
func resized(f workload.Footprint, sizes []model.Size) workload.Footprint {
	return f.With(func(c workload.Container) workload.Resources {
		for _, size := range sizes {
			if size.Container == c.Name {
				return size.Resources
			}
		}
		return c.Resources
	})
}

// anySize reports whether a condition holds between what a container of the pod has and its
// size.
func anySize(pod workload.Pod, sizes []model.Size, is func(has, size workload.Resources) bool) bool {
	return slices.ContainsFunc(sizes, func(size model.Size) bool {
		c, _ := pod.Container(size.Container)
		return is(c.Resources, size.Resources)
	})
}

// differsFrom reports whether the sizes change the pod.
func differsFrom(pod workload.Pod, sizes []model.Size) bool {
	return anySize(pod, sizes, func(has, size workload.Resources) bool { return has != size })
}

// raisesNothing reports whether the sizes give a pod nothing, which frees capacity for others.
func raisesNothing(pod workload.Pod, sizes []model.Size) bool {
	return !anySize(pod, sizes, func(has, size workload.Resources) bool {
		return slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return r.Raises(has, size) })
	})
}

// lowersRequest reports whether the sizes lower a request of the pod.
func lowersRequest(pod workload.Pod, sizes []model.Size) bool {
	return anySize(pod, sizes, func(has, size workload.Resources) bool {
		return slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return r.Request(size) < r.Request(has) })
	})
}

// lowersMemoryLimit reports whether the sizes lower a memory limit of the pod.
func lowersMemoryLimit(pod workload.Pod, sizes []model.Size) bool {
	return anySize(pod, sizes, func(has, size workload.Resources) bool { return size.Limits.MemoryBytes < has.Limits.MemoryBytes })
}

// isApplied reports whether the kubelet reports the sizes as applied.
func isApplied(pod workload.Pod, sizes []model.Size) bool {
	return !slices.ContainsFunc(sizes, func(size model.Size) bool { return !matches(pod.Actual[size.Container], size.Resources) })
}

// matches compares what the kubelet reports with what was asked for.
func matches(actual, asked workload.Resources) bool {
	return !slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return !r.IsApplied(actual, asked) })
}

// only is the sizes without what they change of the other resource.
func only(r model.Resource, pod workload.Pod, sizes []model.Size) []model.Size {
	return partOf(pod, sizes, func(other model.Resource, _, _ workload.Resources) bool { return other == r })
}

// raised is the sizes without what they lower.
func raised(pod workload.Pod, sizes []model.Size) []model.Size {
	return partOf(pod, sizes, func(r model.Resource, has, size workload.Resources) bool { return r.Raises(has, size) })
}

// withLimitsOf is the sizes with no lower memory limit than the pod has.
func withLimitsOf(pod workload.Pod, sizes []model.Size) []model.Size {
	out := slices.Clone(sizes)
	for i, size := range sizes {
		c, _ := pod.Container(size.Container)
		out[i].Limits.MemoryBytes = max(size.Limits.MemoryBytes, c.Limits.MemoryBytes)
	}
	return out
}

// lowered is the sizes without what they raise.
func lowered(pod workload.Pod, sizes []model.Size) []model.Size {
	return partOf(pod, sizes, func(r model.Resource, has, size workload.Resources) bool { return !r.Raises(has, size) })
}

// partOf is the sizes with those resources that are included, and the others as the pod has them.
func partOf(pod workload.Pod, sizes []model.Size, includes func(r model.Resource, has, size workload.Resources) bool) []model.Size {
	out := make([]model.Size, 0, len(sizes))
	for _, size := range sizes {
		c, _ := pod.Container(size.Container)
		part := model.Size{Container: size.Container, Resources: c.Resources}
		for _, r := range model.Resources {
			if includes(r, c.Resources, size.Resources) {
				r.Copy(&part.Resources, size.Resources)
			}
		}
		out = append(out, part)
	}
	return out
}
