// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const aDay = 24 * time.Hour

// aged is a history of just over a day, with a peak, that ends at the time returned.
func aged(peakMiB int64) (*Container, time.Time) {
	c := &Container{}
	feed(c, 0, aDay+time.Hour, 100, peakMiB*mebi)
	return c, noon.Add(aDay + time.Hour)
}

// kill is an OOM kill of a pod, a while after the history ends.
type kill struct {
	pod    string
	number int32
	at     time.Duration
	hitMiB int64
	isOld  bool // it does not count
}

func TestTheFloorOfKills(t *testing.T) {
	minute, hour := time.Minute, time.Hour
	cases := map[string]struct {
		peakMiB int64
		kills   []kill
		wantMiB int64
	}{
		"without a kill there is no floor":            {peakMiB: 900, wantMiB: 0},
		"the floor is 20 % above the limit hit":       {peakMiB: 900, kills: []kill{{hitMiB: 1000}}, wantMiB: 1200},
		"a peak above the limit counts instead":       {peakMiB: 1500, kills: []kill{{hitMiB: 1000}}, wantMiB: 1800},
		"an unknown size is not invented":             {peakMiB: 900, kills: []kill{{}}, wantMiB: 1080},
		"an absurd limit is cut":                      {peakMiB: 900, kills: []kill{{hitMiB: 1 << 40}}, wantMiB: 1 << 30},
		"a kill seen twice counts once":               {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {hitMiB: 1200, isOld: true}}, wantMiB: 1200},
		"the next one in a row raises more":           {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {number: 1, at: 50 * minute, hitMiB: 1200}}, wantMiB: 2040},
		"and the one after it more again":             {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {number: 1, at: minute, hitMiB: 1200}, {number: 2, at: 2 * minute, hitMiB: 2040}}, wantMiB: 4080},
		"and so does each later one":                  {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {number: 1, at: 1, hitMiB: 1200}, {number: 2, at: 2, hitMiB: 2040}, {number: 3, at: 3, hitMiB: 4080}}, wantMiB: 8160},
		"nine days later another row begins":          {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {number: 1, at: 9 * 24 * hour, hitMiB: 1200}}, wantMiB: 1440},
		"a daily job goes on with the row":            {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {number: 1, at: 24 * hour, hitMiB: 1200}}, wantMiB: 2040},
		"a row goes on over pods":                     {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {pod: "b", at: minute, hitMiB: 1200}}, wantMiB: 2040},
		"a node whose clock is behind breaks no row":  {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {pod: "b", at: -10 * minute, hitMiB: 1200}}, wantMiB: 2040},
		"a size above the floor goes on with the row": {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {number: 1, at: minute, hitMiB: 2000}}, wantMiB: 3400},
		"other replicas that hit the old size raise nothing": {
			peakMiB: 900, kills: []kill{{hitMiB: 1000}, {pod: "b", at: 1, hitMiB: 1000}, {pod: "c", at: 2, hitMiB: 1000}, {pod: "d", at: 2, hitMiB: 1000}}, wantMiB: 1200,
		},
		"and are not steps of the row": {
			peakMiB: 900, kills: []kill{{hitMiB: 1000}, {pod: "b", at: 1, hitMiB: 1000}, {pod: "c", at: 2, hitMiB: 1000}, {number: 1, at: minute, hitMiB: 1200}}, wantMiB: 2040,
		},
		"an unknown size raises nothing above the floor of a known one": {peakMiB: 900, kills: []kill{{hitMiB: 1000}, {number: 1, at: minute}}, wantMiB: 1200},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, now := aged(tc.peakMiB)
			for _, k := range tc.kills {
				got := c.RecordKill(Kill{At: now.Add(k.at), HitBytes: k.hitMiB * mebi, Pod: "pod-" + k.pod, Termination: k.number}, now.Add(k.at), params)
				if got == k.isOld {
					t.Errorf("RecordKill(%+v) = %v, want %v", k, got, !k.isOld)
				}
			}
			if got := c.OOMFloor(params); got != tc.wantMiB*mebi {
				t.Errorf("OOMFloor() = %.1f MiB, want %d", float64(got)/mebi, tc.wantMiB)
			}
		})
	}
}

// A container that may get no more memory is killed at the same size again and again. That is not new evidence of its need.
func TestKillsAtABoundDoNotInflateTheFloor(t *testing.T) {
	for name, every := range map[string]time.Duration{"in a row": 2 * time.Minute, "each on its own": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c, now := aged(900)
			for i := range int32(1000) {
				at := now.Add(time.Duration(i) * every)
				c.RecordKill(Kill{At: at, HitBytes: 1000 * mebi, Pod: "pod-a", Termination: i}, at, params)
			}
			if got := c.OOMFloor(params); got > 1200*mebi {
				t.Errorf("the floor is %d MiB after a thousand kills at 1000 MiB, want at most 1200", got/mebi)
			}
		})
	}
}

func TestTheFirstDayTakesLargerSteps(t *testing.T) {
	cases := map[string]struct {
		observed, ago time.Duration
		hitMiB        int64
		wantMiB       int64
	}{
		"an empty history will do":                              {hitMiB: 1000, wantMiB: 2000},
		"a short one doubles what was hit":                      {observed: 23 * time.Hour, hitMiB: 1000, wantMiB: 2000},
		"a day does not":                                        {observed: aDay, hitMiB: 1000, wantMiB: 1200},
		"a kill of the last hour is one of today":               {observed: time.Hour, ago: time.Hour, hitMiB: 1000, wantMiB: 2000},
		"an old kill was survived since, and doubles nothing":   {observed: time.Hour, ago: 2 * time.Hour, hitMiB: 1000, wantMiB: 1200},
		"an unknown size doubles nothing":                       {observed: time.Hour, wantMiB: 1080},
		"an unknown size in an empty history leads to no floor": {wantMiB: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var c Container
			if tc.observed > 0 {
				feed(&c, 0, tc.observed, 100, 900*mebi)
			}
			now := noon.Add(tc.observed)
			if !c.RecordKill(Kill{At: now.Add(-tc.ago), HitBytes: tc.hitMiB * mebi, Pod: "a"}, now, params) {
				t.Error("the kill does not count")
			}
			if got := c.OOMFloor(params); got != tc.wantMiB*mebi {
				t.Errorf("OOMFloor() = %.1f MiB, want %d", float64(got)/mebi, tc.wantMiB)
			}
		})
	}
}

func TestARowOfTheFirstDay(t *testing.T) {
	var c Container
	feed(&c, 0, time.Hour, 100, 90*mebi)
	now, hit := noon.Add(time.Hour), int64(100)
	for i, wantMiB := range []int64{200, 480, 1440, 4320} {
		now = now.Add(time.Minute)
		// The usage source sees the container at its limit before it is killed.
		c.Add(sample(now.Sub(noon)-time.Second, 100, hit*mebi), params)
		c.RecordKill(Kill{At: now, HitBytes: hit * mebi, Pod: "a", Termination: int32(i)}, now, params)
		if got := c.OOMFloor(params); got != wantMiB*mebi {
			t.Errorf("kill %d at %d MiB: the floor is %d MiB, want %d", i+1, hit, got/mebi, wantMiB)
		}
		hit = wantMiB
	}
}

// Two kills in a row have led to 2040 MiB. An earlier kill on an unreachable node is reported late: it is the first of
// its own row, and the next one is still the third of theirs.
func TestAKillThatIsReportedLateIsInNoRow(t *testing.T) {
	c, now := aged(900)
	record := func(pod string, at time.Time, hit, want int64) {
		t.Helper()
		if !c.RecordKill(Kill{At: at, HitBytes: hit * mebi, Pod: pod, Termination: 1}, now, params) {
			t.Errorf("the kill of %s does not count", pod)
		}
		if got := c.OOMFloor(params) / mebi; got != want {
			t.Errorf("after the kill of %s the floor is %d MiB, want %d", pod, got, want)
		}
	}
	record("a", now.Add(-30*time.Minute), 1000, 1200)
	record("b", now.Add(-20*time.Minute), 1200, 2040)
	record("late", now.Add(-5*time.Hour), 2040, 2448)
	record("c", now.Add(-time.Minute), 2448, 4896)
}

// TestAKillCountsOnce lets up to thirty pods on nodes with skewed clocks be killed at random. All
// pods report their newest kill in each round, in any order, and the history is restarted now and
// then. No kill counts twice; and the first report of a kill on a node with the right time counts.
func TestAKillCountsOnce(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		c, now := aged(900)
		skew := make([]time.Duration, 1+r.IntN(30))
		for i := range skew {
			switch r.IntN(4) {
			case 0:
				skew[i] = time.Duration(r.Int64N(int64(365 * aDay)))
			case 1:
				skew[i] = -time.Duration(r.Int64N(int64(time.Hour)))
			}
		}
		kills := make([]Kill, len(skew))
		counted := map[string]bool{}
		var newest time.Time
		for round := range 200 {
			now = now.Add(time.Minute)
			fresh := -1
			if r.IntN(3) == 0 {
				fresh = r.IntN(len(kills))
				kills[fresh] = Kill{At: now.Add(skew[fresh] - time.Second), HitBytes: 1000 * mebi, Pod: fmt.Sprint("pod-", fresh), Termination: kills[fresh].Termination + 1}
			}
			if r.IntN(10) == 0 {
				again, err := Decode(c.Encode())
				must.Succeed(t, err)
				c = &again
			}
			for _, i := range r.Perm(len(kills)) {
				if kills[i].Pod == "" || !c.RecordKill(kills[i], now, params) {
					if i == fresh && skew[i] == 0 {
						t.Fatalf("seed %d, round %d: the kill of pod %d does not count", seed, round, i)
					}
					continue
				}
				id := fmt.Sprint(kills[i].Pod, kills[i].Termination)
				if counted[id] {
					t.Fatalf("seed %d, round %d: kill %s counts twice", seed, round, id)
				}
				counted[id] = true
			}
			if got := c.NewestKill(); got.After(now) || got.Before(newest) {
				t.Fatalf("seed %d, round %d: the newest kill is of %v after %v, at %v", seed, round, got, newest, now)
			}
			newest = c.NewestKill()
		}
	}
}

// Four pods that are OOM-killed in one second all count. Of more, the next kill does.
func TestKillsOfOneSecond(t *testing.T) {
	c, now := aged(900)
	for i, want := range []struct {
		hitMiB, floorMiB int64
		counts           bool
	}{{1000, 1200, true}, {1100, 1320, true}, {1200, 1440, true}, {2500, 4250, true}, {6000, 4250, false}} {
		kill := Kill{At: now, HitBytes: want.hitMiB * mebi, Pod: fmt.Sprint("pod-", i)}
		for _, counts := range []bool{want.counts, false} {
			if got := c.RecordKill(kill, now, params); got != counts || c.OOMFloor(params) != want.floorMiB*mebi {
				t.Errorf("kill %d at %d MiB: counts %t, floor %d MiB, want %t, %d MiB", i, want.hitMiB, got, c.OOMFloor(params)/mebi, counts, want.floorMiB)
			}
		}
	}
	next := now.Add(10 * time.Second)
	if !c.RecordKill(Kill{At: next, HitBytes: 6000 * mebi, Pod: "pod-4", Termination: 1}, next, params) || c.OOMFloor(params) != 12000*mebi {
		t.Errorf("the next kill of the last pod: floor %d MiB", c.OOMFloor(params)/mebi)
	}
}

func TestTheFloorFadesDownToWhatWasNeeded(t *testing.T) {
	var c Container
	c.Add(sample(0, 100, 900*mebi), params)
	feed(&c, time.Minute, aDay, 100, 400*mebi)
	start := aDay
	c.RecordOOM(noon.Add(start), 1000*mebi, params)
	at := start + time.Minute
	for _, tc := range []struct {
		days    int
		wantMiB int64 // rounded up
	}{{0, 1200}, {1, 1050}, {8, 1050}, {35, 1050}, {37, 400}} {
		end := start + time.Duration(tc.days)*aDay
		feed(&c, at, end, 100, 400*mebi)
		at = max(at, end+time.Minute)
		if got := (c.OOMFloor(params) + mebi - 1) / mebi; got != tc.wantMiB {
			t.Errorf("OOMFloor() after %d days = %d MiB, want %d", tc.days, got, tc.wantMiB)
		}
	}
}

// Usage after a kill is the container's need: more than the size that was hit. It is remembered
// while usage reaches it again in time.
func TestUsageAfterAKillIsRemembered(t *testing.T) {
	c, _ := aged(400)
	end := aDay + time.Hour
	c.RecordOOM(noon.Add(end), 1000*mebi, params)
	for run, days := range []int{0, 12, 30, 30} {
		next := end + time.Duration(days)*aDay
		feed(c, end+time.Minute, next, 100, 400*mebi)
		end = next
		need := int64(2000 + 100*run)
		if floor := c.OOMFloor(params); run > 0 && floor < need*mebi {
			t.Errorf("run %d: the floor is %d MiB before %d are needed", run, floor/mebi, need)
		}
		feed(c, end, end+time.Hour, 100, need*mebi)
		end += time.Hour
	}
	feed(c, end+time.Minute, end+37*aDay, 100, 400*mebi)
	if got := c.OOMFloor(params); got != 400*mebi {
		t.Errorf("37 days after the last run the floor is %d MiB, want 400", got/mebi)
	}
}

func TestAdoptKills(t *testing.T) {
	live, now := aged(900)
	live.RecordKill(Kill{At: now, HitBytes: 1000 * mebi, Pod: "a"}, now, params)
	feed(live, aDay+time.Hour, aDay+3*time.Hour, 100, 900*mebi)

	past := &Container{}
	feed(past, -10*aDay, 0, 100, 700*mebi)
	past.AdoptKills(live)
	if got, want := past.OOMFloor(params), live.OOMFloor(params); got != want {
		t.Errorf("the floor is %d MiB, want %d", got/mebi, want/mebi)
	}
	if past.RecordKill(Kill{At: now, HitBytes: 1200 * mebi, Pod: "a"}, now, params) {
		t.Error("a kill that the other history has counted counts again")
	}
	short := &Container{}
	short.AdoptKills(live)
	if again, err := Decode(short.Encode()); err != nil || again.OOMFloor(params) < live.OOMFloor(params) {
		t.Errorf("adopted by an empty history, the floor is %d MiB: %v", again.OOMFloor(params)/mebi, err)
	}
}

// TestAKillWithAnotherDateCountsOnce: the operator has restarted, and knows of the kill of a process only that it was since the
// container started.
func TestAKillWithAnotherDateCountsOnce(t *testing.T) {
	c, now := aged(900)
	p := DefaultParams()
	kill := Kill{At: now, HitBytes: 1000 * mebi, Pod: "a", Termination: -1}
	if !c.RecordKill(kill, now, p) {
		t.Error("the kill does not count")
	}
	for _, at := range []time.Time{now.Add(-time.Hour), now.Add(time.Hour)} {
		kill.At, kill.HitBytes = at, 1200*mebi
		if c.RecordKill(kill, now.Add(time.Hour), p) {
			t.Errorf("the kill counts again, dated %s", at)
		}
	}
	kill.Termination--
	if !c.RecordKill(kill, now.Add(time.Hour), p) {
		t.Error("the next kill does not count")
	}
}
