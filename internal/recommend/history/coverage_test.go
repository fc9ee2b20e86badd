// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const minute = time.Minute

var (
	fair  = quantity.Amounts{CPUMillis: 300, MemoryBytes: 500 * mebi}
	aWeek = Goal{Time: 7 * aDay, MaxStarvedPercent: 3}
)

// recorded is a container with a minute of known usage and a goal.
func recorded(recommended quantity.Amounts, goal Goal) *Container {
	c := &Container{}
	feed(c, 0, minute, 200, 400*mebi)
	c.Expect(recommended, goal)
	return c
}

// podsAt adds a sample of each pod at one moment, in a random order.
func podsAt(r *rand.Rand, c *Container, at time.Duration, memory int64, cpu ...int64) {
	for _, i := range r.Perm(len(cpu)) {
		s := sample(at, cpu[i], memory)
		s.Pod = fmt.Sprintf("pod-%d", i)
		c.Add(s, params)
	}
}

// about reports whether a duration is within two intervals of CPU usage of another one.
func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if (got - want).Abs() > 10*minute {
		t.Errorf("%s is %s, want about %s", what, got, want)
	}
}

func TestUsageThatIsRecommendedForIsCovered(t *testing.T) {
	c := recorded(fair, aWeek)
	feed(c, 2*minute, 7*aDay-time.Hour, 300, 500*mebi)
	if c.Coverage().Reaches(aWeek) {
		t.Errorf("%+v is a week", c.Coverage())
	}
	feed(c, 7*aDay-time.Hour+minute, 7*aDay+15*minute, 300, 500*mebi)
	if got := c.Coverage(); !got.Reaches(aWeek) || got.Starved != 0 || got.Shortfall != NoShortfall || !got.At.IsZero() {
		t.Errorf("after a week, the coverage is %+v", got)
	}
}

// Ten pods deliver their samples in any order, and one of them uses more than the others.
func TestUnevenPodsCountTimeOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	c := recorded(fair, Goal{Time: 7 * aDay, MaxStarvedPercent: 20})
	for at := 2 * minute; at <= aDay; at += minute {
		podsAt(r, c, at, 400*mebi, 90, 100, 110, 290, 120, 310, 80, 100, 100, 100)
	}
	got := c.Coverage()
	about(t, "the time of ten pods", got.Time, aDay)
	about(t, "the starved time of one in ten pods", got.Starved, aDay/10)
	if !c.Clone().Coverage().At.IsZero() {
		t.Errorf("a tenth of the time is more than 20 %%: %+v", got)
	}
}

// Samples of seconds stray. The recommendation is for the mean of five minutes.
func TestNoiseIsNoShortfallOfCPU(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := recorded(fair, aWeek)
	for at := 2 * minute; at <= aDay; at += 15 * time.Second {
		c.Add(sample(at, 100+r.Int64N(300), 400*mebi), params) // up to a third more than recommended, 250 on average
	}
	if got := c.Coverage(); got.Starved > aDay/100 || got.Shortfall != NoShortfall {
		t.Errorf("the coverage is %+v", got)
	}
}

func TestTooMuchStarvedTimeBeginsAgain(t *testing.T) {
	c := recorded(fair, aWeek)
	feed(c, 2*minute, 6*aDay, 200, 400*mebi)
	feed(c, 6*aDay+minute, 6*aDay+4*time.Hour, 350, 400*mebi)
	about(t, "the starved time", c.Coverage().Starved, 4*time.Hour)
	feed(c, 6*aDay+4*time.Hour+minute, 6*aDay+5*time.Hour+30*minute, 350, 400*mebi) // 3 % of a week are 5:02
	got := c.Coverage()
	if got.Shortfall != ShortOfCPU || got.At.Sub(noon) < 6*aDay+5*time.Hour || got.At.Sub(noon) > 6*aDay+5*time.Hour+15*minute {
		t.Errorf("the coverage began again as of %+v", got)
	}
	about(t, "the time after it", got.Time, 25*minute)
}

func TestMoreMemoryThanRecommendedBeginsAgainAtOnce(t *testing.T) {
	cases := map[string]func(c *Container, at time.Duration){
		"a sample":            func(c *Container, at time.Duration) { c.Add(sample(at, 100, 500*mebi+1), params) },
		"a sample of a boost": func(c *Container, at time.Duration) { s := sample(at, 100, 600*mebi); s.NoCPU = true; c.Add(s, params) },
		"one of ten pods": func(c *Container, at time.Duration) {
			c.Add(sample(at, 100, 0), params)
			c.Add(sample(at, 100, 600*mebi), params)
		},
		"an old sample":             func(c *Container, at time.Duration) { c.Add(sample(at-time.Hour, 100, 600*mebi), params) },
		"beside a silent pod":       func(c *Container, at time.Duration) { c.Raise(sample(at, 100, 600*mebi), params) },
		"an OOM kill at any amount": func(c *Container, at time.Duration) { c.RecordOOM(noon.Add(at), mebi, params) },
	}
	for name, happens := range cases {
		t.Run(name, func(t *testing.T) {
			c := recorded(fair, aWeek)
			feed(c, 2*minute, 6*aDay, 200, 500*mebi)
			happens(c, 6*aDay+minute)
			got := c.Coverage()
			if got.Time != 0 || got.Starved != 0 || (got.Shortfall != ShortOfMemory && got.Shortfall != KilledForMemory) {
				t.Errorf("the coverage is %+v", got)
			}
			if got.At.Sub(noon) < 6*aDay || got.At.Sub(noon) > 6*aDay+minute {
				t.Errorf("it began again at %s", got.At)
			}
			feed(c, 6*aDay+2*minute, 7*aDay, 200, 400*mebi)
			about(t, "the time after it", c.Coverage().Time, aDay)
		})
	}
}

// A container whose recommendation is capped uses more all the time, or each hour. That is one shortfall in the status.
func TestAShortfallThatRepeatsKeepsItsTime(t *testing.T) {
	for name, each := range map[string]time.Duration{"all the time": minute, "each hour": time.Hour} {
		c := recorded(fair, aWeek)
		feed(c, 2*minute, aDay, 200, 400*mebi)
		times := map[time.Time]bool{}
		for at := aDay + minute; at <= 9*aDay; at += minute {
			bytes := int64(400 * mebi)
			if at%each == 0 {
				bytes = 600 * mebi
			}
			c.Add(sample(at, 200, bytes), params)
			times[c.Coverage().At] = true
		}
		delete(times, time.Time{})
		if len(times) != 1 || c.Coverage().Time > time.Hour {
			t.Errorf("%s: it began again at %v, and now is %+v", name, times, c.Coverage())
		}
	}
}

func TestTheLowestRecommendationOfAnIntervalCounts(t *testing.T) {
	c := recorded(fair, Goal{Time: 7 * aDay, MaxStarvedPercent: 50})
	for at := 2 * minute; at <= time.Hour; at += minute {
		c.Add(sample(at, 400, 400*mebi), params) // it is raised at once, and lowered again
		c.Expect(quantity.Amounts{CPUMillis: 500}, aWeek)
		c.Expect(fair, Goal{Time: 7 * aDay, MaxStarvedPercent: 50})
	}
	about(t, "the starved time", c.Coverage().Starved, time.Hour)

	c = recorded(fair, aWeek)
	for at := 2 * minute; at <= time.Hour; at += minute {
		c.Add(sample(at, 400, 400*mebi), params)
		c.Expect(quantity.Amounts{CPUMillis: 500}, aWeek)
	}
	if got := c.Coverage().Starved; got < 4*minute || got > 6*minute {
		t.Errorf("the starved time before it is raised is %s", got)
	}
}

// Resources that are not sized are not compared.
func TestResourcesWithoutARecommendationAreNotCompared(t *testing.T) {
	for name, recommended := range map[string]quantity.Amounts{"no CPU": {MemoryBytes: 500 * mebi}, "no memory": {CPUMillis: 300}} {
		c := recorded(recommended, aWeek)
		cpu, memory := int64(9000), int64(400*mebi)
		if recommended.CPUMillis > 0 {
			cpu, memory = 300, 9000*mebi
		}
		feed(c, 2*minute, 8*aDay, cpu, memory)
		if got := c.Coverage(); !got.Reaches(aWeek) || got.Shortfall != NoShortfall {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Silence, gaps, clocks and pauses add no time.
func TestOnlyObservedTimeIsCovered(t *testing.T) {
	c := recorded(fair, aWeek)
	feed(c, 2*minute, time.Hour, 200, 400*mebi)
	before := c.Coverage()
	for at := time.Hour; at < 3*aDay; at += minute {
		c.Raise(sample(at, 200, 400*mebi), params)
	}
	if got := c.Coverage(); got != before {
		t.Errorf("beside a silent pod, %+v became %+v", before, got)
	}
	feed(c, 30*aDay, 30*aDay+30*minute, 200, 400*mebi)
	about(t, "the time with a gap of a month", c.Coverage().Time, 90*minute)
	feed(c, 0, time.Hour, 200, 400*mebi) // of a clock that is behind
	about(t, "the time with old samples", c.Coverage().Time, 90*minute)

	c.Pause()
	feed(c, 31*aDay, 32*aDay, 9000, 9000*mebi)
	about(t, "the time while nothing is recorded", c.Coverage().Time, 90*minute)
	c.Expect(fair, aWeek)
	feed(c, 32*aDay+minute, 32*aDay+time.Hour, 200, 400*mebi)
	about(t, "the time after a pause", c.Coverage().Time, 150*minute)
	if got := c.Coverage(); got.Starved > 5*minute || got.Shortfall != NoShortfall {
		t.Errorf("of a pause is known: %+v", got)
	}
	c.DropCoverage()
	if c.Coverage() != (Coverage{}) || c.EncodeCoverage() != nil {
		t.Errorf("%+v was dropped", c.Coverage())
	}
}

// A pod that starves while another one is silent is a shortfall of the interval in which that ends.
func TestASampleBesideASilentPodShowsAShortfall(t *testing.T) {
	for cpu, want := range map[int64]time.Duration{330: 0, 340: 5 * minute} { // 12 % is tolerated
		c := recorded(fair, aWeek)
		feed(c, 2*minute, time.Hour, 200, 400*mebi)
		c.Raise(sample(time.Hour+minute, cpu, 400*mebi), params)
		if got := c.Coverage().Starved; got != 0 {
			t.Errorf("%dm: %s has passed", cpu, got)
		}
		feed(c, time.Hour+2*minute, 2*time.Hour, 200, 400*mebi)
		if got := c.Coverage().Starved; got < want || got > want+2*minute {
			t.Errorf("%dm: the starved time is %s, want %s", cpu, got, want)
		}
	}
}

func TestAnotherGoalCountsWhatWasCovered(t *testing.T) {
	c := recorded(fair, Goal{Time: 7 * aDay, MaxStarvedPercent: 50})
	feed(c, 2*minute, aDay, 200, 400*mebi)
	feed(c, aDay+minute, aDay+12*time.Hour, 350, 400*mebi)
	if c.Expect(fair, Goal{Time: aDay, MaxStarvedPercent: 50}); !c.Coverage().Reaches(Goal{Time: aDay, MaxStarvedPercent: 50}) {
		t.Errorf("%+v is enough for a day", c.Coverage())
	}
	if c.Expect(fair, Goal{Time: aDay, MaxStarvedPercent: 3}); c.Coverage().Time != 0 || c.Coverage().Shortfall != ShortOfCPU {
		t.Errorf("a third of it starved: %+v", c.Coverage())
	}
}

// restarted is the container as another process reads it.
func restarted(t *testing.T, c *Container) *Container {
	t.Helper()
	next, err := Decode(c.Encode())
	must.Succeed(t, err)
	must.Succeed(t, next.DecodeCoverage(c.EncodeCoverage()))
	return &next
}

// A restart costs the current interval at most.
func TestCoverageSurvivesRestarts(t *testing.T) {
	c := recorded(fair, aWeek)
	for at := 2 * minute; at <= 4*aDay; at += minute {
		c.Add(sample(at, 200, 400*mebi), params)
		if at%(6*time.Hour+minute) == 0 {
			c = restarted(t, c)
			c.Expect(fair, aWeek)
		}
	}
	if got := c.Coverage().Time; got < 4*aDay-16*6*minute || got > 4*aDay {
		t.Errorf("after 16 restarts in 4 days, %s are covered", got)
	}
	// It was killed while no process ran.
	c = restarted(t, c)
	c.RecordOOM(noon.Add(4*aDay+minute), mebi, params)
	if c.Expect(fair, aWeek); c.Coverage().Time != 0 || c.Coverage().Shortfall != KilledForMemory {
		t.Errorf("after a kill between two processes: %+v", c.Coverage())
	}
	if got := restarted(t, c).Coverage(); got != c.Coverage() {
		t.Errorf("%+v was read as %+v", c.Coverage(), got)
	}
}

func TestAdoptCoverage(t *testing.T) {
	day := func(at, covered time.Duration) coverage {
		v := coverage{time: covered, goal: aWeek, isRecording: true}
		if at > 0 {
			v.at, v.shortfall = nanos(noon.Add(at)), ShortOfMemory
		}
		return v
	}
	cases := map[string]struct {
		ours, theirs coverage
		want         time.Duration
	}{
		"what only the other has recorded":                 {coverage{}, day(0, aDay), aDay},
		"nothing of less":                                  {day(0, 2*aDay), day(0, aDay), 2 * aDay},
		"a shortfall that only the other knows":            {day(0, 2*aDay), day(time.Hour, minute), minute},
		"nothing of one that does not know of a shortfall": {day(time.Hour, 0), day(0, 2*aDay), 0},
		"no more than was observed":                        {coverage{}, day(0, 9*aDay), 3 * aDay},
	}
	for name, tc := range cases {
		to, from := Container{observed: 3 * aDay, coverage: tc.ours}, Container{observed: 9 * aDay, coverage: tc.theirs}
		if to.AdoptCoverage(&from); to.Coverage().Time != tc.want {
			t.Errorf("%s: %+v", name, to.Coverage())
		}
	}
}

func FuzzCoverage(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{1, 2, 60, 60, 60}, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		c := random(seed)
		if got := c.Coverage(); got.Time > c.Observed() || got.Starved > got.Time || got.Time < 0 || got.Starved < 0 {
			t.Fatalf("%+v of %s", got, c.Observed())
		}
		again := restarted(t, c)
		assert.Equal(t, "encoding does not round-trip", c.Coverage(), again.Coverage())
		encoded := c.EncodeCoverage()
		if !bytes.Equal(encoded, again.EncodeCoverage()) || len(encoded) > MaxEncodedCoverage {
			t.Errorf("%x was read as %x", encoded, again.EncodeCoverage())
		}
		if err := c.DecodeCoverage(b); err != nil {
			if c.Coverage() != (Coverage{}) {
				t.Errorf("after %v: %+v", err, c.Coverage())
			}
			return
		}
		if got := c.Coverage(); got.Time > c.Observed() || got.Starved > got.Time {
			t.Errorf("%x was read as %+v", b, got)
		}
		c.Expect(fair, aWeek)
		c.Add(usage.Sample{Time: noon.AddDate(1, 0, 0), CPUMillis: math.MaxInt64, MemoryBytes: math.MaxInt64}, params)
		if c.Coverage().Time != 0 {
			t.Errorf("more memory than recommended leaves %+v", c.Coverage())
		}
	})
}

func TestDecodeCoverageRefuses(t *testing.T) {
	c := recorded(fair, aWeek)
	feed(c, 2*minute, aDay, 200, 400*mebi)
	feed(c, aDay+minute, aDay+minute, 200, 600*mebi)
	feed(c, aDay+2*minute, 2*aDay, 200, 400*mebi)
	valid := c.EncodeCoverage()
	future := bytes.Clone(valid)
	future[0]++
	for name, b := range map[string][]byte{
		"another version":          future,
		"the version alone":        valid[:1],
		"a missing end":            valid[:len(valid)-1],
		"a byte too many":          append(bytes.Clone(valid), 0),
		"more than was observed":   (&Container{coverage: coverage{time: 3 * aDay}}).EncodeCoverage(),
		"more starved than all":    (&Container{coverage: coverage{time: aDay, starved: 2 * aDay}}).EncodeCoverage(),
		"an unknown shortfall":     (&Container{coverage: coverage{shortfall: shortfalls, at: nanos(noon)}}).EncodeCoverage(),
		"a shortfall without time": (&Container{coverage: coverage{shortfall: ShortOfCPU}}).EncodeCoverage(),
		"a time without shortfall": (&Container{coverage: coverage{time: aDay, at: nanos(noon)}}).EncodeCoverage(),
		"a shortfall of 1970":      (&Container{coverage: coverage{shortfall: ShortOfCPU, at: 60}}).EncodeCoverage(),
	} {
		if err := c.Clone().DecodeCoverage(b); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	must.Succeed(t, c.DecodeCoverage(valid))
}
