// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The reasons of a decision. The most urgent that applies names it.
const (
	DecidedOOMKill    = "OOMKill"    // memory is below the floor that an OOM kill has set
	DecidedPutBack    = "Reverted"   // pods fared worse with the last decision: what was before is put back
	DecidedBounds     = "Bounds"     // a request is outside what the policy, the LimitRange or a fixed limit allows
	DecidedLowerBound = "LowerBound" // a request is below the lower bound: usage asks for more now
	DecidedRaise      = "ScaleUp"    // a request is below its target
	DecidedLower      = "ScaleDown"  // a request is above its upper bound
	DecidedAdopted    = "Adopted"    // the pods have two sizes and no decision says which: the larger is kept
)

// urgency orders the reasons.
var urgency = map[string]int{
	DecidedOOMKill: 7, DecidedPutBack: 6, DecidedBounds: 5, DecidedLowerBound: 4, DecidedRaise: 3, DecidedLower: 2, DecidedAdopted: 1,
}

// resource is one of the two resources, with the accessors that let one rule
// serve both.
type resource struct {
	name     string
	most     int64 // the most that is believed or written
	of       func(quantity.Amounts) int64
	set      func(*quantity.Amounts, int64)
	format   func(int64) string
	ratio    func(workload.Ratios) int64
	headroom func(LimitPolicy) *int64
	restarts func(workload.Container) bool
}

var (
	cpu = resource{
		name:     "cpu",
		most:     quantity.MaxCPUMillis,
		of:       func(a quantity.Amounts) int64 { return a.CPUMillis },
		set:      func(a *quantity.Amounts, v int64) { a.CPUMillis = v },
		format:   quantity.FormatCPU,
		ratio:    func(r workload.Ratios) int64 { return r.CPU },
		headroom: func(p LimitPolicy) *int64 { return p.HeadroomCPU },
		restarts: func(c workload.Container) bool { return c.RestartOnCPU },
	}
	memory = resource{
		name:     "memory",
		most:     quantity.MaxMemoryBytes,
		of:       func(a quantity.Amounts) int64 { return a.MemoryBytes },
		set:      func(a *quantity.Amounts, v int64) { a.MemoryBytes = v },
		format:   quantity.FormatMemory,
		ratio:    func(r workload.Ratios) int64 { return r.Memory },
		headroom: func(p LimitPolicy) *int64 { return p.HeadroomMemory },
		restarts: func(c workload.Container) bool { return c.RestartOnMemory },
	}
	resources = []resource{cpu, memory}
)

// decided is what decide found.
type decided struct {
	decision        *Decision
	decided         bool
	reason, message string // why nothing (more) is decided
	stalled         bool
	wait            time.Duration // how long it is until a change may be made that waits
}

// decide moves the decision where the recommendation asks for it.
//
// A resource moves when its request
//   - is below the floor of an OOM kill, outside the allowed bounds, or below the
//     lower bound: at once; but CPU in the mode Rollout, which restarts pods, only by
//     more than the tolerance;
//   - is below the target by more than the tolerance: after the cooldown, inside a window;
//   - is above the upper bound, and above the target by more than the tolerance:
//     after the cooldown, inside a window. The upper bound is wide while evidence is thin,
//     so that lowering waits for evidence.
//
// What does not move stays as it was decided; what moves at once does not take along
// what has to wait.
func decide(s Situation, policy Policy, now time.Time) decided {
	s.Decision = s.Decision.notAfter(now)
	w := weigh(s, policy)

	out := decided{decision: s.Decision.with(w.stays)}
	ready, waiting := policy.split(w.moves, s.Decision, now)
	ready = policy.careful(ready, s.Decision, now)
	switch {
	case len(ready) > 0:
		out.decision = &Decision{Time: now, Reason: mostUrgent(ready), Requests: w.stays, KeptLimits: s.Decision.keptBut(ready)}
		if d := s.Decision; d != nil { // whoever undoes one decision undoes the next
			out.decision.Reverts, out.decision.LastRevert, out.decision.ContestedBy = d.Reverts, d.LastRevert, d.ContestedBy
			if d.Reason == DecidedPutBack && d.Time.Equal(now) && urgency[out.decision.Reason] < urgency[d.Reason] {
				out.decision.Reason = d.Reason
			}
		}
		policy.untried(out.decision.Requests, s.Decision.trial())
		for _, m := range ready {
			set(out.decision.Requests, m.container, m.resource, m.to)
		}
		out.decision.Trial = policy.trialOf(s, out.decision, ready, now)
		out.decided = true
		out.reason, out.message, out.stalled = w.held.tell()
	case len(waiting) > 0:
		out.reason, out.message, out.wait = tellWaiting(waiting)
	default:
		out.reason, out.message, out.stalled = w.tell(out.decision != nil)
	}
	return out
}

// weighing is what decide knows once it has looked at every resource.
type weighing struct {
	stays   map[string]quantity.Amounts // decided before and still managed
	moves   []move
	held    notes           // resources left alone although they are managed
	kept    notes           // resources that stay although the target differs
	rooms   map[string]room // by resource
	known   bool            // there is a recommendation
	managed bool            // there is something to manage
}

// move is one request that is to be moved.
type move struct {
	container string
	resource  resource
	from, to  int64
	why       string
}

func weigh(s Situation, policy Policy) weighing {
	w := weighing{stays: map[string]quantity.Amounts{}, rooms: map[string]room{}}
	for _, r := range resources {
		w.rooms[r.name] = roomFor(s, policy, r)
	}
	for _, container := range s.Deployment.Containers {
		if container.Unreadable {
			w.held.add(v1beta1.ReasonRejected, "container "+container.Name, "its resources are outside the believable range and left alone", true)
			continue
		}
		rec, ok := recommendationFor(s.Recommendations, container.Name)
		w.known = w.known || ok
		for _, r := range resources {
			if !policy.controls(container.Name, r) {
				continue
			}
			w.managed = true
			if taken := takenBy(s, container.Name, r); taken.reason != "" {
				w.held.add(taken.reason, taken.subject, taken.message, false)
				continue
			}
			w.weigh(s, policy, container, rec, r)
		}
	}
	return w
}

// weigh looks at one resource of one container.
func (w *weighing) weigh(s Situation, policy Policy, container workload.Container, rec recommend.Container, r resource) {
	set(w.stays, container.Name, r, s.Decision.request(container.Name, r))

	allowed := allowedFor(s, policy, container, r)
	current, mixed := currentRequest(s, container, r)
	wanted, left := targetFor(s, allowed, container, r), w.rooms[r.name]
	if wanted == 0 {
		return
	}
	if r.of(rec.Target) == 0 {
		mixed = false
	}
	target := left.fit(container.Name, wanted)
	if differs(target, wanted, policy.Tolerance) {
		w.keptByNode(container, r, wanted)
	}
	if target <= 0 {
		return // the other containers fill the largest node
	}
	allowed = left.bound(container.Name, allowed)
	to, why := moveOf(current, target, rec, r, policy.Tolerance, allowed)
	if why == DecidedLowerBound && r.name == cpu.name && policy.Mode == v1beta1.UpdateModeRollout && !differs(current, to, policy.Tolerance) {
		to, why = current, "" // to restart pods costs more than to go without a little CPU
	}
	to = policy.stepTo(current, to, why, rec, r, allowed)
	to, failed := avoid(s.Failed, container.Name, r, current, to, why)
	if failed != nil && !differs(current, to, policy.Tolerance) {
		w.keptAsFailed(container.Name, r, *failed)
		return
	}
	switch {
	case why == "" && limitsAreOff(s, policy, container, current, r):
		to, why = current, DecidedBounds
	case why == "" && mixed:
		to, why = current, DecidedAdopted
	}
	if why != "" {
		w.moves = append(w.moves, move{container.Name, r, current, to, why})
		return
	}
	if current > target && differs(current, target, policy.Tolerance) {
		w.kept.add(v1beta1.ReasonWithinBounds, container.Name+" "+r.name,
			fmt.Sprintf("%s stays until the upper bound of %s falls below it", r.format(current), r.format(r.of(rec.UpperBound))), false)
	}
}

// targetFor is what is recommended, as far as it is allowed. Where nothing is known any
// more, the decision stands in the same way. 0 stands for neither.
func targetFor(s Situation, allowed spans, container workload.Container, r resource) int64 {
	rec, _ := recommendationFor(s.Recommendations, container.Name)
	return allowed.fit(cmp.Or(r.of(rec.Target), s.Decision.request(container.Name, r)))
}

// tell says why nothing moves.
func (w *weighing) tell(isDecided bool) (reason, message string, stalled bool) {
	switch {
	case len(w.held) > 0:
		return w.held.tell()
	case !w.managed:
		return v1beta1.ReasonNothingControlled, "The resource policy leaves nothing to manage", false
	case !w.known && !isDecided:
		return v1beta1.ReasonNoRecommendation, "There is no recommendation yet", false
	case len(w.kept) > 0:
		return w.kept.tell()
	case !isDecided:
		return v1beta1.ReasonWithinTolerance, "The requests in force are close enough to the recommendation", false
	}
	return "", "", false
}

// moveOf says where a request is to be moved and why; no reason if it stays.
func moveOf(current, target int64, rec recommend.Container, r resource, tolerance float64, allowed spans) (to int64, why string) {
	bounded, upper := allowed.fit(current), r.of(rec.UpperBound)
	switch {
	case current == target:
		return current, ""
	case r.name == "memory" && current < rec.OOMFloor && current < target:
		return target, DecidedOOMKill
	case current > 0 && bounded != current && bounded > target && bounded <= upper:
		return bounded, DecidedBounds // a bound is no evidence for going further
	case current > 0 && bounded != current:
		return target, DecidedBounds
	case current == 0:
		return target, DecidedRaise
	case current < r.of(rec.LowerBound) && current < target:
		return target, DecidedLowerBound
	case !differs(current, target, tolerance):
		return current, ""
	case current < target:
		return target, DecidedRaise
	case current > upper:
		return target, DecidedLower
	}
	return current, ""
}

// differs says whether two requests are further apart than the tolerance, as a
// share of the current one.
func differs(current, target int64, tolerance float64) bool {
	return math.Abs(float64(target-current)) > tolerance*float64(current)
}

// currentRequest is the request in force: as decided, else the largest among the
// running pods (a lost status must not make a resized pod look small), else the
// template's. mixed says that no decision tells it and the pods disagree: a status
// was lost after some of them had been resized.
func currentRequest(s Situation, container workload.Container, r resource) (current int64, mixed bool) {
	if v := s.Decision.request(container.Name, r); v > 0 {
		return v, false
	}
	for i, c := range running(s.Pods, container.Name) {
		v := r.of(c.Requests)
		mixed = mixed || i > 0 && v != current
		current = max(current, v)
	}
	if current > 0 {
		return current, mixed
	}
	return r.of(container.Requests), false
}

// running lists the container as the pods that count have it.
func running(pods []workload.Pod, container string) (out []workload.Container) {
	for _, pod := range pods {
		if c, ok := pod.Container(container); ok && counts(pod) && !c.Unreadable {
			out = append(out, c)
		}
	}
	return out
}

// span is what a request may be; a most of 0 is no end.
type span struct{ least, most int64 }

// spans are applied one after the other: the last one wins.
type spans []span

// fit clamps an amount. 0 is no amount and stays.
func (s spans) fit(v int64) int64 {
	if v == 0 {
		return 0
	}
	for _, b := range s {
		v = max(v, b.least)
		if b.most > 0 {
			v = min(v, b.most)
		}
	}
	return v
}

// allowedFor is what a request may be: as the policy wants, but within the
// LimitRange, which the API server enforces, and below a limit that we leave as it
// is, or may raise so far only. The ratio to such a limit comes first: where it asks for
// more than is allowed, nothing is done at all.
func allowedFor(s Situation, policy Policy, container workload.Container, r resource) spans {
	p := policy.Containers[container.Name]
	limit := fixedLimit(s, policy, container, r)
	return spans{
		{leastRequest(limit, r.ratio(s.Bounds.ContainerRatio)), 0},
		{r.of(p.MinAllowed), r.of(p.MaxAllowed)},
		{0, limitCap(s, policy, container, r)},
		{r.of(s.Bounds.ContainerMin), r.of(s.Bounds.ContainerMax)},
		{0, limit},
	}
}

// fixedLimit is the limit that stays as it is, whatever is requested; 0 for none.
// Limits stay with RequestsOnly. And where a template has none but a LimitRange
// gives one to each new pod, a template that requests more makes no pods at all.
func fixedLimit(s Situation, policy Policy, container workload.Container, r resource) int64 {
	limit := r.of(container.Limits)
	switch pods := running(s.Pods, container.Name); {
	case limit == 0 && policy.Mode == v1beta1.UpdateModeRollout,
		limit == 0 && policy.Mode == v1beta1.UpdateModeInitial && !policy.Containers[container.Name].Limits:
		return r.of(s.Bounds.ContainerDefault)
	case policy.Containers[container.Name].Limits:
		return 0
	case policy.Mode == v1beta1.UpdateModeInPlace && len(pods) > 0:
		limit = mostOf(pods, r)
	}
	return limit
}

// limitCap is the most that a limit which follows may be, and so its request; 0 for no
// cap. Where there is no limit, nothing caps the request: none is added.
func limitCap(s Situation, policy Policy, container workload.Container, r resource) int64 {
	p := policy.Containers[container.Name]
	limit, pods := r.of(container.Limits), running(s.Pods, container.Name)
	if policy.Mode == v1beta1.UpdateModeInPlace && len(pods) > 0 {
		limit = mostOf(pods, r)
	}
	if !p.Limits || limit == 0 {
		return 0
	}
	return r.of(p.LimitPolicy.MaxAllowed)
}

func mostOf(containers []workload.Container, r resource) (limit int64) {
	for _, c := range containers {
		limit = max(limit, r.of(c.Limits))
	}
	return limit
}

// limitsAreOff says that a limit is not what its own policy says, and no decision tells
// what the request shall be that it follows.
func limitsAreOff(s Situation, policy Policy, container workload.Container, request int64, r resource) bool {
	p := policy.Containers[container.Name]
	shaped := r.headroom(p.LimitPolicy) != nil || r.of(p.LimitPolicy.MinAllowed) > 0 || r.of(p.LimitPolicy.MaxAllowed) > 0
	if !p.Limits || !shaped || request == 0 || s.Decision.request(container.Name, r) > 0 {
		return false
	}
	in := running(s.Pods, container.Name)
	if policy.Mode != v1beta1.UpdateModeInPlace { // new pods are made as the template says
		in = []workload.Container{container}
	}
	for _, c := range in {
		if limit := r.of(c.Limits); limit > 0 && cutFor(s, policy, c).limitFor(request, limit, r) != limit {
			return true
		}
	}
	return false
}

func (p Policy) controls(container string, r resource) bool {
	c := p.Containers[container]
	if r.name == "cpu" {
		return c.CPU
	}
	return c.Memory
}

// takenBy says who else has to do with a resource of a container, so that it is left
// alone.
func takenBy(s Situation, container string, r resource) (taken note) {
	if hpa := nameOf(s.Scaled, r); hpa != "" {
		taken.reason, taken.subject = v1beta1.ReasonHPAConflict, r.name
		taken.message = fmt.Sprintf("left alone, since HorizontalPodAutoscaler %s scales on its utilization", hpa)
	} else if vpa := nameOf(s.Sized[container], r); vpa != "" {
		taken.reason, taken.subject = v1beta1.ReasonVPAConflict, container+" "+r.name
		taken.message = fmt.Sprintf("left alone, since VerticalPodAutoscaler %s sizes it", vpa)
	}
	return taken
}

func nameOf(s workload.Scaled, r resource) string {
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

// with is the decision less what is no longer managed: containers that are gone,
// resources that the policy, an HPA or a VPA has taken out.
func (d *Decision) with(stays map[string]quantity.Amounts) *Decision {
	if d == nil || len(stays) == 0 {
		return nil
	}
	left := *d
	left.Requests = stays
	if !maps.Equal(stays, d.Requests) {
		left.Written = false // no template has carried less of it
	}
	return &left
}

// keptBut are the kept limits, less those of containers whose memory moves.
func (d *Decision) keptBut(moves []move) map[string]int64 {
	if d == nil {
		return nil
	}
	kept := maps.Clone(d.KeptLimits)
	for _, m := range moves {
		if m.resource.name == memory.name {
			delete(kept, m.container)
		}
	}
	return kept
}

// keeping is the decision with more limits kept.
func (d *Decision) keeping(limits map[string]int64) *Decision {
	if len(limits) == 0 {
		return d
	}
	more := *d
	more.KeptLimits = maps.Clone(limits)
	for name, limit := range d.KeptLimits {
		more.KeptLimits[name] = max(more.KeptLimits[name], limit)
	}
	return &more
}

// keptLimit is the memory limit of the container that is kept; 0 for none.
func (d *Decision) keptLimit(container string) int64 {
	if d == nil {
		return 0
	}
	return d.KeptLimits[container]
}

// notAfter is the decision, made by now at the latest: a clock that was set back
// must not hold changes up for longer than asked.
func (d *Decision) notAfter(now time.Time) *Decision {
	if d == nil || !d.Time.After(now) {
		return d
	}
	left := *d
	left.Time = now
	return &left
}

func mostUrgent(moves []move) (reason string) {
	for _, m := range moves {
		if urgency[m.why] > urgency[reason] {
			reason = m.why
		}
	}
	return reason
}
