// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/ensemble"
)

// TestWhatACappedStartNeeds: the need of a capped start is learned, saved, and kept apart from the later need.
func TestWhatACappedStartNeeds(t *testing.T) {
	start := func(c *Container, after time.Duration, cpu, limit int64) {
		s := sample(after, cpu, 200*mebi)
		s.Starting, s.LimitFactor, s.CPULimitMillis = true, 2, limit
		switch limit {
		case 0:
			s.LimitFactor = 0
		case -1:
			s.CPULimitMillis = 0
		}
		c.Add(s, params)
	}
	const at = time.Hour
	startsAgain := func(cpu int64) func(*Container) { // on the fifth of ten days
		return func(c *Container) {
			start(c, at, 200, 200)
			feed(c, at, 5*24*time.Hour, 100, 200*mebi)
			start(c, 5*24*time.Hour, cpu, 600)
			feed(c, 5*24*time.Hour, 10*24*time.Hour, 100, 200*mebi)
		}
	}
	for name, tc := range map[string]struct {
		starts func(c *Container)
		want   int64
	}{
		"no start":                           {func(*Container) {}, 0},
		"a start below the limit":            {func(c *Container) { start(c, at, 150, 200) }, 0},
		"without a limit":                    {func(c *Container) { start(c, at, 900, 0) }, 0},
		"a capped start":                     {func(c *Container) { start(c, at, 200, 200) }, 300},
		"a start whose limit is not known":   {func(c *Container) { start(c, at, 900, -1) }, 0},
		"it reaches the raised limit":        {func(c *Container) { start(c, at, 200, 200); start(c, at, 600, 600) }, 900},
		"it does not reach the raised limit": {func(c *Container) { start(c, at, 200, 200); start(c, at, 500, 600) }, 300},
		"a smaller one is capped, too":       {func(c *Container) { start(c, at, 600, 600); start(c, at, 200, 200) }, 900},
		"starts go on using it":              {startsAgain(190), 300},
		"starts use less for eight days":     {startsAgain(100), 0},
	} {
		c, plain := &Container{}, &Container{}
		for _, c := range []*Container{c, plain} {
			feed(c, 0, time.Hour, 100, 200*mebi)
		}
		before := plain.Encode()
		tc.starts(c)
		got, err := Decode(c.Encode())
		if err != nil || got.start != c.start || got.StartCPU() != tc.want {
			t.Errorf("%s: starts need %dm, want %dm (%v)", name, got.StartCPU(), tc.want, err)
		}
		if need := c.CPU(); tc.want > 0 && need != (ensemble.Need{}) && need.Millis > 101 {
			t.Errorf("%s: the container needs %+v", name, need)
		}
		if old, err := Decode(before); err != nil || old.StartCPU() != 0 {
			t.Errorf("a history without a capped start: %+v, %v", old.start, err)
		}
	}
}

// TestTheFirstCappedStart: it counts as usage, without any other.
func TestTheFirstCappedStart(t *testing.T) {
	s := sample(0, 200, 200*mebi)
	s.Starting, s.LimitFactor, s.CPULimitMillis = true, 2, 200
	c := &Container{}
	c.Add(s, params)
	if !c.KnowsCPU() || c.StartCPU() != 300 {
		t.Errorf("CPU is known: %t, and starts need %dm", c.KnowsCPU(), c.StartCPU())
	}
}
