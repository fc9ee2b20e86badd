// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/proxy"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/world"
)

// injection is a run with faults in a scenario.
type injection struct {
	name   string // without the scenario
	family string // the row of the table
	faults []proxy.Fault
}

// TestFaults runs each scenario without faults, and then with a fault at each write of that run.
// The name of a run says what it does: up/kill-after-patch-pods.resize#2 kills the operator after
// the second resize in the scenario "up".
func TestFaults(t *testing.T) {
	cluster := world.Open(t, env)
	t.Run("rights", func(t *testing.T) { // alone: all operators have the same rights
		scenario := world.Scenarios()[0]
		reference := referenceOf(t, cluster, scenario)
		for _, resource := range rights {
			t.Run("without-"+orAll(strings.ReplaceAll(resource, "/", ".")), func(t *testing.T) {
				r := newRun(t, cluster, scenario, "rights taken away", patience)
				takeRights(r, resource)
				r.judge(r.settle(), &reference)
			})
		}
	})
	for i, scenario := range world.Scenarios() {
		t.Run(scenario.Name, func(t *testing.T) {
			t.Parallel()
			reference := referenceOf(t, cluster, scenario)
			for _, in := range injections(i, reference.writes) {
				t.Run(in.name, func(t *testing.T) {
					t.Parallel()
					r := newRun(t, cluster, scenario, in.family, patience)
					r.start(in.faults...)
					r.act()
					r.judge(r.settle(), &reference)
				})
			}
			for _, s := range specials(i) {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					r := newRun(t, cluster, scenario, s.family, patience)
					s.begin(r)
					r.judge(r.settle(), &reference)
				})
			}
		})
	}
}

// referenceOf runs a scenario without faults.
func referenceOf(t *testing.T, cluster *world.Cluster, scenario world.Scenario) outcome {
	t.Helper()
	r := newRun(t, cluster, scenario, "none", patience)
	r.start()
	r.act()
	got := r.settle()
	r.judge(got, nil)
	r.close()
	if t.Failed() {
		t.Fatal("without faults, it fails already")
	}
	for i, write := range got.writes {
		t.Logf("write %d: %s", i+1, write)
	}
	return got
}

var (
	// actions are applied to each write of the reference.
	actions = []proxy.Action{proxy.KillBefore(), proxy.KillAfter(), proxy.LoseReply(), proxy.RefuseBefore(http.StatusInternalServerError)}
	// moreActions are applied to each write with FULL=1 only.
	moreActions = []proxy.Action{
		proxy.RefuseBefore(http.StatusConflict), proxy.RefuseBefore(http.StatusTooManyRequests), proxy.RefuseBefore(http.StatusForbidden),
		proxy.RefuseBefore(http.StatusServiceUnavailable), proxy.Delay(3 * time.Second), proxy.Cut(),
	}
)

// injections are the runs of a scenario with faults at its writes. The number of the scenario
// chooses the subset that runs without FULL=1.
func injections(scenario int, writes []proxy.Write) (out []injection) {
	// A second run without faults shows that the comparison is stable.
	out = append(out, injection{name: "none", family: "none"})
	all := append(slices.Clone(actions), moreActions...)
	numbers := map[string]int{}
	for i, write := range writes {
		kind := write.Kind()
		numbers[kind]++
		for j, action := range all {
			if !full && !isInSubset(scenario+i, j, kind, numbers[kind]) {
				continue
			}
			out = append(out, injection{
				name:   fmt.Sprintf("%s-%s#%d", action, strings.NewReplacer("/", ".", " ", "-").Replace(kind), numbers[kind]),
				family: action.String(),
				faults: []proxy.Fault{{Kind: kind, N: numbers[kind], Action: action}},
			})
		}
	}
	for j, action := range all {
		if !full && (scenario+j)%3 != 0 {
			continue
		}
		out = append(out, injection{
			name: fmt.Sprintf("%s-every-2nd", action), family: action.String() + ", every 2nd",
			faults: []proxy.Fault{{Every: 2, Last: dense, Action: action}},
		})
	}
	return out
}

// dense is the last write to which a run with a fault at every second write applies it. After ten
// failures in a row, the operator waits a minute and a half until it tries again.
const dense = 20

// isInSubset tells whether an action is applied to a write without FULL=1: each of the first four
// to the first two writes of each kind that changes pods or templates, and one of them, in turn, to
// every fourth of all other writes.
func isInSubset(turn, action int, kind string, number int) bool {
	if action >= len(actions) {
		return false
	}
	switch kind {
	case "patch pods/resize", "create pods/eviction", "patch deployments":
		if number <= 2 {
			return true
		}
	}
	return turn%4 == 0 && turn/4%len(actions) == action
}
