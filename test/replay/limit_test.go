// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// With a CPU limit near the request, a short peak is throttled. TestThrottling measures how often,
// on a day's curve with noise of 25 % from minute to minute. From the third day on, it takes the
// mean request, and the share of minutes in which demand is above the limit. The lines without the
// limit's factor show the result of an average alone.
func TestThrottling(t *testing.T) {
	for _, tc := range []struct{ limit, most float64 }{{1, 0.002}, {1.2, 0.002}, {1.5, 0.001}} {
		average, throttledByAverage := throttled(tc.limit, false)
		request, share := throttled(tc.limit, true)
		t.Logf("limit %.1f × request: %4.0fm requested, %5.2f %% of minutes throttled; by the average alone %4.0fm, %5.2f %%",
			tc.limit, request, 100*share, average, 100*throttledByAverage)
		if share > tc.most {
			t.Errorf("with a limit of %.1f times the request, %.2f %% of minutes are throttled, want at most %.2f %%", tc.limit, 100*share, 100*tc.most)
		}
	}
}

// throttled replays 14 days, a sample a minute. The container demands what it demands, and uses at
// most its limit.
func throttled(limit float64, isKnown bool) (request, share float64) {
	const days, warmUp = 14, 2
	r := rand.New(rand.NewPCG(20, 21))
	params := recommend.DefaultParams()
	policy := recommend.Policy{CPU: true}
	var h history.Container
	var before *recommend.Container
	current, noise, minutes := 2000.0, 0.0, 0.0
	start := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for m := range days * 1440 {
		noise = 0.5*noise + 0.25*math.Sqrt(0.75)*r.NormFloat64()
		demand := (600 - 400*math.Cos(float64(m)/1440*2*math.Pi)) * math.Exp(noise)
		if m >= warmUp*1440 {
			minutes++
			request += current
			if demand > limit*current {
				share++
			}
		}
		s := usage.Sample{Container: "app", Pod: "web-0", Window: time.Minute, Time: start.Add(time.Duration(m) * time.Minute), CPUMillis: int64(min(demand, limit*current))}
		if isKnown {
			s.LimitFactor, s.CPULimitMillis = limit, int64(limit*current)
		}
		h.Add(s, params.History)
		if next, ok := recommend.For("app", &h, policy, before, params); ok {
			before, current = &next, float64(next.Target.CPUMillis)
		}
	}
	return request / minutes, share / minutes
}
