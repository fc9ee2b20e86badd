// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package modelcheck

import "math/bits"

// level is a memory request: 128Mi, 256Mi, 512Mi, or 1Gi. 0 is none. Neighbors are further apart
// than the tolerance, and an OOM kill adds one level.
type level uint8

const (
	// small is the request of a new Deployment, and large the most that the scaler allows.
	small, medium, large, beyond level = 1, 2, 3, 4
)

// age is how long ago something was. A fresh moment is within every delay of the operator, and an
// old one is beyond all of them.
type age uint8

const (
	never age = iota
	fresh
	old
)

// identity is a UID. A later one was created later, so it orders the creation times, too. 0 is none.
type identity uint8

// phase is where a pod stands in its life.
type phase uint8

const (
	starting phase = iota + 1
	ready
	terminating
)

// answer is the kubelet's report about the resize of the latest spec.
type answer uint8

const (
	silence answer = iota
	deferred
	infeasible
)

// pod is a pod as the API server stores it. The zero value means that there is no pod.
type pod struct {
	uid   identity
	owner identity // the Deployment; 0 for a pod of another owner
	phase phase
	// born is the size in the template that the pod was created from.
	born level
	// spec is the size in the pod's spec, and actual the size that the kubelet reports as applied.
	spec, actual level
	answer       answer
	answered     age
	resized      age
	// killed is the size that the last OOM kill has hit.
	killed   level
	killedAt age
}

// deployment is a Deployment as the API server stores it.
type deployment struct {
	uid      identity
	template level
	// ours is true if the operator owns the value in the template.
	ours bool
	// rolling is true if the Deployment controller has not finished.
	rolling bool
	// paused is true if it replaces no pods of an older template.
	paused bool
}

// status is the record in a scaler's status.
type status struct {
	target     identity
	decided    level // 0 for no decision
	reason     word
	decidedAt  age
	onTemplate bool
	reverts    uint8
	revertedAt age
	contested  bool

	// original is the user's value in the template of that Deployment; 0 for none.
	original   level
	originalOf identity

	// The verification in progress; good is 0 if there is none.
	good                    level
	began, observed, passed age
	unhealthy               [pods]identity
	// The change that was reverted last; failed is 0 if there is none.
	failed, failedGood level
	failedAt           age

	// The sizes of new pods, with the fallback Recreate.
	sizesNew    bool
	newPods     level
	effective   identity // the newest pod when it became effective
	ineffective uint8    // 1 + the pod that was created without it

	state   uint8 // a plan.State
	verdict word
}

// history is the known usage: the peak in the window, and the floor of an OOM kill.
type history struct{ peak, floor level }

// with adds what another history knows.
func (h history) with(other history) history {
	return history{max(h.peak, other.peak), max(h.floor, other.floor)}
}

func (h history) need() level { return max(h.peak, h.floor, small) }

// nature is the kind of answer of a pod's node to a resize that asks for more.
type nature uint8

const (
	actuates nature = iota
	defers
	refuses // Infeasible
	ignores // it never answers
)

var natures = []string{"actuates", "defers", "refuses", "ignores"}

const pods = 2

// view is the part of the world that a process may see.
type view struct {
	deployment deployment
	pods       [pods]pod
	scaler     status // of the scaler
}

// world is everything outside of the operator.
type world struct {
	view

	checkpoint history

	node [pods]nature
	load [pods]level
	mute [pods]bool // metrics of the pod are missing

	bound       bool  // the API server is told the sizes in the status, and puts them into new pods
	known       level // what the API server puts into new pods
	admitsPlain bool  // another webhook removes that again
}

// watch is a kind of object that a process watches.
type watch int

const (
	podWatch watch = iota
	deploymentWatch
	scalerWatch
	watches
)

var watchNames = []string{"pods", "Deployments", "scalers"}

// process is one process of the operator.
type process struct {
	runs bool
	// turns is how many reconciles a deposed process still makes.
	turns uint8

	// stalled is true if a watch delivers nothing, so that the process sees the kept objects.
	stalled [watches]bool
	view
	// behind says since when a kept object is older than a write of the operator. The process waits
	// for its own write while that is fresh, and acts again once it is old. It does not wait for a
	// write of another process.
	behind [watches]age

	loaded  bool
	history history
	saved   history // the checkpoint when it was last read or written

	// resized is the process's memory of its last resize of each pod.
	resized [pods]resize
	// withdrawn is the process's memory of the last resize of each pod that it withdrew.
	withdrawn [pods]withdrawal
	// asked is the age of the request to the API server for a size of new pods.
	asked    age
	askedFor level

	pending pending
}

// withdrawal is a resize that was withdrawn because of what the kubelet said. It is repeated within
// the hour if the node has room by then: see the package comment.
type withdrawal struct {
	uid  identity
	of   level
	says answer
}

type resize struct {
	uid identity
	to  level
}

// pending is a status that is to be written at the end of a reconcile.
type pending struct {
	is         bool
	base, next status
	undone     [pods]bool
}

// ghost is the checker's own memory for its verdict. Nothing depends on it.
type ghost struct {
	// need is the most that the operator has acted on and that is still in the window.
	need level
	// edits counts by how often others have changed what the operator wrote.
	edits uint8
	// evictions counts the evictions since something else changed.
	evictions [pods]uint8
	// user is the user's own value in the template.
	user level
}

// state is one state of the model.
type state struct {
	world     world
	processes [2]process // the leader, and one that was deposed
	ghost     ghost
	// left is how many disturbances may still happen.
	left uint8
}

// normal is the state in its canonical form: the Deployment controller has counted its pods, and
// identities are numbered without gaps, which keeps their order.
func (s state) normal() state {
	s.world.deployment.rolling = s.world.isRolling()
	var used uint64
	s.eachIdentity(func(id *identity) { used |= 1 << *id })
	used &^= 1 // 0 is no identity
	s.eachIdentity(func(id *identity) {
		if *id > 0 {
			*id = identity(bits.OnesCount64(used & (1<<(*id+1) - 1)))
		}
	})
	return s
}

func (w *world) isRolling() bool {
	for _, p := range w.pods {
		if p.owner != w.deployment.uid || p.phase != ready || p.born != w.deployment.template {
			return true
		}
	}
	return false
}

// each visits every pod and every status in the state.
func (s *state) each(ofPod func(*pod), ofStatus func(*status)) {
	views := []*view{&s.world.view}
	for i := range s.processes {
		p := &s.processes[i]
		views = append(views, &p.view)
		ofStatus(&p.pending.base)
		ofStatus(&p.pending.next)
	}
	for _, v := range views {
		for k := range v.pods {
			ofPod(&v.pods[k])
		}
		ofStatus(&v.scaler)
	}
}

// eachIdentity visits every identity of pods in the state. Those of Deployments are not renamed.
func (s *state) eachIdentity(visit func(*identity)) {
	s.each(func(p *pod) { visit(&p.uid) }, func(st *status) {
		visit(&st.effective)
		for k := range st.unhealthy {
			visit(&st.unhealthy[k])
		}
	})
	for i := range s.processes {
		for k := range pods {
			visit(&s.processes[i].resized[k].uid)
			visit(&s.processes[i].withdrawn[k].uid)
		}
	}
}

// newIdentity is later than all others.
func (s *state) newIdentity() identity {
	var last identity
	s.eachIdentity(func(id *identity) { last = max(last, *id) })
	return last + 1
}

// take replaces the objects of a watch.
func (v *view) take(w watch, from view) {
	switch w {
	case podWatch:
		v.pods = from.pods
	case deploymentWatch:
		v.deployment = from.deployment
	default:
		v.scaler = from.scaler
	}
}

// seenBy is the part of the world that a process sees.
func (s *state) seenBy(p *process) view {
	sees := s.world.view
	for w := range watches {
		if p.stalled[w] {
			sees.take(w, p.view)
		}
	}
	return sees
}

// stall makes a watch deliver nothing any more.
func (s *state) stall(p *process, w watch) {
	p.stalled[w] = true
	p.take(w, s.world.view)
}

// deliver makes a watch deliver everything.
func (p *process) deliver(w watch) {
	p.stalled[w], p.behind[w] = false, never
	p.take(w, view{})
}

// wrote notes a write of a process: what its stalled watch has kept is older from now on, and it knows
// that. The other process does not know it.
func (s *state) wrote(i int, w watch) {
	if p := &s.processes[i]; p.stalled[w] {
		p.behind[w] = fresh
	}
	if other := &s.processes[1-i]; other.stalled[w] {
		other.behind[w] = max(other.behind[w], old)
	}
}

// newPod is a pod that the Deployment controller creates now.
func (s *state) newPod() pod { return s.newPodOf(s.world.deployment.template) }

// newPodOf is a pod that the ReplicaSet of a template creates now.
func (s *state) newPodOf(template level) pod {
	size := template
	if s.world.bound && !s.world.admitsPlain && s.world.known > 0 {
		size = s.world.known
	}
	return pod{uid: s.newIdentity(), owner: s.world.deployment.uid, phase: starting, born: template, spec: size, actual: size}
}

// edge is a transition.
type edge struct {
	name string
	next state
	// fair is true if it happens sooner or later, without any disturbance.
	fair bool
	// violation says which invariant the transition breaks; empty for none.
	violation string
}

// podNames are the names of the pods. A replacement takes the name of its predecessor, which is
// harsher than a ReplicaSet.
var podNames = [pods]string{"web-0", "web-1"}

// course returns the steps that happen without a disturbance: of kubelets, the Deployment controller, watches and time.
func (m *machine) course(s state) (out []edge) {
	add := func(name string, change func(next *state)) {
		next := s
		change(&next)
		out = append(out, edge{name: name, next: next.normal(), fair: true})
	}
	for k := range pods {
		s.addKubelet(k, add)
		s.addController(k, add)
	}
	if known := s.world.scaler.newPods; s.world.bound && s.world.known != known {
		add("the API server learns the sizes of new pods", func(next *state) { next.world.known = known })
	}
	for i := range s.processes {
		for w := range watches {
			if s.processes[i].stalled[w] && i == 0 {
				out = append(out, edge{
					name: processNames[i] + " sees the latest " + watchNames[w], fair: i == 0,
					next: changed(s, func(next *state) { next.processes[i].deliver(w) }),
				})
			}
		}
	}
	if s.processes[1].runs {
		add("the deposed operator ends", func(next *state) { next.processes[1] = process{} })
	}
	if next := s.aged(); next != s {
		out = append(out, edge{name: "an hour passes", next: next.normal(), fair: true})
	}
	return out
}

var processNames = [2]string{"the leader", "the deposed operator"}

func changed(s state, change func(next *state)) state {
	change(&s)
	return s.normal()
}

func (s *state) addKubelet(k int, add func(string, func(*state))) {
	p := s.world.pods[k]
	if p.phase != ready || p.spec == p.actual || p.owner == 0 {
		return
	}
	if p.spec < p.actual || s.world.node[k] == actuates {
		add("the kubelet of "+podNames[k]+" actuates the resize", func(next *state) {
			p := &next.world.pods[k]
			p.actual, p.answer, p.answered = p.spec, silence, never
		})
		return
	}
	says := map[nature]answer{defers: deferred, refuses: infeasible}[s.world.node[k]]
	if says != silence && p.answer != says {
		add("the kubelet of "+podNames[k]+" "+natures[s.world.node[k]]+" the resize", func(next *state) {
			next.world.pods[k].answer, next.world.pods[k].answered = says, fresh
		})
	}
}

func (s *state) addController(k int, add func(string, func(*state))) {
	p, other := s.world.pods[k], s.world.pods[1-k]
	switch {
	case p.owner == 0, p.phase == terminating:
		add(podNames[k]+" ends and is replaced", func(next *state) { next.world.pods[k] = next.newPodOf(s.templateFor(p)) })
	case p.born != s.world.deployment.template && !s.world.deployment.paused && (p.phase == starting || other.phase == ready && other.owner != 0):
		add("the Deployment controller replaces "+podNames[k], func(next *state) { next.world.pods[k].phase = terminating })
	case p.phase == starting:
		add(podNames[k]+" becomes ready", func(next *state) { next.world.pods[k].phase = ready })
	}
}

// templateFor is the template of the pod that replaces p: that of its own ReplicaSet, while the Deployment
// is paused.
func (s *state) templateFor(p pod) level {
	if s.world.deployment.paused && p.owner == s.world.deployment.uid {
		return p.born
	}
	return s.world.deployment.template
}

// aged is the state an hour later, after which every fresh moment is old.
func (s state) aged() state {
	pass := func(ages ...*age) {
		for _, a := range ages {
			if *a == fresh {
				*a = old
			}
		}
	}
	s.each(func(p *pod) { pass(&p.answered, &p.resized, &p.killedAt) }, func(st *status) {
		pass(&st.decidedAt, &st.revertedAt, &st.began, &st.observed, &st.passed, &st.failedAt)
	})
	if s.world.bound {
		s.world.known = s.world.scaler.newPods // The API server learns within seconds.
	}
	for i := range s.processes {
		p := &s.processes[i]
		pass(&p.asked)
		for k, nature := range s.world.node {
			if nature == actuates {
				p.withdrawn[k] = withdrawal{}
			}
		}
		for w := range p.behind {
			pass(&p.behind[w]) // The operator expects no cache to lag for longer than a minute.
		}
	}
	return s
}
