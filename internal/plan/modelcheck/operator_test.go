// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package modelcheck

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// machine is one model: a configuration, and the operator in it.
type machine struct {
	mode     v1beta1.UpdateMode
	fallback v1beta1.Fallback
	verifies bool // changes are verified
	sizes    bool // the API server sizes new pods, in InPlace

	plans map[sight]outcome
}

// sight is everything that a plan depends on.
type sight struct {
	pods       [pods]pod
	deployment deployment
	status     status
	history    history
	most       level
	missing    bool
	undone     [pods]bool
	withdrawn  [pods]withdrawal
	asked      age
	writers    writers
}

// writers is the API server's answer about the owners of contested values.
type writers uint8

const (
	unasked writers = iota
	oursAlone
	aUser
)

// action is the kind of a step.
type action uint8

const (
	nothing action = iota
	record
	takeOver
	rewrite
	evict
	resizePod
	restore
)

// outcome is a plan in the terms of the model.
type outcome struct {
	status status
	action action
	pod    int
	to     level
	// withdraws is the size that is withdrawn; 0 for none.
	withdraws level
	asks      bool // the API server must be asked about writers
	decides   bool
	qos       bool // the written sizes keep the QoS class
}

// next is the plan for what a scaler sees, by the operator's own planner.
func (m *machine) next(s sight) outcome {
	if out, ok := m.plans[s]; ok {
		return out
	}
	out := m.plan(s)
	m.plans[s] = out
	return out
}

func (m *machine) plan(s sight) outcome {
	situation := plan.Situation{
		Deployment: readDeployment(s.deployment), Recommendations: []recommend.Container{recommendationOf(s.history)},
		Decision: decisionOf(s.status), RevertedChanges: revertedOf(s.status), Originals: originalsOf(s.status, s.deployment), NewPods: newPodsOf(s.status, s.asked),
	}
	for k, p := range s.pods {
		if p.uid == 0 || p.owner != s.deployment.uid {
			continue
		}
		situation.Pods = append(situation.Pods, readPod(k, p, s.deployment.template))
		if s.undone[k] {
			situation.Undone = map[types.UID]bool{uidOf(p.uid): true}
		}
		if gone := s.withdrawn[k]; gone.uid == p.uid {
			if situation.RejectedResizes == nil {
				situation.RejectedResizes = map[types.UID][]plan.RejectedResize{}
			}
			situation.RejectedResizes[uidOf(p.uid)] = []plan.RejectedResize{rejectedOf(k, gone)}
		}
	}
	if s.missing {
		situation.MissingUsage = "a pod is silent"
	}
	switch s.writers {
	case oursAlone:
		situation.Writers = &plan.Writers{Ours: true}
	case aUser:
		situation.Writers = &plan.Writers{Names: []string{"helm"}}
	}
	return m.outcomeOf(s, situation, plan.Next(situation, m.policyOf(s.most), noon))
}

func (m *machine) outcomeOf(s sight, situation plan.Situation, p plan.Plan) outcome {
	out := outcome{status: s.status.withDecision(p.Decision).withReverted(p.RevertedChanges), asks: p.Contest != nil, decides: p.Decided, qos: true}
	out.status.target = s.deployment.uid
	if m.evicts() || m.sizes {
		out.status = out.status.withNewPods(p.NewPods)
	}
	out.status.state, out.status.verdict = uint8(p.Verdict.State), words.of(p.Verdict.Reason)
	switch step := p.Step.(type) {
	case plan.Record:
		out.action = record
	case plan.TakeOver:
		out.action, out.to = takeOver, levelOf(step.Originals[0].Requests.MemoryBytes)
	case plan.Rewrite:
		out.action, out.to = rewrite, levelOf(step.Sizes[0].Requests.MemoryBytes)
	case plan.Evict:
		out.action, out.pod, out.to = evict, podNamed(step.Pods[0].Name), out.status.newPods
	case plan.Resize:
		out.action, out.pod, out.to = resizePod, podNamed(step.Pod), levelOf(step.Sizes[0].Requests.MemoryBytes)
		out.qos = m.keepsQoS(situation.Pods, step)
		if step.Withdraws != nil {
			out.withdraws = levelOf(step.Withdraws.Sizes[0].Requests.MemoryBytes)
		}
	case plan.Restore:
		out.action = restore
	}
	return out
}

// keepsQoS reports whether the resize leaves the QoS class and the proportion of the limits.
func (m *machine) keepsQoS(list []workload.Pod, step plan.Resize) bool {
	size := step.Sizes[0]
	for _, p := range list {
		if p.UID == step.UID && workload.QoSOf([]workload.Container{{Name: size.Container, Resources: size.Resources}}) != corev1.PodQOSBurstable {
			return false
		}
	}
	if size.Limits.MemoryBytes != 2*size.Requests.MemoryBytes {
		panic("the model does not cover this limit")
	}
	return true
}

func podNamed(name string) int {
	for k := range podNames {
		if podNames[k] == name {
			return k
		}
	}
	panic(name)
}

func (m *machine) evicts() bool {
	return m.mode == v1beta1.UpdateModeInPlace && m.fallback == v1beta1.FallbackRecreate
}

// reconciles are the reconciles of a process that may happen now, each with its first write. The
// status is written later, so that anything may happen in between.
func (m *machine) reconciles(s state, i int) (out []edge) {
	p := &s.processes[i]
	if !p.runs || p.pending.is || i == 1 && p.turns == 0 {
		return nil
	}
	if i == 1 {
		p.turns--
	}
	if p.behind[scalerWatch] == fresh {
		return nil
	}
	return m.reconcile(s, i)
}

// reconcile is one reconcile.
func (m *machine) reconcile(s state, i int) []edge {
	p := &s.processes[i]
	sees := s.seenBy(p)
	d, list := sees.deployment, sees.pods
	r := pass{machine: m, process: i, seen: sees.scaler, name: processNames[i] + " reconciles"}
	if p.behind[deploymentWatch] == fresh || p.behind[podWatch] == fresh {
		return nil // It waits for its own last write.
	}
	r.deployment, r.pods = d, list
	for n := range list {
		if list[n].owner != d.uid {
			r.pods[n] = pod{}
		}
	}
	r.learn(&s)
	at := r.seen
	if at.target != d.uid {
		at = at.withDecision(nil).withReverted(nil)
	}
	r.sight = sight{pods: r.pods, deployment: d, status: at, history: s.processes[i].history, most: large, undone: r.undone(p), withdrawn: p.withdrawn, missing: s.isMissing(r.pods)}
	if m.evicts() && p.asked != never && p.askedFor == at.newPods {
		r.sight.asked = p.asked
	}
	r.outcome = m.next(r.sight)
	if r.outcome.asks {
		r.sight.writers = s.writersOf()
		r.outcome = m.next(r.sight)
	}
	r.sizeNewPods(&s)
	return r.take(s)
}

// pass is one reconcile.
type pass struct {
	*machine

	process    int
	name       string
	seen       status
	deployment deployment
	pods       [pods]pod
	sight      sight
	outcome    outcome
}

// learn reads the checkpoint once, samples usage, counts OOM kills, and saves the checkpoint.
func (r *pass) learn(s *state) {
	p := &s.processes[r.process]
	if r.process == 1 {
		return // Its request was sent before.
	}
	if !p.loaded {
		p.loaded, p.saved, p.history = true, s.world.checkpoint, s.world.checkpoint
	}
	for k, seen := range r.pods {
		if seen.phase == ready && !s.world.mute[k] {
			p.history.peak = max(p.history.peak, s.world.load[k])
		}
		if seen.killed > 0 {
			p.history.floor = max(p.history.floor, min(beyond, seen.killed+1))
		}
	}
	if p.history == p.saved {
		return
	}
	if s.world.checkpoint != p.saved {
		p.history = p.history.with(s.world.checkpoint) // A conflict: another process has saved.
	}
	s.world.checkpoint, p.saved = p.history, p.history
}

// undone says which pods another client has resized since the last resize of this process.
func (r *pass) undone(p *process) (out [pods]bool) {
	for k, last := range p.resized {
		out[k] = p.behind[podWatch] == never && last.uid != 0 && r.pods[k].uid == last.uid && r.pods[k].spec != last.to
	}
	return out
}

// isMissing reports whether usage of a running pod is missing.
func (s *state) isMissing(seen [pods]pod) bool {
	for k, p := range seen {
		if p.phase == ready && s.world.mute[k] {
			return true
		}
	}
	return false
}

// writersOf is the API server's answer about the owners of contested values.
func (s *state) writersOf() writers {
	if s.world.deployment.ours {
		return oursAlone
	}
	return aUser
}

// sizeNewPods is the phase that makes the API server size new pods: the status first, then what the API
// server is told.
func (r *pass) sizeNewPods(s *state) {
	if !r.evicts() {
		s.world.bound = r.sizes // Package newpods follows the status.
		return
	}
	p, before := &s.processes[r.process], r.seen
	if !before.sizesNew {
		r.outcome.status.sizesNew = true
		r.outcome.status = r.outcome.status.withNewPods(plan.NewPods{})
		return
	}
	changed := !s.world.bound
	s.world.bound = true
	if p.asked == never || changed || p.askedFor != before.newPods {
		p.asked, p.askedFor = fresh, before.newPods
	}
	if changed {
		r.outcome.status.effective = 0
		if r.outcome.action == evict {
			r.outcome.action = nothing
		}
	}
}

// take takes the step, and leaves the status to be written.
func (r *pass) take(s state) (out []edge) {
	written, isWrite, isConflict := r.write(s)
	violation := r.violation(s, isWrite && !isConflict)
	s.ghost.need = max(s.ghost.need, s.processes[r.process].history.need())
	if !r.isUpToDate(s) && r.outcome.status.reverts > r.seen.reverts {
		s.ghost.edit() // It takes its own write for somebody's edit. See the package comment.
		written.ghost.edit()
	}
	written.ghost.need = s.ghost.need
	switch {
	case isConflict:
		return []edge{{name: r.name + ": " + r.label() + ", which conflicts", next: s.normal(), fair: r.process == 0, violation: violation}}
	case !isWrite:
		out = r.end(s, r.outcome.status)
	default:
		out = r.end(written, r.outcome.status)
	}
	out[0].violation, out[0].name = violation, r.name+": "+r.label()
	if !isWrite || s.left == 0 {
		return out
	}
	kept := r.seen // Nothing of a failed step is recorded.
	s.left, written.left = s.left-1, written.left-1
	refused := r.end(s, kept)[0]
	refused.name, refused.fair = r.name+": "+r.label()+", which the API server refuses", false
	unanswered := r.unanswered(written, kept)
	return append(out, refused, unanswered)
}

// unanswered is a step that is taken, but whose reply is lost.
func (r *pass) unanswered(written state, kept status) edge {
	p := &written.processes[r.process]
	switch r.outcome.action {
	case resizePod:
		p.resized[r.outcome.pod], p.withdrawn[r.outcome.pod], p.behind[podWatch] = resize{}, withdrawal{}, never
	case evict:
		p.behind[podWatch] = never
	case rewrite, restore:
		p.behind[deploymentWatch] = never
	}
	e := r.end(written, kept)[0]
	e.name, e.fair = r.name+": "+r.label()+", and the reply is lost", false
	return e
}

// label names the step.
func (r *pass) label() string {
	st := r.outcome.status
	suffix := fmt.Sprintf(" (decision %s, %s)", amount(st.decided), words.text(st.verdict))
	switch o := r.outcome; o.action {
	case record:
		return "records first" + suffix
	case takeOver:
		return "records the original value " + amount(o.to) + suffix
	case rewrite:
		return "rewrites the template to " + amount(o.to) + suffix
	case evict:
		return "evicts " + podNames[o.pod] + suffix
	case resizePod:
		if o.withdraws > 0 {
			return "withdraws the resize of " + podNames[o.pod] + " from " + amount(o.withdraws) + " to " + amount(o.to) + suffix
		}
		return "resizes " + podNames[o.pod] + " to " + amount(o.to) + suffix
	case restore:
		return "restores the template" + suffix
	}
	return "no step" + suffix
}

func amount(l level) string {
	return []string{"none", "128Mi", "256Mi", "512Mi", "1Gi"}[l]
}

// write is the state after the step's write. The API server refuses a write to an object that is
// not the one that the process has seen.
func (r *pass) write(s state) (next state, isWrite, isConflict bool) {
	o, p := r.outcome, &s.processes[r.process]
	at := &s.world.pods[o.pod]
	isPodStale := *at != r.pods[o.pod] || at.uid == 0
	isTemplateStale := s.world.deployment != r.deployment
	switch o.action {
	case resizePod:
		if isPodStale {
			return s, true, true
		}
		at.spec, at.resized, at.answer, at.answered = o.to, fresh, silence, never
		p.resized[o.pod] = resize{at.uid, o.to}
		if o.withdraws > 0 {
			p.withdrawn[o.pod] = withdrawal{at.uid, o.withdraws, r.pods[o.pod].answer}
		}
		s.wrote(r.process, podWatch)
	case evict:
		if isPodStale {
			return s, true, true
		}
		at.phase = terminating
		s.ghost.evictions[o.pod]++
		s.wrote(r.process, podWatch)
	case takeOver:
		if isTemplateStale {
			return s, true, true
		}
		r.outcome.status.original, r.outcome.status.originalOf = o.to, r.deployment.uid
	case rewrite:
		if isTemplateStale {
			return s, true, true
		}
		s.world.deployment.template, s.world.deployment.ours = o.to, true
		s.wrote(r.process, deploymentWatch)
	case restore:
		s.world.deployment.template, s.world.deployment.ours = r.seen.original, false
		r.outcome.status.original, r.outcome.status.originalOf = 0, 0
		s.wrote(r.process, deploymentWatch)
	default:
		return s, false, false
	}
	if r.process == 1 {
		s.ghost.edit() // For the leader, an old request that arrives late is a write of somebody else.
	}
	return s, true, false
}

// end leaves the status to be written, unless it is as before.
func (r *pass) end(s state, st status) []edge {
	p := &s.processes[r.process]
	if st != r.seen {
		p.pending = pending{is: true, base: r.seen, next: st, undone: r.sight.undone}
	}
	return []edge{{name: r.name, next: s.normal(), fair: r.process == 0}}
}

// statusWrites are the writes of the status that may happen now.
func (m *machine) statusWrites(s state, i int) (out []edge) {
	if !s.processes[i].pending.is {
		return nil
	}
	name := processNames[i] + " writes the status"
	next := s
	p, w := &next.processes[i], s.processes[i].pending
	p.pending = pending{}
	if s.world.scaler != w.base {
		return []edge{{name: name + ", which conflicts", next: next.normal(), fair: i == 0}}
	}
	if s.left > 0 {
		lost := next
		lost.left--
		out = append(out, edge{name: name + ", which is lost", next: lost.normal()})
	}
	if next.world.scaler.decided != w.next.decided {
		next.ghost.evictions = [pods]uint8{}
	}
	next.world.scaler = w.next
	next.wrote(i, scalerWatch)
	for k, undone := range w.undone {
		if undone {
			p.resized[k] = resize{}
		}
	}
	if s.left > 0 && p.behind[scalerWatch] == fresh {
		unanswered := next
		unanswered.left--
		unanswered.processes[i].behind[scalerWatch] = never
		out = append(out, edge{name: name + ", and the reply is lost", next: unanswered.normal()})
	}
	return append(out, edge{name: name, next: next.normal(), fair: i == 0})
}

// isUpToDate reports whether the cache of the process shows all writes of the operator, or that the process
// waits for them. It waits only for its own, and for a minute.
func (r *pass) isUpToDate(s state) bool {
	for _, since := range s.processes[r.process].behind {
		if since == old {
			return false
		}
	}
	return true
}
