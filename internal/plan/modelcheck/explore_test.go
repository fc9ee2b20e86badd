// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package modelcheck

import (
	"fmt"
	"strings"
)

// result is what an exploration has found.
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
	rests := 0
	for _, component := range e.terminal() {
		rests++
		if v := e.judge(component); v != "" {
			return e.result(v)
		}
	}
	r := e.result("")
	r.rests = rests
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

// judge checks a terminal component: it must be one state, in which everything is as it should be.
func (e *explorer) judge(component []int32) string {
	first := component[0]
	for _, at := range component {
		first = min(first, at)
	}
	if len(component) > 1 {
		return e.path(first) + fmt.Sprintf("VIOLATION: the operator never rests: %d states follow each other for ever\n", len(component)) + e.cycle(first, component)
	}
	if v := e.violationAtRest(e.states[first]); v != "" {
		return e.path(first) + "VIOLATION: " + v + "\n" + describe(e.states[first])
	}
	return ""
}

// path is how a state is reached, one step per line.
func (e *explorer) path(at int32) string {
	if e.parent[at] < 0 {
		return "start: " + describe(e.states[at]) + "\n"
	}
	return e.path(e.parent[at]) + e.via[at] + "\n"
}

// cycle names the steps of a component, from its first state.
func (e *explorer) cycle(first int32, component []int32) string {
	within := map[int32]bool{}
	for _, at := range component {
		within[at] = true
	}
	var lines []string
	seen := map[int32]bool{}
	for at := first; !seen[at]; {
		seen[at] = true
		here := at
		for _, next := range e.successors(e.states[here]) {
			to := e.index[next.next]
			if !next.fair || !within[to] || to == here {
				continue
			}
			lines, at = append(lines, "  "+next.name), to
			if !seen[to] {
				break
			}
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// terminal are the strongly connected components of the fair transitions that no fair transition
// leaves: where every fair path without disturbances ends. It is Tarjan's algorithm ("Depth-first
// search and linear graph algorithms", 1972), without recursion.
func (e *explorer) terminal() (out [][]int32) {
	t := tarjan{graph: e.fair, number: make([]int32, len(e.fair)), low: make([]int32, len(e.fair)), component: make([]int32, len(e.fair))}
	for at := range e.fair {
		if t.number[at] == 0 {
			t.visit(int32(at))
		}
	}
	leaves := make([]bool, len(t.components))
	for from, list := range e.fair {
		for _, to := range list {
			if t.component[from] != t.component[to] {
				leaves[t.component[from]] = true
			}
		}
	}
	for i, component := range t.components {
		if !leaves[i] {
			out = append(out, component)
		}
	}
	return out
}

type tarjan struct {
	graph       [][]int32
	number, low []int32 // 0 stands for not visited
	component   []int32
	components  [][]int32
	count       int32
	stack, path []int32
	onStack     map[int32]bool
}

// visit numbers everything that can be reached from a node.
func (t *tarjan) visit(root int32) {
	t.onStack = map[int32]bool{}
	next := map[int32]int{} // the next successor of each node on the path
	t.enter(root)
	for len(t.path) > 0 {
		at := t.path[len(t.path)-1]
		if next[at] < len(t.graph[at]) {
			to := t.graph[at][next[at]]
			next[at]++
			switch {
			case t.number[to] == 0:
				t.enter(to)
			case t.onStack[to]:
				t.low[at] = min(t.low[at], t.number[to])
			}
			continue
		}
		t.leave(at)
	}
}

func (t *tarjan) enter(at int32) {
	t.count++
	t.number[at], t.low[at] = t.count, t.count
	t.stack, t.path, t.onStack[at] = append(t.stack, at), append(t.path, at), true
}

func (t *tarjan) leave(at int32) {
	t.path = t.path[:len(t.path)-1]
	if len(t.path) > 0 {
		parent := t.path[len(t.path)-1]
		t.low[parent] = min(t.low[parent], t.low[at])
	}
	if t.low[at] != t.number[at] {
		return
	}
	var component []int32
	for {
		last := t.stack[len(t.stack)-1]
		t.stack = t.stack[:len(t.stack)-1]
		t.onStack[last] = false
		t.component[last] = int32(len(t.components))
		component = append(component, last)
		if last == at {
			break
		}
	}
	t.components = append(t.components, component)
}

// describe is a state in one line.
func describe(s state) string {
	var parts []string
	parts = append(parts, fmt.Sprintf("template %s", amount(s.world.deployment.template)))
	for k, p := range s.world.pods {
		parts = append(parts, fmt.Sprintf("%s declares %s and has %s, uses %s, silent %t, its node %s", podNames[k], amount(p.spec), amount(p.actual), amount(s.world.load[k]), s.world.mute[k], natures[s.world.node[k]]))
	}
	for k, o := range s.world.scalers {
		if o.aims {
			parts = append(parts, fmt.Sprintf("scaler %d decided %s (%s)", k, amount(o.status.decided), words.text(o.status.verdict)))
		}
	}
	parts = append(parts, fmt.Sprintf("known need %s", amount(s.processes[0].history.need())))
	return strings.Join(parts, "; ")
}
