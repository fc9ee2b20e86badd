// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package modelcheck

import (
	"os"
	"slices"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// start is a Deployment at rest, with one scaler that has seen nothing yet.
func start(changes ...func(*state)) state {
	s := state{left: 1}
	s.world.deployment = deployment{uid: 1, template: small}
	for k := range pods {
		s.world.pods[k] = pod{uid: identity(k) + 1, owner: 1, phase: ready, born: small, spec: small, actual: small}
		s.world.load[k] = small
	}
	s.processes[0].runs = true
	s.ghost.user = small
	for _, change := range changes {
		change(&s)
	}
	return s
}

// raise: one pod uses more than both request.
func raise(s *state) { s.world.load[0] = large }

// raiseTwice: one pod uses more than both request, and an OOM kill may ask for still more.
func raiseTwice(s *state) { s.world.load[0] = medium }

// lower: both pods have more than they use, as a user has requested it.
func lower(s *state) {
	s.world.deployment.template, s.ghost.user = large, large
	for k := range pods {
		p := &s.world.pods[k]
		p.born, p.spec, p.actual = large, large, large
	}
}

// canary: a paused rollout has replaced one of the pods.
func canary(s *state) {
	s.world.deployment.template, s.world.deployment.paused, s.ghost.user = medium, true, medium
	p := &s.world.pods[0]
	p.uid, p.born, p.spec, p.actual = p.uid+pods, medium, medium, medium
}

// lowerCanary: both pods have more than they use, and a paused rollout has replaced one of them.
func lowerCanary(s *state) {
	lower(s)
	canary(s)
}

// silent: the metrics of one pod are missing.
func silent(s *state) { s.world.mute[1] = true }

// plain: another webhook undoes the sizes of new pods.
func plain(s *state) { s.world.admitsPlain = true }

// twice: two disturbances instead of one.
func twice(s *state) { s.left = 2 }

// on sets the answers of the nodes of the two pods to a resize.
func on(a, b nature) func(*state) { return func(s *state) { s.world.node = [pods]nature{a, b} } }

// everything is all kinds of disturbances but those that need another start.
const everything = crashes | takeovers | lags | kills | edits | resizes | usage | nodes | mutes | recreations | strangers | wipes

// failures are the disturbances of the operator and its requests.
const failures = crashes | takeovers | lags | wipes

// demand: usage is above what the scaler allows.
func demand(s *state) { s.world.load[0] = beyond }

// deposed: a request of an operator that was paused before usage rose and fell is still under way.
// The leader has seen the peak, and both pods have the size for it.
func deposed(s *state) {
	lower(s)
	s.world.checkpoint = history{peak: large}
	s.processes[1] = process{runs: true, turns: 1, loaded: true, history: history{peak: small}}
	for w := range watches {
		s.stall(&s.processes[1], w)
	}
	for k := range pods {
		s.processes[1].pods[k].spec, s.processes[1].pods[k].actual = medium, medium
	}
	s.ghost.need = large
}

// explorations are the explorations of make test-long. The bound is one disturbance out of all kinds,
// because each one more multiplies the states by about twenty. It is two where the faults that matter come
// in pairs: a lagging watch and an edit, or a crash after an OOM kill.
var explorations = map[string]exploration{
	"in place": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, kinds: everything,
		first: []state{start(raise), start(raise, on(actuates, defers)), start(raise, on(refuses, actuates)), start(raise, on(ignores, actuates))},
	},
	"in place, bounded, lowering, and a silent pod": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, kinds: everything,
		widens: true,
		first:  []state{start(demand), start(lower), start(lower, silent)},
	},
	"in place, verified": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, verifies: true, kinds: everything &^ (resizes | recreations | strangers),
		first: []state{start(lower), start(raise)},
	},
	"in place, two failures": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, kinds: crashes | lags | wipes | kills | usage | strangers,
		widens: true,
		first:  []state{start(raise, twice)},
	},
	"in place, paused": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, kinds: everything | pauses,
		first: []state{start(canary), start(canary, raise), start(canary, raise, on(actuates, defers)), start(lowerCanary)},
	},
	"in place, paused, verified": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, verifies: true, kinds: (everything | pauses) &^ (resizes | recreations | strangers),
		first: []state{start(lowerCanary), start(canary, raise)},
	},
	"in place, new pods sized": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, sizes: true, kinds: failures | kills | edits | usage | nodes | mutes | recreations,
		first: []state{start(raise), start(raise, on(actuates, defers)), start(lower)},
	},
	"in place, new pods sized, verified": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, sizes: true, verifies: true, kinds: failures | edits | usage | kills,
		first: []state{start(lower)},
	},
	"fallback Recreate, paused": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackRecreate, kinds: failures | pauses | kills | edits,
		first: []state{start(canary, raise, on(actuates, refuses))},
	},
	"in place, a deposed operator": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackWait, kinds: crashes | lags | kills,
		widens: true,
		first:  []state{start(deposed)},
	},
	"fallback Rollout": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackRollout, kinds: everything,
		first: []state{start(raise, on(actuates, refuses)), start(raise, on(refuses, ignores))},
	},
	"fallback Recreate": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackRecreate, kinds: everything,
		first: []state{start(raise, on(actuates, refuses)), start(raise, on(refuses, ignores))},
	},
	"fallback Recreate without effect": {
		mode: v1beta1.UpdateModeInPlace, fallback: v1beta1.FallbackRecreate, kinds: failures,
		first: []state{start(raise, plain, on(refuses, refuses))},
	},
	"rollout": {
		mode: v1beta1.UpdateModeRollout, kinds: everything &^ (resizes | nodes),
		widens: true,
		first:  []state{start(raise), start(lower), start(lower, silent)},
	},
	"rollout, two disturbances": {
		mode: v1beta1.UpdateModeRollout, kinds: edits | crashes | lags | kills,
		first: []state{start(raise, twice), start(raiseTwice, twice)},
	},
}

// exploration is the start of one exploration.
type exploration struct {
	mode     v1beta1.UpdateMode
	fallback v1beta1.Fallback
	verifies bool
	// sizes is true if the API server sizes new pods, in InPlace.
	sizes bool
	first []state
	kinds kind
	// widens is true if FULL=1 allows one more disturbance. The other explorations would then have
	// several million states.
	widens bool
}

// starts are the first states. There is one disturbance less with -short, and one more with FULL=1 if x widens.
func (x exploration) starts() []state {
	first := slices.Clone(x.first)
	for i := range first {
		if testing.Short() {
			first[i].left--
		} else if x.widens && os.Getenv("FULL") == "1" {
			first[i].left++
		}
	}
	return first
}

func TestEveryStateIsSafeAndEveryFairPathEndsAtRest(t *testing.T) {
	for name, x := range explorations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &machine{mode: x.mode, fallback: x.fallback, verifies: x.verifies, sizes: x.sizes}
			r := m.explore(x.starts(), x.kinds)
			t.Logf("%d states, %d transitions, %d states of rest, %d plans", r.states, r.transitions, r.rests, len(m.plans))
			if r.counterexample != "" {
				t.Error("\n" + r.counterexample)
			}
			if r.rests == 0 {
				t.Error("no state of rest: nothing was checked")
			}
		})
	}
}
