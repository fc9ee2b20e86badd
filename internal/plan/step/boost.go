// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// clockSkew is how far the clock of a node, which says when a container has started, may
// differ from that of the API server, which says when a pod was resized.
const clockSkew = 5 * time.Second

// target is what a pod should have now.
type target struct {
	sizes   []model.Size
	dropped model.Obstacles
	// until is when the first boost of the pod ends; zero if there is none.
	until time.Time
	// retry is when to look again at the room of its node; 0 if there is enough.
	retry time.Duration
}

func (t target) isBoosted() bool { return !t.until.IsZero() }

// targetOf is what a pod should have now: the decided sizes, and more CPU for a container
// that starts. If the pod cannot have more CPU, it gets none: a boost never keeps a pod
// from its decided size.
func (p planner) targetOf(pod workload.Pod) target {
	t := target{}
	t.sizes, t.dropped = p.sizesFor(pod)
	if p.IsLeaving(p.policy, pod) {
		return p.withinRoom(pod, target{sizes: p.rescued(pod, t.sizes)})
	}
	list := p.boostables(pod, t.sizes)
	return p.memoryFirst(pod, p.withinRoom(pod, p.withholdFromPod(pod, p.boostedTarget(pod, t, list), list)))
}

// memoryFirst is the target without more CPU while the kubelet has not applied the memory that a pod gets after an OOM kill. A
// kubelet grants all of a resize or nothing, and the node may have room for the memory only.
func (p planner) memoryFirst(pod workload.Pod, t target) target {
	has := pod
	has.Containers = model.AppliedTo(pod)
	if !p.Decision.IsUrgentRestart() || !anySize(has, t.sizes, model.Memory.Raises) {
		return t
	}
	sizes := slices.Clone(t.sizes)
	for i, size := range sizes {
		if c, _ := pod.Container(size.Container); model.CPU.Raises(c.Resources, size.Resources) {
			model.CPU.Put(&sizes[i].Resources, c.Requests.CPUMillis, c.Limits.CPUMillis)
		}
	}
	if sizes = keepBurstable(pod, sizes); p.isPossible(pod, sizes) {
		t.sizes = sizes
	}
	return t
}

// boostedTarget is the target with the boosts of the pod's containers that start.
func (p planner) boostedTarget(pod workload.Pod, t target, list []boostable) target {
	if pod.Resize.Infeasible || pod.Resize.Deferred {
		return t
	}
	sizes, until := p.boosted(t.sizes, list)
	sizes = keepBurstable(pod, withMemoryOf(pod, sizes))
	if until.IsZero() || !p.isPossible(pod, sizes) {
		return t
	}
	t.sizes, t.until = sizes, until
	return t
}

// withMemoryOf is the sizes with no less memory than the pod has, which it may need to start.
func withMemoryOf(pod workload.Pod, sizes []model.Size) []model.Size {
	out, r := slices.Clone(sizes), model.Memory
	for i, size := range out {
		c, _ := pod.Container(size.Container)
		r.Put(&out[i].Resources, max(r.Request(size.Resources), r.Request(c.Resources)), max(r.Limit(size.Resources), r.Limit(c.Resources)))
	}
	return out
}

// boosted is the sizes with the boosts of all containers that start, and when the first
// boost ends; zero for none.
func (p planner) boosted(sizes []model.Size, list []boostable) (out []model.Size, until time.Time) {
	out = sizes
	for _, b := range list {
		if wanted := p.wantedBoost(b); !b.until.IsZero() && wanted > b.base {
			out = p.withCPU(out, b.Container, wanted)
			if until.IsZero() || b.until.Before(until) {
				until = b.until
			}
		}
	}
	return out, until
}

// boostOf is the boost of a pod's container, if it may have one: it restarts nothing, and adds to CPU that is decided.
func (p planner) boostOf(c workload.Container) (model.Boost, bool) {
	boost := p.policy.Containers[c.Name].Boost
	template, ok := p.Deployment.Container(c.Name)
	switch {
	case boost == nil, !p.policy.InPlace(), c.Unreadable, c.RestartOnCPU:
		return model.Boost{}, false
	case !ok, template.Unreadable, p.Decision.Request(c.Name, model.CPU) == 0:
		return model.Boost{}, false
	}
	return *boost, true
}

// boostable is a container that may be boosted when it starts.
type boostable struct {
	workload.Container
	// base is its decided CPU request, and most that with the boost.
	base, most int64
	// until is when its boost will be over; zero if it is not starting, or has had the boost of this start. If clocks
	// differ, that may be overlooked: better than to mistake a resize just before the start for a boost.
	until time.Time
	// raisedAtStart is true if the pod was last resized while it started, if clocks may differ, or was created with the boost.
	raisedAtStart bool
}

// boostables lists the containers of a pod that may be boosted, which would have these
// sizes without it.
func (p planner) boostables(pod workload.Pod, plain []model.Size) (out []boostable) {
	for _, c := range pod.Containers {
		if boost, ok := p.boostOf(c); ok {
			out = append(out, p.boostableOf(pod, c, boost, plain))
		}
	}
	shareNode(p.mostBoosted(pod), resized(pod.Footprint(), plain).OnceStarted(), out)
	return out
}

func (p planner) boostableOf(pod workload.Pod, c workload.Container, boost model.Boost, plain []model.Size) boostable {
	template, _ := p.Deployment.Container(c.Name)
	size, _ := workload.Pod{Containers: withSizes(pod.Containers, plain)}.Container(c.Name)
	b := boostable{Container: c, base: size.Requests.CPUMillis}
	rules := decision.LimitRulesFor(p.Situation, p.policy, c)
	b.most = p.allowedCPU(template, boostedRequest(boost, b.base))
	b.most = min(b.most, cmp.Or(p.Ceilings.Container.CPUMillis, b.most))
	if boost.LeastMillis > 0 {
		b.most = min(b.most, cmp.Or(decision.MostRaised(p.Situation, p.policy, template, model.CPU), b.most))
	}
	b.most = max(b.base, rules.Apply(c.Resources, cpuAlone(b.most)).Requests.CPUMillis)
	b.until = boost.Until(pod, c.Name, p.now)
	began, end := boost.Start(pod, c.Name)
	if pod.Resized.IsZero() || began.IsZero() {
		b.raisedAtStart = p.startedBoosted(pod)
		return b
	}
	b.raisedAtStart = !pod.Resized.Before(began.Add(-clockSkew)) && pod.Resized.Before(end.Add(clockSkew))
	if pod.Resized.After(began) && c.Requests.CPUMillis <= b.base {
		b.until = time.Time{}
	}
	return b
}

// boostedRequest is the request with a boost.
func boostedRequest(b model.Boost, request int64) int64 {
	return max(b.LeastMillis, min(decision.Scale(request, cmp.Or(b.Percent, 100)), model.CPU.Most()-b.MoreMillis)+b.MoreMillis)
}

// boostedBy is why starting pods have more CPU.
func (p planner) boostedBy() string {
	for _, c := range p.policy.Containers {
		if c.Boost != nil && c.Boost.LeastMillis == 0 {
			return "startupBoost"
		}
	}
	return "earlier starts were throttled"
}

func (p planner) allowedCPU(template workload.Container, request int64) int64 {
	return decision.AllowedRequest(p.Situation, p.policy, template, model.CPU, request)
}

// shareNode keeps the boosts within what the largest node can give, and what a pod may have: each gets an equal part.
// What a container has begun with is not lowered while it starts.
func shareNode(node int64, pod workload.Footprint, list []boostable) {
	if node == 0 {
		return
	}
	free := node - pod.Counted().Requests.CPUMillis
	for _, b := range list {
		free -= b.keeps() - b.base
	}
	for i, b := range list {
		list[i].most = min(b.most, b.keeps()+max(0, free)/int64(len(list)))
	}
}

// keeps is the least request while the container starts.
func (b boostable) keeps() int64 {
	if b.until.IsZero() {
		return b.base
	}
	return max(b.base, b.Requests.CPUMillis)
}

// wantedBoost is the request while the container starts. What a pod has begun with is not
// lowered before it has started, if it is allowed.
func (p planner) wantedBoost(b boostable) int64 {
	template, _ := p.Deployment.Container(b.Name)
	return max(b.most, min(b.Requests.CPUMillis, p.allowedCPU(template, b.Requests.CPUMillis)))
}

// withCPU is the sizes with another CPU request for a container, and the limit that
// follows.
func (p planner) withCPU(sizes []model.Size, c workload.Container, request int64) []model.Size {
	out := slices.Clone(sizes)
	i := slices.IndexFunc(out, func(size model.Size) bool { return size.Container == c.Name })
	model.CPU.Copy(&out[i].Resources, decision.LimitRulesFor(p.Situation, p.policy, c).Apply(c.Resources, cpuAlone(request)))
	return out
}

// starts is the CPU with which containers with a startupBoost start in new pods that get these sizes: what a pod would be
// boosted to that starts now. It is lowered in place once the pod has started, so there is none where that may not happen.
// CPU that was only learned is not among it: it may need another node, and no user has asked for that.
func (p planner) starts(sizes []model.Size, provedBy types.UID) (starts []model.Size) {
	mayReplaceBoosted := p.policy.MayRollOut() || p.policy.MayEvict() && !p.policy.EvictsUnderPressure()
	if !p.policy.InPlace() || mayReplaceBoosted || p.Decision.Reverts >= maxReverts || slices.ContainsFunc(p.Pods, p.keepsBoost) {
		return nil
	}
	pod := p.startingPod(sizes, provedBy)
	decided, _ := p.sizesFor(pod)
	list := slices.DeleteFunc(p.boostables(pod, decided), func(b boostable) bool {
		isLearned := p.policy.Containers[b.Name].Boost.LeastMillis > 0
		return isLearned || decision.HasWholeCores(p.Situation, p.policy, b.Container) // which a kubelet may not lower in place
	})
	boosted, _ := p.boosted(decided, list)
	with := workload.Pod{Containers: withSizes(pod.Containers, keepBurstable(pod, boosted))}
	for _, b := range list {
		if c, _ := with.Container(b.Name); c.Requests.CPUMillis > b.Requests.CPUMillis {
			start := model.Size{Container: b.Name}
			model.CPU.Copy(&start.Resources, c.Resources)
			starts = append(starts, start)
		}
	}
	if !p.mayStartWith(starts, sizes, provedBy) {
		return nil
	}
	return starts
}

// startingPod is a new pod with these sizes that starts now.
func (p planner) startingPod(sizes []model.Size, provedBy types.UID) workload.Pod {
	made := p.withDefaults(p.NewPod())
	f := resized(made, p.startedWith(made, sizes, provedBy))
	pod := workload.Pod{Current: true, ReadyChanged: p.now, Containers: f.Running, Others: f.Init, Overhead: f.Overhead}
	for _, c := range pod.Containers {
		pod.Runs = append(pod.Runs, workload.Run{Container: c.Name})
	}
	return pod
}

// mayStartWith reports whether new pods with these sizes and boosts are created, find a node, and can be lowered.
func (p planner) mayStartWith(starts, sizes []model.Size, provedBy types.UID) bool {
	sizes = slices.Clone(sizes)
	for i, size := range sizes {
		for _, start := range starts {
			if start.Container == size.Container {
				sizes[i].Resources = cover(size.Resources, start.Resources)
			}
		}
	}
	pod := p.startingPod(sizes, provedBy)
	decided, _ := p.sizesFor(pod)
	if QoSAfter(pod, decided) != qosOf(pod) {
		return false
	}
	one, replicas := pod.Footprint().Counted(), int64(max(1, p.Deployment.Replicas)) // a rollout may create as many at once
	all := workload.Resources{Requests: cpuAlone(replicas * one.Requests.CPUMillis), Limits: cpuAlone(replicas * one.Limits.CPUMillis)}
	started := p.startedWith(p.withDefaults(p.NewPod()), sizes, provedBy)
	return !cmp.Or(p.outOfBounds(started), p.unschedulable(sizes, provedBy), overQuota(p.Quotas, all)).Exists()
}

// startedBoosted reports whether a pod has the CPU that new pods were created with because they start.
func (p planner) startedBoosted(pod workload.Pod) bool {
	return pod.Resized.IsZero() && slices.ContainsFunc(p.Situation.NewPods.Starts, func(start model.Size) bool {
		c, _ := pod.Container(start.Container)
		return c.Requests.CPUMillis == start.Requests.CPUMillis
	})
}

// keepsBoost reports whether a pod is boosted although it has started long ago: what lowers no pod would not lower the next one
// either.
func (p planner) keepsBoost(pod workload.Pod) bool {
	return model.IsAlive(pod) && slices.ContainsFunc(pod.Containers, func(c workload.Container) bool {
		boost, _ := p.boostOf(c)
		_, end := boost.Start(pod, c.Name)
		return p.isBoosted(c) && (pod.Resize.Infeasible || p.now.After(model.Latest(end, p.Decision.Time).Add(stuckAfter)))
	})
}

// isBoosted reports whether a container that may be boosted has more CPU than is decided.
func (p planner) isBoosted(c workload.Container) bool {
	_, ok := p.boostOf(c)
	return ok && c.Requests.CPUMillis > p.Decision.Request(c.Name, model.CPU)
}

func cpuAlone(millis int64) quantity.Amounts { return quantity.Amounts{CPUMillis: millis} }
