// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
)

// BenchmarkNoOpReconcile is the CPU time of a reconcile that finds everything as it should be. The
// namespace has a hundred scalers, 300 pods, and HPAs of Deployments that no scaler names.
func BenchmarkNoOpReconcile(b *testing.B) {
	for _, hpas := range []int{0, 1000} {
		b.Run(fmt.Sprintf("hpas=%d", hpas), func(b *testing.B) {
			a := newAPI(b)
			serveFleet(a, fleet.PerNamespace, true)
			if hpas > 0 {
				serve(a, hpas, fleet.HPA)
			}
			o := settled(b, a, fleet.PerNamespace, true)
			before, _ := a.written()
			bench.InTurns(b,
				bench.Contender{Name: bench.Operator, Run: reconciling(b, o.reconciler)},
				bench.Contender{Name: indexedList, Run: reconciling(b, newStock(b, a, true))},
				bench.Contender{Name: listAndFilter, Run: reconciling(b, newStock(b, a, false))},
			)
			if after, what := a.written(); after != before {
				b.Fatalf("a reconcile wrote: %s", what)
			}
		})
	}
}

// reconciling reconciles one scaler after the other.
func reconciling(b *testing.B, r reconcile.Reconciler) func() {
	b.Helper()
	i := 0
	return func() {
		request := reconcile.Request{NamespacedName: fleet.Key(i % fleet.PerNamespace)}
		if _, err := r.Reconcile(b.Context(), request); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
