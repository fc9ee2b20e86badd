// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
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
	verdicts := make([]podVerdict, 0, len(p.Pods))
	for _, pod := range p.Pods {
		if model.IsAlive(pod) {
			verdicts = append(verdicts, p.classify(pod))
		}
	}
	return p.choose(fold(verdicts))
}

// tally is the sum of the pods' verdicts.
type tally struct {
	pods         int
	leaving      int             // pods that a rollout is about to replace
	count        [activities]int // of the pods, by where they stand
	first        [activities]*model.Resize
	boosts       []model.Resize
	isBoosted    bool // a boost is applied
	obstacles    model.Obstacles
	requeueAfter time.Duration
}

func fold(verdicts []podVerdict) tally {
	t := tally{pods: len(verdicts)}
	for i := range verdicts {
		v := &verdicts[i]
		t.requeueAfter = model.Sooner(t.requeueAfter, v.requeueAfter)
		t.obstacles = append(t.obstacles, v.obstacles...)
		t.count[v.activity]++
		t.first[v.activity] = cmp.Or(t.first[v.activity], &v.step)
		if v.isLeaving {
			t.leaving++
		}
		switch {
		case v.activity == asksBoost:
			t.boosts = append(t.boosts, v.step)
		case v.step.Boost:
			t.isBoosted = true
		}
	}
	return t
}

// settled counts the pods that have all of the decided size that they can get.
func (t tally) settled() int { return t.count[complete] + t.count[settled] }

// choose picks the next step.
func (p planner) choose(t tally) model.Plan {
	const resizing = "Pods are being resized in place"
	p = p.within(t.requeueAfter)
	p.progress = model.Progress{PodsAtSize: t.count[complete] + t.count[leavingAtSize], Pods: t.pods}
	p, setBack := p.setBack()
	if setBack != nil {
		return p.plan(*setBack, model.Changing.Because(v1beta1.ReasonResizing, "An unschedulable new pod gets the requests of the template"))
	}
	if withdrawal := t.first[asksWithdrawal]; withdrawal != nil {
		return p.plan(p.withPodLevel(*withdrawal), model.Changing.Because(v1beta1.ReasonResizing, "A resize that a node does not grant is withdrawn"))
	}
	if boost := p.nextBoost(t); boost != nil {
		return p.plan(p.withPodLevel(*boost), model.Changing.Because(v1beta1.ReasonResizing, resizing))
	}
	next := cmp.Or(t.first[asksFreeing], t.first[asksInstead], t.first[asks], t.first[asksAgain])
	if next == nil { // what needs verification comes last
		p, next = p.nextReduction(t)
	}
	switch {
	case next != nil && p.underWay(t, next) < concurrency(t.pods):
		return p.plan(p.withPodLevel(*next), model.Changing.Because(v1beta1.ReasonResizing, resizing))
	case t.count[inFlight]+t.count[boosting] > 0:
		return p.without(model.Changing.Because(v1beta1.ReasonResizing, resizing))
	case next != nil:
		return p.fallBack(t) // it waits for what is Deferred
	case t.first[asksReduction] != nil:
		return p.without(model.Changing.Because(v1beta1.ReasonVerifying, "Verifying the first resized pods before lowering the rest"))
	case len(t.obstacles) > 0:
		return p.fallBack(t)
	case t.pods == 0, t.count[leaving] > 0:
		if p.Deployment.RollingOut && p.isTemplateAsDecided() {
			return p.rolledOut()
		}
		if t.pods == 0 {
			return p.without(model.Waiting.Because(v1beta1.ReasonNoPods, "The Deployment has no running pods"))
		}
		return p.without(AboutToBeReplaced(t.count[leaving], t.pods))
	case t.isBoosted:
		return p.without(model.Applied.Because(v1beta1.ReasonBoosted, "Starting pods have more CPU until they are Ready ("+p.boostedBy()+")"))
	}
	return p.without(model.Applied.Because(v1beta1.ReasonApplied, "All pods have the decided size"))
}

// underWay counts the resizes that the next one waits for. What frees capacity, or replaces a resize that is Deferred, does
// not wait for those that are Deferred, nor does what has been proven.
func (p planner) underWay(t tally, next *model.Resize) int {
	switch {
	case next == t.first[asksFreeing], next == t.first[asksInstead], p.Decision.IsUrgentRestart():
		return t.count[inFlight]
	}
	return t.count[inFlight] + t.count[deferred] + t.count[asksInstead]
}

func concurrency(pods int) int { return max(1, pods/4) }

// nextReduction says which pod is lowered next: none, while the first ones are verified. It
// ends the verification that all pods have passed.
func (p planner) nextReduction(t tally) (planner, *model.Resize) {
	v, reduction := p.Decision.Verifying(), t.first[asksReduction]
	switch {
	case v == nil, p.mayLowerMore(*v, t):
		return p, reduction
	case t.count[inFlight] > 0, t.settled() == 0:
		return p, nil
	case t.count[withheld] > 0 && !v.FirstPodsVerified.IsZero():
		return p, nil // the others follow later
	}
	d, left := verification.Observe(p.Situation, p.policy, p.Decision, p.now)
	switch {
	case left > 0:
		return p.with(d).within(left), nil
	case reduction == nil && t.count[withheld] == 0:
		return p.with(d.WithVerification(nil)), nil
	}
	return p.with(verification.PassFirst(d, p.now)), reduction
}

// mayLowerMore reports whether the first pods are verified, or whether there may be more of
// them.
func (p planner) mayLowerMore(v model.Verification, t tally) bool {
	switch {
	case t.first[asksReduction] == nil:
		return false
	case !v.FirstPodsVerified.IsZero():
		return true
	}
	return t.count[inFlight]+t.settled() < concurrency(t.pods-t.leaving)
}

// nextBoost is the next boost; nil for none. If as many pods as allowed are being resized,
// a boost changes only CPU: whatever else it would change waits for its turn.
func (p planner) nextBoost(t tally) *model.Resize {
	for _, boost := range t.boosts {
		if t.count[inFlight] < concurrency(t.pods) {
			return &boost
		}
		pod, _ := p.Pod(boost.UID)
		boost.Sizes = only(model.CPU, pod, boost.Sizes)
		if p.isPossibleChange(pod, boost.Sizes) {
			return &boost
		}
	}
	return nil
}
