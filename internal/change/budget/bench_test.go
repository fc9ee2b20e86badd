// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"syscall"
	"testing"
	"time"
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

var waitings = []int{1000, 20000, 100000}

// BenchmarkOneCall compares what the budget costs with so many waiting scalers, in one run:
//
//   - ask: a scaler asks in vain, and Next is called
//   - slot: a slot is freed, the first scaler is requeued, gets it, and waits for another one
//   - scan: the first scaler is found by looking at all, as it was before there were trees. Each
//     call of Ask and Next did this once for each free slot, and two more loops over all scalers
func BenchmarkOneCall(b *testing.B) {
	for _, waiting := range waitings {
		b.Run(fmt.Sprintf("ask/waiting=%d", waiting), func(b *testing.B) {
			crowded, now := crowd(b, waiting)
			defer reportCPU(b)()
			for i := 0; b.Loop(); i++ {
				n := i % waiting
				crowded.Ask(now, named(fmt.Sprint("n", n/100), fmt.Sprint(n)), wantOf(n+i/waiting))
				crowded.Next(now)
			}
		})
		b.Run(fmt.Sprintf("slot/waiting=%d", waiting), func(b *testing.B) {
			crowded, now := crowd(b, waiting)
			defer reportCPU(b)()
			made := 0
			for b.Loop() {
				now = now.Add(200 * time.Millisecond)
				requeue, _ := crowded.Next(now)
				for _, key := range requeue {
					if granted, _ := crowded.Ask(now, key, Want{}); granted {
						made++
						crowded.Done(now, key)
						crowded.Ask(now, key, Want{})
					}
				}
			}
			if made < b.N*9/10 {
				b.Errorf("%d changes with %d slots", made, b.N)
			}
		})
		b.Run(fmt.Sprintf("scan/waiting=%d", waiting), func(b *testing.B) {
			crowded, now := crowd(b, waiting)
			defer reportCPU(b)()
			for b.Loop() {
				if scan(crowded, now) == nil {
					b.Fatal("nobody is in line")
				}
			}
		})
	}
}

// reportCPU reports the CPU time of an iteration until the returned function is called. Unlike the
// time of the clock, it does not depend on what else the machine does.
func reportCPU(b *testing.B) (end func()) {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}
