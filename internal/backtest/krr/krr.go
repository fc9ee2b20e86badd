// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package krr is the rule of the Kubernetes Resource Recommender (KRR) as of July 2026, strategy simple with its
// default settings, implemented from its formulas and constants. It serves as a comparison only.
//
// Over the usage of the last 14 days:
//
//	CPU      95th percentile, at least 10m, and no limit
//	memory   peak × 1.15, at least 100 MiB, as request and limit
//
// The percentile interpolates between ranks, as Prometheus does. Amounts are rounded up to millicores
// and MiB. KRR recommends nothing with less than 3 hours of usage.
//
// KRR recommends once, when a user runs it. The Policy applies the recommendation once a day, as its users do
// on a schedule. KRR knows OOM kills only with an option that is off by default.
package krr

import (
	"math"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const (
	percentile    = 0.95
	bufferPercent = 15

	minCPUMillis   = 10
	minMemoryBytes = 100 << 20
	mebi           = 1 << 20

	// history is the usage that counts, and leastHistory the least that is needed.
	history      = 14 * 24 * time.Hour
	leastHistory = 3 * time.Hour
	// every is the time between applications of the recommendation.
	every = 24 * time.Hour
)

// Rule is the rule under the name krr.
func Rule() backtest.Rule {
	return backtest.Rule{
		Name:  "krr",
		About: "the rule of the Kubernetes Resource Recommender with its defaults, applied in place once a day",
		New:   func(c backtest.Container) backtest.Policy { return &Policy{hasMemory: c.HasMemory} },
	}
}

// Policy is the rule for one container.
type Policy struct {
	hasMemory bool
	first     time.Time
	now       time.Time // the end of the last interval
	applied   time.Time
	samples   []sample
}

type sample struct {
	at     time.Time
	cpu    float64 // millicores; of the pod that uses most
	memory int64
}

// Next receives an interval, and recommends once a day.
func (p *Policy) Next(o backtest.Observation) (quantity.Amounts, bool) {
	if p.first.IsZero() {
		p.first = o.Start
	}
	p.now = o.Start.Add(o.Step)
	p.samples = append(p.samples, sample{o.Start, slices.Max(o.Pods()), o.MemoryBytes})
	if !p.applied.IsZero() && p.now.Sub(p.applied) < every {
		return o.Requests, false
	}
	requests, ok := p.recommend()
	if !ok {
		return o.Requests, false
	}
	if !p.hasMemory {
		requests.MemoryBytes = o.Requests.MemoryBytes
	}
	p.applied = p.now
	return requests, true
}

// recommend returns KRR's recommendation for the last 14 days.
func (p *Policy) recommend() (quantity.Amounts, bool) {
	if p.now.Sub(p.first) < leastHistory {
		return quantity.Amounts{}, false
	}
	from := p.now.Add(-history)
	p.samples = slices.DeleteFunc(p.samples, func(s sample) bool { return s.at.Before(from) })
	peak, cpus := int64(0), make([]float64, len(p.samples))
	for i, s := range p.samples {
		cpus[i], peak = s.cpu, max(peak, s.memory)
	}
	memory := int64(math.Ceil(float64(peak)*(100+bufferPercent)/100/mebi)) * mebi
	return quantity.Amounts{
		CPUMillis:   max(int64(math.Ceil(quantile(cpus))), minCPUMillis),
		MemoryBytes: max(memory, minMemoryBytes),
	}, true
}

// quantile is the percentile of at least one value. It sorts them.
func quantile(values []float64) float64 {
	slices.Sort(values)
	rank := percentile * float64(len(values)-1)
	below := int(rank)
	above := min(below+1, len(values)-1)
	share := rank - float64(below)
	return values[below]*(1-share) + values[above]*share
}
