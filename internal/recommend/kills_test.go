// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// sized is a container whose memory limit follows the recommendation at once.
type sized struct {
	history  history.Container
	previous *Container
	limit    int64
	kills    int32
	params   Params
}

// need lets the container need an amount of memory, at a time. Usage is at most the limit.
func (s *sized) need(at time.Time, bytes int64) {
	s.history.Add(usage.Sample{Container: "app", Time: at, CPUMillis: 100, MemoryBytes: min(bytes, s.limit)}, s.params.History)
	if bytes > s.limit {
		s.kills++
		s.history.RecordKill(history.Kill{At: at, HitBytes: s.limit, Pod: "a", Termination: s.kills}, at, s.params.History)
	}
	next, ok := For("app", &s.history, Policy{CPU: true, Memory: true}, s.previous, s.params)
	if ok {
		s.previous, s.limit = &next, next.Target.MemoryBytes
	}
}

// TestABatchIsKilledInItsFirstRunOnly: a run of two hours needs several times the container's usual
// memory. No run is quite like the one before it.
func TestABatchIsKilledInItsFirstRunOnly(t *testing.T) {
	cases := map[string]struct {
		every, runs  int // days between runs, and their number
		beginsMiB    int64
		idleMiB, MiB float64
		most         int32 // kills in the first run
	}{
		"weekly, four times as much":                  {every: 7, runs: 5, beginsMiB: 6000, idleMiB: 1000, MiB: 4000, most: 3},
		"every 12 days, three times as much":          {every: 12, runs: 4, beginsMiB: 6000, idleMiB: 1000, MiB: 3000, most: 3},
		"monthly, three times as much":                {every: 31, runs: 3, beginsMiB: 6000, idleMiB: 1000, MiB: 3000, most: 3},
		"nightly, on the first day":                   {every: 1, runs: 9, beginsMiB: 512, idleMiB: 256, MiB: 1500, most: 2},
		"every 12 days, a little more than was there": {every: 12, runs: 4, beginsMiB: 512, idleMiB: 400, MiB: 600, most: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			const step = 5 * time.Minute
			r := rand.New(rand.NewPCG(1, 9))
			s := &sized{limit: tc.beginsMiB * mebi, params: params}
			s.params.History.MaxGap = 3 * step
			byRun := make([]int32, tc.runs)
			for i := range int(time.Duration(tc.every*tc.runs) * day / step) {
				at := time.Duration(i) * step
				run, within := int(at/day)/tc.every, at%(time.Duration(tc.every)*day)
				memory := tc.idleMiB
				if start := time.Duration(tc.every)*day - 10*time.Hour; within >= start && within < start+2*time.Hour {
					memory = tc.MiB
				}
				before := s.kills
				s.need(noon.Add(at), int64(memory*(0.98+r.Float64()/25)*mebi))
				byRun[run] += s.kills - before
			}
			t.Logf("kills by run: %v", byRun)
			if byRun[0] == 0 || byRun[0] > tc.most {
				t.Errorf("killed %d times in the first run, want 1 to %d", byRun[0], tc.most)
			}
			for run, kills := range byRun[1:] {
				if kills > 0 {
					t.Errorf("killed %d times in run %d", kills, run+2)
				}
			}
		})
	}
}

// TestACreepingPeakKeepsMoreThanHalfOfItsMargin: the heap grows by a little each hour, and the target
// is raised before half of the margin is gone. That takes a raise for each third of the margin.
func TestACreepingPeakKeepsMoreThanHalfOfItsMargin(t *testing.T) {
	for percent, most := range map[int]int{0: 7, 12: 5, 30: 3} { // the margin asked for, and the most raises
		t.Run(fmt.Sprint(percent, " % asked for"), func(t *testing.T) {
			h := seen(10*day, constant(200, 400))
			asked := Policy{CPU: true, Memory: true, MarginPercent: percent}
			var previous *Container
			var raises int
			margin, memory := 0.0, 400.0
			for range 5 * 24 {
				memory *= 1.001
				extend(h, time.Hour, constant(200, memory))
				got, _ := For("app", h, asked, previous, params)
				if previous == nil || got.Target.MemoryBytes != previous.Target.MemoryBytes {
					raises++
					margin = float64(got.Target.MemoryBytes)/(memory*mebi) - 1
				}
				if left := float64(got.Target.MemoryBytes)/(memory*mebi) - 1; left < margin/2 {
					t.Fatalf("at %.0f MiB, %.1f %% are left of a margin of %.1f %%", memory, 100*left, 100*margin)
				}
				previous = &got
			}
			if raises < 2 || raises > most {
				t.Errorf("%d targets for 12 %% more, want 2 to %d", raises, most)
			}
		})
	}
}

// TestSteadyUsageAfterAKillIsNotTouched: usage that varies below the killed size changes only the
// bounds, and the target while the floor fades.
func TestSteadyUsageAfterAKillIsNotTouched(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	h := killed(seen(9*day, constant(200, 400)), 9*day, 500)
	var previous *Container
	changes := 0
	for range 10 * 1440 {
		extend(h, time.Minute, constant(200, 480+10*r.Float64()))
		got, _ := For("app", h, Policy{CPU: true, Memory: true}, previous, params)
		if previous != nil && !reflect.DeepEqual(got, *previous) {
			changes++
		}
		previous = &got
	}
	t.Logf("%d changes", changes)
	if changes > 8 {
		t.Errorf("%d changes in 10 days, want at most 8", changes)
	}
}
