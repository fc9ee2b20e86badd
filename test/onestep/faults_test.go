// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package onestep plays scenarios in which a write of the operator fails, or the operator is killed at it, and compares
// how each run ends with a run without faults. docs/faults.md describes it.
package onestep

import (
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	debug.SetGCPercent(800) // the runs are short, and leave nothing
	os.Exit(m.Run())
}

// action is the treatment of a write.
type action struct {
	name string
	do   func(o *world.Operator, w world.Write, send func() error) error
}

func refused(code int) action {
	return action{fmt.Sprintf("refused-%d", code), func(_ *world.Operator, w world.Write, send func() error) error { return world.Refuse(code)(w, send) }}
}

var (
	killAfter = action{"kill-after", (*world.Operator).KillAfter}
	replyLost = action{"reply-lost", (*world.Operator).LoseReply}
)

var actions = []action{
	{"kill-before", (*world.Operator).KillBefore},
	killAfter,
	replyLost,
	refused(http.StatusConflict), refused(http.StatusTooManyRequests), refused(http.StatusInternalServerError), refused(http.StatusForbidden),
	refused(http.StatusServiceUnavailable),
}

// outcome has the results in which runs are compared.
type outcome struct {
	state  world.State
	writes []world.Write
}

// strikes reports whether a fault happens at a write: the n-th of its kind, and the i-th of all, both from 1.
type strikes func(w world.Write, n, i int) bool

func never(world.Write, int, int) bool { return false }

// play plays a scenario with faults at some writes, and returns how it ends. reference is nil for a run without faults.
func play(t *testing.T, s world.Scenario, reference *outcome, a action, at strikes, lag int) outcome {
	t.Helper()
	w := world.New(t, world.NewAPI(admission.Policy(), admission.Binding()), "shop", world.Options{
		Configure: s.Configure, StartingAt: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC), Lag: lag,
	})
	i, injected := 0, 0
	w.Fault = func(write world.Write, n int, send func() error) error {
		if i++; !at(write, n, i) {
			return send()
		}
		injected++
		return a.do(w.Operator, write, send)
	}
	defer func() {
		if t.Failed() {
			for i, write := range w.Writes() {
				t.Logf("%3d %s %s", i+1, write.At.Format(time.TimeOnly), write)
			}
		}
	}()
	w.Play(s)
	w.Fault = nil
	w.Rest(10)
	state, err := w.EndState()
	must.Succeed(t, err)
	for _, wrong := range w.Violations(injected) {
		t.Error(wrong)
	}
	if reference != nil {
		if diff := reference.state.DiffAfterFaults(state); diff != "" {
			t.Errorf("the end differs from the reference (-) (+):\n%s", diff)
		}
		want := disruptions(reference.writes)
		for kind, n := range disruptions(w.Writes()) {
			if n > want[kind] {
				t.Errorf("%d times %q, and %d in the reference", n, kind, want[kind])
			}
		}
	}
	return outcome{state, w.Writes()}
}

// disruptions counts the accepted writes that end pods. Those of Deployments are not among them: a second one with the same
// content changes nothing, and the end state has the ReplicaSets.
func disruptions(writes []world.Write) map[string]int {
	out := map[string]int{}
	for _, w := range writes {
		if kind := w.Kind(); w.IsAccepted() && (kind == "create pods/eviction" || strings.HasPrefix(kind, "delete")) {
			out[kind]++
		}
	}
	return out
}

const (
	// dense is the last write to which a run with a fault at every second write applies it.
	dense = 20
	// storm is the number of writes that a storm refuses.
	storm = 15
)

// TestFaults plays each scenario without faults, and then with each action at each write of that run; with -short, with one
// action at each write, in turn. The name of a run
// says what it does: up/kill-after-patch-pods.resize#2 kills the operator after the second resize in the scenario "up".
func TestFaults(t *testing.T) {
	for _, s := range world.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			reference := play(t, s, nil, action{}, never, 0)
			run := func(name string, a action, at strikes, lag int) {
				t.Run(name, func(t *testing.T) { play(t, s, &reference, a, at, lag) })
			}
			numbers := map[string]int{}
			for i, write := range reference.writes {
				kind := write.Kind()
				numbers[kind]++
				number := numbers[kind]
				at := func(w world.Write, n, _ int) bool { return w.Kind() == kind && n == number }
				name := fmt.Sprintf("%s#%d", strings.NewReplacer("/", ".", " ", "-").Replace(kind), number)
				for j, a := range actions {
					if !testing.Short() || i%len(actions) == j {
						run(a.name+"-"+name, a, at, 0)
					}
				}
				if !testing.Short() {
					run("kill-after-"+name+"-lagging", killAfter, at, 1)
				}
			}
			run("none-lagging", action{}, never, 1)
			run("reply-lost-every-2nd-checkpoint", replyLost, func(w world.Write, n, _ int) bool {
				return w.Resource == "verticalscalercheckpoints" && n%2 == 1
			}, 0)
			if !testing.Short() {
				for _, a := range actions {
					run(a.name+"-every-2nd", a, func(_ world.Write, _, i int) bool { return i%2 == 0 && i <= dense }, 0)
					run(a.name+"-storm", a, func(_ world.Write, _, i int) bool { return i <= storm }, 0)
				}
			}
		})
	}
}
