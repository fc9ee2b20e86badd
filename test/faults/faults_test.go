// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/cluster"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/proxy"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// injection is a run with faults in a scenario.
type injection struct {
	name   string // without the scenario
	family string // the row of the table
	faults []proxy.Fault
}

// TestFaults compares runs with a fault to a run without. up/kill-after-patch-pods.resize#2 kills the operator after the
// second resize of the scenario "up".
func TestFaults(t *testing.T) {
	opened := cluster.Open(t, env)
	for i, scenario := range world.Scenarios() {
		t.Run(scenario.Name, func(t *testing.T) {
			t.Parallel()
			reference := referenceOf(t, opened, scenario)
			for _, in := range injections(reference.writes) {
				t.Run(in.name, func(t *testing.T) {
					t.Parallel()
					r := newRun(t, opened, scenario, in.family, patience)
					r.start(in.faults...)
					r.act()
					r.judge(r.settle(), &reference)
				})
			}
			for _, s := range specials(i) {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					r := newRun(t, opened, scenario, s.family, patience)
					s.begin(r)
					r.judge(r.settle(), &reference)
				})
			}
		})
	}
}

// referenceOf runs a scenario without faults.
func referenceOf(t *testing.T, opened *cluster.Cluster, scenario world.Scenario) outcome {
	t.Helper()
	r := newRun(t, opened, scenario, "none", patience)
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

// injections are the runs of a scenario in which the operator is killed: before and after the first two writes of each kind
// that changes pods or templates. All other faults at single writes are in test/onestep.
func injections(writes []proxy.Write) (out []injection) {
	// A second run without faults shows that the comparison is stable.
	out = append(out, injection{name: "none", family: "none"})
	numbers := map[string]int{}
	for _, write := range writes {
		kind := write.Kind()
		numbers[kind]++
		switch kind {
		case "patch pods/resize", "create pods/eviction", "patch deployments":
			for _, action := range []proxy.Action{proxy.KillBefore(), proxy.KillAfter()} {
				if numbers[kind] <= 2 {
					out = append(out, injection{
						name:   fmt.Sprintf("%s-%s#%d", action, strings.NewReplacer("/", ".", " ", "-").Replace(kind), numbers[kind]),
						family: action.String(),
						faults: []proxy.Fault{{Kind: kind, N: numbers[kind], Action: action}},
					})
				}
			}
		}
	}
	return out
}
