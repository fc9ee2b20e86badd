// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// record is what has been seen from the beginning, as far as it matters in the end.
type record struct {
	piece piece
	// created is when the Deployment was created, and found when the scaler said
	// that it is found. Below 0: not yet.
	created, found time.Duration
	// first is the state in which all pods were there for the first time.
	first *state
	last  state
	// phases are those played so far.
	phases []*progress
	// restarts and strangers are the most restarts seen by then, and whether other
	// pods than the first ones were seen.
	restarts  int32
	strangers bool
	// samples are for the sparklines.
	samples []sample
}

// sample is what is drawn of one moment.
type sample struct {
	usage, requests quantity.Amounts
}

// progress is how far a phase has come.
type progress struct {
	phase
	began time.Duration
	// start and end are the states that it began with and that was seen last in it, and
	// most is the most Deployments that the sample had at once.
	start, end state
	most       int
	// before and after are what the pods have in force, and lowest what the one has
	// that has least.
	before      map[types.UID]workload.Resources
	lowestFirst workload.Resources
	lowestLast  workload.Resources
	// from is the highest usage before.
	from quantity.Amounts
	// seen is when the phase's cause was visible for the operator: the new usage in
	// metrics.k8s.io, or the kill in the pod's status. first is when a pod had new
	// resources in force, last when one had for the last time, done when all was
	// over. Below 0: not yet.
	seen, first, last, done time.Duration
	// changed are the pods that have other resources in force than before.
	changed int
	// victim is the pod that is killed by hitting the limit hit, in bytes.
	victim string
	hit    int64
}

func newRecord(p piece) *record { return &record{piece: p, created: -1, found: -1} }

// begin begins a phase.
func (r *record) begin(ph phase, now time.Duration) *progress {
	p := &progress{phase: ph, began: now, start: r.last, before: map[types.UID]workload.Resources{}, seen: -1, first: -1, last: -1, done: -1}
	for _, pod := range r.last.pods {
		p.before[pod.UID] = pod.inForce()
	}
	p.lowestFirst = r.last.least()
	p.from, _ = r.last.highest()
	r.phases = append(r.phases, p)
	return p
}

// strike says that a pod is being killed.
func (r *record) strike(victim string) {
	p := r.current()
	p.victim = victim
	for _, pod := range r.last.pods {
		if pod.Name == victim {
			p.hit = pod.inForce().Limits.MemoryBytes
		}
	}
}

// current is the phase being played; nil before the first.
func (r *record) current() *progress {
	if len(r.phases) == 0 {
		return nil
	}
	return r.phases[len(r.phases)-1]
}

// add takes a state into account.
func (r *record) add(s state) {
	if r.created < 0 && len(s.deployments) > 0 {
		r.created = s.at
	}
	if r.found < 0 && s.condition("TargetFound").Reason == "DeploymentFound" {
		r.found = s.at
	}
	if r.first == nil && len(s.pods) == replicas && count(s.pods, func(p pod) bool { return p.ready }) == replicas {
		r.first = &s
	}
	if r.first != nil {
		r.restarts = max(r.restarts, s.restarts())
		r.strangers = r.strangers || !same(r.first.uids(), s.uids())
	}
	r.sample(s)
	if p := r.current(); p != nil && p.done < 0 {
		p.add(r.last, s)
	}
	r.last = s
}

// replicas is the number of the sample's pods.
const replicas = 3

func same(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// everySample is the time between two samples of the sparklines.
const everySample = 2 * time.Second

func (r *record) sample(s state) {
	usage, ok := s.highest()
	if !ok || s.at < everySample*time.Duration(len(r.samples)) {
		return
	}
	next := sample{usage: usage, requests: s.least().Requests}
	for s.at >= everySample*time.Duration(len(r.samples)) {
		r.samples = append(r.samples, next)
	}
}

// add takes a state into account, of which the last one was another.
func (p *progress) add(before, s state) {
	if p.seen < 0 && p.causeIsSeen(s) {
		p.seen = s.at
	}
	p.end, p.most = s, max(p.most, s.atOnce)
	p.changed = 0
	for _, pod := range s.pods {
		if pod.inForce() != p.before[pod.UID] {
			p.changed++
		}
		for _, old := range before.pods {
			if old.UID == pod.UID && old.inForce() != pod.inForce() {
				p.last = s.at
				if p.first < 0 {
					p.first = s.at
				}
			}
		}
	}
	p.lowestLast = s.least()
}

// causeIsSeen says whether the operator can know what the phase is about.
func (p *progress) causeIsSeen(s state) bool {
	if p.oom {
		return count(s.pods, func(pod pod) bool { return pod.Name == p.victim && len(pod.Kills) > 0 }) > 0
	}
	now, ok := s.highest()
	return ok && (isNearer(now.CPUMillis, p.load.CPUMillis, p.from.CPUMillis) ||
		isNearer(now.MemoryBytes, p.load.MemoryBytes, p.from.MemoryBytes))
}

func isNearer(value, to, than int64) bool {
	distance := func(a, b int64) int64 { return max(a-b, b-a) }
	return distance(value, to) < distance(value, than)
}
