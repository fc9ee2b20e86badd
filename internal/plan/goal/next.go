// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A size below the template belongs to the ReplicaSet that has run with it. Pods of a new revision start with the
// larger of the decision and their template, and are lowered in place once they are Ready. When all pods are of one
// revision and healthy with the decided size, that revision has proved it, and its new pods start with it.

// next is the next pod of the template.
type next struct {
	Goals

	// made has the template's resources, with the defaults of LimitRanges.
	made workload.Footprint
	// sizes are the amounts that its containers get in place of the template's; 0 for none.
	sizes Changes
	// provedBy is the ReplicaSet that has proved the sizes.
	provedBy types.UID
}

// Next has the sizes of new pods by the decision, or the obstacle to them.
func (g Goals) Next() model.NewPods {
	if failed := WithFailure(model.NewPods{}, g.Situation, g.Now); failed.Obstacle.Exists() {
		return failed
	}
	if g.Deployment.PodLevelResources {
		return model.NewPods{Obstacle: podLevelResources()}
	}
	n := next{Goals: g, made: g.newPod()}
	for i := range g.list {
		goal := &g.list[i]
		if size := goal.inNewPod(g); !goal.Unreadable && size != (workload.Resources{}) {
			has, _ := n.made.Container(goal.Name)
			n.sizes = append(n.sizes, Change{Goal: goal, Has: has, Size: size})
		}
	}
	if !g.Policy.SizesOnlyNewPods() {
		n.sizes, n.provedBy = n.proved()
	}
	if o := n.obstacle(); o.Exists() {
		return model.NewPods{Obstacle: o}
	}
	return model.NewPods{Sizes: n.sizes.Sizes(), Starts: n.starts(), ReplicaSet: n.provedBy}
}

// obstacle keeps a pod of this size from being created, or from a node where one of the template's size would start.
func (n next) obstacle() model.Obstacle {
	return cmp.Or(n.OutOfBounds(n.started()), n.OutOfBounds(n.sizes.With(Change.covering).Sizes()), n.overQuota(), n.unschedulable())
}

func (g Goals) newPod() workload.Footprint { return g.NewPod().With(g.Bounds.Defaulted) }

// RequestsOf are the requests of a new pod with these sizes.
func (g Goals) RequestsOf(sizes []model.Size) quantity.Amounts {
	made := g.newPod()
	return made.With(func(c workload.Container) workload.Resources {
		for _, size := range sizes {
			if size.Container == c.Name {
				return Cover(c.Resources, size.Resources)
			}
		}
		return c.Resources
	}).Counted().Requests
}

// inNewPod is the size of a container of a new pod, without what is not decided. A container with
// whole CPUs keeps those of the template, unless whole ones are decided.
func (goal *Goal) inNewPod(g Goals) (size workload.Resources) {
	requests := goal.Requests
	if g.Policy.ResizesNewPods() && goal.LosesWholeCores(requests.CPUMillis) {
		requests.CPUMillis = 0
	}
	whole := goal.Create(g.Bounds.Defaulted(goal.Container.Container), requests)
	for _, r := range model.Resources {
		if r.Of(requests) > 0 {
			r.Copy(&size, whole)
		}
	}
	return size
}

// OutOfBounds is the rule of a LimitRange that a new pod of these sizes breaks. Injected containers are known only from
// running pods, and a new pod may come without them.
func (g Goals) OutOfBounds(sizes []model.Size) (o model.Obstacle) {
	for _, made := range []workload.Footprint{g.NewPod(), g.Deployment.NewPod(nil)} {
		o = cmp.Or(o, OutOfBounds(resized(made, sizes).With(g.Bounds.Defaulted), sizes, g.Bounds))
	}
	return o
}

// overQuota is the quota that has no room for the pod, if it gets more than without the sizes: it would not be created at all.
func (n next) overQuota() model.Obstacle {
	sized, plain := resized(n.made, n.started()).Counted(), n.made.Counted()
	var more workload.Resources
	for _, r := range model.Resources {
		if r.Request(sized) > r.Request(plain) {
			r.Set(&more.Requests, r.Request(sized))
		}
		if r.Limit(sized) > r.Limit(plain) {
			r.Set(&more.Limits, r.Limit(sized))
		}
	}
	return withPurpose(overQuota(n.Quotas, more, nil), " for a new pod, which gets the size in the Deployment")
}

// unschedulable reports whether the pod may find no node, and would if it started as in the
// template: a pod that is resized later runs meanwhile.
func (n next) unschedulable() model.Obstacle {
	sized, plain := resized(n.made, n.started()).Counted(), n.made.Counted()
	for _, r := range model.Resources {
		node, request := r.Of(n.LargestNode), r.Request(sized)
		waits := func(pod workload.Pod) bool { return LacksNode(pod) && r.Request(pod.Footprint().Counted()) >= request }
		switch {
		case request <= r.Request(plain):
		case model.IsBelow(node, request):
			return model.Wait(v1beta1.ReasonNodeCapacity, "no node could hold a new pod with %s of %s", r.Format(request), r)
		case n.IsSetBack, slices.ContainsFunc(n.Pods, waits):
			return model.Wait(v1beta1.ReasonNodeCapacity, "the scheduler finds no node for a new pod that has it")
		}
	}
	return model.Obstacle{}
}

// LacksNode reports whether the scheduler has found no node for a pod of the current template.
func LacksNode(pod workload.Pod) bool {
	return pod.Current && !pod.NoNodeSince.IsZero() && !pod.IsOver()
}

// AsInTemplate are the containers that get the template's request for a resource of which no node has enough. They
// get it only if it is less, and nothing if the template requests none: a resize may not remove a request. Limits
// stay, since memory that was raised after an OOM kill may be needed, unless the pod is Guaranteed.
func (p Pod) AsInTemplate() (sizes Changes) {
	made := p.newPod()
	for _, c := range p.changes() {
		inTemplate, _ := made.Container(c.Has.Name)
		for _, r := range model.Resources {
			request := r.Request(inTemplate.Resources)
			switch {
			case r.Of(c.Goal.Requests) == 0, !r.IsInsufficientFor(p.Pod), !model.IsBelow(request, r.Request(c.Has.Resources)):
			case QoSOf(p.Pod) == corev1.PodQOSGuaranteed:
				r.Copy(&c.Size, inTemplate.Resources)
			default:
				r.Set(&c.Size.Requests, request)
			}
		}
		if c.Size != c.Has.Resources {
			sizes = append(sizes, c)
		}
	}
	return sizes
}

// proved are the sizes that new pods get, and the ReplicaSet that has proved them; empty for none. Until it
// has proved less, its new pods get no less than what it has proved before.
func (n next) proved() (sizes Changes, set types.UID) {
	if set := n.provedNow(); set != "" {
		return n.sizes, set
	}
	before := n.NewPods
	sizes = slices.Clone(n.sizes)
	for i, c := range sizes {
		j := indexOf(before.Sizes, c.Has.Name)
		if before.ReplicaSet == "" || j < 0 || !raise(&sizes[i].Size, before.Sizes[j].Resources) {
			return n.sizes, ""
		}
	}
	if n.OutOfBounds(sizes.Sizes()).Exists() { // of a LimitRange that is newer than what was proved
		return n.sizes, ""
	}
	return sizes, before.ReplicaSet
}

// provedNow is the ReplicaSet of all pods if they have proved what is decided; empty if they have not.
func (n next) provedNow() (set types.UID) {
	if n.Deployment.RollingOut {
		return ""
	}
	for _, pod := range n.Pods {
		switch {
		case pod.IsOver():
		case !pod.Current, !n.proves(pod):
			return ""
		default:
			set = pod.ReplicaSet
		}
	}
	return set
}

// raise raises amounts to what was proved. It is false if nothing is known about one of them.
func raise(v *workload.Resources, proved workload.Resources) bool {
	for _, pair := range [][2]*quantity.Amounts{{&v.Requests, &proved.Requests}, {&v.Limits, &proved.Limits}} {
		for _, r := range model.Resources {
			switch now, before := r.Of(*pair[0]), r.Of(*pair[1]); {
			case now == 0:
			case before == 0:
				return false
			default:
				r.Set(pair[0], max(now, before))
			}
		}
	}
	return true
}

// proves reports whether a pod is healthy with no more than is decided. With the fallback Recreate, its replacement is the trial.
func (n next) proves(pod workload.Pod) bool {
	switch {
	case n.Policy.MayEvict():
		return true
	case n.Decision.Verification != nil, !model.IsAlive(pod), !n.IsAvailable(pod), pod.Resize != (workload.Resize{}):
		return false
	}
	for _, goal := range n.list { // each has no more than is decided, and its kubelet has applied what it declares
		size := goal.Resize(n.Bounds.Defaulted(goal.Container.Container), goal.Requests)
		limitsCount := goal.Policy.Limits == model.LimitsFollow // otherwise new pods have at least the template's
		has, _ := pod.Readable(goal.Name)
		actual, isKnown := pod.Actual.Get(goal.Name)
		for _, r := range model.Resources {
			switch {
			case r.Of(goal.Requests) == 0:
			case r.Request(has.Resources) > r.Request(size), limitsCount && r.Limit(has.Resources) > r.Limit(size), isKnown && !r.IsApplied(actual, has.Resources):
				return false
			}
		}
	}
	return true
}

// IsAvailable follows the rule of Kubernetes: without minReadySeconds, a ready pod is
// available. The time since when it is ready is of its node's clock, which may be ahead.
func (g Goals) IsAvailable(pod workload.Pod) bool {
	return pod.Ready && (g.Deployment.MinReady == 0 || !g.Now.Before(pod.ReadyChanged.Add(g.Deployment.MinReady)))
}

// started are the sizes with which the pod starts: exactly these if its ReplicaSet has proved them.
func (n next) started() []model.Size {
	whole := n.sizes.With(Change.covering)
	isProved := n.provedBy != "" && slices.ContainsFunc(n.Pods, func(pod workload.Pod) bool { return pod.Current && pod.ReplicaSet == n.provedBy })
	if isProved || n.Policy.SizesOnlyNewPods() {
		return whole.Sizes()
	}
	return whole.With(Change.larger).Sizes() // no less than the template has
}

// starts is the CPU with which containers with a startupBoost start in new pods: what a pod would be
// boosted to that starts now. It is lowered in place once the pod has started, so there is none where that may not happen.
// CPU that was only learned is not among it: it may need another node, and no user has asked for that.
func (n next) starts() (starts []model.Size) {
	keepsBoost := func(pod workload.Pod) bool { return n.In(pod).KeepsBoost() }
	switch {
	case !n.Policy.InPlace(), n.Policy.MayRollOut(), n.Decision.IsContested(), slices.ContainsFunc(n.Pods, keepsBoost):
		return nil
	}
	pod := n.starting()
	decided, _ := pod.Decided()
	list := slices.DeleteFunc(pod.boostables(decided), func(b boostable) bool {
		return b.Goal.Boost.LeastMillis > 0 || b.Goal.HasWholeCores // which a kubelet may not lower in place
	})
	with, _ := boosted(list, decided)
	for i, c := range with.KeepingBurstable(pod.Pod) {
		if c.Size.Requests.CPUMillis > c.Has.Requests.CPUMillis && slices.ContainsFunc(list, func(b boostable) bool { return b.index == i }) {
			start := model.Size{Container: c.Has.Name}
			model.CPU.Copy(&start.Resources, c.Size)
			starts = append(starts, start)
		}
	}
	if !n.mayStartWith(starts) {
		return nil
	}
	return starts
}

func (n *next) starting() Pod {
	f := resized(n.made, n.started())
	pod := workload.Pod{Current: true, ReadyChanged: n.Now, Containers: f.Running, Others: f.Init, Overhead: f.Overhead}
	for _, c := range pod.Containers {
		pod.Runs = append(pod.Runs, workload.Run{Container: c.Name})
	}
	return n.In(pod)
}

// mayStartWith reports whether new pods with boosts are created, find a node, and can be lowered.
func (n next) mayStartWith(starts []model.Size) bool {
	n.sizes = slices.Clone(n.sizes)
	for i, c := range n.sizes {
		if j := indexOf(starts, c.Has.Name); j >= 0 {
			n.sizes[i].Size = Cover(c.Size, starts[j].Resources)
		}
	}
	pod := n.starting()
	decided, _ := pod.Decided()
	if decided.QoSOf(pod.Pod) != QoSOf(pod.Pod) {
		return false
	}
	one, replicas := pod.Footprint().Counted(), int64(max(1, n.Deployment.Replicas)) // a rollout may create as many at once
	all := workload.Resources{Requests: model.CPU.Alone(replicas * one.Requests.CPUMillis), Limits: model.CPU.Alone(replicas * one.Limits.CPUMillis)}
	return !cmp.Or(n.OutOfBounds(n.started()), n.unschedulable(), overQuota(n.Quotas, all, nil)).Exists()
}

const (
	// failureMemory is the time for which new pods start as in the template after the API server has refused to create pods with
	// other sizes. A quota has room again sooner, and tells.
	failureMemory      = 24 * time.Hour
	quotaFailureMemory = 10 * time.Minute
)

// WithFailure leaves out the sizes of new pods for a while after the API server
// has refused pods with sizes, whatever the cause. It may be an admission policy, a quota or a LimitRange.
func WithFailure(n model.NewPods, s model.Situation, now time.Time) model.NewPods {
	at, message := s.NewPods.FailedAt, s.NewPods.Failure
	memory := failureMemory
	if workload.IsQuotaRefusal(message) {
		memory = quotaFailureMemory
	}
	switch {
	case s.Deployment.CreateFailure != "" && len(s.NewPods.Sizes) > 0:
		at, message = now, s.Deployment.CreateFailure
	case at.IsZero(), !now.Before(at.Add(memory)):
		return n
	}
	refused := model.Wait(v1beta1.ReasonReplicaFailure, "the API server refused to create pods with other sizes: %s", message)
	return model.NewPods{IneffectiveOnPod: n.IneffectiveOnPod, FailedAt: at, Failure: message, Obstacle: refused}
}

func podLevelResources() model.Obstacle {
	return model.Stall(v1beta1.ReasonUnsupported, "The Deployment declares pod-level resources, which are not managed")
}

// IsSame reports whether these are the same sizes, in any order.
func IsSame(a, b []model.Size) bool { return slices.Equal(sorted(a), sorted(b)) }

func sorted(sizes []model.Size) []model.Size {
	return slices.SortedFunc(slices.Values(sizes), func(a, b model.Size) int { return strings.Compare(a.Container, b.Container) })
}
