// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package modelcheck

import (
	"fmt"
	"slices"
	"strings"
)

// result is the result of an exploration.
type result struct {
	states, transitions, rests int
	// counterexample is the path to a violation, step by step; empty if there is none.
	counterexample string
}

// explorer explores the states breadth-first, so that a counterexample is as short as possible.
type explorer struct {
	*machine

	kinds  kind
	index  map[state]int32
	states []state
	parent []int32
	via    []string
	// fair has the successors by fair transitions.
	fair        [][]int32
	transitions int
}

// explore checks all states that can be reached from the first ones.
func (m *machine) explore(first []state, kinds kind) result {
	m.plans = map[sight]outcome{}
	e := &explorer{machine: m, kinds: kinds, index: map[state]int32{}}
	for _, s := range first {
		e.add(s.normal(), -1, "")
	}
	for at := 0; at < len(e.states); at++ {
		if v := e.expand(int32(at)); v != "" {
			return e.result(v)
		}
	}
	rests, stuck := e.rests()
	for _, at := range rests {
		if v := e.violationAtRest(e.states[at]); v != "" {
			return e.result(e.path(at) + "VIOLATION: " + v + "\n" + describe(e.states[at]))
		}
	}
	if stuck >= 0 {
		return e.result(e.path(stuck) + "VIOLATION: the operator never rests\n" + e.cycle(stuck))
	}
	r := e.result("")
	r.rests = len(rests)
	return r
}

func (e *explorer) result(counterexample string) result {
	return result{states: len(e.states), transitions: e.transitions, counterexample: counterexample}
}

// add returns the number of a state, which may be new.
func (e *explorer) add(s state, parent int32, via string) int32 {
	if at, ok := e.index[s]; ok {
		return at
	}
	at := int32(len(e.states))
	e.index[s] = at
	e.states, e.parent, e.via, e.fair = append(e.states, s), append(e.parent, parent), append(e.via, via), append(e.fair, nil)
	return at
}

// successors are all transitions of a state.
func (e *explorer) successors(s state) (out []edge) {
	out = e.course(s)
	for i := range s.processes {
		out = append(out, e.reconciles(s, i)...)
		out = append(out, e.statusWrites(s, i)...)
	}
	return append(out, e.disturbances(s, e.kinds)...)
}

// expand adds the successors of a state. It returns the path to a violation; empty for none.
func (e *explorer) expand(at int32) string {
	s := e.states[at]
	for _, next := range e.successors(s) {
		e.transitions++
		if next.violation != "" {
			return e.path(at) + next.name + "\nVIOLATION: " + next.violation + "\n" + describe(next.next)
		}
		to := e.add(next.next, at, next.name)
		if next.fair && to != at {
			e.fair[at] = append(e.fair[at], to)
		}
	}
	return ""
}

// path lists the steps to a state, one per line.
func (e *explorer) path(at int32) string {
	if e.parent[at] < 0 {
		return "start: " + describe(e.states[at]) + "\n"
	}
	return e.path(e.parent[at]) + e.via[at] + "\n"
}

// cycle names fair steps from a state, until one leads back.
func (e *explorer) cycle(at int32) (lines string) {
	for seen := map[int32]bool{}; !seen[at]; {
		seen[at] = true
		for _, next := range e.successors(e.states[at]) {
			if to := e.index[next.next]; next.fair && to != at {
				lines, at = lines+"  "+next.name+"\n", to
				break
			}
		}
	}
	return lines
}

// rests are the states that no fair transition leaves. Every fair path without disturbances ends in one of them if each state
// reaches one; stuck is the first state that does not, or -1.
func (e *explorer) rests() (rests []int32, stuck int32) {
	before := make([][]int32, len(e.fair))
	for from, list := range e.fair {
		for _, to := range list {
			before[to] = append(before[to], int32(from))
		}
		if len(list) == 0 {
			rests = append(rests, int32(from))
		}
	}
	reaches := make([]bool, len(e.fair))
	for open := slices.Clone(rests); len(open) > 0; {
		at := open[len(open)-1]
		open = open[:len(open)-1]
		if !reaches[at] {
			reaches[at] = true
			open = append(open, before[at]...)
		}
	}
	return rests, int32(slices.Index(reaches, false))
}

// describe is a state in one line.
func describe(s state) string {
	var parts []string
	parts = append(parts, fmt.Sprintf("template %s", amount(s.world.deployment.template)))
	for k, p := range s.world.pods {
		parts = append(parts, fmt.Sprintf("%s declares %s and has %s, uses %s, silent %t, its node %s", podNames[k], amount(p.spec), amount(p.actual), amount(s.world.load[k]), s.world.mute[k], natures[s.world.node[k]]))
	}
	parts = append(parts, fmt.Sprintf("decided %s (%s)", amount(s.world.scaler.decided), words.text(s.world.scaler.verdict)))
	parts = append(parts, fmt.Sprintf("known need %s", amount(s.processes[0].history.need())))
	return strings.Join(parts, "; ")
}
