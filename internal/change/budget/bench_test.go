// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkBudget is the cost of a slot while many scalers wait in namespaces of 100: it is freed, the first scaler is
// requeued, gets it, and waits for another one. Ten others ask meanwhile and get none.
func BenchmarkBudget(b *testing.B) {
	for _, waiting := range []int{1000, 20_000, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			crowded, now, i := minute(300, 60), noon, 0
			ask := func() {
				key := named(fmt.Sprint("n", i%waiting/100), fmt.Sprint(i%waiting))
				if granted, _ := crowded.Ask(now, key, Want{Class(i * 7 % 4), float64(i * 31 % 1000)}); granted {
					crowded.Done(now, key)
				}
				i++
			}
			for range waiting {
				ask()
			}
			for b.Loop() {
				now = now.Add(200 * time.Millisecond)
				requeue, _ := crowded.Next(now)
				for _, key := range requeue {
					if granted, _ := crowded.Ask(now, key, Want{}); granted {
						crowded.Done(now, key)
						crowded.Ask(now, key, Want{})
					}
				}
				for range 10 {
					ask()
				}
			}
		})
	}
}
