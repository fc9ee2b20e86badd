// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

const (
	// HarmWindow is how long a promotion counts: a harmed scaler is compared with the scalers that were promoted in
	// this time before it did harm.
	HarmWindow = 7 * 24 * time.Hour
	// MinHarmed is how many scalers must do harm before promotion halts: less may be chance.
	MinHarmed = 3

	defaultConcurrentPercent   = 5
	defaultHarmedPercent       = 1
	defaultVerificationSeconds = 24 * 60 * 60
)

// Rollout is spec.rollout in plain terms.
type Rollout struct {
	// MaxConcurrentPercent is how many scalers of the policy may be verified at the same time, in percent.
	MaxConcurrentPercent int
	// MaxHarmedPercent is how many of the promoted scalers may do harm, in percent.
	MaxHarmedPercent int
	// Verification is how long a promoted scaler is verified.
	Verification time.Duration
	// Resumed is the time until which harm does not count; zero if all harm counts.
	Resumed time.Time
}

// RolloutOf reads spec.rollout. Fields that are not set have the defaults of the CRD.
func RolloutOf(r v1beta1.PolicyRollout) Rollout {
	out := Rollout{
		MaxConcurrentPercent: int(ptr.Deref(r.MaxConcurrentPercent, defaultConcurrentPercent)),
		MaxHarmedPercent:     int(ptr.Deref(r.MaxHarmedPercent, defaultHarmedPercent)),
		Verification:         time.Duration(ptr.Deref(r.VerificationSeconds, defaultVerificationSeconds)) * time.Second,
	}
	if r.ResumeTime != nil {
		out.Resumed = r.ResumeTime.Time
	}
	return out
}

// limit is how many of the scalers may be verified at the same time: at least one.
func (r Rollout) limit(scalers int) int {
	return max(1, (r.MaxConcurrentPercent*scalers+99)/100)
}

// isExceededBy reports whether more scalers did harm than may, and enough to tell.
func (r Rollout) isExceededBy(harmed, promoted int) bool {
	return harmed >= MinHarmed && 100*harmed > r.MaxHarmedPercent*promoted
}

// Candidate is what the promotion sees of one scaler of the policy.
type Candidate struct {
	Key types.NamespacedName
	// Ready is true if the condition ReadyForPromotion is True.
	Ready bool
	// Promoted is when the scaler was promoted; zero if it is not.
	Promoted time.Time
	// Harmed is when the scaler did harm; zero if it did not.
	Harmed time.Time
	// Blocked is true if the scaler is frozen, paused or suspended. It is not promoted now.
	Blocked bool
}

// isVerified reports whether the scaler is being verified. One that was promoted in the future, by another clock, is:
// too few scalers are promoted rather than too many.
func (c *Candidate) isVerified(r Rollout, now time.Time) bool {
	return !c.Promoted.IsZero() && now.Before(c.Promoted.Add(r.Verification))
}

// didHarm reports whether the scaler did harm while it was verified.
func (c *Candidate) didHarm(r Rollout) bool {
	return !c.Promoted.IsZero() && !c.Harmed.IsZero() &&
		!c.Harmed.Before(c.Promoted) && !c.Harmed.After(c.Promoted.Add(r.Verification))
}

// Promotion says who is promoted now, and why no more are. The counts are those before that: each scaler is either
// promoted, waiting or collecting evidence.
type Promotion struct {
	// Promote are the scalers to promote now, the first one first.
	Promote []types.NamespacedName

	// Collecting is the number of scalers with too little evidence.
	Collecting int
	// Waiting is the number of scalers with enough evidence that are not promoted.
	Waiting int
	// Verifying is the number of promoted scalers that are being verified.
	Verifying int
	// Promoted is the number of all promoted scalers.
	Promoted int
	// Harmed is the number of promoted scalers that did harm while they were verified, at any time.
	Harmed int
	// HarmedExamples are the last three of them, the last one first.
	HarmedExamples []types.NamespacedName

	// Halted is true if too many scalers did harm, and HaltedSince since when.
	Halted      bool
	HaltedSince time.Time

	// Reason and Message are those of the condition Promoting. They change only if a count does.
	Reason, Message string
	// LookAgain is when the next verification ends, which frees a place; 0 if no scaler is being verified: then an
	// event tells.
	LookAgain time.Duration
}

// Promote decides which scalers are promoted now.
//
// At most MaxConcurrentPercent of the scalers, and at least one, are verified at the same time. A scaler that did harm
// keeps its place until its verification ends. Namespaces take turns: the next place goes to the namespace with the
// fewest scalers that are being verified. Within a namespace, a hash of the name decides, because names that are
// alike are often of workloads that are alike.
//
// Promotion halts at the first time t after Resumed at which a scaler did harm and
//
//	h >= MinHarmed and h > MaxHarmedPercent of n
//
// where n is the number of scalers that were promoted in the HarmWindow before t, and h how many of these did harm
// after Resumed and until t. It stays halted until Resumed is t or later. All of that is in the annotations of
// scalers, so another process comes to the same conclusion. Scalers that were deleted are forgotten, with the harm
// that they did: who deletes the harmed ones continues the promotion, too.
func Promote(r Rollout, all []Candidate, now time.Time) Promotion {
	p := counted(r, all, now)
	halt, isHalted := haltOf(r, all)
	switch {
	case len(all) == 0:
		p.Reason, p.Message = v1beta1.ReasonNoDeployments, "The policy has no scalers to promote"
	case isHalted:
		p.Halted, p.HaltedSince = true, halt.since
		p.Reason, p.Message = v1beta1.ReasonPromotionHalted, halt.message(r)
	default:
		p.Promote = next(r, all, now, r.limit(len(all))-p.Verifying)
		p.Reason, p.Message = p.progress(r, all)
	}
	return p
}

// counted has the counts, and when they change by themselves.
func counted(r Rollout, all []Candidate, now time.Time) (p Promotion) {
	var harmed []Candidate
	for i := range all {
		switch c := &all[i]; {
		case !c.Promoted.IsZero():
			p.Promoted++
			if c.didHarm(r) {
				harmed = append(harmed, *c)
			}
			if c.isVerified(r, now) {
				p.Verifying++
				if left := c.Promoted.Add(r.Verification).Sub(now); p.LookAgain == 0 || left < p.LookAgain {
					p.LookAgain = left
				}
			}
		case c.Ready:
			p.Waiting++
		default:
			p.Collecting++
		}
	}
	p.Harmed = len(harmed)
	p.HarmedExamples = lastOf(harmed)
	return p
}

// lastOf are the scalers that did harm last, the last one first.
func lastOf(harmed []Candidate) (names []types.NamespacedName) {
	slices.SortFunc(harmed, func(a, b Candidate) int { return cmp.Or(b.Harmed.Compare(a.Harmed), compareKeys(a.Key, b.Key)) })
	for _, c := range harmed[:min(len(harmed), maxExamples)] {
		names = append(names, c.Key)
	}
	return names
}

// next are the scalers that get the free places.
func next(r Rollout, all []Candidate, now time.Time, free int) (keys []types.NamespacedName) {
	type waiting struct { // without pointers, which are slow to sort
		index int
		hash  uint64
		turn  int // how many scalers of the namespace are verified before it
	}
	if free <= 0 {
		return nil
	}
	var queue []waiting
	verified := map[string]int{} // by namespace
	for i := range all {
		switch c := &all[i]; {
		case c.isVerified(r, now):
			verified[c.Key.Namespace]++
		case c.Promoted.IsZero() && c.Ready && !c.Blocked:
			queue = append(queue, waiting{index: i, hash: hashOf(c.Key)})
		}
	}
	slices.SortFunc(queue, func(a, b waiting) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return compareKeys(all[a.index].Key, all[b.index].Key)
	})
	for i := range queue {
		namespace := all[queue[i].index].Key.Namespace
		queue[i].turn = verified[namespace]
		verified[namespace]++
	}
	slices.SortStableFunc(queue, func(a, b waiting) int { return cmp.Compare(a.turn, b.turn) })
	for _, w := range queue[:min(len(queue), free)] {
		keys = append(keys, all[w.index].Key)
	}
	return keys
}

// hashOf spreads names that differ in one character, which FNV does not.
func hashOf(key types.NamespacedName) uint64 {
	sum := sha256.Sum256([]byte(key.String()))
	return binary.BigEndian.Uint64(sum[:])
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// halt is why promotion halts.
type halt struct {
	since            time.Time
	harmed, promoted int
	examples         []types.NamespacedName
}

// haltOf finds the first time at which too many scalers did harm. ok is false if there is none.
func haltOf(r Rollout, all []Candidate) (h halt, ok bool) {
	var harmed []Candidate
	for i := range all {
		if c := &all[i]; c.didHarm(r) && c.Harmed.After(r.Resumed) {
			harmed = append(harmed, *c)
		}
	}
	if len(harmed) < MinHarmed {
		return halt{}, false
	}
	slices.SortFunc(harmed, func(a, b Candidate) int { return cmp.Or(a.Harmed.Compare(b.Harmed), compareKeys(a.Key, b.Key)) })
	promotions, harmful := promotionsOf(all), promotionsOf(harmed)
	window := max(HarmWindow, r.Verification) // so that a scaler that does harm is always one of those promoted
	for i := range harmed {
		at := harmed[i].Harmed
		if i+1 < len(harmed) && harmed[i+1].Harmed.Equal(at) {
			continue // They count together.
		}
		// What was promoted before the window did its harm before at: a verification is not longer than the window.
		from := at.Add(-window)
		h = halt{since: at, harmed: i + 1 - harmful.before(from), promoted: promotions.until(at) - promotions.before(from)}
		if r.isExceededBy(h.harmed, h.promoted) {
			h.examples = lastOf(slices.DeleteFunc(harmed[:i+1], func(c Candidate) bool { return c.Promoted.Before(from) }))
			return h, true
		}
	}
	return halt{}, false
}

// promotions are the times of promotions, in order.
type promotions []time.Time

func promotionsOf(all []Candidate) (times promotions) {
	for i := range all {
		if at := all[i].Promoted; !at.IsZero() {
			times = append(times, at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// before is the number of promotions before a time.
func (p promotions) before(at time.Time) int {
	n, _ := slices.BinarySearchFunc(p, at, time.Time.Compare)
	return n
}

// until is the number of promotions until a time, with those at that time.
func (p promotions) until(at time.Time) int { return p.before(at.Add(1)) }

func (h halt) message(r Rollout) string {
	var names []string
	for _, key := range h.examples {
		names = append(names, key.String())
	}
	if more := h.harmed - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%d of the %d scalers promoted in the week before %s reverted a change or answered an OOM kill, and at most %d %% may. "+
		"Check %s, then set spec.rollout.resumeTime to the current time to continue",
		h.harmed, h.promoted, h.since.UTC().Format(time.RFC3339), r.MaxHarmedPercent, strings.Join(names, ", "))
}

// progress says how far a promotion is that is not halted.
func (p *Promotion) progress(r Rollout, all []Candidate) (reason, message string) {
	parts := []string{fmt.Sprintf("%d of %d scalers are promoted", p.Promoted, len(all))}
	if p.Verifying > 0 {
		parts = append(parts, fmt.Sprintf("%d are being verified", p.Verifying))
	}
	blocked := 0
	for i := range all {
		if c := &all[i]; c.Promoted.IsZero() && c.Ready && c.Blocked {
			blocked++
		}
	}
	if queued := p.Waiting - blocked; queued > 0 {
		parts = append(parts, fmt.Sprintf("%d wait for their turn, because at most %d are verified at the same time", queued, r.limit(len(all))))
	}
	if blocked > 0 {
		parts = append(parts, fmt.Sprintf("%d wait because they are frozen, paused or suspended", blocked))
	}
	if p.Collecting > 0 {
		parts = append(parts, fmt.Sprintf("%d collect evidence", p.Collecting))
	}
	switch {
	case p.Promoted == len(all):
		reason = v1beta1.ReasonAllPromoted
	case p.Verifying == 0 && p.Waiting == 0:
		reason = v1beta1.ReasonCollectingEvidence
	default:
		reason = v1beta1.ReasonPromotionInProgress
	}
	return reason, strings.Join(parts, "; ")
}
