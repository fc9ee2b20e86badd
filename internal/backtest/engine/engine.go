// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package engine sizes a container in a backtest with the operator's own history, recommendation
// and plan: the functions that a reconcile calls.
package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// cooldown is the API's default, and raiseFactor the default of the operator's configuration.
	cooldown    = 5 * time.Minute
	raiseFactor = 8

	podUID = "pod"
)

// beginning is the start of traces that count their seconds from an arbitrary midnight, because
// a history does not accept times as old as 1970. It is a whole number of weeks after 1970.
var beginning = 10 * 52 * 7 * 24 * time.Hour

// Rule is the operator's rule under the name verticalscaler.
func Rule() backtest.Rule {
	rule := Of(profile.Balanced)
	rule.About = "VerticalScaler with its defaults, resizing in place"
	return rule
}

// Of is the operator's rule with a profile.
func Of(p profile.Profile) backtest.Rule {
	params := recommend.DefaultParams()
	params.History.Prices = profile.Of(p).Prices
	return backtest.Rule{
		Name:  "verticalscaler",
		About: fmt.Sprintf("VerticalScaler with the profile %s, resizing in place", p),
		New: func(c backtest.Container) backtest.Policy {
			params := params
			// As where the interval of collection is configured.
			params.History.MaxGap = max(params.History.MaxGap, 3*c.Step)
			return &policy{
				container: c,
				params:    params,
				policy:    recommend.Policy{Profile: p, CPU: true, Memory: c.HasMemory, LimitsCPU: c.CPULimit == 1},
			}
		},
	}
}

type policy struct {
	container backtest.Container
	params    recommend.Params
	policy    recommend.Policy

	pods        []string // their names
	history     history.Container
	recommended *recommend.Container
	decision    *plan.Decision
	started     time.Time
	kills       int32
	// shift is added to all times.
	shift time.Duration

	// highest are the highest CPU targets of the last days since the start; day is the last one.
	highest [7]int64
	day     int

	// undisturbed is nil before the first kill. From then on, it learns the container's need without kills.
	undisturbed *policy

	// settled is true if the last plan was to do nothing. It ends at the time below, if that is not zero.
	settled bool
	wake    time.Time
}

// Next adds the interval as one sample of each pod and then reconciles once, like an operator that collects
// usage once per interval. Repeating the same average several times would simulate constant usage
// within the interval, which no container has.
func (p *policy) Next(o backtest.Observation) (quantity.Amounts, bool) {
	p.learn(o)
	now := p.add(o)
	next, ok := recommend.For(p.container.Name, &p.history, p.policy, p.recommended, p.params)
	p.remember(next.Target.CPUMillis, now)
	if !ok || p.isQuiet(next, now) {
		return o.Requests, false
	}
	p.recommended = &next
	return p.pass(o.Requests, now)
}

// learn lets the undisturbed policy learn an interval, without a reconcile.
func (p *policy) learn(o backtest.Observation) {
	if p.undisturbed == nil {
		if !o.OOMKilled || o.NeededBytes == 0 {
			return
		}
		clone := *p
		clone.history = *p.history.Clone()
		p.undisturbed = &clone
	}
	u := p.undisturbed
	o.OOMKilled, o.MemoryBytes = false, o.NeededBytes
	now := u.add(o)
	if next, ok := recommend.For(u.container.Name, &u.history, u.policy, u.recommended, u.params); ok {
		u.remember(next.Target.CPUMillis, now)
		u.recommended = &next
	}
}

// add adds an interval to the history, and returns its end.
func (p *policy) add(o backtest.Observation) (now time.Time) {
	if p.started.IsZero() {
		if o.Start.Year() < 1971 {
			p.shift = beginning
		}
		p.started = o.Start.Add(p.shift)
	}
	now = o.Start.Add(p.shift + o.Step)

	s := p.situation(o.Requests)
	has := s.Pods[0].Containers[0].Resources
	for i, cpu := range o.Pods() {
		if i == len(p.pods) {
			p.pods = append(p.pods, fmt.Sprintf("pod-%d", i))
		}
		p.history.Add(usage.Sample{
			Pod: p.pods[i], Container: p.container.Name, Time: now, Window: o.Step,
			CPUMillis: int64(math.Round(cpu)), MemoryBytes: o.MemoryBytes,
			LimitFactor: p.container.CPULimit, CPULimitMillis: has.Limits.CPUMillis,
			MemoryRequest: has.Requests.MemoryBytes, MemoryLimit: has.Limits.MemoryBytes,
		}, p.params.History)
	}
	if o.OOMKilled {
		p.kills++
		kill := workload.OOMKill{Container: p.container.Name, At: now, Termination: p.kills, HitBytes: o.Requests.MemoryBytes}
		p.history.RecordKill(plan.KillOf(s, p.planPolicy(), s.Pods[0], kill), now, p.params.History)
	}
	return now
}

// Recommend returns requests for a container without a scaler. CPU is the highest target of the last seven
// days, because usage follows days and weeks, but no more than was used. Memory is the memory target, which
// covers eight days. Targets of the first day have higher margins and count only until another day has begun.
func (p *policy) Recommend() (quantity.Amounts, bool) {
	p = cmp.Or(p.undisturbed, p)
	h := p.history.Clone()
	h.ForgetClimb() // it depends on limits
	c, ok := recommend.For(p.container.Name, h, p.policy, nil, p.params)
	if highest := slices.Max(p.highest[:]); highest > 0 {
		c.Target.CPUMillis = max(min(highest, p.history.CPUPeak()), recommend.MinCPUMillis)
	}
	c.Target.MemoryBytes = max(c.Target.MemoryBytes, p.container.HeapBytes)
	return c.Target, ok
}

// remember adds a target of CPU to the highest ones.
func (p *policy) remember(cpu int64, now time.Time) {
	day := int(now.Sub(p.started) / (24 * time.Hour))
	if day == 0 {
		return
	}
	for p.day = max(p.day, day-len(p.highest)); p.day < day; p.day++ {
		p.highest[(p.day+1)%len(p.highest)] = 0
	}
	today := &p.highest[day%len(p.highest)]
	*today = max(*today, cpu)
}

// isQuiet reports whether a reconcile would do nothing again. Time alone changes a plan only when its
// RequeueAfter has passed.
func (p *policy) isQuiet(next recommend.Container, now time.Time) bool {
	before := p.recommended
	return before != nil && p.settled && (p.wake.IsZero() || now.Before(p.wake)) &&
		next.Target == before.Target && next.LowerBound == before.LowerBound && next.UpperBound == before.UpperBound &&
		next.Uncapped == before.Uncapped && next.Observed == before.Observed && next.OOMFloor == before.OOMFloor &&
		slices.Equal(next.Reasons, before.Reasons)
}

// pass plans, and applies resizes at once. There are two after an OOM kill, since memory comes before CPU.
func (p *policy) pass(applied quantity.Amounts, now time.Time) (_ quantity.Amounts, isResized bool) {
	for range 2 {
		s := p.situation(applied)
		s.Recommendations, s.Decision = []recommend.Container{*p.recommended}, p.decision
		next := plan.Next(s, p.planPolicy(), now)
		p.decision = next.Decision
		resize, isResize := next.Step.(plan.Resize)
		p.settled, p.wake = !isResize, time.Time{}
		if next.Verdict.RequeueAfter > 0 {
			p.wake = now.Add(next.Verdict.RequeueAfter)
		}
		if len(resize.Sizes) == 0 {
			break
		}
		applied, isResized = resize.Sizes[0].Requests, true
	}
	return applied, isResized
}

// situation is a Deployment of one pod with these requests. All pods have the same size, so one stands for all.
func (p *policy) situation(applied quantity.Amounts) plan.Situation {
	name := p.container.Name
	template := workload.Container{Name: name, Resources: p.resources(p.container.Requests)}
	has := workload.Container{Name: name, Resources: p.resources(applied)}
	return plan.Situation{
		Ceilings: plan.Ceilings{RaiseFactor: raiseFactor},
		Deployment: workload.Deployment{
			Name: name, Replicas: 1, UpdatedReplicas: 1, Containers: []workload.Container{template},
			Heaps: map[string]workload.Heap{name: {Bytes: p.container.HeapBytes}},
		},
		Pods: []workload.Pod{{
			Name: name, UID: podUID, Current: true, Running: true, Started: p.started,
			QoS:        workload.QoSOf([]workload.Container{has}),
			Containers: []workload.Container{has},
			Actual:     workload.Reported{{Name: name, Resources: has.Resources}},
		}},
	}
}

// resources are requests with their limits.
func (p *policy) resources(requests quantity.Amounts) workload.Resources {
	out := workload.Resources{Requests: requests}
	out.Limits.CPUMillis = int64(float64(requests.CPUMillis) * p.container.CPULimit)
	if p.container.HasMemory {
		out.Limits.MemoryBytes = requests.MemoryBytes
	}
	return out
}

func (p *policy) planPolicy() plan.Policy {
	return plan.Policy{
		Mode:      v1beta1.UpdateModeInPlace,
		Cooldown:  cooldown,
		Tolerance: plan.DefaultTolerance,
		Containers: map[string]plan.ContainerPolicy{
			p.container.Name: {CPU: true, Memory: p.container.HasMemory, Limits: plan.LimitsFollow},
		},
	}
}
