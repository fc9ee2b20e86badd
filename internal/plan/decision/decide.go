// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decision decides what to request: one request per container and resource. A request changes only where the
// recommendation has left the tolerance, the bounds or the cooldown. Package step brings the pods there.
package decision

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// urgency orders the reasons of a decision.
var urgency = map[string]int{
	model.DecidedOOMKill:    7,
	model.DecidedReverted:   6,
	model.DecidedBounds:     5,
	model.DecidedLowerBound: 4,
	model.DecidedScaleUp:    3,
	model.DecidedScaleDown:  2,
	model.DecidedAdopted:    1,
}

// Outcome is the result of Decide.
type Outcome struct {
	// Decision is the decision, new or not; nil for none.
	Decision *model.Decision
	// Decided is true if Decision is new.
	Decided bool
	// Remark says why nothing, or nothing more, is decided, and when a deferred change is due; empty if there is nothing to say.
	Remark model.Verdict
	// Unmanaged says which resources are left alone although the policy controls them, for example
	// because an HPA scales on them; empty if none is.
	Unmanaged model.Verdict
}

// Decide changes the decision where the recommendation asks for it.
//
// A resource changes when its request
//   - is below the floor of an OOM kill, outside the allowed bounds, or below the lower bound: at once. A demand of minAllowed
//     alone is met in steps. CPU in the mode Rollout, which restarts pods, changes only by more than the tolerance;
//   - is below the target by more than the tolerance: after the cooldown, inside a window;
//   - is above the upper bound, and above the target by more than the tolerance:
//     after the cooldown, inside a window, and while the usage of all running pods is known.
//     The upper bound is wide while there is little history, so that lowering waits for
//     evidence.
//
// All other requests stay as decided. A change that is made at once does not bring along the changes that must wait.
func Decide(s model.Situation, policy model.Policy, rows row.Table, now time.Time) Outcome {
	s.Decision = s.Decision.NotAfter(now)
	e := evaluate(s, policy, rows)
	ready, deferred := split(s, policy, e.moves, now)
	ready = deferLowering(s, policy, ready, now)
	out := Outcome{Decision: e.Decision.Only(e.stays), Unmanaged: e.unmanaged.Verdict()}
	switch {
	case len(ready) > 0:
		out.Decision, out.Decided, out.Remark = e.decide(ready, now), true, out.Unmanaged
	case len(deferred) > 0:
		out.Remark = deferredVerdict(deferred).AlsoNoting(out.Unmanaged)
	default:
		out.Remark = e.remark(out.Decision != nil)
	}
	out.Decision = e.onTrial(out.Decision, now)
	return out
}

// onTrial is the decision with its verification on pods of a new revision. The usage of an older revision is not proof that a
// new one needs no more. So its first pods are lowered like those of a new decision, until one has run with less than its
// template, or old pods with less stay. A startup boost ends without that.
func (e *evaluation) onTrial(d *model.Decision, now time.Time) *model.Decision {
	v := d.Verifying()
	if d == nil || !e.policy.InPlace() || v != nil && v.ObservedSince.IsZero() && v.FirstPodsVerified.IsZero() {
		return d
	}
	isReady := false
	for _, pod := range e.Pods {
		if !e.IsActive(e.policy, pod) {
			continue
		}
		if slices.ContainsFunc(e.starts, func(q request) bool { return isBelowTemplate(pod, q) }) {
			return d
		}
		isReady = isReady || pod.Ready
	}
	if !isReady {
		return d
	}
	var changes []verification.Change // from what new pods request, as far as it is allowed
	for _, q := range e.starts {
		if d.Request(q.container.Name, q.Resource) > 0 {
			changes = append(changes, verification.Change{Container: q.container.Name, Resource: q.Resource, From: q.allowed.Fit(q.Template)})
		}
	}
	next := e.Situation
	next.Decision = nil
	if trial := verification.Begin(next, e.policy, d, changes, now); trial != nil {
		return d.WithVerification(trial)
	}
	return d
}

func isBelowTemplate(pod workload.Pod, q request) bool {
	has, _ := pod.Container(q.container.Name)
	return q.Resource.Request(has.Resources) < q.Template
}

func (e *evaluation) decide(moves []move, now time.Time) *model.Decision {
	d := &model.Decision{Time: now, Requests: e.stays}
	reasons := []string{revertedNow(e.Decision, now)}
	for _, m := range moves {
		reasons = append(reasons, m.why)
	}
	d.Reason = slices.MaxFunc(reasons, func(a, b string) int { return cmp.Compare(urgency[a], urgency[b]) })
	if last := e.Decision; last != nil { // the same controller may undo the next decision, too
		d.Reverts, d.LastRevert, d.ContestedBy = last.Reverts, last.LastRevert, last.ContestedBy
		d.MemoryRaised = maps.Clone(last.MemoryRaised)
	}
	for _, m := range moves {
		model.SetRequest(d.Requests, m.container, m.resource, m.to)
	}
	d.Verification = verification.Begin(e.Situation, e.policy, d, e.verifiable(moves), now)
	return d
}

// verifiable are the changes that need verification: those that take something from pods,
// and in the mode Rollout all that usage asks for, because they replace pods.
func (e *evaluation) verifiable(moves []move) (out []verification.Change) {
	verified := map[string]bool{
		model.DecidedScaleDown:  true,
		model.DecidedScaleUp:    e.policy.RollsOut(),
		model.DecidedLowerBound: e.policy.RollsOut(),
	}
	for _, m := range moves {
		if verified[m.why] {
			out = append(out, verification.Change{Container: m.container, Resource: m.resource, From: m.from})
		}
	}
	return out
}

// move is one request that is to be changed.
type move struct {
	container string
	resource  model.Resource
	from, to  int64
	why       string // the reason of the decision; empty if the request stays
	// isUnsettled is true if no decision tells the request so far, and that pods, or new ones, do not have it.
	isUnsettled bool
	// isPaced is true if only minAllowed demands the move.
	isPaced bool
}

// adopting is the move that decides what the pods were asked for, and changes no request.
func (m move) adopting() move {
	m.to, m.why = m.from, model.DecidedAdopted
	return m
}

// revertedNow is the reason of the decision if it is a revert of this moment.
func revertedNow(d *model.Decision, now time.Time) string {
	if d.HasReason(model.DecidedReverted) && d.Time.Equal(now) {
		return d.Reason
	}
	return ""
}
