// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/shards"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
)

// BenchmarkReplicas is the live heap of each of three replicas that share a fleet, and its CPU time for a round in which
// it collects usage and reconciles all of its scalers, beside those of one replica with the whole fleet. What an operator without
// scalers has is part of all.
func BenchmarkReplicas(b *testing.B) {
	for _, namespaces := range []int{30, 100} {
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			scalers := namespaces * fleet.PerNamespace
			slots := []int{0, 1, 2}
			all := costOfView(b, scalers, shards.Alone())
			all.report(b, "one-replica")
			var largest viewCost
			for _, slot := range slots {
				cost := costOfView(b, scalers, shards.View{Slot: slot, Slots: slots})
				cost.report(b, fmt.Sprintf("replica-%d-of-3", slot))
				largest = viewCost{max(largest.heap, cost.heap), max(largest.cpu, cost.cpu), max(largest.scalers, cost.scalers)}
			}
			bench.Report(b, bench.Operator, "percent-of-heap", 100*largest.heap/all.heap)
			bench.Report(b, bench.Operator, "percent-of-cpu", 100*float64(largest.cpu)/float64(all.cpu))
			bench.Report(b, bench.Operator, "percent-of-scalers", 100*float64(largest.scalers)/float64(scalers))
			b.ReportMetric(0, "ns/op") // meaningless
		})
	}
}

// viewCost is what a replica needs that works on a view.
type viewCost struct {
	heap    float64       // live, in bytes
	cpu     time.Duration // for one round
	scalers int
}

func (c viewCost) report(b *testing.B, name string) {
	b.Helper()
	bench.Report(b, name, "MB", c.heap/1e6)
	bench.Report(b, name, "cpu-ms", float64(c.cpu)/1e6)
}

func costOfView(b *testing.B, scalers int, view shards.View) (cost viewCost) {
	b.Helper()
	ctrl.SetLogger(logr.Discard())
	empty := bench.LiveHeap()
	a := newAPI(b)
	serveFleet(a, scalers, true)
	o := &operator{api: a, scalers: scalers, usage: &steadyUsage{scalers: scalers, start: time.Now().Truncate(time.Second)}}
	c, scope := testkit.OperatorConfig(), app.Scope{}
	options := app.ManagerOptions(c, scope)
	options.LeaderElection, options.Cache.NewInformer = false, view.NewInformer
	mgr, err := ctrl.NewManager(a.config(), options)
	if err != nil {
		b.Fatal(err)
	}
	o.stop = run(b, mgr, func(ctx context.Context) error {
		_, err := app.SetupView(ctx, capturing{mgr, &o.captured}, c, app.Options{Source: o.usage}, scope, view)
		return err
	})
	o.settle(b, true)
	var own []int
	for i := range scalers {
		if view.Owns(fleet.Namespace(i)) {
			own = append(own, i)
		}
	}
	const rounds = 3
	before := bench.CPUTime(b)
	for range rounds {
		o.usage.round.Add(1)
		o.collector.Collect(b.Context())
		for _, i := range own {
			o.reconcile(b, i)
		}
	}
	cost = viewCost{cpu: (bench.CPUTime(b) - before) / rounds, scalers: len(own)}
	cost.heap = float64(bench.LiveHeap()) - float64(empty) - float64(a.size())
	o.stop()
	runtime.KeepAlive(o)
	return cost
}
