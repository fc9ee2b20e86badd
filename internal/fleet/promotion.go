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
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

const (
	// HarmWindow is the time for which a promotion counts: a harmed scaler is compared with the scalers that were
	// promoted in this time before the harm.
	HarmWindow = 7 * 24 * time.Hour
	// MinHarmed is the number of harmed scalers at which promotion halts: fewer may be chance.
	MinHarmed = 3

	defaultAfterSeconds        = 7 * 24 * 60 * 60
	defaultMaxStarvedPercent   = 3
	defaultConcurrentPercent   = 5
	defaultHarmedPercent       = 1
	defaultVerificationSeconds = 24 * 60 * 60
)

// Rollout is spec.rollout in plain terms.
type Rollout struct {
	// Start is the update mode of scalers that are not promoted.
	Start v1beta1.UpdateMode
	// Evidence is the usage that the recommendations of a scaler must cover before its promotion.
	Evidence history.Goal
	// MaxConcurrentPercent is the share of the policy's scalers that may be verified at the same time.
	MaxConcurrentPercent int
	// MaxHarmedPercent is the share of the promoted scalers that may do harm.
	MaxHarmedPercent int
	// Verification is the time for which a promoted scaler is verified.
	Verification time.Duration
	// Resumed is the time until which harm does not count; zero if all harm counts.
	Resumed time.Time
}

// RolloutOf reads spec.rollout. Fields that are not set have the defaults of the CRD.
func RolloutOf(r v1beta1.PolicyRollout) Rollout {
	out := Rollout{
		Start: cmp.Or(r.Start, v1beta1.UpdateModeRecommend),
		Evidence: history.Goal{
			Time:              time.Duration(ptr.Deref(r.AfterSeconds, defaultAfterSeconds)) * time.Second,
			MaxStarvedPercent: int(ptr.Deref(r.MaxStarvedPercent, defaultMaxStarvedPercent)),
		},
		MaxConcurrentPercent: int(ptr.Deref(r.MaxConcurrentPercent, defaultConcurrentPercent)),
		MaxHarmedPercent:     int(ptr.Deref(r.MaxHarmedPercent, defaultHarmedPercent)),
		Verification:         time.Duration(ptr.Deref(r.VerificationSeconds, defaultVerificationSeconds)) * time.Second,
	}
	if r.ResumeTime != nil {
		out.Resumed = r.ResumeTime.Time
	}
	return out
}

// Limit is the number of scalers that may be verified at the same time: at least one.
func (r Rollout) Limit(scalers int) int {
	return max(1, (r.MaxConcurrentPercent*scalers+99)/100)
}

// isExceededBy reports whether too many scalers did harm, and enough for it not to be chance.
func (r Rollout) isExceededBy(harmed, promoted int) bool {
	return harmed >= MinHarmed && 100*harmed > r.MaxHarmedPercent*promoted
}

// Candidate is one scaler of the policy for the promotion.
type Candidate struct {
	Key types.NamespacedName
	// Ready is true if the condition ReadyForPromotion is True.
	Ready bool
	// Promoted is the time of the promotion; zero before.
	Promoted time.Time
	// Harmed is the time of harm; zero without any.
	Harmed time.Time
	// Blocked is true if the scaler is frozen, paused or suspended. It is not promoted now.
	Blocked bool
}

// isVerified reports whether the scaler is being verified. A promotion in the future, by another clock, counts: too
// few scalers are promoted rather than too many.
func (c *Candidate) isVerified(r Rollout, now time.Time) bool {
	return !c.Promoted.IsZero() && now.Before(c.Promoted.Add(r.Verification))
}

// didHarm reports whether the scaler did harm while it was verified.
func (c *Candidate) didHarm(r Rollout) bool {
	return !c.Promoted.IsZero() && !c.Harmed.IsZero() &&
		!c.Harmed.Before(c.Promoted) && !c.Harmed.After(c.Promoted.Add(r.Verification))
}

// Promotion lists the scalers to promote now, and the reason why no more are. The counts are before that: each
// scaler is either promoted, waiting or collecting evidence.
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

	// Halts are the halts of the promotion for the status: of the whole policy first, then the newest ones.
	Halts []Halt

	// Reason and Message are for the condition Promoting. They change only if a count does.
	Reason, Message string
	// LookAgain is the time until the next verification ends and frees a place; 0 if no scaler is being verified:
	// then an event follows.
	LookAgain time.Duration
}

// Promote decides which scalers are promoted now.
//
// At most MaxConcurrentPercent of the scalers, and at least one, are verified at the same time. A scaler that did harm
// keeps its place until its verification ends. Namespaces take turns: the next place goes to the namespace with the
// fewest scalers that are being verified. Within a namespace, a hash of the name decides, because similar names often
// belong to similar workloads.
//
// Promotion halts in a namespace at the first time t after Resumed at which a scaler did harm and
//
//	h >= MinHarmed and h > MaxHarmedPercent of n
//
// where n is the number of its scalers that were promoted in the HarmWindow before t, and h how many of these did harm
// after Resumed and until t. It halts in all namespaces if the same is true for the scalers of all of them, and h counts
// each namespace once: one tenant cannot halt the fleet.
//
// Only harm of the last HarmWindow counts. known are the halts found before. They stay until Resumed is t or later, also
// if the scalers change. That of a namespace ends with its last scaler.
func Promote(r Rollout, known []Halt, all []Candidate, now time.Time) Promotion {
	p := counted(r, all, now)
	halts := haltsOf(r, known, all, now)
	p.Halts = halts[:min(len(halts), maxHalts)]
	if len(all) == 0 {
		p.Reason, p.Message = v1beta1.ReasonNoDeployments, "The policy has no scalers to promote"
		return p
	}
	p.Promote = next(r, halts, all, now, r.Limit(len(all))-p.Verifying)
	if len(halts) > 0 {
		p.Reason, p.Message = v1beta1.ReasonPromotionHalted, halts[0].Message
		if more := len(halts) - 1; more > 0 {
			p.Message += fmt.Sprintf(". %d more: see status.rollout.halts", more)
		}
		return p
	}
	p.Reason, p.Message = p.progress(r, all)
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
func next(r Rollout, halts []Halt, all []Candidate, now time.Time, free int) (keys []types.NamespacedName) {
	type waiting struct { // without pointers, which are slow to sort
		index int
		hash  uint64
		turn  int // number of scalers of the namespace that are verified before it
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
		case c.Promoted.IsZero() && c.Ready && !c.Blocked && !isHalted(halts, "") && !isHalted(halts, c.Key.Namespace):
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

// maxHalts is the largest number of halts in the status.
const maxHalts = 16

// Halt is that promotion has halted.
type Halt struct {
	// Namespace is the halted namespace; empty means all.
	Namespace string
	// Since is the time of the last harm.
	Since time.Time
	// Message names the cause.
	Message string
}

func isHalted(halts []Halt, namespace string) bool {
	return slices.ContainsFunc(halts, func(h Halt) bool { return h.Namespace == namespace })
}

// haltsOf are the known halts that have not been resumed, and those by recent harm, in the order of Promotion.Halts.
func haltsOf(r Rollout, known []Halt, all []Candidate, now time.Time) (halts []Halt) {
	for _, h := range known {
		hasScalers := h.Namespace == "" || slices.ContainsFunc(all, func(c Candidate) bool { return c.Key.Namespace == h.Namespace })
		if h.Since.After(r.Resumed) && hasScalers {
			halts = append(halts, h)
		}
	}
	var firsts []Candidate // of each namespace
	harmed := map[string][]Candidate{}
	for _, c := range harmedSince(r, all, now.Add(-HarmWindow)) {
		if len(harmed[c.Key.Namespace]) == 0 {
			firsts = append(firsts, c)
		}
		harmed[c.Key.Namespace] = append(harmed[c.Key.Namespace], c)
	}
	if h, ok := haltOf(r, firsts, all, ""); ok && !isHalted(halts, "") {
		halts = append(halts, h)
	}
	for _, first := range firsts {
		namespace := first.Key.Namespace
		if h, ok := haltOf(r, harmed[namespace], all, namespace); ok && !isHalted(halts, namespace) {
			halts = append(halts, h)
		}
	}
	slices.SortFunc(halts, func(a, b Halt) int {
		return cmp.Or(min(len(a.Namespace), 1)-min(len(b.Namespace), 1), b.Since.Compare(a.Since), cmp.Compare(a.Namespace, b.Namespace))
	})
	return halts
}

// harmedSince are the scalers that did harm after that time and after Resumed, in the order of their harm.
func harmedSince(r Rollout, all []Candidate, since time.Time) (harmed []Candidate) {
	for i := range all {
		if c := &all[i]; c.didHarm(r) && c.Harmed.After(r.Resumed) && c.Harmed.After(since) {
			harmed = append(harmed, *c)
		}
	}
	slices.SortFunc(harmed, func(a, b Candidate) int { return cmp.Or(a.Harmed.Compare(b.Harmed), compareKeys(a.Key, b.Key)) })
	return harmed
}

// haltOf finds the first time at which too many scalers of a namespace, or of all, did harm. ok is false if there is none.
func haltOf(r Rollout, harmed, all []Candidate, namespace string) (_ Halt, ok bool) {
	if len(harmed) < MinHarmed {
		return Halt{}, false
	}
	promoted, harmful := promotionsOf(all, namespace), promotionsOf(harmed, namespace)
	for i := range harmed {
		at := harmed[i].Harmed
		if i+1 < len(harmed) && harmed[i+1].Harmed.Equal(at) {
			continue // They count together.
		}
		// Scalers promoted before the window did their harm before at: a verification is not longer than the window.
		from := at.Add(-HarmWindow)
		h, n := i+1-harmful.before(from), promoted.until(at)-promoted.before(from)
		if r.isExceededBy(h, n) {
			examples := lastOf(slices.DeleteFunc(slices.Clone(harmed[:i+1]), func(c Candidate) bool { return c.Promoted.Before(from) }))
			return Halt{Namespace: namespace, Since: at, Message: haltMessage(r, namespace, at, h, n, examples)}, true
		}
	}
	return Halt{}, false
}

// promotions are the times of promotions, in order.
type promotions []time.Time

// promotionsOf are the promotions in a namespace, or in all if it is empty.
func promotionsOf(all []Candidate, namespace string) (times promotions) {
	for i := range all {
		if at := all[i].Promoted; !at.IsZero() && (namespace == "" || all[i].Key.Namespace == namespace) {
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

func haltMessage(r Rollout, namespace string, at time.Time, harmed, promoted int, examples []types.NamespacedName) string {
	var names []string
	for _, key := range examples {
		names = append(names, key.String())
	}
	if more := harmed - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	where := ", with one counted in each namespace,"
	if namespace != "" {
		where = " in namespace " + namespace
	}
	return fmt.Sprintf("%d of the %d scalers promoted in the week before %s%s reverted a change, or lowered memory before an OOM kill, and at most %d %% may. "+
		"Check %s, then set spec.rollout.resumeTime to the current time to continue",
		harmed, promoted, at.UTC().Format(time.RFC3339), where, r.MaxHarmedPercent, strings.Join(names, ", "))
}

// progress describes the progress of a promotion that is not halted.
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
		parts = append(parts, fmt.Sprintf("%d wait for their turn, because at most %d are verified at the same time", queued, r.Limit(len(all))))
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
