// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"math/rand/v2"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Whatever shapes the limits: who requests more gets no lower limit, and a limit that is
// set again for the same request stays as it is.
func TestLimitsFollowRequestsUpwards(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := LimitRules{follows: true, shape: workload.Resources{
			Requests: quantity.Amounts{CPUMillis: r.Int64N(1000), MemoryBytes: r.Int64N(1 << 30)},
			Limits:   quantity.Amounts{CPUMillis: 1000 + r.Int64N(1000), MemoryBytes: 1<<30 + r.Int64N(1<<30)},
		}}
		if r.IntN(2) == 0 {
			cpu, memory := r.Int64N(1001), r.Int64N(1001)
			c.limits.HeadroomCPU, c.limits.HeadroomMemory = &cpu, &memory
		}
		if r.IntN(2) == 0 {
			c.limits.MaxAllowed = quantity.Amounts{CPUMillis: 500 + r.Int64N(1000), MemoryBytes: 1<<29 + r.Int64N(1<<30)}
			c.limits.MinAllowed = quantity.Amounts{CPUMillis: r.Int64N(500), MemoryBytes: r.Int64N(1 << 29)}
		}
		if r.IntN(2) == 0 {
			c.bounds.ContainerRatio = workload.Ratios{CPU: 1000 + r.Int64N(3000), Memory: 1000 + r.Int64N(3000)}
		}
		for _, res := range model.Resources {
			low := 1 + r.Int64N(res.Most())
			high := low + r.Int64N(res.Most()-low+1)
			current := 1 + r.Int64N(res.Most())
			a, b := c.limitFor(low, current, res), c.limitFor(high, current, res)
			if a > b {
				t.Errorf("seed %d: %s of %d has a limit of %d, and %d one of %d", seed, res.String(), low, a, high, b)
			}
			if a < low || b < high {
				t.Errorf("seed %d: a limit of %s is below its request: %d for %d, %d for %d", seed, res.String(), a, low, b, high)
			}
			if again := c.limitFor(low, a, res); again != a {
				t.Errorf("seed %d: a limit of %s of %d becomes %d", seed, res.String(), a, again)
			}
		}
	}
}

// A step moves towards its end, never past what it may, and never not at all.
func TestStepsComeThrough(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		for _, res := range model.Resources {
			current, percent := 1+r.Int64N(res.Most()-1), 1+r.Int64N(1000)
			if r.IntN(2) == 0 {
				current = 1 + r.Int64N(1000)
			}
			q := request{current: current, resource: res, isWhole: !res.IsMemory() && r.IntN(4) == 0}
			up, most := q.stepUp(percent), mulDiv(current, 100+percent, 100, false)
			if up <= current || up > max(most, current+q.grain(most)) {
				t.Errorf("seed %d: %s of %d goes up by %d %% to %d", seed, res.String(), current, percent, up)
			}
			percent = 1 + r.Int64N(99)
			down, least := q.stepDown(percent), mulDiv(current, 100-percent, 100, true)
			if down >= current || down < min(least, current-q.grain(least)) {
				t.Errorf("seed %d: %s of %d goes down by %d %% to %d", seed, res.String(), current, percent, down)
			}
		}
	}
}
