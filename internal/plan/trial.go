// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A decision that takes something from pods, or makes new ones, is on trial. Pods that
// have been changed are compared with those that have not, over the same time. Where they
// fare clearly worse, the last good values are put back, and what failed is not tried
// again before the evidence is new. Where all fare badly, it was not the change.
//
// In place, the pods that are lowered first stand the trial for the others. A raise in
// place takes nothing from a pod, and is not tried. What became of pods is read from
// their status, and the rest of the trial is kept with the decision: a pass that is made
// again, by a new process or not, comes to the same verdict.

const (
	// unreadyFor is how long a pod may be unready before it counts as not well.
	unreadyFor = 30 * time.Second
	// failedFor is how long a failed value is not tried again.
	failedFor = 7 * 24 * time.Hour
	// maxUnwell is how many pods are remembered that were not well before. With so many,
	// pods tell nothing of the change, but for an OOM kill.
	maxUnwell = 32
	// maxFailed is how many failed values are remembered.
	maxFailed = 8
	// clearly is how many times as large the share of changed pods that are not well must
	// be as that of the others.
	clearly = 3
)

// Trial is what is known of a decision that is being watched.
type Trial struct {
	// Began is when Good was left.
	Began time.Time
	// Good holds the requests that were in force before, of what is tried; by container.
	Good map[string]quantity.Amounts
	// Unwell are the pods that were not well before.
	Unwell []types.UID
	// Watched is since when all that are changed so far have been; zero before.
	Watched time.Time
	// Passed is when the first pods had stood the trial for the others; zero before.
	Passed time.Time
}

// Failed is a value that was put back.
type Failed struct {
	Container, Resource string
	// Value is what failed, and Good what was put back.
	Value, Good int64
	At          time.Time
	// Observed is the length of the usage that Value rested on.
	Observed time.Duration
	// Saw says what was seen, and on which pods.
	Saw string
}

// trial is the decision's; nil for none.
func (d *Decision) trial() *Trial {
	if d == nil {
		return nil
	}
	return d.Trial
}

// on is the decision with another trial; nil for none.
func (d *Decision) on(t *Trial) *Decision {
	next := *d
	next.Trial = t
	return &next
}

// trialOf is the trial of a new decision; nil if there is nothing to try. A trial that is
// under way goes on, with what it still has to try.
func (p Policy) trialOf(s Situation, d *Decision, moves []move, now time.Time) *Trial {
	if p.Observation <= 0 {
		return nil
	}
	t := Trial{Began: now, Good: map[string]quantity.Amounts{}}
	if old := s.Decision.trial(); old != nil {
		t = *old
		t.Good, t.Watched = maps.Clone(old.Good), time.Time{}
	} else {
		t.Unwell = unwell(s.Pods, p.Observation, now)
	}
	rollout := p.Mode == v1beta1.UpdateModeRollout
	for _, m := range moves {
		tried := m.why == DecidedLower || rollout && (m.why == DecidedRaise || m.why == DecidedLowerBound)
		if tried && m.resource.of(t.Good[m.container]) == 0 {
			set(t.Good, m.container, m.resource, m.from)
		}
	}
	for name, good := range t.Good {
		for _, r := range resources {
			if is := d.request(name, r); is == r.of(good) || is > r.of(good) && !rollout {
				r.set(&good, 0)
			}
		}
		t.Good[name] = good
	}
	maps.DeleteFunc(t.Good, func(_ string, a quantity.Amounts) bool { return a == quantity.Amounts{} })
	if len(t.Good) == 0 {
		return nil
	}
	return &t
}

// unwell are the pods that are not well, or have not been within the time before now.
func unwell(pods []workload.Pod, within time.Duration, now time.Time) (out []types.UID) {
	for _, pod := range pods {
		if ill := illnessOf(pod, now.Add(-within), now, true); pod.Running && !pod.Terminating && (ill.saw != "" || !pod.Unready.IsZero()) {
			out = append(out, pod.UID)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxUnwell)]
}

// illness is what is wrong with a pod.
type illness struct {
	saw  string        // empty for nothing
	last time.Time     // when it was last so
	wait time.Duration // until it may be more; 0 for no time
}

// illnessOf says what has become of a pod since some time. A container that restarts when
// it is resized restarts because it is told to.
func illnessOf(pod workload.Pod, since, now time.Time, readiness bool) (ill illness) {
	worst := 0
	found := func(rank int, at time.Time, format string, args ...any) {
		if saw := fmt.Sprintf(format, args...); rank > worst || rank == worst && saw < ill.saw {
			ill.saw, worst = saw, rank
		}
		if at.After(ill.last) {
			ill.last = at
		}
	}
	for _, name := range pod.BackingOff {
		found(4, now, "container %s ends each time it is started", name)
	}
	for _, exit := range pod.Exits {
		c, _ := pod.Container(exit.Container)
		switch {
		case exit.At.Before(since):
		case exit.OOMKilled:
			found(3, exit.At, "container %s was killed for want of memory", exit.Container)
		case !c.RestartOnCPU && !c.RestartOnMemory:
			found(2, exit.At, "container %s ended", exit.Container)
		}
	}
	if readiness && !pod.Unready.IsZero() && !pod.Unready.Before(since) {
		if left := pod.Unready.Add(unreadyFor).Sub(now); left <= 0 {
			found(1, now, "is not ready")
		} else {
			ill.wait = min(left, unreadyFor)
		}
	}
	return ill
}

// testimony is what pods tell of a change.
type testimony struct {
	changed, ill       int // pods that have been changed, and those of them that are not well
	others, illOthers  int
	saw                []string  // what is wrong with the changed pods
	last               time.Time // when one of them was last not well
	killed             bool      // one was killed for want of the memory that was taken from it
	wait               time.Duration
	rollout, saturated bool
}

// hear asks all pods.
func (t *Trial) hear(s Situation, policy Policy, d *Decision, now time.Time) testimony {
	heard := testimony{rollout: policy.Mode == v1beta1.UpdateModeRollout, saturated: len(t.Unwell) >= maxUnwell}
	pods := slices.Clone(s.Pods)
	slices.SortFunc(pods, func(a, b workload.Pod) int { return strings.Compare(a.Name, b.Name) })
	var killed []string
	for _, pod := range pods {
		if !pod.Running || pod.Terminating || !pod.Current && !heard.rollout {
			continue
		}
		changed, since := t.hasChanged(pod, d, policy), t.Began
		if at := changedAt(pod); changed && at.After(since) {
			since = at
		}
		if name, ok := t.killOf(pod, d, since); ok && changed {
			killed = append(killed, fmt.Sprintf("pod %s: container %s was killed for want of memory", pod.Name, name))
		}
		if !heard.rollout && changed && !t.Passed.IsZero() && !changedAt(pod).After(t.Passed) {
			changed, since = false, t.Passed // it has stood its trial
		}
		isNew := changed && pod.Resized.IsZero() // and may take its time to start
		ill := illnessOf(pod, since, now, !heard.rollout && !isNew)
		switch heard.wait = sooner(heard.wait, ill.wait); {
		case slices.Contains(t.Unwell, pod.UID):
			heard.others++
			heard.illOthers++
		case changed:
			heard.changed++
			if ill.saw != "" {
				heard.ill++
				heard.saw = append(heard.saw, "pod "+pod.Name+": "+ill.saw)
			}
			if ill.last.After(heard.last) {
				heard.last = ill.last
			}
		case !heard.rollout && pod.Started.After(t.Began):
			// It is new, and has not been for as long as the others.
		default:
			heard.others++
			if ill.saw != "" {
				heard.illOthers++
			}
		}
	}
	if len(killed) > 0 {
		heard.killed, heard.saw = true, killed
	}
	return heard
}

// changedAt is when the pod got what it has: when it was last resized, or made.
func changedAt(pod workload.Pod) time.Time {
	if pod.Resized.IsZero() {
		return pod.Created
	}
	return pod.Resized
}

// hasChanged says that the pod has what is tried rather than what was before.
func (t *Trial) hasChanged(pod workload.Pod, d *Decision, policy Policy) bool {
	if policy.Mode == v1beta1.UpdateModeRollout {
		return d.Written && pod.Current
	}
	if pod.Resized.IsZero() && (!policy.mayEvict() || !pod.Created.After(t.Began)) {
		return false
	}
	for _, c := range pod.Containers {
		for _, r := range resources {
			good, is := r.of(t.Good[c.Name]), d.request(c.Name, r)
			if good > 0 && is > 0 && is < good && r.of(c.Requests) <= is+(good-is)/2 {
				return true
			}
		}
	}
	return false
}

// killOf names the container of the pod that was killed for want of memory that was taken
// from it.
func (t *Trial) killOf(pod workload.Pod, d *Decision, since time.Time) (name string, ok bool) {
	for _, exit := range pod.Exits {
		lowered := d.request(exit.Container, memory) < memory.of(t.Good[exit.Container])
		if exit.OOMKilled && lowered && !exit.At.Before(since) && (!ok || exit.Container < name) {
			name, ok = exit.Container, true
		}
	}
	return name, ok
}

// blames says that the change is to blame. A single pod of many may fail by chance.
func (h testimony) blames() bool {
	least := 1
	if h.changed > 3 {
		least = max(2, (h.changed+9)/10)
	}
	switch {
	case h.killed:
		return true
	case h.saturated || h.ill < least:
		return false
	case h.others == 0:
		return true
	}
	return h.ill*h.others > clearly*h.illOthers*h.changed
}

// tell says what is wrong with the changed pods.
func (h testimony) tell() string {
	if more := len(h.saw) - mostNamed; more > 0 {
		return strings.Join(h.saw[:mostNamed], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(h.saw, "; ")
}

// judged is the situation with the last good values decided again, where the change is to
// blame, and what was seen then; empty otherwise. wait is when a verdict may be due.
func (s Situation) judged(policy Policy, now time.Time) (after Situation, saw string, wait time.Duration) {
	t := s.Decision.trial()
	if t == nil {
		return s, "", 0
	}
	if policy.Observation <= 0 {
		s.Decision = s.Decision.on(nil)
		return s, "", 0
	}
	heard := t.hear(s, policy, s.Decision, now)
	stuck := heard.rollout && s.Decision.Written && s.Deployment.Stuck
	switch {
	case heard.blames():
		saw = heard.tell()
	case stuck:
		saw = "the Deployment has given up on the rollout of the new size (ProgressDeadlineExceeded)"
	default:
		return s, "", heard.wait
	}
	decision, failed := s.Decision.putBack(s, stuck, saw, now)
	if len(failed) == 0 {
		return s, "", heard.wait
	}
	s.Decision, s.Failed = decision, remembered(s.Failed, failed)
	return s, saw, 0
}

// putBack decides the last good values again: of what was lowered; and of all, where new
// pods do not even start.
func (d *Decision) putBack(s Situation, all bool, saw string, now time.Time) (*Decision, []Failed) {
	next := d.on(nil)
	next.Time, next.Reason, next.Written = now, DecidedPutBack, false
	next.Requests = maps.Clone(d.Requests)
	var failed []Failed
	for _, name := range slices.Sorted(maps.Keys(d.Trial.Good)) {
		for _, r := range resources {
			is, good := d.request(name, r), r.of(d.Trial.Good[name])
			if is == 0 || good == 0 || is == good || is > good && !all {
				continue
			}
			set(next.Requests, name, r, good)
			rec, _ := recommendationFor(s.Recommendations, name)
			failed = append(failed, Failed{name, r.name, is, good, now, rec.Observed, saw})
		}
	}
	return next, failed
}

// remembered adds what failed to what is known, the newest first.
func remembered(known, failed []Failed) []Failed {
	out := slices.Clone(failed)
	for _, old := range known {
		if !slices.ContainsFunc(failed, func(f Failed) bool {
			return f.Container == old.Container && f.Resource == old.Resource && f.isLower() == old.isLower()
		}) {
			out = append(out, old)
		}
	}
	return out[:min(len(out), maxFailed)]
}

// stillFailed is what failed and is not to be tried again: until twice as much usage has
// been observed, a week has gone by, or a person has edited the scaler.
func (s Situation) stillFailed(policy Policy, now time.Time) (out []Failed) {
	for _, f := range s.Failed {
		rec, _ := recommendationFor(s.Recommendations, f.Container)
		known := f.Observed > 0 && rec.Observed >= 2*f.Observed
		if !policy.Edited && !known && now.Sub(f.At) < failedFor {
			out = append(out, f)
		}
	}
	return out
}

// isLower says that what failed was to give less.
func (f Failed) isLower() bool { return f.Value < f.Good }

// avoid is where a request is moved if that does not lead to where it has failed, and why
// it is not; empty where nothing has.
func avoid(failed []Failed, container string, r resource, current, to int64, why string) (int64, *Failed) {
	for i, f := range failed {
		if f.Container != container || f.Resource != r.name {
			continue
		}
		switch {
		case f.isLower() && why == DecidedLower && to <= f.Value:
			return min(f.Good, current), &failed[i]
		case !f.isLower() && (why == DecidedRaise || why == DecidedLowerBound) && to >= f.Value:
			return max(f.Good, current), &failed[i]
		}
	}
	return to, nil
}

// keptAsFailed remembers why a request does not go to its target.
func (w *weighing) keptAsFailed(container string, r resource, f Failed) {
	w.kept.add(v1beta1.ReasonChangeReverted, container+" "+r.name, fmt.Sprintf(
		"stays, since %s was put back (%s); it is tried again once twice as much usage is known, after a week, or when the scaler is edited",
		r.format(f.Value), f.Saw), false)
}

// careful is what of the moves is decided now: what is lowered does not travel with what
// is urgent, which must not wait for its trial.
func (p Policy) careful(moves []move, d *Decision, now time.Time) []move {
	urgent := d != nil && d.Reason == DecidedPutBack && d.Time.Equal(now)
	for _, m := range moves {
		urgent = urgent || !waits(m.why)
	}
	if !urgent || p.Observation <= 0 || p.Mode == v1beta1.UpdateModeRollout {
		return moves
	}
	return slices.DeleteFunc(slices.Clone(moves), func(m move) bool { return m.why == DecidedLower })
}

// untried takes back what no pod has stood the trial for yet, before another decision
// comes upon it.
func (p Policy) untried(requests map[string]quantity.Amounts, t *Trial) {
	if t == nil || !t.Passed.IsZero() || p.Mode == v1beta1.UpdateModeRollout {
		return
	}
	for name, good := range t.Good {
		for _, r := range resources {
			if is := r.of(requests[name]); is > 0 && is < r.of(good) {
				set(requests, name, r, r.of(good))
			}
		}
	}
}

// watch moves the trial on once all that were to be changed are: it is over after a time
// without anything wrong.
func (p Plan) watch(s Situation, policy Policy, now time.Time) (next Plan, over bool) {
	t := *p.Decision.Trial
	if t.Watched.IsZero() || t.Watched.After(now) {
		t.Watched = now
		p.Decision = p.Decision.on(&t)
	}
	heard := t.hear(s, policy, p.Decision, now)
	since := t.Watched
	if heard.last.After(since) {
		since = heard.last // all fare badly: that tells nothing
	}
	left := min(since.Add(policy.Observation).Sub(now), policy.Observation)
	if left > 0 {
		p.RequeueAfter = sooner(p.RequeueAfter, left)
	}
	return p, left <= 0
}

// lowers says whether a step gives a pod less of anything.
func lowers(pod workload.Pod, sizes []Size) bool {
	for _, size := range sizes {
		c, _ := pod.Container(size.Container)
		for _, r := range resources {
			if r.of(size.Requests) < r.of(c.Requests) {
				return true
			}
		}
	}
	return false
}

// tryOut says which pod is lowered next: none, while those that were first are watched. It
// ends the trial that all pods have stood.
func (p Plan) tryOut(s Situation, policy Policy, now time.Time, lower *Resize, flying, have int) (Plan, *Resize) {
	t := p.Decision.trial()
	if t == nil || lower != nil && (!t.Passed.IsZero() || flying+have < concurrency(p.Pods)) {
		return p, lower
	}
	if flying > 0 || have == 0 {
		return p, nil
	}
	p, over := p.watch(s, policy, now)
	switch {
	case over && lower == nil:
		p.Decision = p.Decision.on(nil)
	case over:
		passed := *p.Decision.Trial
		passed.Watched, passed.Passed = time.Time{}, now
		p.Decision = p.Decision.on(&passed)
		return p, lower
	}
	return p, nil
}
