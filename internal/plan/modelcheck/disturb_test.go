// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package modelcheck

import "fmt"

// kind is a kind of disturbance.
type kind uint

const (
	crashes     kind = 1 << iota // the operator restarts
	takeovers                    // another process leads, and the one before goes on for a while
	lags                         // a watch delivers nothing for a while
	kills                        // a container is OOM-killed
	edits                        // a user edits the template
	resizes                      // a user resizes a pod
	usage                        // usage changes
	nodes                        // a node fills up, or has room again
	mutes                        // a pod's metrics disappear or come back
	recreations                  // the Deployment is recreated under the same name
	strangers                    // another owner's pod takes the name of a pod
	wipes                        // a user wipes the status of the scaler
	pauses                       // a user pauses or resumes the Deployment
)

// disturbances are the events that may happen at most as often as the bound allows. Lost requests
// and replies count, too: see take and statusWrites.
func (m *machine) disturbances(s state, kinds kind) (out []edge) {
	if s.left == 0 {
		return nil
	}
	add := func(of kind, name string, change func(next *state)) {
		if kinds&of == 0 {
			return
		}
		next := s
		next.left--
		change(&next)
		out = append(out, edge{name: name, next: next.normal()})
	}
	m.disturbOperator(s, add)
	m.disturbPods(s, add)
	m.disturbUsers(s, add)
	return out
}

func (m *machine) disturbOperator(s state, add func(kind, string, func(*state))) {
	leader := s.processes[0]
	if fresh := (process{runs: true}); leader != fresh {
		add(crashes, "the operator crashes and restarts", func(next *state) { next.processes[0] = fresh })
	}
	if !s.processes[1].runs {
		add(takeovers, "another process leads", m.depose)
	}
	for w := range watches {
		if !leader.stalled[w] {
			add(lags, "the watch of "+watchNames[w]+" lags", func(next *state) { next.stall(&next.processes[0], w) })
		}
	}
}

// depose makes another process lead. The one before has just sent its last request, if it has read
// the checkpoint by then.
func (m *machine) depose(next *state) {
	leader := &next.processes[0]
	if leader.loaded {
		leader.turns = 1
		seen := pass{machine: m, pods: next.seenBy(leader).pods}
		seen.learn(next)
	}
	for w := range watches {
		if !leader.stalled[w] {
			next.stall(leader, w)
		}
	}
	next.processes[0], next.processes[1] = process{runs: true}, *leader
}

func (m *machine) disturbPods(s state, add func(kind, string, func(*state))) {
	for k, p := range s.world.pods {
		isNew := p.killed != p.actual || p.killedAt == old
		if p.phase == ready && p.owner != 0 && p.actual <= medium && isNew {
			add(kills, fmt.Sprintf("%s is OOM-killed with %s", podNames[k], amount(p.actual)), func(next *state) {
				next.world.pods[k].killed, next.world.pods[k].killedAt = p.actual, fresh
			})
		}
		if p.phase == ready && p.owner != 0 {
			add(strangers, "a pod of another owner takes the name "+podNames[k], func(next *state) {
				next.world.pods[k] = pod{uid: next.newIdentity(), phase: ready, spec: small, actual: small}
			})
			to := small
			if p.spec != large {
				to = large
			}
			add(resizes, fmt.Sprintf("a user resizes %s to %s", podNames[k], amount(to)), func(next *state) {
				at := &next.world.pods[k]
				at.spec, at.resized, at.answer, at.answered = to, fresh, silence, never
				next.ghost.change()
				next.ghost.edit()
			})
		}
		name, to := "the node of "+podNames[k]+" fills up", defers
		if s.world.node[k] != actuates {
			name, to = "the node of "+podNames[k]+" has room", actuates
		}
		add(nodes, name, func(next *state) { next.world.node[k] = to; next.ghost.change() })
		name = "the metrics of " + podNames[k] + " disappear"
		if s.world.mute[k] {
			name = "the metrics of " + podNames[k] + " come back"
		}
		add(mutes, name, func(next *state) { next.world.mute[k] = !next.world.mute[k]; next.ghost.change() })
		if s.world.load[k] != large {
			add(usage, "usage of "+podNames[k]+" rises to "+amount(large), func(next *state) { next.world.load[k] = large; next.ghost.change() })
		} else {
			add(usage, "usage of "+podNames[k]+" falls", func(next *state) { next.world.load[k] = small })
		}
	}
	now := max(s.world.load[0], s.world.load[1])
	if s.ghost.need > now || s.world.checkpoint.need() > now {
		add(usage, "the window forgets old peaks", func(next *state) {
			forget := func(h *history) { h.peak, h.floor = min(h.peak, now), 0 }
			forget(&next.world.checkpoint)
			for i := range next.processes {
				forget(&next.processes[i].history)
				forget(&next.processes[i].saved)
			}
			for k := range pods {
				next.world.pods[k].killed, next.world.pods[k].killedAt = 0, never
				for i := range next.processes {
					next.processes[i].pods[k].killed, next.processes[i].pods[k].killedAt = 0, never
				}
			}
			next.ghost.need = now
			next.ghost.change()
		})
	}
}

func (m *machine) disturbUsers(s state, add func(kind, string, func(*state))) {
	d := s.world.deployment
	for _, to := range []level{small, large} {
		if to != d.template {
			add(edits, "a user sets the template to "+amount(to), func(next *state) {
				next.world.deployment.template, next.world.deployment.ours = to, false
				next.ghost.user = to
				next.ghost.edit()
				next.ghost.change()
			})
		}
	}
	name := "a user pauses the Deployment"
	if d.paused {
		name = "a user resumes the Deployment"
	}
	add(pauses, name, func(next *state) {
		next.world.deployment.paused = !d.paused
		next.ghost.change()
	})
	if d.uid == 1 {
		add(recreations, "the Deployment is deleted and recreated", func(next *state) {
			next.world.deployment = deployment{uid: d.uid + 1, template: small}
			next.ghost.user = small
			for k := range pods {
				next.world.pods[k] = next.newPod()
			}
			next.ghost.change()
		})
	}
	if cleared := (status{original: s.world.scaler.original, originalOf: s.world.scaler.originalOf}); s.world.scaler != cleared {
		add(wipes, "a user wipes the status but for the original values", func(next *state) { next.world.scaler = cleared })
	}
}

// change notes that something changed for which another eviction may be right.
func (g *ghost) change() { g.evictions = [pods]uint8{} }

// edit notes that what the operator wrote was changed. More than the planner tolerates are the same.
func (g *ghost) edit() { g.edits = min(g.edits+1, 3) }
