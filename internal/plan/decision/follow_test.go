// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

func TestFollow(t *testing.T) {
	amounts := func(cpu, memory int64) quantity.Amounts {
		return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory << 20}
	}
	rec := recommend.Container{Target: amounts(200, 400), LowerBound: amounts(180, 390), UpperBound: amounts(210, 420)}
	const cooldown = 5 * time.Minute
	cases := map[string]struct {
		current, want quantity.Amounts
		since         time.Duration
	}{
		"what is right stays":                       {current: amounts(200, 400), want: amounts(200, 400), since: time.Hour},
		"what is close stays":                       {current: amounts(190, 395), want: amounts(190, 395), since: time.Hour},
		"below the lower bound is raised at once":   {current: amounts(100, 389), want: amounts(200, 400)},
		"above the upper bound waits":               {current: amounts(300, 500), want: amounts(300, 500), since: time.Minute},
		"and is lowered after the cooldown":         {current: amounts(300, 500), want: amounts(200, 400), since: cooldown},
		"within the bounds nothing is lowered":      {current: amounts(205, 415), want: amounts(205, 415), since: time.Hour},
		"what waits does not keep the rest from it": {current: amounts(300, 100), want: amounts(300, 400)},
		"what has no request gets one":              {want: amounts(200, 400), since: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Follow(tc.current, rec, cooldown, tc.since); got != tc.want {
				t.Errorf("Follow() = %+v, want %+v", got, tc.want)
			}
		})
	}
	if got := Follow(amounts(100, 100), recommend.Container{}, cooldown, time.Hour); got != amounts(100, 100) {
		t.Errorf("without a recommendation: Follow() = %+v", got)
	}
}
