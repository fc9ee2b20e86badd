// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package vpa_test

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

const (
	mebi = 1 << 20
	day  = 24 * 60 * 60
)

// TestRecommend holds some values that the library answers, too; bench/vpa compares with
// the library itself.
func TestRecommend(t *testing.T) {
	cases := map[string]struct {
		minutes int64
		kill    bool
		want    vpa.Recommendation
	}{
		"nothing known": {0, false, vpa.Recommendation{
			Target: quantity.Amounts{CPUMillis: 25, MemoryBytes: 250 * mebi},
			Lower:  quantity.Amounts{CPUMillis: 25, MemoryBytes: 250 * mebi},
			Upper:  quantity.Amounts{CPUMillis: 25, MemoryBytes: 250 * mebi},
		}},
		"one sample bounds nothing": {1, false, vpa.Recommendation{
			Target: quantity.Amounts{CPUMillis: 296, MemoryBytes: 511772986},
			Lower:  quantity.Amounts{CPUMillis: 25, MemoryBytes: 250 * mebi},
			Upper:  quantity.Amounts{CPUMillis: 1e14, MemoryBytes: 1e14},
		}},
		"8 days bound closely": {8 * 24 * 60, false, vpa.Recommendation{
			Target: quantity.Amounts{CPUMillis: 296, MemoryBytes: 511772986},
			Lower:  quantity.Amounts{CPUMillis: 295, MemoryBytes: 511645055},
			Upper:  quantity.Amounts{CPUMillis: 333, MemoryBytes: 575750162},
		}},
		"a kill asks for 100 MiB more, and the margin": {1, true, vpa.Recommendation{
			Target: quantity.Amounts{CPUMillis: 296, MemoryBytes: 628694953},
			Lower:  quantity.Amounts{CPUMillis: 25, MemoryBytes: 250 * mebi},
			Upper:  quantity.Amounts{CPUMillis: 1e14, MemoryBytes: 1e14},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := vpa.NewModel()
			for minute := range tc.minutes {
				m.AddCPU(minute*60, 250)
				m.AddMemory(minute*60, 400*mebi)
			}
			if tc.kill {
				m.AddOOMKill(0, 400*mebi)
			}
			assert.Equal(t, "Recommend()", tc.want, m.Recommend())
		})
	}
}

// TestEveryPodCounts: a backtest's policy recommends the same as a model with the samples of every
// pod, each minute.
func TestEveryPodCounts(t *testing.T) {
	var (
		model  = vpa.NewModel()
		policy = vpa.Rule().New(backtest.Container{Step: 5 * time.Minute})
		last   quantity.Amounts
	)
	for i := range int64(24 * 12) {
		o := backtest.Observation{
			Start: time.Unix(i*300, 0), Step: 5 * time.Minute, CPUMillis: 400, PodCPUMillis: []float64{100, 200, 900},
			Requests: quantity.Amounts{CPUMillis: 10},
		}
		last, _ = policy.Next(o)
		for minute := range int64(5) {
			for _, cpu := range o.PodCPUMillis {
				model.AddCPU(i*300+minute*60, int64(cpu))
			}
		}
	}
	if want := model.Recommend().Target.CPUMillis; last.CPUMillis != want || want < 900 {
		t.Errorf("the policy recommends %dm, and the model %dm; the hottest of three pods uses 900m", last.CPUMillis, want)
	}
}
