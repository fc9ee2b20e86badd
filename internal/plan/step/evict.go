// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
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

// With the fallbacks Recreate and RecreateUnderPressure, a pod that cannot be resized in place is evicted, and the API
// server puts the decided sizes into its replacement. The pod template stays unchanged. An
// eviction costs a pod. These rules ensure that at most one has no effect:
//
//   - none before the API server has had time to learn of the sizes;
//   - one at a time: the next one once all replicas are available again, so that the
//     size of the last replacement is known;
//   - none once a pod was created without the sizes, until a newer one has them. The scaler's
//     status records that pod before any other step;
//   - none of a pod that the sizes would not change, so that evictions end.
//
// With RecreateUnderPressure, a pod is also evicted only if waiting would hurt it. A pod uses CPU beyond its request while
// its node has some to spare. So it is evicted for CPU once the node has none, and for memory in any case: memory that the
// node lacks ends in a kill.

// pressureRetry is how often a pod is looked at that lacks CPU on a node that has some to spare.
const pressureRetry = time.Minute

// recreate plans the next eviction of a pod that only a replacement can give its size.
func (p planner) recreate(verdict model.Verdict, reasons model.Obstacles, settled int) model.Plan {
	if p.Unsized.Exists() {
		return p.without(p.Unsized.Verdict())
	}
	if o := p.newPods.Obstacle; o.Exists() {
		return p.withinQuota(o).without(o.Verdict())
	}
	candidates := slices.DeleteFunc(slices.Clone(p.Pods), func(pod workload.Pod) bool {
		hasReason := slices.ContainsFunc(reasons, func(o model.Obstacle) bool { return o.Subject == pods.SubjectOf(pod) })
		return !hasReason || goal.HasSizes(pod, p.newPods.Sizes)
	})
	if len(candidates) == 0 {
		return p.without(verdict.Noting("A new pod would have the same size"))
	}
	if candidates = slices.DeleteFunc(candidates, func(pod workload.Pod) bool { return pod.Unmovable }); len(candidates) == 0 {
		return p.without(verdict.Noting("An annotation asks not to evict these pods"))
	}
	if p.Policy.EvictsUnderPressure() {
		mayBecomeBusy := slices.ContainsFunc(candidates, func(pod workload.Pod) bool { return p.lacks(model.CPU, pod) })
		candidates = slices.DeleteFunc(candidates, func(pod workload.Pod) bool { return !p.isUnderPressure(pod) })
		switch {
		case len(candidates) > 0:
		case mayBecomeBusy:
			return p.within(pressureRetry).without(verdict.Noting(p.withoutPressure()))
		default:
			return p.without(verdict.Noting(p.withoutPressure()))
		}
	}
	candidates, waits := p.withholdEvictions(candidates)
	if waits.Exists() {
		return p.without(model.Obstacles{waits}.Verdict().Noting(replaces(reasons)))
	}
	next := p.evict(candidates, settled)
	next.Verdict = next.Verdict.Noting(replaces(reasons))
	return next
}

// isUnderPressure reports whether the node keeps a pod from what it uses: it lacks memory, or it lacks CPU where there is
// none to spare.
func (p planner) isUnderPressure(pod workload.Pod) bool {
	return p.lacks(model.Memory, pod) || p.lacks(model.CPU, pod) && p.BusyNodes[pod.Node]
}

// lacks reports whether a pod has less of a resource than its replacement would have.
func (p planner) lacks(r model.Resource, pod workload.Pod) bool {
	return p.differs(pod, func(has, size int64) bool { return size > has }, r)
}

// differs compares the requests of a pod with those of its replacement.
func (p planner) differs(pod workload.Pod, is func(has, size int64) bool, r model.Resource) bool {
	return slices.ContainsFunc(p.newPods.Sizes, func(size model.Size) bool {
		c, _ := pod.Container(size.Container)
		request := r.Request(size.Resources)
		return request > 0 && is(r.Request(model.AppliedIn(pod, c)), request)
	})
}

// withoutPressure says why pods that cannot be resized are not evicted.
func (p planner) withoutPressure() string {
	if p.BusyUnknown != "" {
		return "With RecreateUnderPressure, nothing is evicted for CPU while the use of the nodes is unknown: " + p.BusyUnknown
	}
	return "With RecreateUnderPressure, these pods stay while they lack no memory and their nodes have CPU to spare"
}

// evict plans the eviction of one of these pods, or says what blocks it.
func (p planner) evict(candidates []workload.Pod, settled int) model.Plan {
	if v := p.evictionsStopped(); v.Reason != "" {
		return p.without(v)
	}
	unavailable, o := p.evictionBlocker()
	if o.Exists() {
		state := model.Waiting
		if o.Reason == v1beta1.ReasonRecreating { // the last eviction is the reason
			state = model.Changing
		}
		return p.without(state.Because(o.Reason, o.Message))
	}
	if len(unavailable) > 0 { // nothing is lost with them
		candidates = slices.DeleteFunc(slices.Clone(candidates), p.IsAvailable)
	}
	if len(candidates) == 0 {
		return p.without(podsUnavailable().Verdict())
	}
	if open, left := decision.MayRestart(p.Decision.Reason, p.Policy.Windows, p.Now); !open {
		return p.within(left).without(model.Waiting.Because(v1beta1.ReasonOutsideWindow, "Waiting for the next of updatePolicy.windows to evict pods"))
	}
	if p.Decision.Verification != nil && settled > 0 {
		return p.without(model.Changing.Because(v1beta1.ReasonVerifying, "Verifying the first changed pods before evicting others"))
	}
	if rejected := p.RejectedEviction; rejected != nil && rejected.Until.After(p.Now) {
		o := model.Obstacle{Reason: rejected.Reason, Message: rejected.Message, Stalled: rejected.Stalled}
		return p.within(rejected.Until.Sub(p.Now)).without(o.Verdict())
	}
	if failed := goal.WithFailure(p.newPods, p.Situation, p.Now); !failed.FailedAt.IsZero() { // a replacement would not get the size
		return p.within(goal.FailedFor(failed, p.Now)).without(failed.Obstacle.Verdict())
	}
	if wait := p.untilLearned(); wait > 0 {
		return p.within(wait).without(model.Changing.Because(v1beta1.ReasonRecreating, "Waiting for the API server to learn the size of new pods"))
	}
	first := candidates[0]
	step := model.Evict{Pod: first.Name, UID: first.UID, ResourceVersion: first.ResourceVersion}
	return p.plan(step, model.Changing.Because(v1beta1.ReasonRecreating, "Evicting pods one at a time"))
}

// evictionsStopped says why no pod is evicted, whatever the state of the pods.
func (p planner) evictionsStopped() model.Verdict {
	switch {
	case p.newPods.IneffectiveOnPod != "":
		return model.Stalled.Because(v1beta1.ReasonAdmissionIneffective, fmt.Sprintf(
			"Pod %s was created without the decided size, so no pod is evicted: find out what else changes new pods, then delete that pod to try again", p.newPods.IneffectiveOnPod))
	case p.Deployment.Replicas < p.Policy.MinReplicas:
		return model.Stalled.Because(v1beta1.ReasonTooFewReplicas, fmt.Sprintf(
			"The Deployment has %d replicas, and pods are evicted only with at least %d (updatePolicy.minReplicas)", p.Deployment.Replicas, p.Policy.MinReplicas))
	case p.Deployment.Paused:
		return model.Waiting.Because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: no pod is evicted until it is resumed")
	}
	return model.Verdict{}
}

// evictionBlocker says what blocks all evictions: not all replicas are available. An urgent
// decision may evict pods that are unavailable and do not have the sizes yet, because
// OOM-killed pods never become available.
func (p planner) evictionBlocker() (unavailable []workload.Pod, o model.Obstacle) {
	replicas, starting, isAnyUnavailable := int(p.Deployment.Replicas), 0, false
	for _, pod := range p.Pods {
		switch {
		case pod.IsOver():
			continue
		case !pod.Current:
			return nil, anotherRollout()
		case p.IsAvailable(pod):
		case goal.HasSizes(pod, p.newPods.Sizes), p.StartedBoosted(pod):
			starting++
		case pod.Running && p.Decision.IsUrgentRestart():
			unavailable = append(unavailable, pod)
		default:
			isAnyUnavailable = true
		}
		replicas--
	}
	switch {
	case isAnyUnavailable:
	case max(starting, replicas) > 0:
		return nil, model.Obstacle{Reason: v1beta1.ReasonRecreating, Message: "Waiting for the replacement pod to become ready"}
	case !p.Deployment.RollingOut, len(unavailable) > 0:
		return unavailable, model.Obstacle{}
	}
	return nil, podsUnavailable()
}

func podsUnavailable() model.Obstacle {
	return model.Obstacle{Reason: v1beta1.ReasonPodsUnavailable, Message: "Not all replicas are available: no pod is evicted until they are"}
}

// withholdEvictions leaves out the pods whose replacements would have a lower request. An urgent
// decision replaces them all the same.
func (p planner) withholdEvictions(candidates []workload.Pod) ([]workload.Pod, model.Obstacle) {
	waits := p.WaitsForUsage()
	if !waits.Exists() || decision.IsUrgent(p.Decision.Reason) {
		return candidates, model.Obstacle{}
	}
	left := slices.DeleteFunc(slices.Clone(candidates), func(pod workload.Pod) bool {
		return slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool {
			return p.differs(pod, func(has, size int64) bool { return size < has }, r)
		})
	})
	if len(left) > 0 {
		return left, model.Obstacle{}
	}
	return nil, waits.On("the next eviction")
}
