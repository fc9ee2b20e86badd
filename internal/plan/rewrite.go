// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// rewriting is what the Deployment's pod template shall be.
type rewriting struct {
	owned   []Size // what we own of each container
	wanted  []Size // all of each container that we own something of
	hold    []Held // what has to be recorded as held for that
	changes bool
	blocked note
}

// rewrite plans the next change of the Deployment's pod template.
func (p Plan) rewrite(s Situation, policy Policy, now time.Time) Plan {
	t := rewritingOf(s, policy, *p.Decision)
	p.PodsAtSize = podsAt(s, t.owned)
	next := *p.Decision
	var c Contest
	if t.changes && next.Reverts >= maxReverts {
		c = contested(s, policy, next, now)
		if next.released(s.Writers, c) {
			next = *next.uncontested()
			p.Decision = &next
		}
	}
	urgent := (next.Reason == DecidedOOMKill || next.Reason == DecidedPutBack) && !next.wasWritten()
	switch {
	case !t.changes:
		if !next.Written {
			next.Written = true
			p.Decision = &next
		}
		return p.rolledOut(s, policy, now)
	case next.Reverts >= maxReverts:
		return p.contest(s, c)
	case t.blocked.reason != "":
		p.Stalled = t.blocked.stalled
		return p.because(t.blocked.reason, t.blocked.message)
	case s.Deployment.Paused:
		return p.because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: its pod template is left alone until it is resumed")
	case s.Deployment.RollingOut && !urgent && !breaksBounds(s):
		// Pods that are killed for want of memory never become available, those that a
		// LimitRange refuses are never made, and a rollout that waits for them never ends:
		// it must not hold up what helps them.
		return p.because(v1beta1.ReasonRolloutInProgress, "Another rollout of the Deployment is in progress")
	}
	if open, in := t.windowFor(s, policy, next, now); !open {
		p.RequeueAfter = in
		return p.because(v1beta1.ReasonOutsideWindow, "The Deployment rolls out the decided size in the next of updatePolicy.windows")
	}
	if no := rolloutOverQuota(s, t.wanted); no.reason != "" {
		p.Stalled, p.RequeueAfter = no.stalled, quotaRetry
		return p.because(no.reason, no.message)
	}
	if len(t.hold) == 0 {
		next.Written = true
		p.Decision = &next
	}
	p.Rewrite = &Rewrite{UID: s.Deployment.UID, ResourceVersion: s.Deployment.ResourceVersion, Sizes: t.owned, Hold: t.hold}
	p.Changing = true
	return p.because(v1beta1.ReasonRollingOut, "The Deployment rolls out the decided size")
}

// breaksBounds says that a LimitRange allows no pod as the template is.
func breaksBounds(s Situation) bool {
	var sizes []Size
	for _, c := range s.Deployment.Containers {
		sizes = append(sizes, Size{Container: c.Name, Resources: c.Resources})
	}
	return outOfBounds(s.Deployment.Containers, sizes, s.Bounds) != ""
}

// rolledOut tells how far the Deployment is with a template that is as decided.
func (p Plan) rolledOut(s Situation, policy Policy, now time.Time) Plan {
	switch {
	case s.Deployment.RollingOut && s.Deployment.Paused:
		return p.because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: its pods get the decided size once it is resumed")
	case s.Deployment.RollingOut:
		p.Changing = true
		return p.because(v1beta1.ReasonRollingOut, "The Deployment rolls out the decided size")
	}
	if p.Decision.Trial != nil {
		var over bool
		if p, over = p.watch(s, policy, now); over {
			p.Decision = p.Decision.on(nil)
		}
	}
	p.Applied = true
	return p.because(v1beta1.ReasonApplied, "The Deployment's pod template has the decided size")
}

func rewritingOf(s Situation, policy Policy, d Decision) (t rewriting) {
	for _, c := range s.Deployment.Containers {
		before, isHeld := heldOf(s.Held, c.Name)
		if c.Unreadable {
			if isHeld {
				// An apply without what we own of it would remove that.
				t.blocked = note{
					reason:  v1beta1.ReasonRejected,
					message: fmt.Sprintf("Container %s has resources outside the believable range: correct them in the Deployment", c.Name),
					stalled: true,
				}
			}
			continue
		}
		own, want, hold := templateSizes(c, s, policy, d.Requests[c.Name])
		if own != (workload.Resources{}) {
			t.owned = append(t.owned, Size{Container: c.Name, Resources: own})
			t.wanted = append(t.wanted, Size{Container: c.Name, Resources: want})
		}
		t.changes = t.changes || want != c.Resources
		if hold != before {
			t.hold = append(t.hold, hold)
		}
	}
	if s.Deployment.PodLevelResources && t.blocked.reason == "" {
		t.blocked = note{reason: v1beta1.ReasonUnsupported, message: "The Deployment declares resources for its pods as a whole, which are not managed", stalled: true}
	}
	if message := outOfBounds(withDefaults(withSizes(s.Deployment.Containers, t.wanted), s.Bounds), t.wanted, s.Bounds); message != "" && t.blocked.reason == "" {
		t.blocked = note{reason: v1beta1.ReasonLimitRange, message: message, stalled: true}
	}
	return t
}

// templateSizes is what we own of a template's container, what the container shall
// look like with it, and what must be recorded as held for that.
//
// A value once taken over stays ours until it is given back: sending an apply
// without it would remove it. So what is no longer decided is sent as it was found.
func templateSizes(c workload.Container, s Situation, policy Policy, requests quantity.Amounts) (own, want workload.Resources, hold Held) {
	want = cutFor(s, policy, c).sized(c.Resources, requests)
	hold, _ = heldOf(s.Held, c.Name)
	for _, r := range resources {
		decided := r.of(requests) > 0
		switch {
		case decided && !hold.holds(r):
			hold.take(r, c.Resources)
		case !decided && hold.holds(r):
			r.set(&want.Requests, r.of(hold.Requests))
			r.set(&want.Limits, r.of(hold.Limits))
		}
		if hold.holds(r) {
			r.set(&own.Requests, r.of(want.Requests))
			r.set(&own.Limits, r.of(want.Limits))
		}
	}
	if hold.CPU || hold.Memory {
		hold.Container = c.Name
	}
	return own, want, hold
}

func (h *Held) take(r resource, found workload.Resources) {
	r.set(&h.Requests, r.of(found.Requests))
	r.set(&h.Limits, r.of(found.Limits))
	if r.name == "cpu" {
		h.CPU = true
	} else {
		h.Memory = true
	}
}

// withDefaults fills in what is not set, as far as it is known what new pods get: a
// request from its limit, and a limit from the LimitRange.
func withDefaults(containers []workload.Container, bounds workload.Bounds) []workload.Container {
	out := slices.Clone(containers)
	for i, c := range containers {
		for _, r := range resources {
			r.set(&out[i].Requests, cmp.Or(r.of(c.Requests), r.of(c.Limits)))
			r.set(&out[i].Limits, cmp.Or(r.of(c.Limits), r.of(bounds.ContainerDefault)))
		}
	}
	return out
}

// podsAt counts the pods that carry all that we own of the template. What we do not
// own may differ: a LimitRange fills it in.
func podsAt(s Situation, owned []Size) (n int) {
	for _, pod := range s.Pods {
		if counts(pod) && !slices.ContainsFunc(owned, func(size Size) bool { return !carries(pod, size) }) {
			n++
		}
	}
	return n
}

func carries(pod workload.Pod, size Size) bool {
	c, ok := pod.Container(size.Container)
	for _, r := range resources {
		request, limit := r.of(size.Requests), r.of(size.Limits)
		ok = ok && (request == 0 || request == r.of(c.Requests)) && (limit == 0 || limit == r.of(c.Limits))
	}
	return ok
}

// holdsInVain says that something is held, but nothing that is still managed.
func holdsInVain(s Situation, policy Policy) bool {
	for _, h := range s.Held {
		for _, r := range resources {
			if h.holds(r) && policy.controls(h.Container, r) && takenBy(s, h.Container, r).reason == "" {
				return false
			}
		}
	}
	return len(s.Held) > 0
}
