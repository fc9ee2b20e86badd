// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The reasons of a decision. The first that applies names it.
const (
	DecidedOOMKill    = "OOMKill"    // memory is below the floor that an OOM kill has set
	DecidedBounds     = "Bounds"     // a request is outside minAllowed, maxAllowed or the LimitRange
	DecidedLowerBound = "LowerBound" // a request is below the lower bound: usage asks for more now
	DecidedRaise      = "Raise"      // a request is below its target
	DecidedLower      = "Lower"      // a request is above its upper bound
)

// urgency orders the reasons, and tells which of them wait for the cooldown.
var urgency = map[string]int{DecidedOOMKill: 5, DecidedBounds: 4, DecidedLowerBound: 3, DecidedRaise: 2, DecidedLower: 1}

func waitsForCooldown(reason string) bool { return urgency[reason] <= urgency[DecidedRaise] }

// resource is one of the two resources, with the accessors that let one rule
// serve both.
type resource struct {
	name   string
	of     func(quantity.Amounts) int64
	set    func(*quantity.Amounts, int64)
	format func(int64) string
}

var resources = []resource{
	{
		name:   "cpu",
		of:     func(a quantity.Amounts) int64 { return a.CPUMillis },
		set:    func(a *quantity.Amounts, v int64) { a.CPUMillis = v },
		format: quantity.FormatCPU,
	},
	{
		name:   "memory",
		of:     func(a quantity.Amounts) int64 { return a.MemoryBytes },
		set:    func(a *quantity.Amounts, v int64) { a.MemoryBytes = v },
		format: quantity.FormatMemory,
	},
}

// decided is what decide found.
type decided struct {
	decision        *Decision
	decided         bool
	reason, message string // why nothing (more) is decided
	stalled         bool
	wait            time.Duration // the rest of the cooldown that a change waits for
}

// decide moves the decision where the recommendation asks for it.
//
// A resource moves when its request
//   - is below the floor of an OOM kill, outside the allowed bounds, or below the
//     lower bound: at once;
//   - is below the target by more than the tolerance: after the cooldown;
//   - is above the upper bound, and above the target by more than the tolerance:
//     after the cooldown. The upper bound is wide while evidence is thin, so that
//     lowering waits for evidence.
//
// What does not move stays as it was decided.
func decide(s Situation, policy Policy, now time.Time) decided {
	next := map[string]quantity.Amounts{}
	var (
		held           notes // resources left alone although they are managed
		kept           notes // resources that stay although the target differs
		moves          []string
		known, managed bool
	)
	reason := ""
	for _, container := range s.Deployment.Containers {
		if container.Unreadable {
			held.add(v1beta1.ReasonRejected, "container "+container.Name, "its resources are outside the believable range and left alone", true)
			continue
		}
		rec, ok := recommendationFor(s.Recommendations, container.Name)
		known = known || ok
		for _, r := range resources {
			if !policy.controls(container.Name, r) {
				continue
			}
			managed = true
			if hpa := scaledBy(s.Scaled, r); hpa != "" {
				held.add(v1beta1.ReasonHPAConflict, r.name,
					fmt.Sprintf("left alone, since HorizontalPodAutoscaler %s scales on its utilization", hpa), false)
				continue
			}
			target := fitted(r.of(rec.Target), r, policy.Containers[container.Name], s.Bounds)
			if !ok || target == 0 {
				if old := s.Decision.request(container.Name, r); old > 0 {
					set(next, container.Name, r, old)
				}
				continue
			}
			current := currentRequest(s, container, r)
			why := moveOf(current, target, rec, r, policy, container.Name, s.Bounds)
			if why == "" {
				if current > 0 {
					set(next, container.Name, r, keptRequest(s, container.Name, r, current))
				}
				if current > target && differs(current, target, policy.Tolerance) {
					kept.add(v1beta1.ReasonWithinBounds, container.Name+" "+r.name,
						fmt.Sprintf("%s stays until the upper bound of %s falls below it", r.format(current), r.format(r.of(rec.UpperBound))), false)
				}
				continue
			}
			set(next, container.Name, r, target)
			moves = append(moves, why)
			if urgency[why] > urgency[reason] {
				reason = why
			}
		}
	}

	out := decided{decision: s.Decision.without(next)}
	switch {
	case !managed:
		out.decision = nil
		out.reason, out.message = v1beta1.ReasonNothingControlled, "The resource policy leaves nothing to manage"
	case reason == "":
		out.reason, out.message, out.stalled = held.tell()
		if out.reason == "" && !known {
			out.reason, out.message = v1beta1.ReasonNoRecommendation, "There is no recommendation yet"
		}
		if out.reason == "" {
			out.reason, out.message, _ = kept.tell()
		}
		if out.reason == "" && out.decision == nil {
			out.reason, out.message = v1beta1.ReasonWithinTolerance, "The requests in force are close enough to the recommendation"
		}
	default:
		if left := cooldownLeft(s.Decision, policy.Cooldown, now); left > 0 && waitsForCooldown(reason) {
			out.wait = left
			out.reason, out.message = v1beta1.ReasonInCooldown,
				fmt.Sprintf("The next change (%s) waits until %s after the last one", strings.Join(unique(moves), ", "), policy.Cooldown)
			break
		}
		out.decision = &Decision{Time: now, Reason: reason, Requests: next}
		out.decided = true
		out.reason, out.message, out.stalled = held.tell()
	}
	return out
}

// moveOf says why a request is to be moved to the target, or "" if it is not.
func moveOf(current, target int64, rec recommend.Container, r resource, policy Policy, container string, bounds workload.Bounds) string {
	p := policy.Containers[container]
	switch {
	case current == target:
		return ""
	case r.name == "memory" && rec.OOMFloor > 0 && current < rec.OOMFloor && current < target:
		return DecidedOOMKill
	case current > 0 && fitted(current, r, p, bounds) != current:
		return DecidedBounds
	case current == 0 && target > 0:
		return DecidedRaise
	case current < r.of(rec.LowerBound) && current < target:
		return DecidedLowerBound
	case !differs(current, target, policy.Tolerance):
		return ""
	case current < target:
		return DecidedRaise
	case current > r.of(rec.UpperBound):
		return DecidedLower
	}
	return ""
}

// differs says whether two requests are further apart than the tolerance, as a
// share of the current one.
func differs(current, target int64, tolerance float64) bool {
	return math.Abs(float64(target-current)) > tolerance*float64(current)
}

// currentRequest is the request in force: as decided, else the largest among the
// running pods (a lost status must not make a resized pod look small), else the
// template's.
func currentRequest(s Situation, container workload.Container, r resource) int64 {
	if v := s.Decision.request(container.Name, r); v > 0 {
		return v
	}
	var most int64
	for _, pod := range s.Pods {
		if c, ok := pod.Container(container.Name); ok && counts(pod) && !c.Unreadable {
			most = max(most, r.of(c.Requests))
		}
	}
	if most > 0 {
		return most
	}
	return r.of(container.Requests)
}

// keptRequest is what the decision says about a request that does not move. Until
// the first decision moves it, a request stays out of the decision: pods keep what
// their template gave them.
func keptRequest(s Situation, container string, r resource, current int64) int64 {
	if s.Decision.request(container, r) > 0 {
		return current
	}
	return 0
}

// fitted clamps an amount to what the policy and the LimitRange allow. The
// LimitRange wins: the API server enforces it.
func fitted(v int64, r resource, p ContainerPolicy, bounds workload.Bounds) int64 {
	if v == 0 {
		return 0
	}
	for _, b := range []struct{ least, most int64 }{
		{r.of(p.MinAllowed), r.of(p.MaxAllowed)},
		{r.of(bounds.ContainerMin), r.of(bounds.ContainerMax)},
	} {
		v = max(v, b.least)
		if b.most > 0 {
			v = min(v, b.most)
		}
	}
	return v
}

func (p Policy) controls(container string, r resource) bool {
	c := p.Containers[container]
	if r.name == "cpu" {
		return c.CPU
	}
	return c.Memory
}

func scaledBy(s workload.Scaled, r resource) string {
	if r.name == "cpu" {
		return s.CPU
	}
	return s.Memory
}

func recommendationFor(recs []recommend.Container, container string) (recommend.Container, bool) {
	for _, rec := range recs {
		if rec.Name == container {
			return rec, true
		}
	}
	return recommend.Container{}, false
}

func set(m map[string]quantity.Amounts, container string, r resource, v int64) {
	if v == 0 {
		return
	}
	a := m[container]
	r.set(&a, v)
	m[container] = a
}

func (d *Decision) request(container string, r resource) int64 {
	if d == nil {
		return 0
	}
	return r.of(d.Requests[container])
}

// without is the decision less what is no longer managed: containers that are gone,
// resources that the policy or an HPA has taken out.
func (d *Decision) without(still map[string]quantity.Amounts) *Decision {
	if d == nil || len(still) == 0 {
		return nil
	}
	left := *d
	left.Requests = map[string]quantity.Amounts{}
	for name, a := range still {
		for _, r := range resources {
			if d.request(name, r) > 0 && r.of(a) > 0 {
				set(left.Requests, name, r, d.request(name, r))
			}
		}
	}
	if len(left.Requests) == 0 {
		return nil
	}
	return &left
}

func cooldownLeft(last *Decision, cooldown time.Duration, now time.Time) time.Duration {
	if last == nil {
		return 0
	}
	left := last.Time.Add(cooldown).Sub(now)
	// A clock that was set back must not hold changes up for longer than asked.
	return min(left, cooldown)
}

func unique(words []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, w := range words {
		if !seen[w] {
			seen[w] = true
			out = append(out, w)
		}
	}
	sort.Strings(out)
	return out
}
