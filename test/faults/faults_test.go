// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// played are the scenarios that are played: they have all the kinds of writes that change pods or templates. test/onestep
// injects faults at each write of all scenarios.
var played = []string{"up", "recreate", "rollout", "owned"}

// TestFaults compares runs in which the operator is killed, before and after the first two writes of each kind that changes
// pods or templates, to a run without. up/kill-after-patch-pods.resize#2 kills it after the second resize of the scenario "up".
func TestFaults(t *testing.T) {
	for _, s := range world.Scenarios() {
		if !slices.Contains(played, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			reference := play(t, s, nil)
			play := func(name string, faults ...fault) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					play(t, s, &reference, faults...)
				})
			}
			play("none") // The comparison is stable.
			if s.Name == "up" {
				play("hung-write", fault{n: 2, action: hang})
			}
			numbers := map[string]int{}
			for _, w := range reference.writes {
				numbers[w.kind]++
				if !slices.Contains([]string{"patch pods/resize", "create pods/eviction", "patch deployments"}, w.kind) || numbers[w.kind] > 2 {
					continue
				}
				for _, a := range []action{killBefore, killAfter} {
					name := fmt.Sprintf("%s-%s#%d", a, strings.NewReplacer("/", ".", " ", "-").Replace(w.kind), numbers[w.kind])
					play(name, fault{kind: w.kind, n: numbers[w.kind], action: a})
				}
			}
		})
	}
}

// play plays a scenario with faults.
func play(t *testing.T, s world.Scenario, reference *outcome, faults ...fault) outcome {
	t.Helper()
	r := newRun(t, s)
	r.proxy = r.newProxy(faults...)
	r.startOperator("operator", r.proxy)
	s.Act(r.World)
	return r.end(reference)
}

// TestPausedLeader stops the leader during its first write, as a frozen machine does. A second one takes over. The write of
// the first arrives when the second is done, and the first goes on.
func TestPausedLeader(t *testing.T) {
	t.Parallel()
	s := world.Scenarios()[0]
	reference := play(t, s, nil)
	elected := func(c *operatorconfig.Operator) {
		c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, testkit.System
	}
	r := newRun(t, s)
	paused := r.newProxy(fault{n: 1, action: delay})
	first := r.startOperator("first", paused, elected)
	first.mayEnd = true // who has lost the lease ends
	s.Act(r.World)
	r.Await("the first write", is(func() bool { return paused.injections() > 0 }))
	first.pause()
	r.proxy = r.newProxy()
	r.startOperator("second", r.proxy, elected)
	r.Await("the scenario beside a paused leader", func() string { return s.IsDone(r.World) })
	paused.release()
	first.resume()
	r.Await("the end of the first leader", is(first.hasEnded))
	r.end(&reference)
}

// is is a condition to be awaited.
func is(f func() bool) func() string {
	return func() string {
		if !f() {
			return "not yet"
		}
		return ""
	}
}
