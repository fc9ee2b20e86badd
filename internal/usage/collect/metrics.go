// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// used is the outcome of a sample that was not refused.
const used = "Used"

var received = metrics.NewCounter(metrics.Metric{
	Name:      "verticalscaler_samples_total",
	Help:      "Usage samples received, by what became of them: Used, or the reason of the refusal.",
	Labels:    []string{"outcome"},
	Stability: metrics.Beta,
}, []string{used})

// count counts what a source has delivered.
func count(samples []usage.Sample, refused []usage.Refused) {
	received.WithLabelValues(used).Add(float64(len(samples)))
	for _, r := range refused {
		received.WithLabelValues(string(r.Why)).Inc()
	}
}
