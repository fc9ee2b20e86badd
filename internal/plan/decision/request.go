// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// request is one request of a container, and all that decides about it.
type request struct {
	*row.Row

	container *row.Container
	tolerance float64
	decided   int64 // 0 for nothing
	current   int64
	granted   int64 // the most that pods have
	// isUnsettled is true if no decision tells the request, and pods, or new ones, do not have it.
	isUnsettled bool
	lacksUsage  bool // usage of running pods is missing
	// wanted is the recommended or else the decided amount, in the policy's range; 0 for neither. target is as much of that as the
	// ceilings leave.
	wanted, target int64
	ceiling        int64
	sum            string // of a LimitRange, if that is the ceiling
	climbEnd       string // why it is not raised further; empty if nothing has ended a climb
	// floor is the least that less usage lowers it to, for the reason whyFloor; 0 for any.
	floor    int64
	whyFloor string
	// isWhole is true if it must be whole CPUs.
	isWhole bool
	// sparesRestarts is true if a little missing CPU costs less than to restart all pods.
	sparesRestarts bool

	unceiled row.Span // the range of the policy, the LimitRange and limits
	allowed  row.Span // unceiled, within the ceilings
	enforced row.Span // allowed, but for minAllowed and maxAllowed
}

// requestsFor are the requests of all containers for one resource. Each has one range: the part that the ceilings leave of the
// range of its row.
func (e *evaluation) requestsFor(r model.Resource, beside quantity.Amounts) []request {
	requests := make([]request, len(e.rows.Containers))
	for i := range e.rows.Containers {
		requests[i] = e.requestFor(&e.rows.Containers[i], r)
	}
	bound(requests, e.rows.Ceilings[r], r.Of(beside))
	e.withinSums(r, requests)
	for i := range requests {
		q := &requests[i]
		q.target = min(q.wanted, q.ceiling)
		q.allowed = q.unceiled.Within(0, q.ceiling)
		q.enforced = q.enforced.Within(0, q.ceiling)
		if q.isWhole {
			q.allowed = q.allowed.WholeCores(q.current)
			q.target = q.allowed.Fit(q.target)
		}
	}
	return requests
}

// requestFor is the request without the ceilings.
func (e *evaluation) requestFor(c *row.Container, r model.Resource) request {
	q := request{Row: c.Of(r), container: c, tolerance: e.policy.Tolerance, lacksUsage: e.MissingUsage != "", ceiling: model.Any}
	q.decided = e.Decision.Request(c.Name, r)
	q.granted = cmp.Or(q.Granted, q.Template)
	if q.Granted > 0 && q.decided == q.Granted+1 { // lowered by the smallest amount to keep the QoS class
		q.granted++
	}
	q.current, q.isUnsettled = e.currentRequest(q)
	if !q.IsManaged {
		return q
	}
	rec := c.Recommendation
	if r.Of(rec.Target) == 0 {
		q.isUnsettled = false
	}
	most := q.MaxAllowed
	switch end, why := rec.ClimbEnd(); {
	case !r.IsMemory():
		q.sparesRestarts = e.policy.RollsOut()
		q.isWhole = c.HasWholeCores && (e.policy.NeedsSizedNewPods() || e.policy.MayRollOut())
	case why == recommend.RaiseDidNotHelp:
		q.climbEnd, most = why, model.BoundOf(end) // which is within maxAllowed
	default:
		q.climbEnd = why
	}
	q.floor, q.whyFloor = e.floorOf(c, r, q.current)
	q.unceiled, q.enforced = q.Range(max(r.Of(c.Policy.MinAllowed), q.floor), most), q.Enforced
	q.wanted = cmp.Or(r.Of(rec.Target), q.decided)
	if q.isWhole {
		q.unceiled, q.wanted = q.unceiled.WholeCores(q.current), row.RoundUpToCore(q.wanted)
	}
	q.wanted = q.unceiled.Fit(q.wanted)
	return q
}

// floorOf is the least that less usage lowers a request to, and why; 0 for any. It is at most the current request or the
// template's: a heap that is not in use raises nothing.
func (e *evaluation) floorOf(c *row.Container, r model.Resource, current int64) (floor int64, why string) {
	has := max(current, c.WrittenRequest(r))
	switch isGuaranteed := c.IsGuaranteed && r.Limit(c.Written) > 0; {
	case e.policy.IsRaiseOnly(r):
		return has, ", because scaleDown.controlledResources does not include " + r.String()
	case isGuaranteed && r.Restarts(c.Container): // new pods start with the template's CPU, so an eviction lowers nothing either
		return has, ", because the pods are Guaranteed, and the container restarts when its " + r.String() + " changes (resizePolicy)"
	case isGuaranteed && (r.IsMemory() || !e.policy.InPlace()):
		return has, ", because the pods are Guaranteed, and the limit of a running container is not lowered; controlledValues RequestsAndLimits lowers it"
	case isGuaranteed && c.Policy.StartCPU > 0:
		floor = min(has, c.Policy.StartCPU)
		return floor, fmt.Sprintf("; at least %s, which starts have needed, because the pods are Guaranteed; controlledValues RequestsAndLimits lowers it", r.Format(floor))
	case r.IsMemory() && c.Heap.Bytes > 0:
		floor = min(has, c.Heap.Bytes)
		return floor, fmt.Sprintf("; at least %s: %s", r.Format(floor), c.Heap.Flag)
	}
	return 0, ""
}

// largestOutcome is the most that may be decided, but for the ceilings: a request moves from the current one towards
// its target, and may stop anywhere between.
func (q request) largestOutcome() int64 { return max(q.unceiled.Fit(q.current), q.wanted) }

// grain is the unit of a step: as recommendations are, or whole CPUs.
func (q request) grain(v int64) int64 {
	switch {
	case q.isWhole:
		return row.Core
	case !q.Resource.IsMemory():
		return 1
	case v < 64<<20:
		return 64 << 10
	}
	return 1 << 20
}

func (q request) subject() string { return q.container.Name + " " + q.Resource.String() }

// move says where a request moves if it may move all the way, and why; no reason if it stays.
func (q request) move() (to int64, why string) {
	current, target := q.current, q.target
	bounded := q.allowed.Fit(current)
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

// towardsBound is the next value of a request outside its bounds: the target. But if the request only has to drop to the largest
// allowed value, and the upper bound is not below that, it stops there. A bound is not evidence for a lower request. Nor is it
// while usage is missing, or if the request only has to drop below a ceiling.
func (q request) towardsBound(bounded int64) int64 {
	switch isCeiling := q.unceiled.Fit(q.current) == q.current; {
	case isCeiling, q.lacksUsage, bounded <= q.upperBound():
		return max(q.target, bounded)
	}
	return q.target
}

func (q request) lowerBound() int64 { return q.Resource.Of(q.container.Recommendation.LowerBound) }

func (q request) upperBound() int64 { return q.Resource.Of(q.container.Recommendation.UpperBound) }

// oomFloor is the floor that an OOM kill has set; 0 for none.
func (q request) oomFloor() int64 {
	if q.Resource.IsMemory() {
		return q.container.Recommendation.OOMFloor
	}
	return 0
}

// whenLowered says when there is enough evidence to lower the request, if usage stays as it is; empty if that is unknown.
func (q request) whenLowered(maxAllowed int64) string {
	if enough := q.container.Recommendation.EvidenceToLower(q.Resource.String(), q.current, maxAllowed); enough > 0 {
		return ", " + model.AfterObserving(enough)
	}
	return ""
}

func (q request) isClose(to int64) bool { return !differs(q.current, to, q.tolerance) }

// differs reports whether two requests are further apart than the tolerance, as a share of the current one.
func differs(current, target int64, tolerance float64) bool {
	return math.Abs(float64(target-current)) > tolerance*float64(current)
}

// currentRequest is the current request: as decided, or else the largest among the running pods (a lost status must not make a
// resized pod look small), or else the template's. For memory, see withoutOutlier. isUnsettled reports whether no decision has
// it, although one is needed. After a lost status, that is so if the pods disagree or a kubelet has not applied it. It is also
// so if nothing is decided and new pods would not get the size of resized pods. Startup boosts need a decision, too: to start
// from and to return to.
func (e *evaluation) currentRequest(q request) (current int64, isUnsettled bool) {
	c, r := q.container, q.Resource
	if q.decided > 0 {
		return q.decided, false
	}
	least := model.Any
	var declaredByPods []int64
	var resized time.Time // the last pod of the current template
	for _, running := range c.Running {
		declared, applied := r.Request(running.Resources), r.Request(running.Resources)
		if model.WasResized(*running.Pod) { // before a resize, kubelets may report other amounts
			applied = running.Granted(r)
		}
		declaredByPods, least = append(declaredByPods, declared), min(least, applied)
		if running.Pod.Current {
			resized = model.Latest(resized, running.Pod.Resized)
		}
	}
	slices.Sort(declaredByPods)
	if n := len(declaredByPods); n > 0 {
		current = declaredByPods[n-1]
	}
	switch {
	case current == 0:
		return r.Request(c.Resources), false
	case least != current && r.IsMemory():
		return withoutOutlier(declaredByPods, max(r.Of(c.Recommendation.Target), q.oomFloor())), true
	case least != current:
		return current, true
	case e.policy.InPlace() && r.Boost(c.Policy) != nil:
		return current, true
	case e.Decision != nil, !e.policy.SizesNewPods, resized.IsZero():
		return current, false
	}
	return current, current != q.Template
}

// withoutOutlier is the largest of sorted requests of memory; with more than two pods, the second largest, or what usage and OOM
// kills need if that is more. One pod may have been raised alone, which does not raise the others.
func withoutOutlier(sorted []int64, needs int64) int64 {
	last := len(sorted) - 1
	if last < model.FewPods {
		return sorted[last]
	}
	return min(sorted[last], max(sorted[last-1], needs))
}
