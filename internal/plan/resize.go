// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// stuckAfter is how long a kubelet may take to put a resize in force before it holds
// up no other pod.
const stuckAfter = 10 * time.Minute

// resize plans the next in-place resize.
//
// One pod at a time is asked for, and at most a quarter of the pods (but one) may
// be under way at once, so that a wrong number is seen before it is everywhere.
func (p Plan) resize(s Situation, policy Policy, now time.Time) Plan {
	var (
		blocked notes
		next    *Resize
		flying  int
	)
	p.Decision = p.Decision.unwritten()
	pods := slices.SortedFunc(slices.Values(s.Pods), func(a, b workload.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		if !counts(pod) {
			continue
		}
		sizes, drops := sizesFor(pod, s, policy, *p.Decision)
		for _, d := range drops {
			blocked.add(d.reason, "pod "+pod.Name, d.message, d.stalled)
		}
		sizes, refusal := granted(pod, sizes, s, policy)
		if refusal.reason != "" {
			blocked.add(refusal.reason, "pod "+pod.Name, refusal.message, refusal.stalled)
		}
		if refusal.reason == v1beta1.ReasonQuotaExceeded {
			p.RequeueAfter = sooner(p.RequeueAfter, quotaRetry)
		}
		switch asked, why := differsFrom(pod, sizes), blockOf(pod, sizes, s, policy); {
		case asked && why.reason != "":
			blocked.add(why.reason, "pod "+pod.Name, why.message, why.stalled)
		case asked:
			if next == nil {
				next = &Resize{Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Sizes: sizes}
			}
		case pod.Resize.Infeasible:
			blocked.add(v1beta1.ReasonInfeasible, "pod "+pod.Name, said(pod, "its node can never hold the new size"), true)
		case pod.Resize.Deferred:
			blocked.add(v1beta1.ReasonDeferred, "pod "+pod.Name, said(pod, "its node has no room for the new size yet"), false)
		case pod.Resize.Failed:
			blocked.add(v1beta1.ReasonResizeError, "pod "+pod.Name, said(pod, "the kubelet could not actuate the resize and tries again"), false)
		case pod.Resize.InProgress || !inForce(pod, sizes):
			left := stuckIn(pod, *p.Decision, now)
			if left <= 0 {
				blocked.add(v1beta1.ReasonResizeError, "pod "+pod.Name, "the kubelet has not reported the new size in force for "+stuckAfter.String(), false)
				continue
			}
			flying++
			p.RequeueAfter = sooner(p.RequeueAfter, left)
		case len(drops) == 0 && refusal.reason == "":
			p.PodsAtSize++
		}
	}

	switch {
	case p.Pods == 0:
		return p.because(v1beta1.ReasonNoPods, "The Deployment has no running pods")
	case next != nil && flying < concurrency(p.Pods):
		p.Resize, p.Changing = next, true
		return p.because(v1beta1.ReasonResizing, "Pods are being resized in place")
	case flying > 0:
		p.Changing = true
		return p.because(v1beta1.ReasonResizing, "Pods are being resized in place")
	case len(blocked) > 0:
		p.Reason, p.Message, p.Stalled = blocked.tell()
		return p
	}
	p.Applied = true
	return p.because(v1beta1.ReasonApplied, "All pods have the decided size")
}

func concurrency(pods int) int { return max(1, pods/4) }

// stuckIn is when a resize that is under way will have taken too long. It is not
// known when it was asked for: not before it was decided, nor before the pod started.
func stuckIn(pod workload.Pod, d Decision, now time.Time) time.Duration {
	since := d.Time
	if pod.Started.After(since) {
		since = pod.Started
	}
	return min(since.Add(stuckAfter).Sub(now), stuckAfter)
}

// said is what the kubelet said, or our own words if it said nothing.
func said(pod workload.Pod, otherwise string) string {
	if pod.Resize.Message != "" {
		return pod.Resize.Message
	}
	return otherwise
}

// sizesFor is what the pod's managed containers shall have, and what is left out
// because only a restart could change it.
func sizesFor(pod workload.Pod, s Situation, policy Policy, d Decision) (sizes []Size, drops notes) {
	for _, c := range pod.Containers {
		requests, ok := d.Requests[c.Name]
		if !ok || c.Unreadable {
			continue
		}
		size := Size{Container: c.Name, Resources: cutFor(s, policy, c).sized(c.Resources, requests)}
		for _, r := range resources {
			if r.restarts(c) && changes(c.Resources, size.Resources, r) {
				r.set(&size.Requests, r.of(c.Requests))
				r.set(&size.Limits, r.of(c.Limits))
				drops.add(v1beta1.ReasonRestartRequired, c.Name, fmt.Sprintf("container %s restarts when its %s changes (resizePolicy)", c.Name, r.name), true)
			}
		}
		sizes = append(sizes, size)
	}
	return keepBurstable(pod, sizes), drops
}

func changes(a, b workload.Resources, r resource) bool {
	return r.of(a.Requests) != r.of(b.Requests) || r.of(a.Limits) != r.of(b.Limits)
}

// keepBurstable takes the least bit off a request where all requests would come to
// equal their limits: that is another QoS class, and no pod may change its own.
func keepBurstable(pod workload.Pod, sizes []Size) []Size {
	if qosOf(pod) != corev1.PodQOSBurstable || QoSAfter(pod, sizes) != corev1.PodQOSGuaranteed {
		return sizes
	}
	for _, r := range resources {
		for i := range sizes {
			c, _ := pod.Container(sizes[i].Container)
			if request := r.of(sizes[i].Requests); request > 1 && changes(c.Resources, sizes[i].Resources, r) {
				r.set(&sizes[i].Requests, request-1)
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
func QoSAfter(pod workload.Pod, sizes []Size) corev1.PodQOSClass {
	return workload.QoSOf(withSizes(pod.Containers, sizes), pod.Others)
}

func withSizes(containers []workload.Container, sizes []Size) []workload.Container {
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

func differsFrom(pod workload.Pod, sizes []Size) bool {
	for _, size := range sizes {
		if c, ok := pod.Container(size.Container); ok && c.Resources != size.Resources {
			return true
		}
	}
	return false
}

// inForce says whether the kubelet reports the sizes as actual.
func inForce(pod workload.Pod, sizes []Size) bool {
	for _, size := range sizes {
		actual, ok := pod.Actual[size.Container]
		if !ok || !matches(actual, size.Resources) {
			return false
		}
	}
	return true
}

// matches compares what the kubelet says with what was asked for. The kernel holds
// CPU no finer than 2 shares and 10 ms of quota, so small differences of CPU are
// the same.
func matches(actual, asked workload.Resources) bool {
	near := func(a, b int64) bool {
		return a == b || (b > 0 && b < 20 && a <= 20) || math.Abs(float64(a-b)) <= 0.02*float64(b)
	}
	return near(actual.Requests.CPUMillis, asked.Requests.CPUMillis) &&
		near(actual.Limits.CPUMillis, asked.Limits.CPUMillis) &&
		actual.Requests.MemoryBytes == asked.Requests.MemoryBytes &&
		actual.Limits.MemoryBytes == asked.Limits.MemoryBytes
}

// blockOf says what keeps the pod from being resized to these sizes in place.
func blockOf(pod workload.Pod, sizes []Size, s Situation, policy Policy) note {
	if pod.PodLevelResources {
		return note{reason: v1beta1.ReasonUnsupported, message: "declares resources for the pod as a whole, which are not managed", stalled: true}
	}
	for _, size := range sizes {
		if _, ok := pod.Actual[size.Container]; !ok {
			return note{reason: v1beta1.ReasonUnsupported, message: "the node has not reported the resources in force, as nodes do that can resize in place"}
		}
	}
	if before, after := qosOf(pod), QoSAfter(pod, sizes); before != after {
		return note{reason: v1beta1.ReasonQoSChange, message: qosMessage(before, after, sizes, policy), stalled: true}
	}
	if message := outOfBounds(withSizes(pod.Containers, sizes), sizes, s.Bounds); message != "" {
		return note{reason: v1beta1.ReasonLimitRange, message: message, stalled: true}
	}
	return note{}
}

// granted is as much of the sizes as can be had: all of them, or else one resource alone.
// A pod is resized as a whole, but where there is no room for its CPU its memory need not
// go without.
func granted(pod workload.Pod, sizes []Size, s Situation, policy Policy) ([]Size, note) {
	told := denial(pod, sizes, s)
	if told.reason == "" {
		return sizes, note{}
	}
	for _, r := range []resource{memory, cpu} {
		part := only(r, pod, sizes)
		if denial(pod, part, s).reason == "" && blockOf(pod, part, s, policy).reason == "" {
			return part, told
		}
	}
	return nil, told
}

// denial says that the API server has refused the sizes, or would because of a quota.
func denial(pod workload.Pod, sizes []Size, s Situation) note {
	if refused, ok := refusalFor(s.Refused[pod.UID], sizes); ok {
		return note{reason: refused.Reason, message: refused.Message, stalled: stallsOn(refused.Reason)}
	}
	return overQuota(s.Quotas, growth(pod.Containers, withSizes(pod.Containers, sizes)))
}

func refusalFor(refusals []Refused, sizes []Size) (Refused, bool) {
	i := slices.IndexFunc(refusals, func(r Refused) bool { return slices.Equal(r.Sizes, sizes) })
	if i < 0 {
		return Refused{}, false
	}
	return refusals[i], true
}

// only is the sizes less what they change of the other resource.
func only(r resource, pod workload.Pod, sizes []Size) []Size {
	out := make([]Size, 0, len(sizes))
	for _, size := range sizes {
		c, _ := pod.Container(size.Container)
		part := Size{Container: size.Container, Resources: c.Resources}
		r.set(&part.Requests, r.of(size.Requests))
		r.set(&part.Limits, r.of(size.Limits))
		out = append(out, part)
	}
	return out
}

// stallsOn tells the refusals that only a person can end from those that end by
// themselves.
func stallsOn(reason string) bool { return reason != v1beta1.ReasonNamespaceTerminating }

func qosMessage(before, after corev1.PodQOSClass, sizes []Size, policy Policy) string {
	if before == corev1.PodQOSBestEffort {
		return "has no requests, and a pod cannot get its first ones in place: set requests in the Deployment, or use updateMode Rollout"
	}
	for _, size := range sizes {
		p := policy.Containers[size.Container]
		if before == corev1.PodQOSGuaranteed && p.Limits && (p.LimitPolicy != LimitPolicy{}) && !p.LimitPolicy.isExact() {
			return fmt.Sprintf("container %s would get limits above its requests, which makes its QoS class %s, and that cannot be done in place: set limits.headroomPercent to 0, or use updateMode Rollout", size.Container, after)
		}
		if p.Limits && size.Limits.MemoryBytes > size.Requests.MemoryBytes {
			return fmt.Sprintf("container %s is known to need more memory than is allowed, and its limit is not lowered below that: raise maxAllowed", size.Container)
		}
	}
	return fmt.Sprintf("its QoS class would change from %s to %s, which cannot be done in place: use updateMode Rollout or controlledValues RequestsAndLimits", before, after)
}
