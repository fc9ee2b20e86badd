// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
)

// BenchmarkIdle is a minute in which nothing changes, of an operator with 1,000 scalers: a round of the collector, and
// the resyncs of a tenth of the scalers. It tells the CPU of such a minute, and the garbage collector's share of it.
// Requests for usage are not in it.
func BenchmarkIdle(b *testing.B) {
	const scalers, minutesBetweenResyncs = 1000, 10
	a := newAPI(b)
	serveFleet(a, scalers, true)
	o := settled(b, a, scalers, true)
	var cost bench.Cost
	minute := 0
	for b.Loop() {
		cost.Measure(b, func() {
			o.usage.round.Add(1)
			o.collector.Collect(b.Context())
			for i := minute % minutesBetweenResyncs; i < scalers; i += minutesBetweenResyncs {
				o.reconcile(b, i)
			}
		})
		minute++
	}
	perByte := bench.CollectorPerByte(b)
	bench.Report(b, bench.Operator, "cpu-ns/minute", cost.CPU(perByte)/float64(minute))
	bench.Report(b, bench.Operator, "gc-percent", 100*(1-cost.CPU(0)/cost.CPU(perByte)))
	b.ReportMetric(0, "ns/op") // It would be as much.
}
