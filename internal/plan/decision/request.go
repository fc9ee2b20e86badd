// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// request is one request of a container, and all that decides about it.
type request struct {
	container workload.Container
	resource  model.Resource
	rec       recommend.Container
	tolerance float64
	// isManaged is true if it may be decided.
	isManaged bool
	current   int64
	granted   int64 // the most that pods have
	// isUnsettled is true if no decision tells the request, and pods, or new ones, do not have it.
	isUnsettled bool
	lacksUsage  bool // usage of running pods is missing
	// wanted is what is recommended, or else decided, in the policy's range; 0 for neither. target is as much of that as the
	// ceilings leave.
	wanted, target int64
	ceiling        int64
	climbEnd       string // why it is not raised further; empty if nothing has ended a climb
	raiseLimit     int64  // what it may be raised to without maxAllowed; 0 for any
	// floor is the least that less usage lowers it to, for the reason whyFloor; 0 for any.
	floor    int64
	whyFloor string
	// isWhole is true if it must be whole CPUs.
	isWhole bool
	// sparesRestarts is true if a little missing CPU costs less than to restart all pods.
	sparesRestarts bool

	unceiled span // the range of the policy, the LimitRange and limits
	allowed  span // unceiled, within the ceilings
	enforced span // allowed, but for minAllowed and maxAllowed
}

// requestsFor are the requests of all containers for one resource. Each has one range, which is what each rule leaves of the
// range before it: the policy, the LimitRange, limits, and the ceilings.
func requestsFor(s model.Situation, policy model.Policy, r model.Resource, beside quantity.Amounts, c ceilings) []request {
	requests := make([]request, len(s.Deployment.Containers))
	if len(requests) == 0 {
		return nil
	}
	for i, container := range s.Deployment.Containers {
		requests[i] = requestFor(s, policy, container, r)
	}
	c.bound(requests, r.Of(beside))
	for i := range requests {
		q := &requests[i]
		q.target = min(q.wanted, q.ceiling)
		q.allowed = q.unceiled.within(0, q.ceiling)
		q.enforced = q.enforced.within(0, q.ceiling)
		if q.isWhole {
			q.allowed = q.allowed.wholeCores(q.current)
			q.target = q.allowed.fit(q.target)
		}
	}
	return requests
}

// requestFor is the request without the ceilings.
func requestFor(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) request {
	q := request{
		container: container, resource: r, tolerance: policy.Tolerance, lacksUsage: s.MissingUsage != "",
		granted: largestRequest(s, policy, container, r), ceiling: math.MaxInt64,
		isManaged: !container.Unreadable && s.IsManaged(policy, container.Name, r),
	}
	q.current, q.isUnsettled = currentRequest(s, policy, container, r)
	if !q.isManaged {
		return q
	}
	p := policy.Containers[container.Name]
	q.rec, _ = s.Recommendation(container.Name)
	if r.Of(q.rec.Target) == 0 {
		q.isUnsettled = false
	}
	most := r.Of(p.MaxAllowed)
	switch end, why := q.rec.ClimbEnd(); {
	case !r.IsMemory():
		q.sparesRestarts = policy.RollsOut()
		if policy.NeedsSizedNewPods() || policy.MayRollOut() {
			q.isWhole = HasWholeCores(s, policy, container)
		}
	case why == recommend.RaiseDidNotHelp:
		q.climbEnd, most = why, end // which is within maxAllowed
	default:
		q.climbEnd = why
	}
	q.floor, q.whyFloor = floorOf(s, policy, container, r, q.current)
	q.unceiled = spanOf(s, policy, container, r, max(r.Of(p.MinAllowed), q.floor), most)
	q.enforced = spanOf(s, policy, container, r, 0, 0)
	q.raiseLimit = RaiseLimit(s, policy, container, r)
	q.wanted = cmp.Or(r.Of(q.rec.Target), s.Decision.Request(container.Name, r))
	if q.isWhole {
		q.unceiled, q.wanted = q.unceiled.wholeCores(q.current), roundUpToCore(q.wanted)
	}
	q.wanted = q.unceiled.fit(q.wanted)
	return q
}

// floorOf is the least that less usage lowers a request to, and why; 0 for any. It is at most the current request or the
// template's: a heap that is not in use raises nothing.
func floorOf(s model.Situation, policy model.Policy, c workload.Container, r model.Resource, current int64) (floor int64, why string) {
	c.Resources = Written(s, c)
	has, heap := max(current, templateRequest(c, r)), s.Deployment.Heaps[c.Name]
	switch isGuaranteed := KeepsGuaranteed(s, policy, c.Name) && r.Limit(c.Resources) > 0; {
	case policy.IsRaiseOnly(r):
		return has, ", because scaleDown.controlledResources does not include " + r.String()
	case isGuaranteed && (r.IsMemory() || !policy.InPlace()):
		return has, ", because the pods are Guaranteed, and the limit of a running container is not lowered; controlledValues RequestsAndLimits lowers it"
	case isGuaranteed && policy.Containers[c.Name].StartCPU > 0:
		floor = min(has, policy.Containers[c.Name].StartCPU)
		return floor, fmt.Sprintf("; at least %s, which starts have needed, because the pods are Guaranteed; controlledValues RequestsAndLimits lowers it", r.Format(floor))
	case r.IsMemory() && heap.Bytes > 0:
		floor = min(has, heap.Bytes)
		return floor, fmt.Sprintf("; at least %s: %s", r.Format(floor), heap.Flag)
	}
	return 0, ""
}

// largestOutcome is the most that may be decided, but for the ceilings: a request moves from the current one towards
// its target, and may stop anywhere between.
func (q request) largestOutcome() int64 { return max(q.unceiled.fit(q.current), q.wanted) }

// grain is what a step is a multiple of: as recommendations are, or whole CPUs.
func (q request) grain(v int64) int64 {
	switch {
	case q.isWhole:
		return core
	case !q.resource.IsMemory():
		return 1
	case v < 64<<20:
		return 64 << 10
	}
	return 1 << 20
}

// subject names the request.
func (q request) subject() string { return q.container.Name + " " + q.resource.String() }

// move says where a request moves if it may move all the way, and why; no reason if it
// stays.
func (q request) move() (to int64, why string) {
	current, target := q.current, q.target
	bounded := q.allowed.fit(current)
	switch {
	case current == target:
		return current, ""
	case current < min(q.oomFloor(), target):
		return target, model.DecidedOOMKill
	case bounded != current:
		return q.towardsBound(bounded), model.DecidedBounds
	case current == 0:
		return target, model.DecidedScaleUp
	case q.sparesRestarts && q.isClose(target):
		return current, ""
	case current < min(q.lowerBound(), target):
		return target, model.DecidedLowerBound
	case q.isClose(target):
		return current, ""
	case current < target:
		return target, model.DecidedScaleUp
	case current > q.upperBound():
		return target, model.DecidedScaleDown
	}
	return current, ""
}

// towardsBound is where a request outside its bounds moves: to the target. But if it
// only has to drop to the largest allowed value, and the upper bound is not below that, it
// stops there: a bound is no evidence for a lower request. Neither is it while usage is
// missing, or if it only has to drop below a ceiling.
func (q request) towardsBound(bounded int64) int64 {
	switch isCeiling := q.unceiled.fit(q.current) == q.current; {
	case isCeiling, q.lacksUsage, bounded <= q.upperBound():
		return max(q.target, bounded)
	}
	return q.target
}

func (q request) lowerBound() int64 { return q.resource.Of(q.rec.LowerBound) }

func (q request) upperBound() int64 { return q.resource.Of(q.rec.UpperBound) }

// oomFloor is the floor that an OOM kill has set; 0 for none.
func (q request) oomFloor() int64 {
	if q.resource.IsMemory() {
		return q.rec.OOMFloor
	}
	return 0
}

// whenLowered says when there is enough evidence to lower the request, if usage stays as it is; empty if that
// is unknown.
func (q request) whenLowered(maxAllowed int64) string {
	if enough := q.rec.EvidenceToLower(q.resource.String(), q.current, maxAllowed); enough > 0 {
		return ", " + model.AfterObserving(enough)
	}
	return ""
}

// isClose reports whether an amount is within the tolerance of the current request.
func (q request) isClose(to int64) bool { return !differs(q.current, to, q.tolerance) }

// differs reports whether two requests are further apart than the tolerance, as a share of the
// current one.
func differs(current, target int64, tolerance float64) bool {
	return math.Abs(float64(target-current)) > tolerance*float64(current)
}

// currentRequest is the current request: as decided, or else the largest among the running
// pods (a lost status must not make a resized pod look small), or else the template's.
// isUnsettled reports whether no decision tells it, because a status was lost: the pods disagree, or a
// kubelet has not applied it, or nothing at all is decided and new pods would not get what the pods were resized to;
// or because startup boosts need a decision to start from and to return to.
func currentRequest(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) (current int64, isUnsettled bool) {
	if v := s.Decision.Request(container.Name, r); v > 0 {
		return v, false
	}
	least := int64(math.MaxInt64)
	var resized time.Time // the last pod of the current template
	for pod, c := range s.Active(policy, container.Name) {
		declared, applied := r.Request(c.Resources), r.Request(c.Resources)
		if model.WasResized(pod) { // otherwise what a kubelet reports is not believed
			applied = granted(pod, c, r)
		}
		current, least = max(current, declared), min(least, applied)
		if pod.Current {
			resized = model.Latest(resized, pod.Resized)
		}
	}
	switch {
	case current == 0:
		return r.Request(container.Resources), false
	case least != current:
		return current, true
	case policy.InPlace() && r.Boost(policy.Containers[container.Name]) != nil:
		return current, true
	case s.Decision != nil, !policy.SizesNewPods, resized.IsZero():
		return current, false
	}
	return current, current != templateRequest(container, r)
}

// templateRequest is what the API server gives a pod of the template: its limit if no request is set.
func templateRequest(container workload.Container, r model.Resource) int64 {
	return cmp.Or(r.Request(container.Resources), r.Limit(container.Resources))
}

// largestRequest is what a container has: the largest request that is granted to a pod, or else what the
// template gives it. The API server sets a missing request to the limit. A pod that has the smallest amount
// less than decided has all of it: that amount keeps its QoS class, and is no reason to lower the decision.
func largestRequest(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) (most int64) {
	for pod, c := range s.Active(policy, container.Name) {
		most = max(most, cmp.Or(granted(pod, c, r), r.Request(c.Resources))) // a request that was added can't be taken back
	}
	if most == 0 {
		return templateRequest(container, r)
	}
	if s.Decision.Request(container.Name, r) == most+1 {
		most++
	}
	return most
}

// granted is the request that a container declares, as far as its kubelet reports it as applied. A raise
// may wait for room on the node, and what is being lowered is not to be raised again.
func granted(pod workload.Pod, c workload.Container, r model.Resource) int64 {
	actual, isReported := pod.Actual[c.Name]
	declared := workload.Resources{Requests: c.Requests}
	switch {
	case !isReported, r.IsApplied(workload.Resources{Requests: actual.Requests}, declared):
		return r.Request(declared)
	}
	return min(r.Request(declared), r.Request(actual))
}
