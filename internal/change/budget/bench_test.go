// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
)

// BenchmarkBudget is the CPU time of one call of a full budget, by the number of scalers that wait: a
// scaler asks again, and the queue asks who is next.
func BenchmarkBudget(b *testing.B) {
	for _, waiting := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			full := budget.New(budget.Limits{Changes: 300, PerNamespace: 60, Window: time.Minute})
			ask := func(i int) {
				scaler := types.NamespacedName{Namespace: fmt.Sprintf("ns-%d", i/100), Name: fmt.Sprintf("s-%d", i)}
				full.Ask(now, scaler, budget.Want{Class: budget.ScaleUp, Benefit: float64(i % 97)})
			}
			for i := range waiting {
				ask(i)
			}
			i := 0
			bench.InTurns(b, bench.Contender{Name: bench.Operator, Run: func() {
				now = now.Add(time.Millisecond)
				ask(waiting/2 + i%(waiting/4)) // those at the front may have been granted a change
				full.Next(now)
				i++
			}})
		})
	}
}
