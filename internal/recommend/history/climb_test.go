// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// climber is a container whose size follows its history, as far as that is allowed.
type climber struct {
	*testing.T

	history        *Container
	now            time.Time
	template, most int64
	size           int64 // request and limit, in MiB
	kills          int32
	sizes          []int64 // that kills hit
}

func newClimber(t *testing.T, template, size, most int64) *climber {
	t.Helper()
	c := &climber{T: t, history: &Container{}, now: noon, template: template, size: size, most: most}
	feed(c.history, 0, aDay+time.Hour, 100, size*8/10*mebi)
	c.now = noon.Add(aDay + time.Hour)
	return c
}

// kill kills a container of a pod, of three if it is named.
func (c *climber) kill(pod string, after time.Duration) {
	c.Helper()
	c.now = c.now.Add(after)
	c.kills++
	c.sizes = append(c.sizes, c.size)
	pods := 1
	if pod != "" {
		pods = 3
	}
	size := c.size * mebi
	if !c.history.RecordKill(Kill{
		At: c.now, HitBytes: size, Pod: pod, Name: pod, Termination: c.kills, Pods: pods, Request: size,
		TemplateRequest: c.template * mebi, TemplateSize: c.template * mebi, MostBytes: c.most * mebi,
	}, c.now, params) {
		c.Fatal("the kill does not count")
	}
	if end, _ := c.history.ClimbEnd(params); end > 0 {
		c.size = end / mebi
	} else {
		c.size = min(c.most, (c.history.OOMFloor(params)+mebi-1)/mebi)
	}
}

func TestAContainerThatIsKilledAtAnySize(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": time.Minute, "once a day": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := newClimber(t, 256, 114, 2048)
			for range 10 {
				c.kill("", after)
			}
			// The template's size, two raises and the most that is allowed; then the template's for good.
			if got := fmt.Sprint(c.sizes); got != "[114 256 308 524 2048 256 256 256 256 256]" {
				t.Errorf("kills hit %s MiB", got)
			}
			if end, byUsage := c.history.ClimbEnd(params); end != 256*mebi || byUsage {
				t.Errorf("ClimbEnd() = %d, %t", end, byUsage)
			}
		})
	}
}

func TestARealNeedEndsAtItsNeed(t *testing.T) {
	for name, tc := range map[string]struct {
		template, need, most int64
		after                time.Duration
		want                 string
	}{
		"above a few sizes":             {114, 900, 1024, time.Minute, "[114 137 233]"},
		"that the template has":         {1024, 900, 8192, time.Minute, "[114]"},
		"of a job that runs once a day": {1024, 3000, 8192, 24 * time.Hour, "[114 1024 1229 2090]"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClimber(t, tc.template, 114, tc.most)
			for range 20 {
				if c.size < tc.need {
					c.kill("", tc.after)
				}
			}
			if got := fmt.Sprint(c.sizes); got != tc.want {
				t.Errorf("kills hit %s MiB, want %s", got, tc.want)
			}
			if end, _ := c.history.ClimbEnd(params); end > 0 || c.size < tc.need {
				t.Errorf("the size is %d MiB, and the climb has ended at %d", c.size, end)
			}
		})
	}
}

// TestADailyJobClimbsWithEachKill: the floor fades between two kills, and the last usage before a kill is all that it had.
func TestADailyJobClimbsWithEachKill(t *testing.T) {
	c := newClimber(t, 800, 813, 6400)
	for range 4 {
		c.kill("", 0)
		feed(c.history, c.now.Sub(noon)+time.Minute, c.now.Sub(noon)+aDay, 100, 400*mebi)
		c.now = c.now.Add(aDay)
		c.size = min(c.most, c.history.OOMFloor(params)/mebi)
		c.history.Add(sample(c.now.Sub(noon), 100, c.size*mebi), params)
	}
	if got := fmt.Sprint(c.sizes); got != "[813 853 1219 5381]" {
		t.Errorf("kills hit %s MiB", got)
	}
}

func TestAClimbIsTriedAgain(t *testing.T) {
	broken := func() *climber {
		c := newClimber(t, 256, 256, 2048)
		for range 6 {
			c.kill("", time.Minute)
		}
		return c
	}
	for name, tc := range map[string]struct {
		then func(*climber)
		ends bool
	}{
		"not while nothing has changed":   {func(*climber) {}, true},
		"once a memory window has passed": {func(c *climber) { feed(c.history, c.now.Sub(noon), c.now.Sub(noon)+9*aDay, 100, 200*mebi) }, false},
		"once a user has edited it":       {func(c *climber) { c.history.ForgetClimb() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := broken()
			tc.then(c)
			if at := c.history.NewestSample(); at.After(c.now) {
				c.now = at
			}
			c.kill("", time.Minute)
			if end, _ := c.history.ClimbEnd(params); (end > 0) != tc.ends || !tc.ends && c.size <= 256 {
				t.Errorf("the climb has ended at %d, and the size is %d MiB", end, c.size)
			}
		})
	}
}

// TestOnePodOfMany: its kills raise the others once, and its usage not at all.
func TestOnePodOfMany(t *testing.T) {
	c := newClimber(t, 100, 100, 2048)
	for range 10 {
		c.kill("web-a", time.Minute)
	}
	c.history.Add(usage.Sample{Pod: "web-a", Container: "app", Time: c.now.Add(time.Minute), CPUMillis: 100, MemoryBytes: 1500 * mebi}, params)
	if c.size != 120 || c.history.Peak() > 120*mebi {
		t.Errorf("the size is %d MiB, and the peak %d", c.size, c.history.Peak()/mebi)
	}
	c.kill("web-b", time.Minute)
	if c.size <= 120 {
		t.Errorf("a second pod is killed, and the size is %d MiB", c.size)
	}
}

// TestUsageFollowsTheLimit: the used share of the limit after raises shows whether usage follows.
func TestUsageFollowsTheLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		usage func(limit int64) int64
		want  int64 // the limit at which the climb ends, in MiB
	}{
		"a heap of three quarters of it":    {func(limit int64) int64 { return limit * 3 / 4 }, 1000 * 9 / 4},
		"a cache that fills it":             {func(limit int64) int64 { return limit * 98 / 100 }, 1000 * 9 / 4},
		"a need that stays":                 {func(limit int64) int64 { return min(limit*9/10, 1400) }, 0},
		"usage far below it is no evidence": {func(limit int64) int64 { return limit * 2 / 5 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, at, limit := &Container{}, time.Duration(0), int64(1000)
			for range 6 {
				for range 100 {
					at += time.Minute
					s := sample(at, 100, tc.usage(limit)*mebi)
					s.MemoryRequest, s.MemoryLimit = limit*mebi, limit*mebi
					c.Add(s, params)
				}
				limit = limit * 3 / 2
			}
			if end, byUsage := c.ClimbEnd(params); end != tc.want*mebi || byUsage != (end > 0) {
				t.Errorf("ClimbEnd() = %d MiB, %t, want %d", end/mebi, byUsage, tc.want)
			}
		})
	}
}
