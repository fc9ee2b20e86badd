// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
)

// crowd is a budget whose slots are used up, with so many waiting scalers in namespaces of 100.
// One slot is freed each 0.2 s.
func crowd(b *testing.B, waiting int) (crowded *Budget, now time.Time) {
	b.Helper()
	crowded, now = minute(300, 60), noon
	for i := range 300 {
		key := named(fmt.Sprint("n", i%50), fmt.Sprint("first-", i))
		crowded.Ask(now, key, Want{})
		crowded.Done(now, key)
		now = now.Add(200 * time.Millisecond)
	}
	for i := range waiting {
		crowded.Ask(now, named(fmt.Sprint("n", i/100), fmt.Sprint(i)), wantOf(i))
	}
	if got := crowded.Waiting(); got < waiting-1 {
		b.Fatalf("%d of %d wait", got, waiting)
	}
	return crowded, now
}

func wantOf(i int) Want { return Want{Class(i * 7 % 4), float64(i * 31 % 1000)} }

// withCrowds runs a benchmark with different numbers of waiting scalers.
func withCrowds(b *testing.B, run func(b *testing.B, crowded *Budget, now time.Time, waiting int)) {
	b.Helper()
	for _, waiting := range []int{1000, 20_000, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			crowded, now := crowd(b, waiting)
			run(b, crowded, now, waiting)
		})
	}
}

// BenchmarkBudget is what a full budget costs when a scaler asks, gets no slot, and the queue asks who is next. It is
// compared with finding the first scaler by looking at all, as it was before there were trees. Each
// call of Ask and Next did this once for each free slot, and two more loops over all scalers.
func BenchmarkBudget(b *testing.B) {
	withCrowds(b, func(b *testing.B, crowded *Budget, now time.Time, waiting int) {
		b.Helper()
		i := 0
		bench.InTurns(b, bench.Contender{Name: bench.Operator, Run: func() {
			n := i % waiting
			crowded.Ask(now, named(fmt.Sprint("n", n/100), fmt.Sprint(n)), wantOf(n+i/waiting))
			crowded.Next(now)
			i++
		}}, bench.Contender{Name: "scan", Run: func() {
			if scan(crowded, now) == nil {
				b.Fatal("nobody is in line")
			}
		}})
	})
}

// BenchmarkSlot is what it costs that a slot is freed, and the first scaler is requeued, gets it, and waits for
// another one.
func BenchmarkSlot(b *testing.B) {
	withCrowds(b, func(b *testing.B, crowded *Budget, now time.Time, _ int) {
		b.Helper()
		slots, made := 0, 0
		bench.InTurns(b, bench.Contender{Name: bench.Operator, Run: func() {
			slots++
			now = now.Add(200 * time.Millisecond)
			requeue, _ := crowded.Next(now)
			for _, key := range requeue {
				if granted, _ := crowded.Ask(now, key, Want{}); granted {
					made++
					crowded.Done(now, key)
					crowded.Ask(now, key, Want{})
				}
			}
		}})
		if made < slots*9/10 {
			b.Errorf("%d changes with %d slots", made, slots)
		}
	})
}
