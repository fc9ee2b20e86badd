// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/krr"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// vpaSizer is VPA's rule with the mode InPlaceOrRecreate: a resize that is Deferred for five minutes is an eviction, of at
// most half of the pods at once.
type vpaSizer struct {
	model       *vpa.Model
	environment environment
	// part is the share of VPA's CPU that is requested.
	part float64
	// target is the last recommendation; zero before the first.
	target quantity.Amounts
}

func (s *vpaSizer) act(c *cluster, d *deployment) {
	const sampleEvery = time.Minute
	start := c.now.Add(-interval).Unix()
	for at := int64(0); at < int64(interval/time.Second); at += int64(sampleEvery / time.Second) {
		for _, p := range d.pods {
			s.model.AddCPU(start+at, int64(p.used))
		}
	}
	for _, p := range d.pods {
		s.model.AddMemory(start, min(p.needs, p.limit))
	}
	for _, p := range d.pods {
		if p.isKilled {
			s.model.AddOOMKill(start, p.limit)
			p.vpa.Kill(c.now)
		}
	}
	r := s.model.Recommend()
	for _, of := range []*quantity.Amounts{&r.Target, &r.Lower, &r.Upper} {
		of.CPUMillis = int64(s.part * float64(of.CPUMillis))
		*of = s.environment.atMost(*of)
	}
	s.target = r.Target
	evicted := 0
	for _, p := range d.pods {
		p.vpa.Requests = p.asked
		if p.vpa.IsUpdated(r, c.now) {
			c.ask(p, r.Target, c.now)
		}
		if p.isDeferred() && c.now.Sub(p.Pod.Resize.Since) >= interval && evicted < replicas/2 {
			evicted++
			c.evict(p, r.Target)
		}
	}
}

func (s *vpaSizer) decided(p *pod) quantity.Amounts { return p.asked }

func (s *vpaSizer) newPod(d *deployment) quantity.Amounts {
	if s.target == (quantity.Amounts{}) {
		return d.template
	}
	return s.target
}

// atMost is an amount that a node has.
func (w environment) atMost(a quantity.Amounts) quantity.Amounts {
	most := w.allocatable()
	return quantity.Amounts{CPUMillis: min(a.CPUMillis, most.CPUMillis), MemoryBytes: min(a.MemoryBytes, most.MemoryBytes)}
}

// daily applies KRR's rule, whose CPU is the 95th percentile, in place once a day. It never evicts.
type daily struct {
	policy      backtest.Policy
	environment environment
	target      quantity.Amounts
}

func newDaily(d *deployment, w environment) *daily {
	return &daily{krr.Rule().New(backtest.Container{Name: container, Step: interval, HasMemory: true}), w, d.template}
}

func (s *daily) act(c *cluster, d *deployment) {
	o := backtest.Observation{Start: c.now.Add(-interval), Step: interval, Requests: s.target}
	for _, p := range d.pods {
		o.PodCPUMillis = append(o.PodCPUMillis, p.used)
		o.MemoryBytes = max(o.MemoryBytes, min(p.needs, p.limit))
		o.OOMKilled = o.OOMKilled || p.isKilled
	}
	if target, ok := s.policy.Next(o); ok {
		s.target = s.environment.atMost(target)
	}
	for _, p := range d.pods {
		c.ask(p, s.target, c.now)
	}
}

func (s *daily) decided(*pod) quantity.Amounts { return s.target }

func (s *daily) newPod(*deployment) quantity.Amounts { return s.target }
