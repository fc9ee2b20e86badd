// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	actions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "verticalscaler_actions_total",
		Help: "Changes asked of the API server, by kind (resize, rollout, evict, restore) and outcome (done, conflict, failed, Frozen, or the reason of the rejection).",
	}, []string{"action", "outcome"})

	asks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "verticalscaler_budget_asks_total",
		Help: "Changes asked of the budget, by outcome: granted, queued (counted once for each wait; granted later).",
	}, []string{"outcome"})

	waiting = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "verticalscaler_budget_waiting",
		Help: "Scalers whose next change waits for the budget.",
	})
)

func init() { metrics.Registry.MustRegister(actions, asks, waiting) }

// countAsk counts a change asked of the budget.
func countAsk(granted, isNew bool, now int) {
	switch {
	case granted:
		asks.WithLabelValues("granted").Inc()
	case isNew:
		asks.WithLabelValues("queued").Inc()
	}
	waiting.Set(float64(now))
}

func countAction(action, outcome string) { actions.WithLabelValues(action, outcome).Inc() }
