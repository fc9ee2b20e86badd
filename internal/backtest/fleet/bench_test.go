// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/traces"
)

// BenchmarkEvaluate replays 8 days of 10 containers with all rules.
func BenchmarkEvaluate(b *testing.B) {
	made := traces.Make(10, 8*day, 5*time.Minute)
	c := container("app", quantity.Amounts{CPUMillis: 1000, MemoryBytes: gibi}, quantity.Amounts{})
	for b.Loop() {
		for _, trace := range made {
			if _, ok := options.Evaluate(c, trace); !ok {
				b.Fatal("nothing is recommended")
			}
		}
	}
}
