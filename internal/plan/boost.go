// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Boost is more CPU for a container while it starts: until its pod is Ready, and Duration
// longer.
//
// It is no decision. What a pod shall have once it has started is decided as ever; a
// boost is how a pod that starts differs from it, and all that it rests on is what the pod
// itself says. So there is nothing to remember, and nothing that a restart could lose.
type Boost struct {
	// Percent is what is requested, in percent of what else would be: 200 is twice as
	// much. MoreMillis comes on top of that.
	Percent, MoreMillis int64
	// Duration is how long a boost outlasts the pod's becoming Ready. At least 0.
	Duration time.Duration
}

// startsWithin is how long a container may take to start until its boost ends without its
// being Ready. It is the time that a Deployment gives to a rollout by default.
const startsWithin = 10 * time.Minute

// clockSkew is how far the clock of a node, which says when a container has started, may
// be off that of the API server, which says when a pod was resized.
const clockSkew = 5 * time.Second

// Until says until when a container of a pod is starting; zero where it is not.
func (b Boost) Until(pod workload.Pod, container string, now time.Time) time.Time {
	if _, end := b.start(pod, container); end.After(now) {
		return end
	}
	return time.Time{}
}

// start says when the container of a pod last began to start, and when that was or will
// be over; zero where it is not known.
//
// A process that began before its pod became unready has started before, and suffers from
// something else. Where a container crashes again and again, its time runs from the pod's
// becoming unready on, so that no crash begins it anew.
func (b Boost) start(pod workload.Pod, container string) (began, end time.Time) {
	run, ok := pod.Runs[container]
	if !ok || pod.ReadyChanged.IsZero() || pod.Ready && run.Since.IsZero() {
		return began, end
	}
	began = run.Since
	since := began // what the time runs from
	if !pod.Ready && (began.IsZero() || run.Restarted) {
		since = pod.ReadyChanged
	}
	if began.IsZero() {
		began = since
	}
	end = since.Add(startsWithin + b.Duration)
	switch {
	case pod.Ready:
		if ready := latest(pod.ReadyChanged, began).Add(b.Duration); ready.Before(end) {
			end = ready
		}
	case began.Before(pod.ReadyChanged.Truncate(time.Second)): // the times are in whole seconds
		end = pod.ReadyChanged
	}
	return began, end
}

// of is the boosted request.
func (b Boost) of(request int64) int64 {
	return min(mulDiv(request, cmp.Or(b.Percent, 100), 100, true), cpu.most-b.MoreMillis) + b.MoreMillis
}

// boosts says whether any container may be boosted.
func (p Policy) boosts() bool {
	for _, c := range p.Containers {
		if c.Boost != nil && p.Mode == v1beta1.UpdateModeInPlace {
			return true
		}
	}
	return false
}

// boostOf is the boost of a pod's container, where there may be one. Nothing is restarted
// for it, and CPU that is not ours to manage is left alone.
func (p Policy) boostOf(s Situation, c workload.Container) (Boost, bool) {
	boost := p.Containers[c.Name].Boost
	if boost == nil || p.Mode != v1beta1.UpdateModeInPlace || !p.controls(c.Name, cpu) || c.Unreadable || c.RestartOnCPU {
		return Boost{}, false
	}
	template, ok := s.Deployment.Container(c.Name)
	if !ok || template.Unreadable || takenBy(s, c.Name, cpu).reason != "" {
		return Boost{}, false
	}
	return *boost, true
}

// boostable is a container that may be boosted when it starts.
type boostable struct {
	workload.Container
	// base is its CPU request without a boost: as decided, else as in the template.
	base    int64
	decided bool
	// most is its request with the boost.
	most int64
	// until is when its start will be over; zero where it is not starting.
	until time.Time
	// starting says that the pod was last resized while it started, as far as clocks that
	// may differ tell it, and resized that it was after the start began, by the clocks.
	starting, resized bool
}

// boostables lists the containers of a pod that may be boosted, which should have these
// sizes without it.
func boostables(pod workload.Pod, s Situation, policy Policy, plain []Size, d Decision, now time.Time) (out []boostable) {
	for _, c := range pod.Containers {
		boost, ok := policy.boostOf(s, c)
		if !ok {
			continue
		}
		template, _ := s.Deployment.Container(c.Name)
		b := boostable{Container: c, base: cmp.Or(template.Requests.CPUMillis, template.Limits.CPUMillis)}
		if d.request(c.Name, cpu) > 0 {
			size, _ := find(withSizes(pod.Containers, plain), c.Name)
			b.base, b.decided = size.Requests.CPUMillis, true
		}
		if b.base == 0 {
			continue
		}
		b.most = allowedFor(s, policy, template, cpu).fit(boost.of(b.base))
		if limit := c.Limits.CPUMillis; limit > 0 && shapeOf(s, c).Limits.CPUMillis == 0 {
			b.most = min(b.most, limit) // there would be no way back for the limit
		}
		b.most = max(b.base, cutFor(s, policy, c).sized(c.Resources, cpuAlone(b.most)).Requests.CPUMillis)
		began, end := boost.start(pod, c.Name)
		b.until = boost.Until(pod, c.Name, now)
		if !pod.Resized.IsZero() && !began.IsZero() {
			b.starting = !pod.Resized.Before(began.Add(-clockSkew)) && pod.Resized.Before(end.Add(clockSkew))
			b.resized = pod.Resized.After(began)
		}
		out = append(out, b)
	}
	shareNode(s.LargestNode.CPUMillis, withSizes(pod.Containers, plain), out)
	return out
}

// shareNode keeps the boosts within what the largest node can give, the first by name
// first.
func shareNode(node int64, containers []workload.Container, list []boostable) {
	if node == 0 {
		return
	}
	free := node - total(containers).Requests.CPUMillis
	for _, b := range list {
		free -= b.keeps() - b.base
	}
	slices.SortFunc(list, func(a, b boostable) int { return cmp.Compare(a.Name, b.Name) })
	for i := range list {
		b := &list[i]
		if more := b.most - b.keeps(); more > 0 {
			b.most = b.keeps() + min(more, max(0, free))
			free -= b.most - b.keeps()
		}
	}
}

// keeps is the least request while it starts: what it has begun with is not lowered then.
func (b boostable) keeps() int64 {
	if b.until.IsZero() {
		return b.base
	}
	return max(b.base, b.Requests.CPUMillis)
}

// isBoosted says whether a container for which no CPU is decided has a boost. It is known
// by its amount, but for the least bit that the QoS class may have cost, and by when the
// pod was resized: what else is found on a pod is not taken away without a decision.
func (b boostable) isBoosted() bool {
	less := b.most - b.Requests.CPUMillis
	return !b.decided && b.starting && b.Requests.CPUMillis > b.base && (less == 0 || less == 1)
}

// isTried says whether this start has had its boost, which was then taken away, by us or
// by somebody else. There is one for each start. Where clocks differ it may be seen too
// late, and is tried once more: that is better than to take a resize just before the
// start for one of the start.
func (b boostable) isTried() bool { return b.resized && b.Requests.CPUMillis <= b.base }

// wanted is the request while it starts. What a pod has begun with is not lowered
// before it has started, as far as it is allowed.
func (b boostable) wanted(s Situation, policy Policy) int64 {
	template, _ := s.Deployment.Container(b.Name)
	switch has := b.Requests.CPUMillis; {
	case has <= b.most:
		return b.most
	case b.decided:
		return max(b.most, allowedFor(s, policy, template, cpu).fit(has))
	default:
		return has
	}
}

// target is what a pod shall have now.
type target struct {
	sizes []Size
	drops notes
	// until is when the first boost of the pod ends; zero where there is none.
	until time.Time
}

func (t target) isBoosted() bool { return !t.until.IsZero() }

// targetOf is what a pod shall have now: the decided sizes, and more CPU where a
// container starts. Where that cannot be had, the pod goes without: a boost is never what
// keeps a pod from its decided size.
func targetOf(pod workload.Pod, s Situation, policy Policy, now time.Time) (t target) {
	t.sizes, t.drops = sizesFor(pod, s, policy, now)
	if !policy.boosts() {
		return t
	}
	list := boostables(pod, s, policy, t.sizes, *s.Decision, now)
	refused := pod.Resize.Infeasible || pod.Resize.Deferred
	for _, b := range list {
		if b.isBoosted() && (b.until.IsZero() || refused) {
			t.sizes = withCPU(t.sizes, s, policy, b.Container, b.base)
		}
	}
	if refused {
		return t
	}
	sizes, until := t.sizes, time.Time{}
	for _, b := range list {
		wanted := b.wanted(s, policy)
		if b.until.IsZero() || wanted <= b.base || b.isTried() {
			continue
		}
		sizes = withCPU(sizes, s, policy, b.Container, wanted)
		if until.IsZero() || b.until.Before(until) {
			until = b.until
		}
	}
	sizes = keepBurstable(pod, sizes)
	if until.IsZero() || denial(pod, sizes, s).reason != "" || blockOf(pod, sizes, s, policy, now).reason != "" {
		return t
	}
	t.sizes, t.until = sizes, until
	return t
}

// withCPU is the sizes with another CPU request for a container, and the limit that
// follows.
func withCPU(sizes []Size, s Situation, policy Policy, c workload.Container, request int64) []Size {
	out := slices.Clone(sizes)
	i := slices.IndexFunc(out, func(size Size) bool { return size.Container == c.Name })
	if i < 0 {
		i, out = len(out), append(out, Size{Container: c.Name, Resources: c.Resources})
	}
	size := cutFor(s, policy, c).sized(c.Resources, cpuAlone(request))
	cpu.set(&out[i].Requests, size.Requests.CPUMillis)
	cpu.set(&out[i].Limits, size.Limits.CPUMillis)
	return out
}

func cpuAlone(millis int64) quantity.Amounts { return quantity.Amounts{CPUMillis: millis} }

// settled is the situation as if no pod had a boost, where no decision tells: what a
// container has while it starts is no evidence of what it should have.
func (s Situation) settled(policy Policy, now time.Time) Situation {
	if !policy.boosts() {
		return s
	}
	var d Decision
	if s.Decision != nil {
		d = *s.Decision
	}
	s.Pods = slices.Clone(s.Pods)
	for i, pod := range s.Pods {
		var plain []Size
		for _, b := range boostables(pod, s, policy, nil, d, now) {
			if !b.decided && b.Requests.CPUMillis > b.base && (b.isBoosted() || b.starting && !b.until.IsZero()) {
				plain = withCPU(plain, s, policy, b.Container, b.base)
			}
		}
		s.Pods[i].Containers = withSizes(pod.Containers, plain)
	}
	return s
}

// startUndecided plans the boosts of pods for which nothing is decided yet.
func (p Plan) startUndecided(s Situation, policy Policy, now time.Time) Plan {
	next := Plan{Pods: p.Pods, RequeueAfter: p.RequeueAfter}.resize(s, policy, now)
	p.RequeueAfter = next.RequeueAfter
	switch {
	case next.Changing:
		return next
	case next.Reason == v1beta1.ReasonBoosted:
		p.Message += ". " + next.Message
	case !next.Applied && next.Reason != v1beta1.ReasonNoPods:
		p.Reason, p.Message, p.Stalled, p.Applied, p.PodsAtSize = next.Reason, next.Message, next.Stalled, false, 0
	}
	return p
}
