// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/pods"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
)

// resize plans the next in-place resize.
//
// It resizes one pod at a time, starting with pods that are lowered. At most a quarter of the pods, but at
// least one, may be in progress at once, so that a wrong number is seen before it is everywhere. A Deferred
// resize counts, unless the decision follows an OOM kill or is a revert: its number has been proven. A boost
// cannot be wrong everywhere, and cannot wait: it waits for no other resize, and no resize waits for it.
// Sizes that cannot be applied in place are left to the fallback, once there is nothing more to do in place.
func (p planner) resize() model.Plan {
	standings := make([]pods.Standing, 0, len(p.Pods))
	for _, pod := range p.Pods {
		if model.IsAlive(pod) {
			standings = append(standings, pods.Of(p.In(pod)))
		}
	}
	return p.choose(p.fold(standings))
}

// tally is the sum of the pods' standings.
type tally struct {
	pods         int
	leaving      int                  // pods that a rollout is about to replace
	count        [pods.Activities]int // of the pods, by where they stand
	first        [pods.Activities]*pods.Standing
	lowered      int // pods that have the decided size, or a part of it since it was decided
	boosts       []pods.Standing
	isBoosted    bool // a boost is applied
	obstacles    model.Obstacles
	requeueAfter time.Duration
}

func (p planner) fold(standings []pods.Standing) tally {
	t := tally{pods: len(standings)}
	for i := range standings {
		s := &standings[i]
		t.requeueAfter = model.Sooner(t.requeueAfter, s.RequeueAfter)
		t.obstacles = append(t.obstacles, s.Obstacles...)
		t.count[s.Activity]++
		t.first[s.Activity] = cmp.Or(t.first[s.Activity], s)
		if s.IsLeaving {
			t.leaving++
		}
		if s.Activity == pods.Complete || s.Activity == pods.Settled && s.Resized.After(p.Decision.Time.Add(-verification.ClockSkew)) {
			t.lowered++
		}
		switch {
		case s.Activity == pods.AsksBoost:
			t.boosts = append(t.boosts, *s)
		case s.IsBoosted:
			t.isBoosted = true
		}
	}
	return t
}

func (p planner) choose(t tally) model.Plan {
	const resizing = "Pods are being resized in place"
	p = p.within(t.requeueAfter)
	p.progress = model.Progress{PodsAtSize: t.count[pods.Complete] + t.count[pods.LeavingAtSize], Pods: t.pods}
	p, setBack := p.setBack()
	if setBack != nil {
		return p.plan(*setBack, model.Changing.Because(v1beta1.ReasonResizing, "An unschedulable new pod gets the requests of the template"))
	}
	if withdrawal := t.first[pods.AsksWithdrawal]; withdrawal != nil {
		return p.plan(resizeTo(withdrawal), model.Changing.Because(v1beta1.ReasonResizing, "A resize that a node does not grant is withdrawn"))
	}
	if boost := p.nextBoost(t); boost != nil {
		return p.plan(resizeTo(boost), model.Changing.Because(v1beta1.ReasonResizing, resizing))
	}
	next := cmp.Or(t.first[pods.AsksFreeing], t.first[pods.AsksInstead], t.first[pods.Asks], t.first[pods.AsksAgain])
	if next == nil { // what needs verification comes last
		p, next = p.nextReduction(t)
	}
	switch {
	case next != nil && p.underWay(t, next) < concurrency(t.pods):
		return p.plan(resizeTo(next), model.Changing.Because(v1beta1.ReasonResizing, resizing))
	case t.count[pods.InFlight]+t.count[pods.Boosting] > 0:
		return p.without(model.Changing.Because(v1beta1.ReasonResizing, resizing))
	case next != nil:
		return p.fallBack(t) // it waits for what is Deferred
	case t.first[pods.AsksReduction] != nil:
		return p.without(model.Changing.Because(v1beta1.ReasonVerifying, "Verifying the first resized pods before lowering the rest"))
	case len(t.obstacles) > 0:
		return p.fallBack(t)
	case t.pods == 0, t.count[pods.Leaving] > 0:
		if p.Deployment.RollingOut && p.IsTemplateAsDecided() {
			return p.rolledOut()
		}
		if t.pods == 0 {
			return p.without(model.Waiting.Because(v1beta1.ReasonNoPods, "The Deployment has no running pods"))
		}
		return p.without(AboutToBeReplaced(t.count[pods.Leaving], t.pods))
	case t.isBoosted:
		return p.without(model.Applied.Because(v1beta1.ReasonBoosted, "Starting pods have more CPU until they are Ready ("+p.BoostedBy()+")"))
	}
	return p.without(model.Applied.Because(v1beta1.ReasonApplied, "All pods have the decided size"))
}

// underWay counts the resizes that the next one waits for. A resize that frees capacity, replaces a Deferred one, or has
// been proven does not wait for Deferred resizes.
func (p planner) underWay(t tally, next *pods.Standing) int {
	switch {
	case next == t.first[pods.AsksFreeing], next == t.first[pods.AsksInstead], p.Decision.IsUrgentRestart():
		return t.count[pods.InFlight]
	}
	return t.count[pods.InFlight] + t.count[pods.Deferred] + t.count[pods.AsksInstead]
}

func resizeTo(s *pods.Standing) model.Resize {
	return model.Resize{
		Pod: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
		Sizes: s.Sizes.Sizes(), PodLevel: s.Sizes.PodLevel(s.Pod.Pod), Boost: s.IsBoosted, Withdraws: s.Withdraws,
	}
}

func concurrency(pods int) int { return max(1, pods/4) }

// nextReduction says which pod is lowered next: none, while the first ones are verified. It
// ends the verification that all pods have passed.
func (p planner) nextReduction(t tally) (planner, *pods.Standing) {
	v, reduction := p.Decision.Verifying(), t.first[pods.AsksReduction]
	switch {
	case v == nil, p.mayLowerMore(*v, t):
		return p, reduction
	case t.count[pods.InFlight] > 0, t.lowered == 0:
		return p, nil
	case t.count[pods.Withheld] > 0 && !v.FirstPodsVerified.IsZero():
		return p, nil // the others follow later
	}
	d, left := verification.Observe(p.Situation, p.Policy, p.Decision, p.Now)
	switch {
	case left > 0:
		return p.with(d).within(left), nil
	case reduction == nil && t.count[pods.Withheld] == 0:
		return p.with(d.WithVerification(nil)), nil
	}
	return p.with(verification.PassFirst(d, p.Now)), reduction
}

// mayLowerMore reports whether the first pods are verified, or whether there may be more of them.
func (p planner) mayLowerMore(v model.Verification, t tally) bool {
	switch {
	case t.first[pods.AsksReduction] == nil:
		return false
	case !v.FirstPodsVerified.IsZero():
		return true
	}
	return t.count[pods.InFlight]+t.lowered < concurrency(t.pods-t.leaving)
}

// nextBoost is the next boost; nil for none. If as many pods as allowed are being resized,
// a boost changes only CPU: whatever else it would change waits for its turn.
func (p planner) nextBoost(t tally) *pods.Standing {
	for _, boost := range t.boosts {
		if t.count[pods.InFlight] < concurrency(t.pods) {
			return &boost
		}
		boost.Sizes = boost.Sizes.Only(model.CPU)
		if boost.IsPossibleChange(boost.Sizes) {
			return &boost
		}
	}
	return nil
}

// AboutToBeReplaced is the verdict if so many pods keep their size because they have an older template.
func AboutToBeReplaced(leaving, pods int) model.Verdict {
	return model.Waiting.Because(v1beta1.ReasonRolloutInProgress, fmt.Sprintf(
		"%d of %d pods have an older template, and keep their size until they are replaced", leaving, pods))
}
