// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
)

// BenchmarkMemory is the live heap of a scaler with its Deployment of three pods with two containers
// each, and of a pod that no scaler names. The operator is compared with the cache of the stock operator,
// which holds the same objects and no history of usage.
func BenchmarkMemory(b *testing.B) {
	const few, many, foreign = 200, 1200, 5000
	for _, w := range []struct {
		name  string
		start func(*testing.B, *api, int) any
	}{
		{bench.Operator, startOperator},
		{"stock-cache", startStock},
	} {
		small, _ := heapOf(b, few, 0, w.start)
		large, withForeign := heapOf(b, many, foreign, w.start)
		bench.Report(b, w.name, "B/scaler", (large-small)/(many-few))
		// Less than a byte cannot be measured, and may be less than nothing.
		bench.Report(b, w.name, "B/foreign-pod", max(0, math.Floor((withForeign-large)/foreign)))
	}
	b.ReportMetric(0, "ns/op") // meaningless
}

// heapOf is the heap of an operator with n scalers, before and after a number of foreign pods appear.
func heapOf(b *testing.B, n, foreign int, start func(*testing.B, *api, int) any) (before, after float64) {
	b.Helper()
	empty := bench.LiveHeap()
	a := newAPI(b)
	serveFleet(a, n, true)
	started := start(b, a, n)
	measure := func() float64 {
		time.Sleep(time.Second) // The watches deliver what is under way.
		return float64(bench.LiveHeap()) - float64(empty) - float64(a.size())
	}
	before = measure()
	if foreign > 0 {
		serve(a, foreign, fleet.ForeignPod)
		after = measure()
	}
	runtime.KeepAlive(started)
	return before, after
}

func startOperator(b *testing.B, a *api, scalers int) any {
	b.Helper()
	return settled(b, a, scalers, true)
}

func startStock(b *testing.B, a *api, _ int) any {
	b.Helper()
	return newStock(b, a, true)
}
