// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// stuckAfter is how long a kubelet may take to put a resize in force before it holds
	// up no other pod.
	stuckAfter = 10 * time.Minute
	// deferredGrace is how long a resize may be put off before the fallback's turn comes. A
	// kubelet tries again after 30 seconds and then every 3 minutes.
	deferredGrace = 10 * time.Minute
	// graceSpread is added to it, for each pod at another place.
	graceSpread = time.Minute
	// shrinkGrace is how long a kubelet may fail to lower a memory limit before the limit is
	// put back. It tries again with every sync of the pod, and may merely not have read the
	// usage yet.
	shrinkGrace = 2 * time.Minute
)

// resize plans the next in-place resize.
//
// One pod at a time is asked for, those first that are lowered, and at most a quarter
// of the pods (but one) may be under way at once, so that a wrong number is seen before
// it is everywhere. A boost is no number that could be wrong everywhere, and cannot wait:
// it waits for nobody, and nobody waits for it. What cannot be done in place is left to
// the fallback, once there is nothing more to do in place.
func (p Plan) resize(s Situation, policy Policy, now time.Time) Plan {
	var (
		blocked  notes
		next     *Resize
		boosts   []*Resize // of pods that start
		lower    *Resize   // one that takes something from a pod, and is on trial
		yields   bool      // next makes room for others
		flying   int
		have     int  // the pods that have all that they can get
		boosting bool // a boost is under way
		boosted  bool // a boost is in force
	)
	if !policy.mayRollOut() {
		p.Decision = p.Decision.unwritten()
	}
	s.Decision = &Decision{}
	if p.Decision != nil {
		s.Decision = p.Decision
		p.Decision = p.Decision.keeping(failedShrinks(s, now))
		s.Decision = p.Decision
	}
	p.PodsAtSize = 0
	pods := slices.SortedFunc(slices.Values(s.Pods), func(a, b workload.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		if !counts(pod) {
			continue
		}
		subject := "pod " + pod.Name
		t := targetOf(pod, s, policy, now)
		for _, d := range t.drops {
			blocked.addNote(subject, d)
		}
		if len(t.sizes) == 0 && p.Decision == nil {
			p.PodsAtSize++
			continue // whatever is said of it is none of our doing
		}
		sizes, refusal := granted(pod, t.sizes, s, policy, now)
		if refusal.reason != "" {
			blocked.addNote(subject, refusal)
		}
		if refusal.reason == v1beta1.ReasonQuotaExceeded {
			p.RequeueAfter = sooner(p.RequeueAfter, quotaRetry)
		}
		if t.isBoosted() {
			p.RequeueAfter = sooner(p.RequeueAfter, t.until.Sub(now))
		}
		step := &Resize{Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Sizes: sizes, Boost: t.isBoosted()}
		switch asked, why := differsFrom(pod, sizes), blockOf(pod, sizes, s, policy, now); {
		case asked && why.reason != "":
			blocked.addNote(subject, why)
			if why.reason == v1beta1.ReasonUnsupported && !why.restart && policy.mayReplace() {
				p.RequeueAfter = sooner(p.RequeueAfter, pod.Started.Add(stuckAfter).Sub(now))
			}
		case asked && step.Boost:
			boosts = append(boosts, step)
		case asked && p.Decision.trial() != nil && lowers(pod, sizes):
			lower = cmp.Or(lower, step)
		case asked:
			if first := isLowered(pod, sizes); next == nil || first && !yields {
				next, yields = step, first
			}
		case pod.Resize.Infeasible:
			blocked.addNote(subject, note{reason: v1beta1.ReasonInfeasible, message: said(pod, "its node can never hold the new size"), stalled: true, restart: true})
		case pod.Resize.Deferred:
			left := since(pod, *s.Decision).Add(deferredGrace + spread(pod)).Sub(now)
			blocked.addNote(subject, note{reason: v1beta1.ReasonDeferred, message: said(pod, "its node has no room for the new size yet"), restart: left <= 0})
			if left > 0 && policy.mayReplace() {
				p.RequeueAfter = sooner(p.RequeueAfter, left)
			}
		case pod.Resize.Failed:
			left := stuckIn(pod, *s.Decision, now)
			if shrinkFails(pod) {
				left = since(pod, *s.Decision).Add(shrinkGrace).Sub(now)
			}
			blocked.addNote(subject, note{reason: v1beta1.ReasonResizeError, message: said(pod, "the kubelet could not actuate the resize and tries again"), restart: left <= 0 && !step.Boost})
			if left > 0 {
				p.RequeueAfter = sooner(p.RequeueAfter, left)
			}
		case pod.Resize.InProgress || !inForce(pod, sizes):
			left := stuckIn(pod, *s.Decision, now)
			if left <= 0 {
				blocked.addNote(subject, note{reason: v1beta1.ReasonResizeError, message: "the kubelet has not reported the new size in force for " + stuckAfter.String(), restart: !step.Boost})
				continue
			}
			if boosting = boosting || step.Boost; !step.Boost || !memoryInForce(pod, sizes) {
				flying++
			}
			p.RequeueAfter = sooner(p.RequeueAfter, left)
		default:
			have++
			if len(t.drops) == 0 && refusal.reason == "" {
				p.PodsAtSize++
				boosted = boosted || step.Boost
			}
		}
	}
	if next == nil {
		p, next = p.tryOut(s, policy, now, lower, flying, have)
	}
	for _, boost := range boosts {
		if boost = boost.among(flying, concurrency(p.Pods), s, policy, now); boost != nil {
			next, flying = boost, 0
			break
		}
	}

	switch {
	case p.Pods == 0:
		return p.withoutPods(s, policy, now)
	case next != nil && flying < concurrency(p.Pods):
		p.Resize, p.Changing = next, true
		return p.because(v1beta1.ReasonResizing, "Pods are being resized in place")
	case flying > 0 || boosting:
		p.Changing = true
		return p.because(v1beta1.ReasonResizing, "Pods are being resized in place")
	case next == nil && lower != nil:
		p.Changing = true
		return p.because(v1beta1.ReasonVerifying, "The pods that were lowered first are watched before the others are lowered, too")
	case len(blocked) > 0:
		return p.fallBack(s, policy, blocked, have, now)
	}
	p.Applied = true
	if boosted {
		return p.because(v1beta1.ReasonBoosted, "Pods that start have more CPU until they are Ready (startupBoost)")
	}
	return p.because(v1beta1.ReasonApplied, "All pods have the decided size")
}

// among is the boost where so many resizes of so many at once are under way: where there
// is no room for one more, what else it would change waits for its turn.
func (r *Resize) among(flying, atOnce int, s Situation, policy Policy, now time.Time) *Resize {
	if flying < atOnce {
		return r
	}
	for _, pod := range s.Pods {
		if pod.UID != r.UID {
			continue
		}
		part := *r
		part.Sizes = only(cpu, pod, r.Sizes)
		if differsFrom(pod, part.Sizes) && denial(pod, part.Sizes, s).reason == "" && blockOf(pod, part.Sizes, s, policy, now).reason == "" {
			return &part
		}
	}
	return nil
}

func concurrency(pods int) int { return max(1, pods/4) }

// stuckIn is when a resize that is under way will have taken too long.
func stuckIn(pod workload.Pod, d Decision, now time.Time) time.Duration {
	return min(askedAt(pod, d).Add(stuckAfter).Sub(now), stuckAfter)
}

// askedAt is when the pod was asked to have its size. Where it is not known: not before
// that was decided, nor before the pod started.
func askedAt(pod workload.Pod, d Decision) time.Time {
	return latest(d.Time, pod.Started, pod.Resized)
}

// since is when the kubelet began to say of this size what it says.
func since(pod workload.Pod, d Decision) time.Time {
	if pod.Resize.Since.IsZero() {
		return askedAt(pod, d)
	}
	return pod.Resize.Since
}

func latest(first time.Time, others ...time.Time) time.Time {
	for _, other := range others {
		if other.After(first) {
			first = other
		}
	}
	return first
}

// spread keeps the pods of a Deployment from running out of their grace at once.
func spread(pod workload.Pod) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod.UID))
	return graceSpread * time.Duration(h.Sum32()%60) / 60
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
func sizesFor(pod workload.Pod, s Situation, policy Policy, now time.Time) (sizes []Size, drops notes) {
	for _, c := range pod.Containers {
		requests, ok := s.Decision.Requests[c.Name]
		if !ok || c.Unreadable {
			continue
		}
		shaped := c.Resources
		if limit, failed := failedShrink(pod, c, *s.Decision, now); failed {
			shaped = putBack(shaped, limit)
		}
		cut := cutFor(s, policy, c)
		size := Size{Container: c.Name, Resources: cut.sized(shaped, requests)}
		if cut.kept.MemoryBytes > 0 {
			cut.kept = quantity.Amounts{}
			if free := cut.sized(shaped, requests); free.Limits.MemoryBytes < size.Limits.MemoryBytes {
				drops.add(v1beta1.ReasonUsageAboveLimit, c.Name, fmt.Sprintf("container %s keeps its memory limit, for more is in use than the lower one allows, until its memory is decided anew", c.Name), false)
			}
		}
		for _, r := range resources {
			if r.restarts(c) && changes(c.Resources, size.Resources, r) {
				r.set(&size.Requests, r.of(c.Requests))
				r.set(&size.Limits, r.of(c.Limits))
				drops.addNote(c.Name, note{
					reason:  v1beta1.ReasonRestartRequired,
					message: fmt.Sprintf("container %s restarts when its %s changes (resizePolicy)", c.Name, r.name),
					stalled: true, restart: true,
				})
			}
		}
		sizes = append(sizes, size)
	}
	return keepBurstable(pod, sizes), drops
}

// failedShrinks are the memory limits in force that the kubelets could not lower, by
// container.
func failedShrinks(s Situation, now time.Time) map[string]int64 {
	limits := map[string]int64{}
	for _, pod := range s.Pods {
		for _, c := range pod.Containers {
			if limit, failed := failedShrink(pod, c, *s.Decision, now); failed && counts(pod) && s.Decision.Requests[c.Name].MemoryBytes > 0 {
				limits[c.Name] = max(limits[c.Name], limit)
			}
		}
	}
	return limits
}

// failedShrink is the memory limit in force of a container that the kubelet has not been
// able to lower for a while. To put it back is to end the attempt, for as long as it
// lasts, a pod that uses a little less for a moment loses what it needs the next.
func failedShrink(pod workload.Pod, c workload.Container, d Decision, now time.Time) (limit int64, failed bool) {
	limit = pod.Actual[c.Name].Limits.MemoryBytes
	return limit, pod.Resize.Failed && c.Limits.MemoryBytes > 0 && c.Limits.MemoryBytes < limit &&
		!now.Before(since(pod, d).Add(shrinkGrace))
}

// shrinkFails says that the kubelet reports an error and a memory limit above the one
// asked for.
func shrinkFails(pod workload.Pod) bool {
	return slices.ContainsFunc(pod.Containers, func(c workload.Container) bool {
		return c.Limits.MemoryBytes > 0 && c.Limits.MemoryBytes < pod.Actual[c.Name].Limits.MemoryBytes
	})
}

// putBack puts a memory limit back; the request goes with it where the two were equal.
func putBack(r workload.Resources, limit int64) workload.Resources {
	if r.Requests.MemoryBytes == r.Limits.MemoryBytes {
		r.Requests.MemoryBytes = limit
	}
	r.Limits.MemoryBytes = limit
	return r
}

// isLowered says whether sizes take something from a pod and give it nothing, which
// makes room for others.
func isLowered(pod workload.Pod, sizes []Size) bool {
	for _, size := range sizes {
		c, _ := pod.Container(size.Container)
		for _, r := range resources {
			if r.of(size.Requests) > r.of(c.Requests) || r.of(size.Limits) > r.of(c.Limits) {
				return false
			}
		}
	}
	return true
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

func memoryInForce(pod workload.Pod, sizes []Size) bool {
	for _, size := range sizes {
		if changes(pod.Actual[size.Container], size.Resources, memory) {
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
func blockOf(pod workload.Pod, sizes []Size, s Situation, policy Policy, now time.Time) note {
	if pod.PodLevelResources {
		return note{reason: v1beta1.ReasonUnsupported, message: "declares resources for the pod as a whole, which are not managed", stalled: true}
	}
	for _, size := range sizes {
		if _, ok := pod.Actual[size.Container]; !ok {
			return note{
				reason:  v1beta1.ReasonUnsupported,
				message: "the node has not reported the resources in force, as nodes do that can resize in place",
				restart: !now.Before(pod.Started.Add(stuckAfter)),
			}
		}
	}
	if before, after := qosOf(pod), QoSAfter(pod, sizes); before != after {
		return qosNote(before, after, sizes, policy)
	}
	if message := outOfBounds(withSizes(pod.Containers, sizes), sizes, s.Bounds); message != "" {
		return note{reason: v1beta1.ReasonLimitRange, message: message, stalled: true}
	}
	return note{}
}

// granted is as much of the sizes as can be had: all of them, or else the first of one
// resource alone and what is lowered that changes anything. A pod is resized as a whole,
// but where there is no room for its CPU its memory need not go without, and what a boost
// has taken is given back.
func granted(pod workload.Pod, sizes []Size, s Situation, policy Policy, now time.Time) ([]Size, note) {
	told := denial(pod, sizes, s)
	if told.reason == "" {
		return sizes, note{}
	}
	var had []Size
	for _, part := range [][]Size{only(memory, pod, sizes), only(cpu, pod, sizes), lowered(pod, sizes)} {
		switch {
		case denial(pod, part, s).reason != "" || blockOf(pod, part, s, policy, now).reason != "":
		case differsFrom(pod, part):
			return part, told
		default:
			had = part
		}
	}
	return had, told
}

// denial says that the API server has refused the sizes, or would because of a quota.
func denial(pod workload.Pod, sizes []Size, s Situation) note {
	if refused, ok := refusalFor(s.Refused[pod.UID], sizes); ok {
		return note{reason: refused.Reason, message: refused.Message, stalled: stallsOn(refused.Reason), restart: restartsOn(refused.Reason)}
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

// lowered is the sizes less what they raise.
func lowered(pod workload.Pod, sizes []Size) []Size {
	out := make([]Size, 0, len(sizes))
	for _, size := range sizes {
		c, _ := pod.Container(size.Container)
		part := Size{Container: size.Container, Resources: c.Resources}
		for _, r := range resources {
			if r.of(size.Requests) <= r.of(c.Requests) && r.of(size.Limits) <= r.of(c.Limits) {
				r.set(&part.Requests, r.of(size.Requests))
				r.set(&part.Limits, r.of(size.Limits))
			}
		}
		out = append(out, part)
	}
	return out
}

// stallsOn tells the refusals that only a person can end from those that end by
// themselves.
func stallsOn(reason string) bool { return reason != v1beta1.ReasonNamespaceTerminating }

// restartsOn tells the refusals that are about this pod or its node, so that another pod
// may be the answer, from those that another pod would meet as well.
func restartsOn(reason string) bool {
	switch reason {
	case v1beta1.ReasonNodeCapacity, v1beta1.ReasonUnsupported, v1beta1.ReasonQoSChange:
		return true
	}
	return false
}

func qosNote(before, after corev1.PodQOSClass, sizes []Size, policy Policy) note {
	n := note{reason: v1beta1.ReasonQoSChange, stalled: true, restart: true}
	if before == corev1.PodQOSBestEffort {
		n.message = "has no requests, and a pod cannot get its first ones in place: set requests in the Deployment, or use Rollout as the updateMode or fallback"
		return n
	}
	for _, size := range sizes {
		p := policy.Containers[size.Container]
		if before == corev1.PodQOSGuaranteed && p.Limits && (p.LimitPolicy != LimitPolicy{}) && !p.LimitPolicy.isExact() {
			n.message = fmt.Sprintf("container %s would get limits above its requests, which makes its QoS class %s, and that cannot be done in place: set limits.headroomPercent to 0, or use Rollout as the updateMode or fallback", size.Container, after)
			return n
		}
		if p.Limits && size.Limits.MemoryBytes > size.Requests.MemoryBytes {
			n.message = fmt.Sprintf("container %s is known to need more memory than is allowed, and its limit is not lowered below that: raise maxAllowed", size.Container)
			n.restart = false
			return n
		}
	}
	n.message = fmt.Sprintf("its QoS class would change from %s to %s, which cannot be done in place: use controlledValues RequestsAndLimits, or Rollout as the updateMode or fallback", before, after)
	return n
}
