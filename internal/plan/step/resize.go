// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// resize plans the next in-place resize.
//
// It resizes one pod at a time, starting with pods that are lowered. At most a quarter of
// the pods, but at least one, may be in progress at once, so that a wrong number is seen
// before it is everywhere. A Deferred resize counts, unless the decision follows an OOM kill or
// is a revert: its number has been proven. A boost cannot be wrong everywhere, and cannot wait: it waits
// for no other resize, and no resize waits for it. What cannot be done in place is left to
// the fallback, once there is nothing more to do in place.
func (p planner) resize() model.Plan {
	if !p.policy.MayRollOut() {
		p.Decision = p.Decision.NotApplied()
	}
	p.Decision = p.Decision.Retaining(p.failedShrinks())
	verdicts := make([]podVerdict, 0, len(p.Pods))
	for _, pod := range p.byName() {
		if model.IsAlive(*pod) {
			verdicts = append(verdicts, p.classify(*pod))
		}
	}
	return p.choose(fold(verdicts))
}

// byName are the pods by name.
func (p planner) byName() []*workload.Pod {
	pods := make([]*workload.Pod, 0, len(p.Pods))
	for i := range p.Pods {
		pods = append(pods, &p.Pods[i])
	}
	slices.SortFunc(pods, func(a, b *workload.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// tally is the sum of the pods' verdicts.
type tally struct {
	pods         int
	leaving      int // pods that a rollout is about to replace
	unsized      int // those of them that do not have the decided sizes
	complete     int // pods that have all of the decided sizes
	settled      int // pods that have all that they can get
	inFlight     int
	deferred     int  // pods whose resize waits for room on their nodes
	withheld     int  // pods that are to be lowered once usage is complete
	isBoosting   bool // a boost is in progress
	isBoosted    bool // a boost is applied
	obstacles    model.Obstacles
	requeueAfter time.Duration

	next       *model.Resize // the first resize
	instead    *model.Resize // the first resize of a pod that waits for room for another size
	again      *model.Resize // the first resize of a pod that could not have its size before
	freeing    *model.Resize // the first resize that frees capacity for others
	withdrawal *model.Resize // the first resize that withdraws another one
	reduction  *model.Resize // what to lower next, which needs verification
	boosts     []model.Resize
}

func fold(verdicts []podVerdict) tally {
	t := tally{pods: len(verdicts)}
	for i := range verdicts {
		v := &verdicts[i]
		t.requeueAfter = model.Sooner(t.requeueAfter, v.requeueAfter)
		t.obstacles = append(t.obstacles, v.obstacles...)
		if v.isLeaving {
			t.leaving++
		}
		t.count(v)
	}
	return t
}

func (t *tally) count(v *podVerdict) {
	switch v.activity {
	case asks:
		t.next = cmp.Or(t.next, &v.step)
	case asksInstead:
		t.instead = cmp.Or(t.instead, &v.step)
		t.deferred++
	case asksAgain:
		t.again = cmp.Or(t.again, &v.step)
	case asksWithdrawal:
		t.withdrawal = cmp.Or(t.withdrawal, &v.step)
	case deferred:
		t.deferred++
	case asksFreeing:
		t.freeing = cmp.Or(t.freeing, &v.step)
	case asksBoost:
		t.boosts = append(t.boosts, v.step)
	case asksReduction:
		t.reduction = cmp.Or(t.reduction, &v.step)
	case inFlight:
		t.inFlight++
	case boosting:
		t.isBoosting = true
	case withheld:
		t.withheld++
	case settled:
		t.settled++
	case complete:
		t.settled++
		t.complete++
		if v.step.Boost {
			t.isBoosted = true
		}
	case unmanaged:
		t.complete++
	case leaving:
		t.unsized++
	}
}

// choose picks the next step.
func (p planner) choose(t tally) model.Plan {
	p = p.within(t.requeueAfter)
	p.progress = model.Progress{PodsAtSize: t.complete, Pods: t.pods}
	p, setBack := p.setBack()
	if t.pods == 0 && setBack == nil {
		return p.withoutPods()
	}
	next := cmp.Or(t.freeing, t.instead, t.next, t.again)
	if next == nil {
		p, next = p.nextReduction(t)
	}
	underWay := t.inFlight
	if next != t.freeing && next != t.instead && !p.Decision.IsUrgentRestart() {
		underWay += t.deferred
	}
	if boost := p.nextBoost(t); boost != nil {
		next, underWay, t.inFlight = boost, 0, 0
	}
	switch {
	case t.withdrawal != nil:
		return p.plan(p.withPodLevel(*t.withdrawal), model.Changing.Because(v1beta1.ReasonResizing, "A resize that a node does not grant is withdrawn"))
	case setBack != nil && (next == nil || next != t.freeing && !p.Decision.IsUrgentRestart()):
		return p.plan(*setBack, model.Changing.Because(v1beta1.ReasonResizing, "An unschedulable new pod gets the requests of the template"))
	case next != nil && underWay < concurrency(t.pods):
		return p.plan(p.withPodLevel(*next), model.Changing.Because(v1beta1.ReasonResizing, "Pods are being resized in place"))
	case t.inFlight > 0, t.isBoosting:
		return p.without(model.Changing.Because(v1beta1.ReasonResizing, "Pods are being resized in place"))
	case next != nil:
		return p.fallBack(t) // it waits for what is Deferred
	case t.reduction != nil:
		return p.without(model.Changing.Because(v1beta1.ReasonVerifying, "Verifying the first resized pods before lowering the rest"))
	case len(t.obstacles) > 0:
		return p.fallBack(t)
	case t.unsized > 0:
		return p.whileReplaced(t)
	case t.isBoosted:
		return p.without(model.Applied.Because(v1beta1.ReasonBoosted, "Starting pods have more CPU until they are Ready (startupBoost)"))
	}
	return p.without(p.notingOldPods(model.Applied.Because(v1beta1.ReasonApplied, "All pods have the decided size")))
}

func concurrency(pods int) int { return max(1, pods/4) }

// nextReduction says which pod is lowered next: none, while the first ones are verified. It
// ends the verification that all pods have passed.
func (p planner) nextReduction(t tally) (planner, *model.Resize) {
	v := p.Decision.Verifying()
	switch {
	case v == nil:
		return p, t.reduction
	case t.reduction != nil && p.mayLowerMore(*v, t):
		return p, t.reduction
	case t.inFlight > 0, t.settled == 0:
		return p, nil
	case t.withheld > 0 && !v.FirstPodsVerified.IsZero():
		return p, nil // the others follow later
	}
	d, left := verification.Observe(p.Situation, p.policy, p.Decision, p.now)
	switch {
	case left > 0:
		return p.with(d).within(left), nil
	case t.reduction == nil && t.withheld == 0:
		return p.with(d.WithVerification(nil)), nil
	}
	return p.with(verification.PassFirst(d, p.now)), t.reduction
}

// mayLowerMore reports whether the first pods are verified, or whether there may be more of
// them.
func (p planner) mayLowerMore(v model.Verification, t tally) bool {
	return !v.FirstPodsVerified.IsZero() || t.inFlight+t.settled < concurrency(t.pods-t.leaving)
}

// nextBoost is the next boost; nil for none. If as many pods as allowed are being resized,
// a boost changes only CPU: whatever else it would change waits for its turn.
func (p planner) nextBoost(t tally) *model.Resize {
	for _, boost := range t.boosts {
		if t.inFlight < concurrency(t.pods) {
			return &boost
		}
		if part, ok := p.onlyCPU(boost); ok {
			return &part
		}
	}
	return nil
}

func (p planner) onlyCPU(boost model.Resize) (part model.Resize, ok bool) {
	for _, pod := range p.Pods {
		if pod.UID != boost.UID {
			continue
		}
		part = boost
		part.Sizes = only(model.CPU, pod, boost.Sizes)
		return part, differsFrom(pod, part.Sizes) && p.isPossible(pod, part.Sizes)
	}
	return part, false
}
