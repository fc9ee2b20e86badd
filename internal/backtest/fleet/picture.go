// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import "github.com/verticalscaler/verticalscaler-operator/internal/backtest"

// columns is the number of parts of time in a picture of usage.
const columns = 96

// band is the least and the most usage in a part of time. A part without usage has a most below its least.
type band struct{ least, most float32 }

// bandsOf are the bands of CPU in millicores and of memory in MiB.
func bandsOf(samples []backtest.Sample) (of [2][]band) {
	from, length := samples[0].At, samples[len(samples)-1].At-samples[0].At+1
	for resource := range of {
		bands := make([]band, columns)
		for i := range bands {
			bands[i] = band{1, 0}
		}
		for _, s := range samples {
			value := float32(s.CPUMillis)
			if resource == 1 {
				value = float32(s.MemoryBytes) / (1 << 20)
			}
			b := &bands[(s.At-from)*columns/length]
			if b.most < b.least {
				*b = band{value, value}
			}
			b.least, b.most = min(b.least, value), max(b.most, value)
		}
		of[resource] = bands
	}
	return of
}
