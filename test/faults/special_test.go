// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/cluster"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/operator"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/proxy"
)

// special is a run with faults other than those at single writes.
type special struct {
	name, family string
	// begin starts the operator and acts. It returns when the faults are over, or will be in
	// time.
	begin func(r *run)
}

// specials are the special runs of a scenario: all in the first one.
func specials(scenario int) []special {
	if scenario > 0 {
		return nil
	}
	return []special{
		{"hung-write", "hang", func(r *run) {
			r.start(proxy.Fault{N: 2, Action: proxy.Hang()})
			r.act()
		}},
		{"paused-leader", "paused leader", pausedLeader},
	}
}

// wait waits until something is so.
func (r *run) wait(what string, is func() bool) error {
	return r.world.Wait(r.ctx, what, func(*cluster.World) string {
		if !is() {
			return "not yet"
		}
		return ""
	})
}

// pausedLeader stops the leader during its first write, as a frozen machine does. A second one
// takes over. The write of the first arrives when the second is done, and the first goes on.
func pausedLeader(r *run) {
	elected := func(o *operator.Options) {
		o.Config.LeaderElection.Enabled, o.Config.LeaderElection.Namespace = true, testkit.System
	}
	r.mayEnd = true // who has lost the lease ends
	r.proxy.Plan(proxy.Fault{N: 1, Action: proxy.Delay(0)})
	first := r.startOperator("first", r.proxy, elected)
	r.act()
	if err := r.wait("the first write", func() bool { return r.proxy.Injected() > 0 }); err != nil {
		r.Fatal(err)
	}
	if err := first.Pause(); err != nil {
		r.Fatal(err)
	}
	r.operator = r.startOperator("second", r.newProxy(), elected)
	if err := r.world.Converge(r.ctx); err != nil {
		r.violated("beside a paused leader: %v", err)
	}
	r.proxy.Release()
	if err := first.Continue(); err != nil {
		r.Fatal(err)
	}
	if err := r.wait("the first leader to notice", func() bool { return len(first.Ends()) > 0 }); err != nil {
		r.violated("a leader that was paused does not end")
	}
}
