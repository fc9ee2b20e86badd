// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// evaluation has the findings of Decide about every resource.
type evaluation struct {
	model.Situation

	policy    model.Policy
	rows      row.Table
	stays     model.Requests // decided before and still managed
	moves     []move
	starts    []request       // those that start in new pods as in the template
	unmanaged model.Obstacles // resources left alone although the policy controls them
	kept      model.Obstacles // requests that stay although the target differs
	isKnown   bool            // there is a recommendation
	controls  bool            // there is something to manage
}

func evaluate(s model.Situation, policy model.Policy, rows row.Table) *evaluation {
	e := &evaluation{Situation: s, policy: policy, rows: rows, stays: model.Requests{}}
	beside := s.Beside()
	for i := range rows.Containers {
		e.noteContainer(&rows.Containers[i])
	}
	for _, r := range model.Resources {
		for _, q := range e.requestsFor(r, beside) {
			e.evaluate(q)
		}
	}
	return e
}

// noteContainer notes whether a container is known, and why it is not managed.
func (e *evaluation) noteContainer(c *row.Container) {
	if c.Unreadable {
		e.leave(c, "its resources are outside the supported range and are not changed")
		return
	}
	controls := false
	for _, q := range c.Rows {
		controls = controls || q.IsControlled
		if q.IsControlled && q.TakenBy.Exists() {
			e.unmanaged = append(e.unmanaged, q.TakenBy)
		}
	}
	e.isKnown, e.controls = e.isKnown || c.IsKnown, e.controls || controls
	if !c.IsKnown && controls && len(e.Recommendations) >= recommend.MaxContainers {
		e.leave(c, "not managed, because a scaler manages at most %d containers; if that is intended, set mode Off for it in spec.resourcePolicy", recommend.MaxContainers)
	}
}

func (e *evaluation) leave(c *row.Container, format string, args ...any) {
	e.unmanaged = append(e.unmanaged, model.Stall(v1beta1.ReasonRejected, format, args...).On("container "+c.Name))
}

// evaluate decides whether one request moves. Without a target, or while the other containers use up the ceiling, it does not.
func (e *evaluation) evaluate(q request) {
	if !q.IsManaged {
		return
	}
	if q.Resource.Boost(q.container.Policy) == nil {
		e.starts = append(e.starts, q)
	}
	if q.ceiling > 0 {
		model.SetRequest(e.stays, q.container.Name, q.Resource, q.decided)
	}
	if differs(q.target, q.wanted, q.tolerance) {
		e.kept = append(e.kept, q.keptBelow(e.rows.Ceilings[q.Resource]).On(q.subject()))
	}
	if q.target > 0 {
		e.moveOrKeep(q)
	}
	switch has := q.Resource.Format(q.current); q.climbEnd {
	case "":
		if q.current == q.unceiled.Most && q.oomFloor() > q.current && e.wasKilled(q.container.Name) {
			e.kept = append(e.kept, model.Stall(v1beta1.ReasonBoundTooLow, "an OOM kill has shown that %s is not enough, and %s allows no more", has, q.upperBoundName()).On(q.subject()))
		}
	case recommend.RaiseDidNotHelp:
		e.keep(q, v1beta1.ReasonRaiseDidNotHelp, "larger sizes did not stop the OOM kills, so %s is not raised for now", has)
	case recommend.UsageFollowsLimit:
		e.keep(q, v1beta1.ReasonUsageFollowsLimit, "usage grows with the limit%s, so %s is not raised for now", q.heapFlag(), has)
	}
}

// wasKilled reports whether the container was OOM-killed in a pod at the size that it has there: its limit, or its request
// without one.
func (e *evaluation) wasKilled(container string) bool {
	return slices.ContainsFunc(e.Pods, func(pod workload.Pod) bool {
		has := pod.Applied(container)
		size := cmp.Or(has.Limits.MemoryBytes, has.Requests.MemoryBytes)
		return slices.ContainsFunc(pod.Kills, func(kill workload.OOMKill) bool {
			return kill.Container == container && kill.HitBytes >= size && kill.At.After(pod.Resized.Add(model.KillSkew))
		})
	})
}

// upperBoundName names what bounds a request from above, apart from the ceilings.
func (q request) upperBoundName() string {
	if q.unceiled.Most == q.MaxAllowed {
		return "maxAllowed"
	}
	return "a LimitRange, or a limit that stays,"
}

// heapFlag is the flag that sets the heap, in parentheses; empty for none.
func (q request) heapFlag() string {
	if flag := q.container.Heap.Flag; flag != "" {
		return " (" + flag + ")"
	}
	return ""
}

func (e *evaluation) moveOrKeep(q request) {
	m := move{container: q.container.Name, resource: q.Resource, from: q.current, isUnsettled: q.isUnsettled}
	m.to, m.why = q.move()
	m.to = stepTo(e.policy, q, m)
	m, reverted := skipKnownBad(e.RevertedChanges, e.paced(q, m))
	if reverted != nil && q.isClose(m.to) {
		if !q.isUnsettled {
			e.keep(q, v1beta1.ReasonChangeReverted,
				"stays, because %s was reverted (%s); it is tried again with twice as much usage history, after a week, or when the scaler is edited",
				q.Resource.Format(reverted.Value), reverted.Evidence)
			return
		}
		m = m.adopting()
	}
	switch { // decided, although the request stays the same
	case m.why != "":
	case e.limitsAreOff(q):
		m.why = model.DecidedBounds
	case q.isUnsettled:
		m.why = model.DecidedAdopted
	}
	switch has, needs := q.Resource.Format(q.current), q.Resource.Of(q.container.Recommendation.Target); {
	case m.why != "":
		e.moves = append(e.moves, m)
	case q.isClose(needs):
	case q.isWhole:
		e.keep(q, v1beta1.ReasonWithinBounds, "%s stays beside a target of %s, because the container has whole CPUs", has, q.Resource.Format(needs))
	case needs < q.floor && q.current <= q.floor:
		e.keep(q, v1beta1.ReasonWithinBounds, "%s stays beside a target of %s%s", has, q.Resource.Format(needs), q.whyFloor)
	case q.isClose(q.target):
	case q.current > q.target:
		e.keep(q, v1beta1.ReasonWithinBounds, "%s stays until the upper bound of %s falls below it%s", has, q.Resource.Format(q.upperBound()), q.whenLowered(q.Resource.Of(q.container.Policy.MaxAllowed)))
	}
}

func (e *evaluation) keep(q request, reason, format string, args ...any) {
	e.kept = append(e.kept, model.Wait(reason, format, args...).On(q.subject()))
}

func (e *evaluation) remark(isDecided bool) model.Verdict {
	switch {
	case len(e.unmanaged) > 0:
		return e.unmanaged.Verdict()
	case !e.controls:
		return model.Waiting.Because(v1beta1.ReasonNothingControlled, "The resource policy leaves nothing to manage")
	case !e.isKnown && !isDecided:
		return model.Waiting.Because(v1beta1.ReasonLearning, "There is no recommendation yet")
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

// limitsAreOff reports whether a limit is not what its own policy requires, although no decision has
// set the request that it follows.
func (e *evaluation) limitsAreOff(q request) bool {
	r, c := q.Resource, q.container
	isOff := func(has workload.Resources) bool { return r.Limit(c.Resize(has, r.Alone(q.current))) != r.Limit(has) }
	switch {
	case c.Policy.Limits == model.LimitsStay, c.Policy.LimitPolicy == model.LimitPolicy{}, q.current == 0, q.decided > 0:
		return false
	case !e.policy.InPlace(): // new pods are created from the template
		return isOff(c.Resources)
	}
	return slices.ContainsFunc(c.Running, func(running row.Instance) bool { return isOff(running.Resources) })
}
