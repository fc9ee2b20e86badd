// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// Pace: when a request may move, and how far in one decision. What is urgent does not
// wait, and goes at once as far as it is urgent.

// waits tells the reasons that can wait from those that cannot.
func waits(reason string) bool { return reason == DecidedRaise || reason == DecidedLower }

// direction is what the policy says of the moves of one direction.
func (p Policy) direction(d window.Direction) Direction {
	if d == window.ScaleUp {
		return p.Raise
	}
	return p.Lower
}

// cooldown is the least time between the last decision and a move of a direction.
func (p Policy) cooldown(d window.Direction) time.Duration {
	if own := p.direction(d).Cooldown; own != nil {
		return *own
	}
	return p.Cooldown
}

// waiting is a move that has to wait, and what for.
type waiting struct {
	reason  string // of the decision
	because string // one of the reasons of the condition Applied
	message string
	left    time.Duration // 0 for ever
}

// split tells the moves that can be made at once from those that wait for the cooldown or
// for a window.
func (p Policy) split(moves []move, last *Decision, now time.Time) (ready []move, later []waiting) {
	for _, m := range moves {
		if w := p.waitOf(m, last, now); w.because != "" {
			later = append(later, w)
		} else {
			ready = append(ready, m)
		}
	}
	return ready, later
}

// waitOf says what a move waits for: whichever of the two takes longer.
func (p Policy) waitOf(m move, last *Decision, now time.Time) (w waiting) {
	if !waits(m.why) {
		return w
	}
	d := window.Direction(m.why)
	if d == window.ScaleDown && last.trial() != nil {
		return waiting{m.why, v1beta1.ReasonVerifying, "waits until the last one has been watched for long enough", 0}
	}
	cooldown := p.cooldown(d)
	if left := cooldownLeft(last, cooldown, now); left > 0 {
		w = waiting{m.why, v1beta1.ReasonInCooldown, fmt.Sprintf("waits until %s after the last one", cooldown), left}
	}
	if open, in := p.Windows.Opens(d, now); !open && (in == 0 || in > w.left) {
		w = waiting{m.why, v1beta1.ReasonOutsideWindow, "waits for the next of updatePolicy.windows", in}
	}
	return w
}

// tellWaiting sums up what waits. The reason is that of what comes first.
func tellWaiting(list []waiting) (reason, message string, left time.Duration) {
	reasons := map[string][]string{} // of decisions, by what they wait for
	first := list[0]
	for _, w := range list {
		reasons[w.message] = append(reasons[w.message], w.reason)
		if left = sooner(left, w.left); left == w.left && w.left > 0 {
			first = w
		}
	}
	var parts []string
	for what, of := range reasons {
		slices.Sort(of)
		parts = append(parts, fmt.Sprintf("(%s) %s", strings.Join(slices.Compact(of), ", "), what))
	}
	slices.Sort(parts)
	return first.because, "The next change " + strings.Join(parts, "; "), left
}

func cooldownLeft(last *Decision, cooldown time.Duration, now time.Time) time.Duration {
	if last == nil {
		return 0
	}
	return max(0, last.Time.Add(cooldown).Sub(now))
}

// stepTo is how far a request moves at once: all the way, or as far as the step limit of
// its direction allows. What is urgent goes as far as it is urgent: to the lower bound, or
// to what is allowed; and after an OOM kill all the way.
func (p Policy) stepTo(current, to int64, why string, rec recommend.Container, r resource, allowed spans) int64 {
	urgent := current
	switch why {
	case DecidedBounds:
		urgent = allowed.fit(current)
	case DecidedLowerBound:
		urgent = r.of(rec.LowerBound)
	case DecidedRaise, DecidedLower:
	default:
		return to
	}
	switch {
	case to > current && current > 0 && p.Raise.MaxStepPercent > 0:
		return min(to, max(urgent, stepUp(current, p.Raise.MaxStepPercent, r)))
	case to < current && p.Lower.MaxStepPercent > 0:
		return max(to, min(urgent, stepDown(current, p.Lower.MaxStepPercent, r)))
	}
	return to
}

// stepUp is the most that a request may be after a step, in amounts that people can read
// where there is one; at least the least bit more.
//
//	100m, 25 % → 125m    256Mi, 10 % → 281Mi    1m, 10 % → 2m
func stepUp(current, percent int64, r resource) int64 {
	most := min(mulDiv(current, 100+percent, 100, false), r.most)
	if round := most / r.grain(most) * r.grain(most); round > current {
		return round
	}
	return max(most, current+1)
}

// stepDown is the least that a request may be after a step.
//
//	100m, 25 % → 75m    256Mi, 10 % → 231Mi    1m, 10 % → 0m, and so the target
func stepDown(current, percent int64, r resource) int64 {
	least := mulDiv(current, max(0, 100-percent), 100, true)
	if round := (least + r.grain(least) - 1) / r.grain(least) * r.grain(least); round < current {
		return round
	}
	return min(least, current-1)
}

// grain is what amounts of that size are multiples of, as recommendations are.
func (r resource) grain(v int64) int64 {
	switch {
	case r.name == "cpu":
		return 1
	case v < 64<<20:
		return 64 << 10
	}
	return 1 << 20
}

// windowFor says whether the template may be rewritten now. A rollout restarts pods: it
// does not begin after the window in which it was decided has closed, unless what led to
// it is urgent and has not been written yet. What moves some requests up and others down
// begins in a window of either, since there may be none of both.
func (t rewriting) windowFor(s Situation, policy Policy, d Decision, now time.Time) (open bool, in time.Duration) {
	if !waits(d.Reason) && d.Reason != DecidedAdopted && !d.wasWritten() {
		return true, 0
	}
	return policy.opensFor(t.directions(s), now)
}

// opensFor says whether what moves in these directions may do so now.
func (p Policy) opensFor(moves map[window.Direction]bool, now time.Time) (open bool, in time.Duration) {
	for _, direction := range []window.Direction{window.ScaleUp, window.ScaleDown} {
		isOpen, left := p.Windows.Opens(direction, now)
		open = open || isOpen && moves[direction]
		if moves[direction] {
			in = sooner(in, left)
		}
	}
	return open || !moves[window.ScaleUp] && !moves[window.ScaleDown], in
}

// directions tells which ways the template's values would move.
func (t rewriting) directions(s Situation) map[window.Direction]bool {
	out := map[window.Direction]bool{}
	for _, size := range t.wanted {
		c, _ := s.Deployment.Container(size.Container)
		for _, r := range resources {
			for _, diff := range []int{
				cmp.Compare(r.of(size.Requests), r.of(c.Requests)), cmp.Compare(r.of(size.Limits), r.of(c.Limits)),
			} {
				out[window.ScaleUp] = out[window.ScaleUp] || diff > 0
				out[window.ScaleDown] = out[window.ScaleDown] || diff < 0
			}
		}
	}
	return out
}

// isExact says that limits equal their requests.
func (p LimitPolicy) isExact() bool {
	return p.HeadroomCPU != nil && *p.HeadroomCPU == 0 && p.HeadroomMemory != nil && *p.HeadroomMemory == 0
}
