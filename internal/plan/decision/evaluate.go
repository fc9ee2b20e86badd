// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"fmt"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// evaluation is what Decide knows once it has looked at every resource.
type evaluation struct {
	model.Situation

	policy    model.Policy
	stays     model.Requests // decided before and still managed
	moves     []move
	starts    []verification.Change // from what new pods of the template request, as far as it is allowed
	unmanaged model.Obstacles       // resources left alone although the policy controls them
	kept      model.Obstacles       // requests that stay although the target differs
	isKnown   bool                  // there is a recommendation
	controls  bool                  // there is something to manage
}

func evaluate(s model.Situation, policy model.Policy) *evaluation {
	e := &evaluation{Situation: s, policy: policy, stays: model.Requests{}}
	beside := s.Beside()
	for _, container := range s.Deployment.Containers {
		e.noteContainer(container)
	}
	for _, r := range model.Resources {
		c := ceilingsFor(s, policy, r)
		for _, q := range requestsFor(s, policy, r, beside, c) {
			e.evaluate(q, c)
		}
	}
	return e
}

// noteContainer notes whether a container is known, and why it is not managed.
func (e *evaluation) noteContainer(container workload.Container) {
	if container.Unreadable {
		e.leave("container "+container.Name, "its resources are outside the supported range and are not changed")
		return
	}
	_, hasHistory := e.Recommendation(container.Name)
	switch {
	case hasHistory:
		e.isKnown = true
	case len(e.Recommendations) >= recommend.MaxContainers && controlsAny(e.policy, container.Name):
		e.leave("container "+container.Name, fmt.Sprintf(
			"not managed, because a scaler manages at most %d containers; if that is intended, set mode Off for it in spec.resourcePolicy", recommend.MaxContainers))
	}
	for _, r := range model.Resources {
		if e.policy.Controls(container.Name, r) {
			e.controls = true
			if taken := e.TakenBy(container.Name, r); taken.Exists() {
				e.unmanaged = append(e.unmanaged, taken)
			}
		}
	}
}

// leave notes why a container is left alone until a user acts.
func (e *evaluation) leave(subject, message string) {
	e.unmanaged = append(e.unmanaged, model.Obstacle{Reason: v1beta1.ReasonRejected, Subject: subject, Message: message, Stalled: true})
}

func controlsAny(policy model.Policy, container string) bool {
	return slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return policy.Controls(container, r) })
}

// evaluate decides whether one request moves. Without a target, or while the other containers use up the ceiling,
// it does not.
func (e *evaluation) evaluate(q request, c ceilings) {
	if !q.isManaged {
		return
	}
	if q.resource.Boost(e.policy.Containers[q.container.Name]) == nil {
		e.starts = append(e.starts, verification.Change{Container: q.container.Name, Resource: q.resource, From: q.allowed.fit(templateRequest(q.container, q.resource))})
	}
	if q.ceiling > 0 {
		model.SetRequest(e.stays, q.container.Name, q.resource, e.Decision.Request(q.container.Name, q.resource))
	}
	if differs(q.target, q.wanted, q.tolerance) {
		reason, message := q.keptBelow(c)
		e.keep(q, reason, message)
	}
	if q.target > 0 {
		e.moveOrKeep(q)
	}
	switch has := q.resource.Format(q.current); q.climbEnd {
	case recommend.RaiseDidNotHelp:
		e.keep(q, v1beta1.ReasonRaiseDidNotHelp, fmt.Sprintf("larger sizes did not stop the OOM kills, so %s is not raised for now", has))
	case recommend.UsageFollowsLimit:
		e.keep(q, v1beta1.ReasonUsageFollowsLimit, fmt.Sprintf("usage grows with the limit%s, so %s is not raised for now", e.heapFlag(q), has))
	}
}

// heapFlag is the flag that sets the heap, in parentheses; empty for none.
func (e *evaluation) heapFlag(q request) string {
	if flag := e.Deployment.Heaps[q.container.Name].Flag; flag != "" {
		return " (" + flag + ")"
	}
	return ""
}

func (e *evaluation) moveOrKeep(q request) {
	m := move{container: q.container.Name, resource: q.resource, from: q.current, isUnsettled: q.isUnsettled}
	m.to, m.why = q.move()
	m.to = stepTo(e.policy, q, m)
	m, reverted := skipKnownBad(e.RevertedChanges, e.paced(q, m))
	if reverted != nil && q.isClose(m.to) {
		if !q.isUnsettled {
			e.keep(q, v1beta1.ReasonChangeReverted, fmt.Sprintf(
				"stays, because %s was reverted (%s); it is tried again with twice as much usage history, after a week, or when the scaler is edited",
				q.resource.Format(reverted.Value), reverted.Evidence))
			return
		}
		m = m.adopting()
	}
	switch { // decided, although the request stays the same
	case m.why != "":
	case limitsAreOff(e.Situation, e.policy, q.container, q.current, q.resource):
		m.why = model.DecidedBounds
	case q.isUnsettled:
		m.why = model.DecidedAdopted
	}
	switch has, needs := q.resource.Format(q.current), q.resource.Of(q.rec.Target); {
	case m.why != "":
		e.moves = append(e.moves, m)
	case q.isClose(needs):
	case q.isWhole:
		e.keep(q, v1beta1.ReasonWithinBounds, fmt.Sprintf("%s stays beside a target of %s, because the container has whole CPUs", has, q.resource.Format(needs)))
	case needs < q.floor && q.current <= q.floor:
		e.keep(q, v1beta1.ReasonWithinBounds, fmt.Sprintf("%s stays beside a target of %s%s", has, q.resource.Format(needs), q.whyFloor))
	case q.isClose(q.target):
	case q.current > q.target:
		e.keep(q, v1beta1.ReasonWithinBounds, fmt.Sprintf("%s stays until the upper bound of %s falls below it%s", has, q.resource.Format(q.upperBound()), q.whenLowered(q.resource.Of(e.policy.Containers[q.container.Name].MaxAllowed))))
	}
}

// keep notes why a request does not get its target.
func (e *evaluation) keep(q request, reason, message string) {
	e.kept = append(e.kept, model.Obstacle{Reason: reason, Subject: q.subject(), Message: message})
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
		kept := e.kept.Verdict()
		if kept.Reason == v1beta1.ReasonWithinBounds { // it is as it should be
			kept.State = model.Applied
		}
		return kept
	case !isDecided:
		return model.Applied.Because(v1beta1.ReasonWithinTolerance, "The current requests are within the tolerance of the recommendation")
	}
	return model.Verdict{}
}
