// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/pods"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// With the fallback Recreate, a pod that cannot be resized in place is evicted if that hurts it, and the API
// server puts the decided sizes into its replacement. The pod template stays unchanged. An
// eviction costs a pod. These rules ensure that at most one has no effect:
//
//   - none before the API server has had time to learn of the sizes;
//   - one at a time: the next one once all replicas are available again, so that the
//     size of the last replacement is known;
//   - none once a pod was created without the sizes, until a newer one has them. The scaler's
//     status records that pod before any other step;
//   - none of a pod that the sizes would not change, so that evictions end;
//   - none of a pod for whose size no node was found before: see setBack.

// pressureRetry is the time between two looks at a node that has CPU to spare.
const pressureRetry = 30 * time.Second

// evictions are the pods that only a replacement can give their size.
type evictions struct {
	planner

	blocked model.Verdict
	reasons model.Obstacles
	lowered int // pods that have the decided size, or a part of it since it was decided
}

func (e evictions) next() model.Plan {
	if e.Unsized.Exists() {
		return e.without(e.Unsized.Verdict())
	}
	if o := e.newPods.Obstacle; o.Exists() {
		return e.withinQuota(o).without(o.Verdict())
	}
	candidates := slices.DeleteFunc(slices.Clone(e.Pods), func(pod workload.Pod) bool {
		return !slices.ContainsFunc(e.reasons, isOf(pod)) || goal.HasSizes(pod, e.newPods.Sizes)
	})
	if len(candidates) == 0 {
		return e.without(e.blocked.Noting("A new pod would have the same size"))
	}
	if candidates = slices.DeleteFunc(candidates, func(pod workload.Pod) bool { return pod.Unmovable }); len(candidates) == 0 {
		return e.without(e.blocked.Noting("An annotation asks not to evict these pods"))
	}
	harm := [harms][]workload.Pod{}
	for _, pod := range candidates {
		harm[e.harmOf(pod)] = append(harm[e.harmOf(pod)], pod)
	}
	hurt, isWithheld := e.withheld(harm[certain])
	lacking, isAlsoWithheld := e.withheld(harm[onBusyNode])
	switch {
	case len(hurt)+len(lacking) > 0:
		return e.evict(hurt, lacking)
	case isWithheld, isAlsoWithheld:
		waits := e.WaitsForUsage().On("the next eviction")
		return e.without(model.Obstacles{waits}.Verdict().Noting(replaces(e.reasons)))
	}
	return e.without(e.blocked.Noting("The fallback Recreate leaves these pods: they lack neither memory nor CPU"))
}

func isOf(pod workload.Pod) func(model.Obstacle) bool {
	return func(o model.Obstacle) bool { return o.Subject == pods.SubjectOf(pod) }
}

// harm is the harm that its size does to a pod that cannot be resized.
type harm int

const (
	none       harm = iota
	onBusyNode      // it lacks CPU, which its node may have to spare
	certain
	harms // how many there are
)

// harmOf is the harm that its size does to a pod. Memory that the node lacks ends in a kill. CPU beyond its request is there for a pod while its node
// has some to spare, but not beyond its limit. A pod that can never be resized would keep its size for as long as it lives.
func (e evictions) harmOf(pod workload.Pod) harm {
	lacksCPU := e.lacks(model.CPU, pod)
	switch {
	case !pod.Resized.IsZero() && !pod.Resized.After(pod.Scheduled): // set back
		return none
	case e.lacks(model.Memory, pod), lacksCPU && e.isThrottled(pod):
		return certain
	case lacksCPU:
		return onBusyNode
	case !e.In(pod).HasBoost() && slices.ContainsFunc(e.reasons, func(o model.Obstacle) bool { return isOf(pod)(o) && neverEnds(o.Reason) }):
		return certain
	}
	return none
}

func neverEnds(reason string) bool {
	return slices.Contains([]string{v1beta1.ReasonInfeasible, v1beta1.ReasonUnsupported, v1beta1.ReasonQoSChange}, reason)
}

// isThrottled reports whether the CPU limit of a container is below the decided request.
func (e evictions) isThrottled(pod workload.Pod) bool {
	return slices.ContainsFunc(e.newPods.Sizes, func(size model.Size) bool {
		return model.IsBelow(pod.Applied(size.Container).Limits.CPUMillis, size.Requests.CPUMillis)
	})
}

func (e evictions) lacks(r model.Resource, pod workload.Pod) bool {
	return e.compares(pod, r, func(has, size int64) bool { return size > has })
}

func (e evictions) compares(pod workload.Pod, r model.Resource, is func(has, size int64) bool) bool {
	return slices.ContainsFunc(e.newPods.Sizes, func(size model.Size) bool {
		request := r.Request(size.Resources)
		return request > 0 && is(r.Request(pod.Applied(size.Container)), request)
	})
}

// withheld leaves out the pods whose replacements would have a lower request while usage is missing. An urgent
// decision replaces them all the same.
func (e evictions) withheld(candidates []workload.Pod) (left []workload.Pod, isWithheld bool) {
	if !e.WaitsForUsage().Exists() || decision.IsUrgent(e.Decision.Reason) {
		return candidates, false
	}
	left = slices.DeleteFunc(slices.Clone(candidates), func(pod workload.Pod) bool {
		return slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool {
			return e.compares(pod, r, func(has, size int64) bool { return size < has })
		})
	})
	return left, len(left) < len(candidates)
}

// evict plans the eviction of one of the certain pods, or else of the first pod on a busy node, or returns what blocks it.
func (e evictions) evict(certain, onBusyNode []workload.Pod) model.Plan {
	unavailable, blocker := e.blocker()
	if len(unavailable) > 0 { // nothing is lost with them
		certain, onBusyNode = slices.DeleteFunc(slices.Clone(certain), e.IsAvailable), slices.DeleteFunc(slices.Clone(onBusyNode), e.IsAvailable)
	}
	wait := e.waits()
	if len(certain)+len(onBusyNode) == 0 {
		wait = podsUnavailable()
	}
	if v := cmp.Or(e.stopped(), blocker, wait); v.Reason != "" {
		return e.because(v)
	}
	step := model.Evict{Otherwise: e.blocked.Noting("The fallback Recreate leaves these pods while they lack no memory and their nodes have CPU to spare").Within(pressureRetry)}
	for _, pod := range slices.Concat(certain, onBusyNode) {
		step.Pods = append(step.Pods, model.EvictedPod{Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Node: pod.Node})
	}
	if step.IfBusy = len(certain) == 0; !step.IfBusy {
		step.Pods = step.Pods[:1]
	}
	if !e.Decision.IsUrgentRestart() {
		step.Needs = e.RequestsOf(e.newPods.Sizes)
	}
	next := e.plan(step, model.Changing.Because(v1beta1.ReasonRecreating, "Evicting pods one at a time"))
	next.Verdict = next.Verdict.Noting(replaces(e.reasons))
	return next
}

func (e evictions) because(v model.Verdict) model.Plan {
	next := e.without(v)
	next.Verdict = next.Verdict.Noting(replaces(e.reasons))
	return next
}

func (e evictions) waits() model.Verdict {
	open, in := decision.MayRestart(e.Decision.Reason, e.Policy.Windows, e.Now)
	rejected, wait := e.RejectedEviction, e.untilLearned()
	switch {
	case !open:
		return model.Waiting.Because(v1beta1.ReasonOutsideWindow, "Waiting for the next of updatePolicy.windows to evict pods").Within(in)
	case e.Decision.Verification != nil && e.lowered > 0:
		return model.Changing.Because(v1beta1.ReasonVerifying, "Verifying the first changed pods before evicting others")
	case rejected != nil && rejected.Until.After(e.Now):
		o := model.Obstacle{Reason: rejected.Reason, Message: rejected.Message, Stalled: rejected.Stalled}
		return o.Verdict().Within(rejected.Until.Sub(e.Now))
	case wait > 0:
		return model.Changing.Because(v1beta1.ReasonRecreating, "Waiting for the API server to learn the size of new pods").Within(wait)
	}
	return model.Verdict{}
}

// stopped is the reason why no pod is evicted, regardless of the state of the pods.
func (e evictions) stopped() model.Verdict {
	switch {
	case e.newPods.IneffectiveOnPod != "":
		return model.Stalled.Because(v1beta1.ReasonAdmissionIneffective, fmt.Sprintf(
			"Pod %s was created without the decided size, so no pod is evicted: find out what else changes new pods, then delete that pod to try again", e.newPods.IneffectiveOnPod))
	case e.Deployment.Replicas < e.Policy.MinReplicas:
		return model.Stalled.Because(v1beta1.ReasonTooFewReplicas, fmt.Sprintf(
			"The Deployment has %d replicas, and pods are evicted only with at least %d (updatePolicy.minReplicas)", e.Deployment.Replicas, e.Policy.MinReplicas))
	case e.Deployment.Paused:
		return model.Waiting.Because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: no pod is evicted until it is resumed")
	}
	return model.Verdict{}
}

// blocker is the reason why no pod is evicted now: not all replicas are available. An urgent decision may evict pods that are
// unavailable and do not have the sizes yet, because OOM-killed pods never become available.
func (e evictions) blocker() (unavailable []workload.Pod, v model.Verdict) {
	replicas, starting, isAnyUnavailable := int(e.Deployment.Replicas), 0, false
	for _, pod := range e.Pods {
		switch {
		case pod.IsOver():
			continue
		case !pod.Current:
			return nil, anotherRollout().Verdict()
		case e.IsAvailable(pod):
		case goal.HasSizes(pod, e.newPods.Sizes), e.In(pod).StartedBoosted():
			starting++
		case pod.Running && e.Decision.IsUrgentRestart():
			unavailable = append(unavailable, pod)
		default:
			isAnyUnavailable = true
		}
		replicas--
	}
	switch {
	case isAnyUnavailable:
	case max(starting, replicas) > 0:
		return nil, model.Changing.Because(v1beta1.ReasonRecreating, "Waiting for the replacement pod to become ready")
	case !e.Deployment.RollingOut, len(unavailable) > 0:
		return unavailable, v
	}
	return nil, podsUnavailable()
}

func podsUnavailable() model.Verdict {
	return model.Waiting.Because(v1beta1.ReasonPodsUnavailable, "Not all replicas are available: no pod is evicted until they are")
}
