// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vpa is the rule of the Vertical Pod Autoscaler, release 1.8, with its default
// settings and updates in place, implemented from its formulas and constants. It serves as a
// comparison only.
//
// The recommender (Model) keeps a distribution of CPU samples, and one of the daily peaks
// of memory, both with a half-life of 24 hours. With d, the days of history:
//
//	            CPU, memory                                 at least
//	target      90th percentile × 1.15                      25m, 250 MiB
//	lower bound 50th percentile × 1.15 × (1 + 0.001/d)^-2   25m, 250 MiB
//	upper bound 95th percentile × 1.15 × (1 + 1/d)          25m, 250 MiB
//
// An OOM kill counts as a daily peak of 1.2 times the request, or 100 MiB more than it.
//
// The updater (Policy) applies the target when a request is outside of the bounds, or when the container
// was killed within 10 minutes of its start. It also applies it when the pod is 12 hours old and the
// relative changes of CPU and memory add up to 10 %. A resize in place does not make the pod younger.
//
// Its promise: target and bounds equal those of VPA's own library to the last byte, and its updater
// accepts a pod exactly when Policy does. bench/vpa tests both.
package vpa

import (
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const (
	// oldEnough is the age from which on a pod is changed even though it is within bounds.
	oldEnough = 12 * time.Hour
	// leastChange is the sum of the relative changes that is then worth it.
	leastChange = 0.1
	// quickKill is the time after its start in which a kill is due to the request, and the time for
	// which the kill is remembered.
	quickKill = 10 * time.Minute

	// sampleEvery is the interval of the metrics that VPA reads.
	sampleEvery = time.Minute
)

// Rule is the rule under the name vpa.
func Rule() backtest.Rule {
	return backtest.Rule{
		Name:  "vpa",
		About: "the Vertical Pod Autoscaler's rule with its defaults, resizing in place",
		New: func(c backtest.Container) backtest.Policy {
			return &Policy{model: NewModel(), hasMemory: c.HasMemory}
		},
	}
}

// Policy is the rule for one container.
type Policy struct {
	model     *Model
	hasMemory bool
	pod       Pod
}

// Next feeds the interval's average of each pod as one sample a minute, VPA's interval of reading
// metrics, and its peak of memory as one. VPA keeps one distribution for all pods.
func (p *Policy) Next(o backtest.Observation) (quantity.Amounts, bool) {
	start := o.Start.Unix()
	for at := time.Duration(0); at == 0 || at+sampleEvery <= o.Step; at += sampleEvery {
		for _, cpu := range o.Pods() {
			p.model.AddCPU(start+int64(at/time.Second), int64(cpu))
		}
	}
	if p.hasMemory {
		p.model.AddMemory(start, o.MemoryBytes)
	}
	if p.pod.Started.IsZero() {
		p.pod.Started, p.pod.ContainerStarted = o.Start, o.Start
	}
	now := o.Start.Add(o.Step)
	if o.OOMKilled {
		p.model.AddOOMKill(start, o.Requests.MemoryBytes)
		p.pod.Kill(now)
	}
	r := p.model.Recommend()
	if !p.hasMemory {
		unchanged := o.Requests.MemoryBytes
		r.Target.MemoryBytes, r.Lower.MemoryBytes, r.Upper.MemoryBytes = unchanged, unchanged, unchanged
	}
	p.pod.Requests = o.Requests
	if !p.pod.IsUpdated(r, now) {
		return o.Requests, false
	}
	return r.Target, true
}

// Pod is the updater's view of a pod.
type Pod struct {
	Requests quantity.Amounts
	Started  time.Time
	// ContainerStarted is the time of the last start of its container.
	ContainerStarted time.Time
	// KilledFrom and KilledAt are the start and the end of the last killed container; zero without
	// one.
	KilledFrom, KilledAt time.Time
}

// Kill notes an OOM kill; the container is started again at once.
func (p *Pod) Kill(now time.Time) {
	p.KilledFrom, p.KilledAt, p.ContainerStarted = p.ContainerStarted, now, now
}

// IsUpdated reports whether the updater would apply the target.
func (p Pod) IsUpdated(r Recommendation, now time.Time) bool {
	var (
		isOutside = p.Requests.CPUMillis < r.Lower.CPUMillis || p.Requests.CPUMillis > r.Upper.CPUMillis ||
			p.Requests.MemoryBytes < r.Lower.MemoryBytes || p.Requests.MemoryBytes > r.Upper.MemoryBytes
		change = relative(p.Requests.CPUMillis, r.Target.CPUMillis) + relative(p.Requests.MemoryBytes, r.Target.MemoryBytes)
		isOOM  = !p.KilledAt.IsZero() && p.KilledAt.Sub(p.KilledFrom) < quickKill && now.Sub(p.KilledAt) < quickKill
	)
	switch {
	case isOOM:
		return change != 0
	case isOutside:
		return true
	}
	return now.Sub(p.Started) >= oldEnough && change >= leastChange
}

func relative(from, to int64) float64 {
	from = max(from, 1)
	return math.Abs(float64(from)-float64(to)) / float64(from)
}
