// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	simulatedScalers    = 1000
	simulatedNamespaces = 40
	simulatedTime       = 32 * day // since the policy was created
	// ownKills is the rate of unrelated OOM kills of a container while it is verified: once in 2,000 days.
	ownKills = 1.0 / 2000
)

// A simulation is a fleet that is promoted. A policy was created for it a week ago, so the first scalers have enough
// evidence. The fleet is untidy: its namespaces are uneven, scalers are paused, deleted and created, and one in 30
// never has enough evidence. The operator looks every few hours, is down now and then for up to 30 hours, and another
// replica with another clock may follow. An OOM kill is answered at once, or when the operator is back.
type simulation struct {
	*rand.Rand
	rollout Rollout
	harm    float64 // the share of promotions that do harm within the verification
	kills   float64 // unrelated OOM kills of a scaler per day

	start, now time.Time
	skew       time.Duration // of the clock
	outages    []outage
	created    int
	scalers    []simulated
	candidates []Candidate
}

// simulated is the part of a scaler that a policy does not see.
type simulated struct {
	readyAt time.Time
	harmAt  time.Time // zero for never
}

type outage struct{ from, to time.Time }

func newSimulation(seed uint64, scalers int, harm, kills float64) *simulation {
	s := &simulation{Rand: rand.New(rand.NewPCG(seed, 8)), rollout: defaults(), harm: harm, kills: kills, start: promotionNow}
	s.now = s.start.Add(7 * day)
	for range scalers {
		ready := 7 * day
		switch p := s.Float64(); {
		case p < 0.5: // Most are as old as the policy.
			ready += s.upTo(day)
		case p < 0.97:
			ready += s.upTo(14 * day)
		default:
			ready = 1000 * day
		}
		s.create(s.start.Add(ready))
	}
	return s
}

func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.Float64() * float64(d))
}

// create adds a scaler. The first namespace has 23 % of them, and the last one 0.6 %.
func (s *simulation) create(readyAt time.Time) {
	total := 0.0
	for i := range simulatedNamespaces {
		total += 1 / float64(i+1)
	}
	at, namespace := s.Float64()*total, 0
	for ; namespace < simulatedNamespaces-1 && at > 1/float64(namespace+1); namespace++ {
		at -= 1 / float64(namespace+1)
	}
	s.created++
	s.scalers = append(s.scalers, simulated{readyAt: readyAt})
	s.candidates = append(s.candidates, Candidate{
		Key: types.NamespacedName{Namespace: fmt.Sprintf("team-%d", namespace), Name: fmt.Sprintf("app-%d", s.created)},
	})
}

// run promotes until promotion halts or the time is over. ok is false if it did not halt.
func (s *simulation) run() (last Promotion, halted bool) {
	for s.now.Before(s.start.Add(simulatedTime)) {
		s.live()
		last = Promote(s.rollout, last.Halts, s.candidates, s.now.Add(s.skew))
		if len(last.Halts) > 0 {
			return last, true
		}
		chosen := sets.New(last.Promote...)
		for i := range s.candidates {
			if len(chosen) > 0 && chosen.Has(s.candidates[i].Key) {
				s.promote(i)
			}
		}
		s.wait()
	}
	return last, false
}

// wait is until the operator looks the next time.
func (s *simulation) wait() {
	from := s.now
	s.now = s.now.Add(time.Hour + s.upTo(6*time.Hour))
	if s.Float64() < 0.01 {
		s.now = s.now.Add(time.Hour + s.upTo(29*time.Hour))
		s.outages = append(s.outages, outage{from, s.now})
		s.skew = s.upTo(4*time.Minute) - 2*time.Minute
	}
}

// live simulates the fleet meanwhile.
func (s *simulation) live() {
	for i := range s.candidates {
		c := &s.candidates[i]
		c.Ready = !s.now.Before(s.scalers[i].readyAt)
		if harm := s.scalers[i].harmAt; c.Harmed.IsZero() && !harm.IsZero() && !harm.After(s.now) {
			c.Harmed = s.answered(harm).Add(s.skew).Truncate(time.Second)
			if c.Harmed.After(c.Promoted.Add(s.rollout.Verification)) {
				c.Harmed, s.scalers[i].harmAt = time.Time{}, time.Time{} // It came too late to count.
			}
		}
	}
	for range 1 + len(s.candidates)/100 { // Some are paused, and continue.
		s.candidates[s.IntN(len(s.candidates))].Blocked = s.Float64() < 0.02
	}
	if s.Float64() < 0.2 { // A Deployment is deleted, and another one created.
		i := s.IntN(len(s.candidates))
		s.candidates, s.scalers = slices.Delete(s.candidates, i, i+1), slices.Delete(s.scalers, i, i+1)
		s.create(s.now.Add(7*day + s.upTo(day)))
	}
}

// answered is the time at which the operator notices something: at once, or when it is back.
func (s *simulation) answered(at time.Time) time.Time {
	for _, o := range s.outages {
		if at.After(o.from) && at.Before(o.to) {
			return o.to
		}
	}
	return at
}

func (s *simulation) promote(i int) {
	s.candidates[i].Promoted = s.now.Add(s.skew).Truncate(time.Second)
	harm := s.rollout.Verification + 1
	if s.Float64() < s.harm {
		harm = s.upTo(s.rollout.Verification)
	}
	if s.kills > 0 {
		harm = min(harm, time.Duration(min(s.ExpFloat64()/s.kills, 1000)*float64(day)))
	}
	if harm <= s.rollout.Verification {
		s.scalers[i].harmAt = s.now.Add(harm)
	}
}

// TestFleetPromotionHaltsIfThreePercentDoHarm promotes 1,000 scalers. 3 % of them do harm within a day.
func TestFleetPromotionHaltsIfThreePercentDoHarm(t *testing.T) {
	const runs = 200
	var promoted, harmed []int
	for seed := range uint64(runs) {
		if p, halted := newSimulation(seed, simulatedScalers, 0.03, ownKills).run(); halted {
			promoted, harmed = append(promoted, p.Promoted), append(harmed, p.Harmed)
		}
	}
	t.Logf("promotion halted in %d of %d fleets of %d scalers; then %s scalers were promoted, and %s of them had done harm",
		len(promoted), runs, simulatedScalers, spread(promoted), spread(harmed))
	if len(promoted) < runs*99/100 {
		t.Errorf("promotion halted in %d of %d fleets only", len(promoted), runs)
	}
}

// TestFleetPromotionDoesNotHaltIfNoneDoesHarm promotes 1,000 scalers whose containers have OOM kills of their own.
func TestFleetPromotionDoesNotHaltIfNoneDoesHarm(t *testing.T) {
	runs := 400
	if testing.Short() {
		runs = 40
	}
	halts := 0
	var promoted, harmed []int
	for seed := range uint64(runs) {
		p, halted := newSimulation(seed, simulatedScalers, 0, ownKills).run()
		if halted {
			halts++
		}
		promoted, harmed = append(promoted, p.Promoted), append(harmed, p.Harmed)
	}
	t.Logf("promotion halted in %d of %d fleets of %d scalers; %s scalers were promoted, and %s of them had an OOM kill of their own while they were verified",
		halts, runs, simulatedScalers, spread(promoted), spread(harmed))
	if 100*halts >= runs {
		t.Errorf("promotion halted in %d of %d fleets", halts, runs)
	}
	if promoted[runs/20] < simulatedScalers*9/10 {
		t.Errorf("the simulation is too short: in a twentieth of the fleets, at most %d scalers were promoted", promoted[runs/20])
	}
}

// spread describes numbers, and sorts them.
func spread(n []int) string {
	slices.Sort(n)
	if len(n) == 0 {
		return "no"
	}
	return fmt.Sprintf("%d (median; 95th percentile %d)", n[len(n)/2], n[len(n)*95/100])
}
