// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// evaluation is what Decide knows once it has looked at every resource.
type evaluation struct {
	model.Situation

	policy    model.Policy
	stays     model.Requests // decided before and still managed
	moves     []move
	unmanaged model.Obstacles // resources left alone although the policy controls them
	kept      model.Obstacles // requests that stay although the target differs
	nodes     [len(model.Resources)]headroom
	ceilings  [len(model.Resources)]ceilings
	isKnown   bool // there is a recommendation
	controls  bool // there is something to manage
}

func evaluate(s model.Situation, policy model.Policy) *evaluation {
	e := &evaluation{Situation: s, policy: policy, stays: model.Requests{}}
	beside := s.Beside()
	for _, r := range model.Resources {
		e.nodes[r], e.ceilings[r] = nodeHeadroomFor(s, policy, r, beside), ceilingsFor(s, policy, r, beside)
	}
	full := isFull(s, policy)
	for _, container := range s.Deployment.Containers {
		if container.Unreadable {
			e.unmanaged = append(e.unmanaged, model.Obstacle{
				Reason: v1beta1.ReasonRejected, Subject: "container " + container.Name,
				Message: "its resources are outside the supported range and are not changed", Stalled: true,
			})
			continue
		}
		if _, ok := s.Recommendation(container.Name); ok {
			e.isKnown = true
		} else if full && controlsAny(policy, container.Name) {
			e.unmanaged = append(e.unmanaged, model.Obstacle{
				Reason: v1beta1.ReasonRejected, Subject: "container " + container.Name, Stalled: true,
				Message: fmt.Sprintf("not managed, because a scaler manages at most %d containers; if that is intended, set mode Off for it in spec.resourcePolicy", recommend.MaxContainers),
			})
		}
		for _, r := range model.Resources {
			e.evaluateIfManaged(container, r)
		}
	}
	return e
}

// isFull reports whether there is no room for the usage history of another container. Those that the
// policy leaves alone have a history, too.
func isFull(s model.Situation, policy model.Policy) bool {
	taken := 0
	for _, container := range s.Deployment.Containers {
		if _, ok := s.Recommendation(container.Name); ok || !controlsAny(policy, container.Name) {
			taken++
		}
	}
	return len(s.Deployment.Containers) > recommend.MaxContainers && taken >= recommend.MaxContainers
}

func controlsAny(policy model.Policy, container string) bool {
	return slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return policy.Controls(container, r) })
}

func (e *evaluation) evaluateIfManaged(container workload.Container, r model.Resource) {
	if !e.policy.Controls(container.Name, r) {
		return
	}
	e.controls = true
	if taken := e.TakenBy(container.Name, r); taken.Exists() {
		e.unmanaged = append(e.unmanaged, taken)
		return
	}
	if !e.ceilings[r].leavesNothing(container.Name) {
		model.SetRequest(e.stays, container.Name, r, e.Decision.Request(container.Name, r))
	}
	if p, ok := e.propose(container, r); ok {
		e.evaluateResource(p)
	}
}

// evaluateResource decides whether one request of one container moves.
func (e *evaluation) evaluateResource(p proposal) {
	m, reverted := skipKnownBad(e.RevertedChanges, e.inWholeCores(p, e.moveOf(p)))
	m.isUnsettled = p.isUnsettled
	switch {
	case reverted != nil && p.isClose(m.to) && p.isUnsettled:
		m = m.adopting()
	case reverted != nil && p.isClose(m.to):
		e.keep(p, v1beta1.ReasonChangeReverted, fmt.Sprintf(
			"stays, because %s was reverted (%s); it is tried again with twice as much usage history, after a week, or when the scaler is edited",
			p.resource.Format(reverted.Value), reverted.Evidence))
		return
	case m.why == "":
		m.why = e.whyDespiteStaying(p)
	}
	if m.why != "" {
		e.moves = append(e.moves, m)
		return
	}
	if e.keepWholeCores(p) {
		return
	}
	if p.current > p.target && !p.isClose(p.target) {
		e.keep(p, v1beta1.ReasonWithinBounds, fmt.Sprintf("%s stays until the upper bound of %s falls below it%s",
			p.resource.Format(p.current), p.resource.Format(p.upperBound()), p.whenLowered()))
	}
}

// whyDespiteStaying is the reason to decide a request although it stays the same; empty
// for none.
func (e *evaluation) whyDespiteStaying(p proposal) string {
	switch {
	case limitsAreOff(e.Situation, e.policy, p.container, p.current, p.resource):
		return model.DecidedBounds
	case p.isUnsettled:
		return model.DecidedAdopted
	}
	return ""
}

// keep notes why a request does not get its target.
func (e *evaluation) keep(p proposal, reason, message string) {
	e.kept = append(e.kept, model.Obstacle{Reason: reason, Subject: p.container.Name + " " + p.resource.String(), Message: message})
}

// remark says why nothing moves.
func (e *evaluation) remark(isDecided bool) model.Verdict {
	switch {
	case len(e.unmanaged) > 0:
		return e.unmanaged.Verdict()
	case !e.controls:
		return model.Waiting.Because(v1beta1.ReasonNothingControlled, "The resource policy leaves nothing to manage")
	case !e.isKnown && !isDecided:
		return model.Waiting.Because(v1beta1.ReasonNoRecommendation, "There is no recommendation yet")
	case len(e.kept) > 0:
		return e.keptVerdict()
	case !isDecided:
		return model.Applied.Because(v1beta1.ReasonWithinTolerance, "The current requests are within the tolerance of the recommendation")
	}
	return model.Verdict{}
}

// keptVerdict says why requests stay. A request within its bounds is as it should be.
func (e *evaluation) keptVerdict() model.Verdict {
	kept := e.kept.Verdict()
	if kept.Reason == v1beta1.ReasonWithinBounds {
		return model.Applied.Because(kept.Reason, kept.Message)
	}
	return kept
}

// proposal is one request, and what is recommended for it.
type proposal struct {
	container       workload.Container
	resource        model.Resource
	rec             recommend.Container
	tolerance       float64
	allowed         bounds
	unceiled        bounds // allowed, but for the ceilings and the largest node
	enforced        bounds // allowed, but for minAllowed and maxAllowed
	current, target int64
	granted         int64 // the most that pods have
	started         int64 // what the template requests, if a pod has started with it; otherwise 0
	isUnsettled     bool  // no decision tells the request, and pods, or new ones, do not have it
	lacksUsage      bool  // usage of running pods is missing
}

// propose compares the request with its target. ok is false without a target.
func (e *evaluation) propose(container workload.Container, r model.Resource) (p proposal, ok bool) {
	allowed := allowedFor(e.Situation, e.policy, container, r)
	wanted := targetFor(e.Situation, allowed, container, r)
	if wanted == 0 {
		return p, false
	}
	node, ceiling := e.nodes[r], e.ceilings[r]
	p = proposal{container: container, resource: r, tolerance: e.policy.Tolerance, lacksUsage: e.MissingUsage != ""}
	p.target = node.fit(container.Name, ceiling.left.fit(container.Name, wanted))
	p.rec, _ = e.Recommendation(container.Name)
	p.current, p.isUnsettled = currentRequest(e.Situation, e.policy, container, r)
	p.granted = largestRequest(e.Situation, e.policy, container, r)
	p.started = startedRequest(e.Situation, container, r)
	if r.Of(p.rec.Target) == 0 {
		p.isUnsettled = false
	}
	if differs(p.target, wanted, p.tolerance) {
		e.keepBelow(p, wanted)
	}
	p.unceiled, p.allowed, p.enforced = allowed, allowed, enforcedFor(e.Situation, e.policy, container, r)
	for _, b := range []*bounds{&p.allowed, &p.enforced} {
		b.node, b.ceiling = node.bound(container.Name), ceiling.left.bound(container.Name)
	}
	return p, p.target > 0 // else the other containers fill the largest node, or use up the ceiling
}

// keepBelow notes what keeps a request below the amount that is wanted.
func (e *evaluation) keepBelow(p proposal, wanted int64) {
	r, name := p.resource, p.container.Name
	if ceiling := e.ceilings[r]; ceiling.left.fit(name, wanted) <= p.target {
		reason, message := ceiling.obstacle(name, wanted, r)
		e.keep(p, reason, message)
		return
	}
	e.keep(p, v1beta1.ReasonNodeCapacity, fmt.Sprintf(
		"%s is recommended, but no node has room for it beside the pod's other containers", r.Format(wanted)))
}

// moveOf says where a request moves and why, in one decision; no reason if it stays.
func (e *evaluation) moveOf(p proposal) move {
	m := move{container: p.container.Name, resource: p.resource, from: p.current}
	m.to, m.why = p.move()
	if m.why == model.DecidedLowerBound && e.avoidsRestart(p, m.to) {
		m.to, m.why = p.current, ""
	}
	m.to = stepTo(e.policy, p, m)
	return paced(e.policy, p, m)
}

// avoidsRestart reports whether restarting pods costs more than a little missing CPU.
func (e *evaluation) avoidsRestart(p proposal, to int64) bool {
	return e.policy.RollsOut() && !p.resource.IsMemory() && p.isClose(to)
}

// move says where a request moves if it may move all the way, and why; no reason if it
// stays.
func (p proposal) move() (to int64, why string) {
	current, target := p.current, p.target
	bounded := p.allowed.fit(current)
	switch {
	case current == target:
		return current, ""
	case p.resource.IsMemory() && current < min(p.rec.OOMFloor, target):
		return target, model.DecidedOOMKill
	case bounded != current:
		return p.towardsBound(bounded), model.DecidedBounds
	case current == 0:
		return target, model.DecidedScaleUp
	case current < min(p.lowerBound(), target):
		return target, model.DecidedLowerBound
	case p.isClose(target):
		return current, ""
	case current < target:
		return target, model.DecidedScaleUp
	case current > p.upperBound():
		return target, model.DecidedScaleDown
	}
	return current, ""
}

// towardsBound is where a request outside its bounds moves: to the target. But if it
// only has to drop to the largest allowed value, and the upper bound is not below that, it
// stops there: a bound is no evidence for a lower request. Neither is it while usage is
// missing, or if it only has to drop below a ceiling.
func (p proposal) towardsBound(bounded int64) int64 {
	isCeiling := p.unceiled.fit(p.current) == p.current
	if p.target < bounded && (isCeiling || p.lacksUsage || bounded <= p.upperBound()) {
		return bounded
	}
	return p.target
}

func (p proposal) lowerBound() int64 { return p.resource.Of(p.rec.LowerBound) }

func (p proposal) upperBound() int64 { return p.resource.Of(p.rec.UpperBound) }

// whenLowered says when there is enough evidence to lower the request, if usage stays as it is; empty if that
// is unknown. It counts the observed time from its beginning, so that it does not change with each
// reconcile.
func (p proposal) whenLowered() string {
	if p.target != p.resource.Of(p.rec.Target) || p.allowed.fit(math.MaxInt64) <= p.upperBound() {
		return "" // something else bounds it
	}
	enough := recommend.EvidenceToLower(p.current, p.target, p.upperBound(), p.rec.Observed, p.rec.Phase)
	if enough == 0 {
		return ""
	}
	return fmt.Sprintf(", after about %s of observed time", duration.HumanDuration(enough))
}

// isClose reports whether an amount is within the tolerance of the current request.
func (p proposal) isClose(to int64) bool { return !differs(p.current, to, p.tolerance) }

// differs reports whether two requests are further apart than the tolerance, as a share of the
// current one.
func differs(current, target int64, tolerance float64) bool {
	return math.Abs(float64(target-current)) > tolerance*float64(current)
}

// targetFor is what is recommended, as far as it is allowed. Without a recommendation it is
// the decision. 0 stands for neither.
func targetFor(s model.Situation, allowed bounds, container workload.Container, r model.Resource) int64 {
	rec, _ := s.Recommendation(container.Name)
	return allowed.fit(cmp.Or(r.Of(rec.Target), s.Decision.Request(container.Name, r)))
}

// currentRequest is the current request: as decided, or else the largest among the running
// pods (a lost status must not make a resized pod look small), or else the template's.
// isUnsettled reports whether no decision tells it, because a status was lost: the pods disagree, or a
// kubelet has not applied it, or nothing at all is decided and new pods would not get what the pods were resized to.
func currentRequest(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) (current int64, isUnsettled bool) {
	if v := s.Decision.Request(container.Name, r); v > 0 {
		return v, false
	}
	least := int64(math.MaxInt64)
	for _, c := range s.Running(policy, container.Name) {
		v := r.Request(c.Resources)
		current, least = max(current, v), min(least, v)
	}
	if current == 0 {
		return r.Request(container.Resources), false
	}
	inTemplate := cmp.Or(r.Request(container.Resources), r.Limit(container.Resources)) // as the API server defaults it
	newPodsLack := s.Decision == nil && policy.SizesNewPods && inTemplate > 0 && current != inTemplate && s.HasResized(policy)
	return current, least != current || newPodsLack || s.IsResizeOpen(policy, container.Name, r)
}
