// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// patterns are usage that single functions of a policy are for. They show only at a minute.
var patterns = []kind{
	{
		name: "office-hours", about: "from 7 to 19 from Monday to Friday, and a peak on Monday from 9 to 11",
		requests: quantity.Amounts{CPUMillis: 3000, MemoryBytes: 2048 * mebi},
		usage: func(at time.Duration, n *noise) (float64, float64) {
			h, weekday := hours(at), int64(at/day)%7
			load := 0.08
			if h >= 7 && h < 19 {
				busy := math.Sin(math.Pi * (h - 7) / 12)
				switch {
				case weekday >= 5:
					busy *= 0.15
				case weekday == 0 && h >= 9 && h < 11:
					busy *= 1.8
				}
				load += busy
			}
			return 1500 * load * n.around(0.1), (500 + 400*load) * n.around(0.01)
		},
	},
	{
		name: "hourly-cron", about: "3 minutes of work at the beginning of each hour",
		requests: quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1024 * mebi},
		usage: func(at time.Duration, n *noise) (float64, float64) {
			if at%time.Hour < 3*time.Minute {
				return 1000 * n.around(0.1), 400
			}
			return 100 * n.around(0.1), 300
		},
	},
	{
		name: "short-bursts", about: "idle, except for 2 minutes at a random time in every 4 hours",
		requests: quantity.Amounts{CPUMillis: 500, MemoryBytes: 512 * mebi},
		usage: func(at time.Duration, n *noise) (float64, float64) {
			const span = 4 * time.Hour
			begin := time.Duration((int64(at/span)*7919+101)%238) * time.Minute
			if since := at%span - begin; since >= 0 && since < 2*time.Minute {
				return 800 * n.around(0.1), 280
			}
			return 5 * n.around(0.1), 80
		},
	},
	{
		name: "weekly-batch", about: "two hours of work on Sunday, with 4 times the memory",
		requests: quantity.Amounts{CPUMillis: 4000, MemoryBytes: 6000 * mebi},
		usage:    batchOn(func(d int64) bool { return d%7 == 6 }, 4000),
	},
	{
		name: "12-day-batch", about: "two hours of work every 12 days, with 3 times the memory",
		requests: quantity.Amounts{CPUMillis: 4000, MemoryBytes: 6000 * mebi},
		usage:    batchOn(func(d int64) bool { return d%12 == 11 }, 3000),
	},
	{
		name: "steady-jitter", about: "half a core, give or take 25 % from minute to minute",
		requests: quantity.Amounts{CPUMillis: 2000, MemoryBytes: 2048 * mebi},
		usage: func(_ time.Duration, n *noise) (float64, float64) {
			return 500 * n.around(0.25), 500 * n.around(0.02)
		},
	},
}

// batchOn works from 3 to 5 on some days, counted from 0, with this much memory in MiB.
func batchOn(isDay func(int64) bool, memory float64) func(time.Duration, *noise) (float64, float64) {
	return func(at time.Duration, n *noise) (float64, float64) {
		if h := hours(at); isDay(int64(at/day)) && h >= 3 && h < 5 {
			return 4000 * n.around(0.1), memory * n.around(0.01)
		}
		return 200 * n.around(0.1), 1000 * n.around(0.01)
	}
}

// Patterns generates one trace of a minute of each pattern that Make does not.
func Patterns(length time.Duration) []backtest.Trace {
	made := make([]backtest.Trace, len(patterns))
	for i, k := range patterns {
		made[i] = k.make(uint64(i), length, time.Minute)
	}
	return made
}
