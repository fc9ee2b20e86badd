// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replay runs days of usage through history and recommendation, and compares
// every change of a target with a golden file that people can review. Rewrite them
// with
//
//	go test ./test/replay -update
//
// and read the difference, because users would see it.
package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	mebi = 1 << 20
	hour = 60 // minutes
	day  = 24 * hour
)

// midnight is the start of each replay.
var midnight = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// series is the usage of a container without any limits, minute by minute.
type series struct {
	about string
	days  int
	// usage is in millicores and MiB.
	usage func(r *rand.Rand, minute int) (cpu, memory float64)
	// isDark reports whether a minute has no metrics.
	isDark func(minute int) bool
	// forgets reports whether the operator restarts at a minute without a checkpoint.
	forgets func(minute int) bool
	// limitMiB is the initial memory limit, which the recommendation changes at once. A
	// container that would use more is OOM-killed. 0 means no limit.
	limitMiB int64
	// maxMiB is the policy's maxAllowed; 0 means none.
	maxMiB int64
}

func diurnal(r *rand.Rand, minute int) (cpu, memory float64) {
	wave := math.Sin(float64(minute)/day*2*math.Pi - math.Pi/2) // the lowest at midnight
	return 500 + 400*wave + 20*r.NormFloat64(), 600 + 100*wave + 5*r.NormFloat64()
}

var replays = map[string]series{
	"constant": {
		about: "250m and 400 MiB all the time",
		days:  8,
		usage: func(*rand.Rand, int) (float64, float64) { return 250, 400 },
	},
	"diurnal": {
		about: "100m to 900m and 500 to 700 MiB, once a day",
		days:  8,
		usage: diurnal,
	},
	"rise-and-fall": {
		about: "200m and 300 MiB, but 1000m and 600 MiB from noon to six on the second day",
		days:  12,
		usage: func(r *rand.Rand, minute int) (float64, float64) {
			if minute >= day+12*hour && minute < day+18*hour {
				return 1000 + 20*r.NormFloat64(), 600
			}
			return 200 + 10*r.NormFloat64(), 300
		},
	},
	"spiky": {
		about: "100m, but about 1500m for 3 minutes of each hour",
		days:  4,
		usage: func(r *rand.Rand, minute int) (float64, float64) {
			if minute%hour < 3 {
				return 1500 + 100*r.NormFloat64(), 350
			}
			return 100 + 5*r.NormFloat64(), 300 + 10*r.Float64()
		},
	},
	"noisy": {
		about: "250m and 400 MiB, 30 % and 5 % up and down",
		days:  8,
		usage: func(r *rand.Rand, _ int) (float64, float64) {
			return 250 * (1 + 0.3*r.NormFloat64()), 400 * (1 + 0.05*r.NormFloat64())
		},
	},
	"leak": {
		about:    "from 200 MiB, 1 MiB more each minute until killed; maxAllowed is 1 GiB",
		days:     3,
		usage:    func(_ *rand.Rand, minute int) (float64, float64) { return 100, 200 + float64(minute) },
		limitMiB: 512,
		maxMiB:   1024,
	},
	"too-small": {
		about:    "needs 400 MiB within the first minute, but begins with a limit of 200 MiB",
		days:     10,
		usage:    func(*rand.Rand, int) (float64, float64) { return 50, 400 },
		limitMiB: 200,
	},
	"gap": {
		about:  "like diurnal, without metrics from 9 to 15 on the third day",
		days:   5,
		usage:  diurnal,
		isDark: func(minute int) bool { return minute >= 2*day+9*hour && minute < 2*day+15*hour },
	},
	"lost-history": {
		about:   "like diurnal; the history is lost at noon of the third day and at midnight after the fifth",
		days:    8,
		usage:   diurnal,
		forgets: func(minute int) bool { return minute == 2*day+12*hour || minute == 5*day },
	},
}

func TestReplay(t *testing.T) {
	for name, s := range replays {
		t.Run(name, func(t *testing.T) {
			golden.Compare(t, name+".txt", replay(t, s))
		})
	}
}

// replay runs a series with one sample and one recommendation each minute, and records the
// changes.
func replay(t *testing.T, s series) string {
	t.Helper()
	var (
		params    = recommend.DefaultParams()
		policy    = recommend.Policy{CPU: true, Memory: true}
		random    = rand.New(rand.NewPCG(1, 2))
		histories = history.Histories{}
		previous  *recommend.Container
		limit     = s.limitMiB * mebi
		started   int // the minute of the container's latest start

		answers, others int
		out             strings.Builder
	)
	policy.MaxAllowed.MemoryBytes = s.maxMiB * mebi
	fmt.Fprintf(&out, "# %s\n", s.about)

	for minute := range s.days * day {
		now := midnight.Add(time.Duration(minute) * time.Minute)
		if s.forgets != nil && s.forgets(minute) {
			histories = history.Histories{}
			fmt.Fprintf(&out, "%s  the history is lost\n", clock(minute))
		}
		cpu, memory := s.usage(random, minute)
		if limit > 0 { // an OOM kill restarts a container with a limit
			cpu, memory = s.usage(random, minute-started)
		}
		if bytes := int64(memory * mebi); limit > 0 && bytes > limit {
			histories.Container("app").RecordOOM(now, limit, params.History)
			fmt.Fprintf(&out, "%s  killed at %s\n", clock(minute), quantity.FormatMemory(limit))
			started = minute + 1
		} else if s.isDark == nil || !s.isDark(minute) {
			histories.Add(usage.Sample{Container: "app", Time: now, CPUMillis: max(int64(cpu), 0), MemoryBytes: bytes}, params.History)
		}

		container := histories.Container("app")
		next, ok := recommend.For("app", container, policy, previous, params)
		if !ok {
			continue
		}
		if previous == nil || next.Target != previous.Target || !slices.Equal(next.Reasons, previous.Reasons) {
			answers++
			out.WriteString(line(minute, container.Observed(), previous, &next))
		} else if !reflect.DeepEqual(next, *previous) {
			others++
		}
		if container.Observed() < previousObserved(previous) && isLower(next.Target, previous.Target) {
			t.Errorf("%s: lowered with less evidence", clock(minute))
		}
		previous = &next
		if limit > 0 {
			limit = max(next.Target.MemoryBytes, s.limitMiB*mebi)
		}
	}
	fmt.Fprintf(&out, "# %d minutes: %d changes above, and %d of the bounds or the evidence alone\n", s.days*day, answers, others)
	return out.String()
}

func previousObserved(previous *recommend.Container) time.Duration {
	if previous == nil {
		return 0
	}
	return previous.Observed
}

func isLower(a, b quantity.Amounts) bool {
	return a.CPUMillis < b.CPUMillis || a.MemoryBytes < b.MemoryBytes
}

// line formats one change: when, observed time, from -> to, and the steps that led there.
func line(minute int, observed time.Duration, from, to *recommend.Container) string {
	if from == nil {
		from = &recommend.Container{}
	}
	var parts []string
	for _, r := range []struct {
		name     string
		from, to int64
		format   func(int64) string
	}{
		{"cpu", from.Target.CPUMillis, to.Target.CPUMillis, quantity.FormatCPU},
		{"memory", from.Target.MemoryBytes, to.Target.MemoryBytes, quantity.FormatMemory},
	} {
		before, after := reasons(from, r.name, r.format), reasons(to, r.name, r.format)
		if r.from != r.to || before != after {
			from := "none"
			if r.from > 0 {
				from = r.format(r.from)
			}
			parts = append(parts, fmt.Sprintf("%s %s -> %s (%s)", r.name, from, r.format(r.to), after))
		}
	}
	minutes := int(observed / time.Minute)
	return fmt.Sprintf("%s  %3dh%02dm observed  %s\n", clock(minute), minutes/hour, minutes%hour, strings.Join(parts, "; "))
}

func reasons(c *recommend.Container, resource string, format func(int64) string) string {
	var steps []string
	for _, r := range c.Reasons {
		if r.Resource == resource {
			steps = append(steps, r.Code+" "+format(r.Value))
		}
	}
	return strings.Join(steps, ", ")
}

// clock formats the day and the time of a minute: "d2 09:30".
func clock(minute int) string {
	return fmt.Sprintf("d%-2d %02d:%02d", minute/day+1, minute%day/hour, minute%hour)
}
