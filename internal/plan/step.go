// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// maxReverts is how often another writer may undo a decision on the template
// before we stop writing it.
const maxReverts = 2

// resize plans the next in-place resize.
//
// One pod at a time is asked for, and at most a quarter of the pods (but one) may
// be under way at once, so that a wrong number is seen before it is everywhere.
func (p Plan) resize(s Situation, policy Policy) Plan {
	var (
		blocked notes
		next    *Resize
		flying  int
	)
	pods := slices.Clone(s.Pods)
	sort.Slice(pods, func(i, j int) bool { return pods[i].Name < pods[j].Name })
	for _, pod := range pods {
		if !counts(pod) {
			continue
		}
		sizes, drops := sizesFor(pod, s, policy, *p.Decision)
		for _, d := range drops {
			blocked.add(d.reason, "pod "+pod.Name, d.message, d.stalled)
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
			flying++
		case len(drops) == 0:
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
		size := Size{Container: c.Name, Resources: sized(c.Resources, requests, shapeOf(s, c), policy.Containers[c.Name], s.Bounds)}
		if c.RestartOnCPU && changes(c.Resources, size.Resources, resources[0]) {
			size.Requests.CPUMillis, size.Limits.CPUMillis = c.Requests.CPUMillis, c.Limits.CPUMillis
			drops.add(v1beta1.ReasonRestartRequired, c.Name, fmt.Sprintf("container %s restarts when its cpu changes (resizePolicy)", c.Name), true)
		}
		if c.RestartOnMemory && changes(c.Resources, size.Resources, resources[1]) {
			size.Requests.MemoryBytes, size.Limits.MemoryBytes = c.Requests.MemoryBytes, c.Limits.MemoryBytes
			drops.add(v1beta1.ReasonRestartRequired, c.Name, fmt.Sprintf("container %s restarts when its memory changes (resizePolicy)", c.Name), true)
		}
		sizes = append(sizes, size)
	}
	return sizes, drops
}

func changes(a, b workload.Resources, r resource) bool {
	return r.of(a.Requests) != r.of(b.Requests) || r.of(a.Limits) != r.of(b.Limits)
}

// shapeOf is what the limits' proportion to the requests is taken from: the
// template as the user wrote it. A pod's own values would lose a little of it to
// rounding with every resize.
func shapeOf(s Situation, c workload.Container) workload.Resources {
	shape := c.Resources
	if t, ok := s.Deployment.Container(c.Name); ok && !t.Unreadable {
		shape = t.Resources
	}
	held, _ := heldOf(s.Held, c.Name)
	for _, r := range resources {
		if held.holds(r) {
			r.set(&shape.Requests, r.of(held.Requests))
			r.set(&shape.Limits, r.of(held.Limits))
		}
	}
	return shape
}

func heldOf(held []Held, container string) (Held, bool) {
	for _, h := range held {
		if h.Container == container {
			return h, true
		}
	}
	return Held{}, false
}

// sized puts requests on a container: limits follow in the shape's proportion, or
// stay and cap the requests. Limits are neither added nor removed, since a resize
// can do only one of the two and a template change would be a surprise.
func sized(current workload.Resources, requests quantity.Amounts, shape workload.Resources, p ContainerPolicy, bounds workload.Bounds) workload.Resources {
	out := current
	for _, r := range resources {
		request := r.of(requests)
		if request == 0 {
			continue
		}
		limit := r.of(current.Limits)
		if limit > 0 && p.Limits {
			limit = scaledLimit(request, r.of(shape.Requests), r.of(shape.Limits), limit)
			if most := r.of(bounds.ContainerMax); most > 0 {
				limit = min(limit, most)
			}
		}
		if limit > 0 {
			request = min(request, limit)
		}
		r.set(&out.Requests, request)
		r.set(&out.Limits, limit)
	}
	return out
}

// scaledLimit keeps the limit's proportion to the request, rounded up so that it
// never falls below. A shape without a request counts as one whose request equals
// its limit, which is what the API server makes of it. A shape without a limit
// gives no proportion: the current limit stays, but never below the request.
//
//	request 300, shape 100/200 → 600    request 300, shape -/200 → 300
func scaledLimit(request, shapeRequest, shapeLimit, current int64) int64 {
	if shapeLimit == 0 {
		return max(current, request)
	}
	if shapeRequest == 0 {
		shapeRequest = shapeLimit
	}
	limit := math.Ceil(float64(request) * (float64(shapeLimit) / float64(shapeRequest)))
	return max(request, int64(min(limit, quantity.MaxMemoryBytes)))
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
	before, after := pod.QoS, QoSAfter(pod, sizes)
	if before == "" {
		before = workload.QoSOf(pod.Containers, pod.Others)
	}
	if before != after {
		return note{reason: v1beta1.ReasonQoSChange, message: qosMessage(before, after, policy), stalled: true}
	}
	if most, r, over := overPodMax(pod, sizes, s.Bounds); over {
		return note{
			reason:  v1beta1.ReasonLimitRange,
			message: fmt.Sprintf("LimitRange %s allows a pod at most %s of %s", s.Bounds.Name, r.format(most), r.name),
			stalled: true,
		}
	}
	if refused, ok := s.Refused[pod.UID]; ok && slices.Equal(refused.Sizes, sizes) {
		return note{reason: refused.Reason, message: refused.Message, stalled: stallsOn(refused.Reason)}
	}
	return note{}
}

// stallsOn tells the refusals that only a person can end from those that end by
// themselves.
func stallsOn(reason string) bool {
	switch reason {
	case v1beta1.ReasonNamespaceTerminating:
		return false
	}
	return true
}

func qosMessage(before, after corev1.PodQOSClass, policy Policy) string {
	if before == corev1.PodQOSBestEffort {
		return "has no requests, and a pod cannot get its first ones in place: set requests in the Deployment, or use updateMode Rollout"
	}
	return fmt.Sprintf("its QoS class would change from %s to %s, which cannot be done in place: use updateMode Rollout or controlledValues RequestsAndLimits", before, after)
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

// overPodMax says whether the sum over the pod's containers would be above what a
// LimitRange allows a pod. Requests are summed where a container has no limit.
func overPodMax(pod workload.Pod, sizes []Size, bounds workload.Bounds) (most int64, r resource, over bool) {
	for _, r := range resources {
		most := r.of(bounds.PodMax)
		if most == 0 {
			continue
		}
		var sum int64
		for _, c := range withSizes(pod.Containers, sizes) {
			sum += max(r.of(c.Limits), r.of(c.Requests))
		}
		if sum > most {
			return most, r, true
		}
	}
	return 0, resource{}, false
}

// rewrite plans the next change of the Deployment's pod template.
func (p Plan) rewrite(s Situation, policy Policy) Plan {
	var (
		owned, wanted []Size
		hold          []Held
		changed       bool
	)
	for _, c := range s.Deployment.Containers {
		if c.Unreadable {
			continue
		}
		own, want, held := templateSizes(c, s, policy, p.Decision.Requests[c.Name])
		if own != (workload.Resources{}) {
			owned = append(owned, Size{Container: c.Name, Resources: own})
			wanted = append(wanted, Size{Container: c.Name, Resources: want})
		}
		changed = changed || want != c.Resources
		if before, _ := heldOf(s.Held, c.Name); held != before {
			hold = append(hold, held)
		}
	}
	p.PodsAtSize = podsAt(s, wanted)
	switch {
	case !changed && s.Deployment.RollingOut && s.Deployment.Paused:
		return p.because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: its pods get the decided size once it is resumed")
	case !changed && s.Deployment.RollingOut:
		p.Changing = true
		return p.because(v1beta1.ReasonRollingOut, "The Deployment rolls out the decided size")
	case !changed:
		p.Applied = true
		return p.because(v1beta1.ReasonApplied, "The Deployment's pod template has the decided size")
	case s.Deployment.Paused:
		return p.because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: its pod template is left alone until it is resumed")
	case s.Deployment.RollingOut:
		return p.because(v1beta1.ReasonRolloutInProgress, "Another rollout of the Deployment is in progress")
	}
	next := *p.Decision
	if next.Written && !p.Decided {
		if next.Reverts >= maxReverts {
			p.Stalled = true
			return p.because(v1beta1.ReasonContested, "Another writer keeps undoing the sizes in the Deployment's pod template: take the resources out of what it applies")
		}
		next.Reverts++
	}
	if len(hold) == 0 {
		next.Written = true
	}
	p.Decision = &next
	p.Rewrite = &Rewrite{UID: s.Deployment.UID, ResourceVersion: s.Deployment.ResourceVersion, Sizes: owned, Hold: hold}
	p.Changing = true
	return p.because(v1beta1.ReasonRollingOut, "The Deployment rolls out the decided size")
}

// templateSizes is what we own of a template's container, what the container shall
// look like with it, and what must be recorded as held for that.
//
// A value once taken over stays ours until it is given back: sending an apply
// without it would remove it. So what is no longer decided is sent as it was found.
func templateSizes(c workload.Container, s Situation, policy Policy, requests quantity.Amounts) (own, want workload.Resources, hold Held) {
	want = sized(c.Resources, requests, shapeOf(s, c), policy.Containers[c.Name], s.Bounds)
	hold, _ = heldOf(s.Held, c.Name)
	for _, r := range resources {
		decided := r.of(requests) > 0
		switch {
		case decided && !hold.holds(r):
			hold.take(r, c.Resources)
		case !decided && hold.holds(r):
			r.set(&want.Requests, r.of(hold.Requests))
			r.set(&want.Limits, r.of(hold.Limits))
		}
		if hold.holds(r) {
			r.set(&own.Requests, r.of(want.Requests))
			r.set(&own.Limits, r.of(want.Limits))
		}
	}
	if hold.CPU || hold.Memory {
		hold.Container = c.Name
	}
	return own, want, hold
}

func (h *Held) take(r resource, found workload.Resources) {
	r.set(&h.Requests, r.of(found.Requests))
	r.set(&h.Limits, r.of(found.Limits))
	if r.name == "cpu" {
		h.CPU = true
	} else {
		h.Memory = true
	}
}

func podsAt(s Situation, sizes []Size) (n int) {
	for _, pod := range s.Pods {
		if counts(pod) && !differsFrom(pod, sizes) {
			n++
		}
	}
	return n
}
