// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

const day = 24 * time.Hour

var promotionNow = time.Date(2026, 11, 25, 12, 0, 0, 123456789, time.UTC)

func ago(d time.Duration) time.Time { return promotionNow.Add(-d).Truncate(time.Second) }

// defaults is spec.rollout as the API server fills it in.
func defaults() Rollout { return RolloutOf(v1beta1.PolicyRollout{}) }

// scalersOf are scalers with the names 0, 1, 2, ... of a namespace.
func scalersOf(namespace string, n int, edit func(i int, c *Candidate)) []Candidate {
	all := make([]Candidate, n)
	for i := range all {
		all[i].Key = types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("app-%d", i)}
		edit(i, &all[i])
	}
	return all
}

func ready(_ int, c *Candidate) { c.Ready = true }

// promotedAgo are promoted scalers, the first of which did harm after an hour.
func promotedAgo(d time.Duration, harmed int) func(int, *Candidate) {
	return func(i int, c *Candidate) {
		c.Ready, c.Promoted = true, ago(d)
		if i < harmed {
			c.Harmed = c.Promoted.Add(time.Hour)
		}
	}
}

func TestARolloutHasTheDefaultsOfTheAPI(t *testing.T) {
	week := history.Goal{Time: 7 * day, MaxStarvedPercent: 3}
	want := Rollout{Start: v1beta1.UpdateModeRecommend, Evidence: week, MaxConcurrentPercent: 5, MaxHarmedPercent: 1, Verification: day}
	if got := RolloutOf(v1beta1.PolicyRollout{}); got != want {
		t.Errorf("unset fields: %+v, want %+v", got, want)
	}
	got := RolloutOf(v1beta1.PolicyRollout{
		MaxConcurrentPercent: new(int32(20)), MaxHarmedPercent: new(int32(0)), VerificationSeconds: new(int32(60)),
		ResumeTime: &metav1.Time{Time: promotionNow}, Start: v1beta1.UpdateModeInitial, AfterSeconds: new(int32(0)), MaxStarvedPercent: new(int32(0)),
	})
	if want := (Rollout{Start: v1beta1.UpdateModeInitial, MaxConcurrentPercent: 20, Verification: time.Minute, Resumed: promotionNow}); got != want {
		t.Errorf("set fields: %+v, want %+v", got, want)
	}
}

func TestTheOrderIsTheSameForever(t *testing.T) {
	// A new version must not begin again elsewhere.
	var all []Candidate
	for _, namespace := range []string{"shop", "pay", "web"} {
		all = append(all, scalersOf(namespace, 4, ready)...)
	}
	r := defaults()
	r.MaxConcurrentPercent = 50
	var got []string
	for _, key := range Promote(r, nil, all, promotionNow).Promote {
		got = append(got, key.String())
	}
	want := "pay/app-3 shop/app-0 web/app-1 shop/app-1 web/app-0 pay/app-1"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("promoted %s, want %s", s, want)
	}
}

func TestAPromotionReportsWhyNoMoreArePromoted(t *testing.T) {
	blocked := func(_ int, c *Candidate) { c.Ready, c.Blocked = true, true }
	collecting := func(int, *Candidate) {}
	for _, c := range []struct {
		name, reason, message string
		all                   []Candidate
	}{
		{"no scaler", v1beta1.ReasonNoDeployments, "The policy has no scalers to promote", nil},
		{"new scalers", v1beta1.ReasonCollectingEvidence, "0 of 9 scalers are promoted; 9 collect evidence", scalersOf("a", 9, collecting)},
		{
			"a place that gets free", v1beta1.ReasonPromotionInProgress,
			"0 of 40 scalers are promoted; 40 wait for their turn, because at most 2 are verified at the same time",
			scalersOf("a", 40, ready),
		},
		{
			"a promotion in progress", v1beta1.ReasonPromotionInProgress,
			"9 of 103 scalers are promoted; 6 are being verified; 80 wait for their turn, because at most 6 are verified at the same time; " +
				"4 wait because they are frozen, paused or suspended; 10 collect evidence",
			slices.Concat(scalersOf("a", 6, promotedAgo(time.Hour, 0)), scalersOf("b", 3, promotedAgo(9*day, 1)), scalersOf("c", 80, ready),
				scalersOf("d", 4, blocked), scalersOf("e", 10, collecting)),
		},
		{
			"the others collect evidence, one is being verified", v1beta1.ReasonPromotionInProgress, "1 of 10 scalers are promoted; 1 are being verified; 9 collect evidence",
			slices.Concat(scalersOf("a", 1, promotedAgo(time.Hour, 0)), scalersOf("b", 9, collecting)),
		},
		{
			"the last ones are paused", v1beta1.ReasonPromotionInProgress, "9 of 10 scalers are promoted; 1 wait because they are frozen, paused or suspended",
			slices.Concat(scalersOf("a", 9, promotedAgo(3*day, 0)), scalersOf("b", 1, blocked)),
		},
		{
			"the others collect evidence", v1beta1.ReasonCollectingEvidence, "9 of 10 scalers are promoted; 1 collect evidence",
			slices.Concat(scalersOf("a", 9, promotedAgo(3*day, 0)), scalersOf("b", 1, collecting)),
		},
		{"all promoted", v1beta1.ReasonAllPromoted, "9 of 9 scalers are promoted", scalersOf("a", 9, promotedAgo(3*day, 0))},
		{"all promoted, some just now", v1beta1.ReasonAllPromoted, "9 of 9 scalers are promoted; 9 are being verified", scalersOf("a", 9, promotedAgo(time.Hour, 0))},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Promote(defaults(), nil, c.all, promotionNow)
			if p.Reason != c.reason || p.Message != c.message {
				t.Errorf("%s: %s\nwant %s: %s", p.Reason, p.Message, c.reason, c.message)
			}
			if again := Promote(defaults(), nil, c.all, promotionNow.Add(p.LookAgain/2)); again.Message != p.Message {
				t.Errorf("a while later: %s", again.Message)
			}
		})
	}
}

// FuzzPromote checks the rule. These are its edges, which random fleets seldom meet.
func TestPromotionHaltsAtTheStatedRate(t *testing.T) {
	week := []struct{ promoted, harmed int }{{100, 3}} // the days before, the last one first
	at := func(days ...struct{ promoted, harmed int }) (all []Candidate) {
		for i, d := range days {
			all = append(all, scalersOf(fmt.Sprintf("day-%d", i), d.promoted, promotedAgo(time.Duration(i)*day+2*time.Hour, d.harmed))...)
		}
		return append(all, scalersOf("waiting", 500, ready)...)
	}
	type days = []struct{ promoted, harmed int }
	for _, c := range []struct {
		name   string
		days   days
		edit   func(*Rollout)
		halted bool
	}{
		{name: "three of three", days: days{{3, 3}}, halted: true},
		{name: "exactly the rate", days: days{{300, 3}}},
		{name: "just above it", days: days{{299, 3}}, halted: true},
		{name: "spread over days", days: days{{60, 1}, {60, 1}, {60, 0}, {60, 1}}, halted: true},
		{name: "spread over more than a week", days: days{{20, 1}, {20, 0}, {20, 0}, {20, 1}, {20, 0}, {20, 0}, {20, 0}, {20, 1}}},
		{name: "promotions before that week do not count", days: days{0: {100, 3}, 8: {5000, 0}}, halted: true},
		{name: "promotions after the harm do not count", days: days{0: {5000, 0}, 1: {100, 3}}, halted: true},
		{name: "harm of long ago", days: days{30: {100, 3}}},
		{name: "a long time ago, below the rate", days: days{30: {100, 2}, 20: {100, 2}, 10: {100, 2}}},
		{name: "resumed after it", days: week, edit: func(r *Rollout) { r.Resumed = ago(time.Minute) }},
		{name: "resumed at the same time", days: week, edit: func(r *Rollout) { r.Resumed = ago(time.Hour) }},
		{name: "resumed before it", days: week, edit: func(r *Rollout) { r.Resumed = ago(61 * time.Minute) }, halted: true},
		{name: "harm at the end of a verification", days: week, edit: func(r *Rollout) { r.Verification = time.Hour }, halted: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := defaults()
			if c.edit != nil {
				c.edit(&r)
			}
			p := Promote(r, nil, at(c.days...), promotionNow)
			if (len(p.Halts) > 0) != c.halted || (p.Reason == v1beta1.ReasonPromotionHalted) != c.halted {
				t.Errorf("halts %+v, with the reason %s: %s", p.Halts, p.Reason, p.Message)
			}
			if isHalted(p.Halts, "") && len(p.Promote) > 0 {
				t.Errorf("%d are promoted", len(p.Promote))
			}
		})
	}
}

func TestAHaltReportsWhatToDoAndDoesNotMove(t *testing.T) {
	all := slices.Concat(
		scalersOf("shop", 200, promotedAgo(5*time.Hour, 0)),
		scalersOf("pay", 300, ready),
	)
	for i := range 4 { // The last two did harm in the same second.
		all[10*i].Harmed = all[10*i].Promoted.Add(time.Duration(min(i, 2)+1) * time.Hour)
	}
	p := Promote(defaults(), nil, all, promotionNow)
	want := []Halt{{Namespace: "shop", Since: ago(2 * time.Hour), Message: "4 of the 200 scalers promoted in the week before 2026-11-25T10:00:00Z in namespace shop " +
		"reverted a change, or lowered memory before an OOM kill, and at most 1 % may. " +
		"Check shop/app-20, shop/app-30, shop/app-10, and 1 more, then set spec.rollout.resumeTime to the current time to continue"}}
	if diff := cmp.Diff(want, p.Halts); diff != "" || p.Message != want[0].Message {
		t.Errorf("%s (-want +got):\n%s", p.Message, diff)
	}
	all[50].Harmed = ago(time.Minute)
	later := Promote(defaults(), p.Halts, all, promotionNow.Add(40*day))
	assert.Equal(t, "after more harm, and 40 days later", want, later.Halts)
	examples := []types.NamespacedName{all[50].Key, all[20].Key, all[30].Key}
	if diff := cmp.Diff(examples, later.HarmedExamples); diff != "" || later.Harmed != 5 {
		t.Errorf("%d did harm; the last ones (-want +got):\n%s", later.Harmed, diff)
	}
	left := slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool { return !c.Harmed.IsZero() })
	assert.Equal(t, "after the harmed ones were deleted", want, Promote(defaults(), p.Halts, left, promotionNow).Halts)
	r := defaults()
	r.Resumed = ago(2 * time.Hour)
	if p := Promote(r, p.Halts, left, promotionNow); len(p.Halts) > 0 {
		t.Errorf("after it was resumed: %+v", p.Halts)
	}
}

// A tenant lets its pods run out of memory after each promotion. That is its own halt; three tenants are the policy's.
func TestOneTenantHaltsNobodyElse(t *testing.T) {
	fleet := append(scalersOf("others", 200, promotedAgo(2*time.Hour, 0)), scalersOf("waiting", 500, ready)...)
	for tenants, want := range map[int][]string{1: {"tenant-0"}, 2: {"tenant-0", "tenant-1"}, 3: {"", "tenant-0", "tenant-1", "tenant-2"}} {
		all := slices.Clone(fleet)
		for i := range tenants {
			name := fmt.Sprintf("tenant-%d", i)
			bombs := scalersOf(name, 20, promotedAgo(2*time.Hour, 20))
			all = append(all, append(bombs, Candidate{Key: types.NamespacedName{Namespace: name, Name: "waits"}, Ready: true})...)
		}
		r := defaults()
		r.MaxConcurrentPercent = 100
		known := Promote(r, nil, all[:len(fleet)+21], promotionNow).Halts // of the first one
		p := Promote(r, known, all, promotionNow)
		var got []string
		for _, h := range p.Halts {
			got = append(got, h.Namespace)
		}
		assert.Equal(t, fmt.Sprintf("%d tenants halt", tenants), want, got)
		promotesOthers := slices.ContainsFunc(p.Promote, func(key types.NamespacedName) bool { return key.Namespace == "waiting" })
		promotesTenant := slices.ContainsFunc(p.Promote, func(key types.NamespacedName) bool { return strings.HasPrefix(key.Namespace, "tenant") })
		if promotesOthers != (tenants < 3) || promotesTenant {
			t.Errorf("%d tenants: %v are promoted", tenants, p.Promote)
		}
	}
}

// Each of many halted namespaces waits alone. The status lists the newest halts.
func TestManyHaltedNamespacesDoNotHaltOthers(t *testing.T) {
	const tenants = 2 * maxHalts
	all := append(scalersOf("others", 5000, promotedAgo(50*time.Hour, 0)), scalersOf("waiting", 10, ready)...)
	for i := range tenants { // The later ones did harm earlier.
		name := fmt.Sprintf("tenant-%02d", i)
		all = append(all, scalersOf(name, 3, promotedAgo(time.Duration(i+2)*time.Hour, 3))...)
		all = append(all, scalersOf(name, 1, ready)...)
	}
	p := Promote(defaults(), nil, all, promotionNow)
	if len(p.Halts) != maxHalts || p.Halts[0].Namespace != "tenant-00" || p.Halts[maxHalts-1].Namespace != "tenant-15" {
		t.Errorf("status lists %+v, want the newest %d", p.Halts, maxHalts)
	}
	if want := ". 31 more: see status.rollout.halts"; !strings.HasSuffix(p.Message, want) {
		t.Errorf("message %q, want the suffix %q", p.Message, want)
	}
	if len(p.Promote) != 10 || slices.ContainsFunc(p.Promote, func(key types.NamespacedName) bool { return key.Namespace != "waiting" }) {
		t.Errorf("%v are promoted, want all of the namespace waiting", p.Promote)
	}
	// With few others, the rule for the whole policy halts all.
	if p := Promote(defaults(), nil, all[5000:], promotionNow); p.Halts[0].Namespace != "" || len(p.Halts) != maxHalts || len(p.Promote) > 0 {
		t.Errorf("%d halts, the first one of %q; %d are promoted", len(p.Halts), p.Halts[0].Namespace, len(p.Promote))
	}
}

// A halt ends when the last scaler of its namespace is gone. That of the whole policy stays.
func TestAHaltEndsWithItsNamespace(t *testing.T) {
	fleet := scalersOf("others", 500, promotedAgo(2*time.Hour, 0))
	preview := scalersOf("preview", 4, promotedAgo(2*time.Hour, 3))
	known := append([]Halt{{Since: ago(time.Hour), Message: "all"}}, Promote(defaults(), nil, slices.Concat(fleet, preview), promotionNow).Halts...)
	for name, c := range map[string]struct {
		left []Candidate
		want int
	}{
		"one scaler is left": {slices.Concat(fleet, preview[3:]), 2}, "its scalers are deleted": {fleet, 1}, "all scalers are deleted": {nil, 1},
	} {
		if got := Promote(defaults(), known, c.left, promotionNow.Add(30*day)).Halts; !cmp.Equal(got, known[:c.want]) {
			t.Errorf("%s: halts %+v, want %+v", name, got, known[:c.want])
		}
	}
}

// FuzzPromote checks the promises of Promote in random fleets.
func FuzzPromote(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 4))
		r, all := randomFleet(random)
		p := Promote(r, nil, all, promotionNow)
		checkCounts(t, r, all, p)
		checkPlaces(t, r, all, p)
		checkHalt(t, r, all, p)

		shuffled := slices.Clone(all)
		random.Shuffle(len(all), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		before := slices.Clone(shuffled)
		assert.Equal(t, "another order of the scalers", p, Promote(r, nil, shuffled, promotionNow))
		if !slices.Equal(before, shuffled) {
			t.Error("the scalers were modified")
		}
	})
}

// randomFleet is a fleet with uneven namespaces, skewed clocks and equal times.
func randomFleet(random *rand.Rand) (Rollout, []Candidate) {
	r := Rollout{
		MaxConcurrentPercent: max(0, random.IntN(110)-9), MaxHarmedPercent: random.IntN(6),
		Verification: time.Duration(1+random.IntN(7*24)) * time.Hour, // up to a week, as the schema allows
	}
	if random.IntN(2) == 0 {
		r.Resumed = ago(time.Duration(random.IntN(20*24)) * time.Hour)
	}
	readiness, promoted, harm := random.IntN(100), random.IntN(100), random.IntN(2)*random.IntN(20)
	unit := []time.Duration{time.Second, time.Hour, 12 * time.Hour}[random.IntN(3)] // so that times are equal
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))).Truncate(unit) }
	all := make([]Candidate, random.IntN(120))
	for i := range all {
		c := &all[i]
		c.Key = types.NamespacedName{Namespace: fmt.Sprintf("n%d", random.IntN(1+random.IntN(9))), Name: fmt.Sprintf("app-%d", i)}
		c.Ready, c.Blocked = random.IntN(100) < readiness, random.IntN(5) == 0
		if random.IntN(100) < promoted {
			c.Promoted = ago(upTo(20*day) - 12*time.Hour)
		}
		if random.IntN(100) < harm {
			c.Harmed = ago(upTo(20*day) - 12*time.Hour)
			if !c.Promoted.IsZero() && random.IntN(10) > 0 {
				c.Harmed = c.Promoted.Add(upTo(9 * day))
			}
		}
	}
	return r, all
}

func checkCounts(t *testing.T, r Rollout, all []Candidate, p Promotion) {
	t.Helper()
	if p.Collecting+p.Waiting+p.Promoted != len(all) || p.Verifying > p.Promoted || p.Harmed > p.Promoted || len(p.HarmedExamples) != min(p.Harmed, 3) {
		t.Errorf("%d scalers do not add up: %+v", len(all), p)
	}
	if p.Reason == "" || p.Message == "" || (p.LookAgain > 0) != (p.Verifying > 0) {
		t.Errorf("reason %q, message %q, look again after %v while %d are being verified", p.Reason, p.Message, p.LookAgain, p.Verifying)
	}
	if p.LookAgain > 0 {
		if early := Promote(r, nil, all, promotionNow.Add(p.LookAgain-1)); !cmp.Equal(early.Promote, p.Promote) || early.Message != p.Message {
			t.Errorf("something changes before the next look: %s, then %s", p.Message, early.Message)
		}
		if late := Promote(r, nil, all, promotionNow.Add(p.LookAgain)); late.Verifying >= p.Verifying {
			t.Errorf("no verification ends with the next look: %d, then %d", p.Verifying, late.Verifying)
		}
	}
}

// checkPlaces checks who is promoted: never more than the limit, as many as possible, and by turns.
func checkPlaces(t *testing.T, r Rollout, all []Candidate, p Promotion) {
	t.Helper()
	limit := max(1, (len(all)*r.MaxConcurrentPercent+99)/100)
	verified, open := map[string]int{}, map[string]int{} // by namespace
	byKey := map[types.NamespacedName]Candidate{}
	eligible := 0
	for _, c := range all {
		byKey[c.Key] = c
		switch {
		case !c.Promoted.IsZero() && promotionNow.Sub(c.Promoted) < r.Verification:
			verified[c.Key.Namespace]++
		case c.Promoted.IsZero() && c.Ready && !c.Blocked:
			open[c.Key.Namespace]++
			eligible++
		}
	}
	if want := min(eligible, max(0, limit-p.Verifying)); len(p.Promote) != want && len(p.Halts) == 0 {
		t.Errorf("%d are promoted and %d verified of at most %d, and %d could be promoted", len(p.Promote), p.Verifying, limit, eligible)
	}
	for _, key := range p.Promote {
		c, known := byKey[key]
		delete(byKey, key)
		if !known || !c.Ready || c.Blocked || !c.Promoted.IsZero() || isHalted(p.Halts, "") || isHalted(p.Halts, key.Namespace) {
			t.Errorf("%v is promoted (halts: %v): %+v", key, p.Halts, c)
		}
		for other, n := range open {
			if n > 0 && verified[other] < verified[key.Namespace] {
				t.Errorf("%v is promoted before one of %s, which has %d and not %d verified ones", key, other, verified[other], verified[key.Namespace])
			}
		}
		verified[key.Namespace]++
		open[key.Namespace]--
	}
}

// checkHalt compares with the documented rule, word by word, and checks that a halt lasts.
func checkHalt(t *testing.T, r Rollout, all []Candidate, p Promotion) {
	t.Helper()
	counts := func(c Candidate) bool {
		return !c.Promoted.IsZero() && c.Harmed.After(r.Resumed) && c.Harmed.After(promotionNow.Add(-HarmWindow)) &&
			!c.Harmed.Before(c.Promoted) && c.Harmed.Sub(c.Promoted) <= r.Verification
	}
	namespaces := map[string]bool{}
	for _, c := range all {
		namespaces[c.Key.Namespace] = true
	}
	for namespace := range namespaces {
		var since time.Time
		for _, at := range all {
			if !counts(at) || at.Key.Namespace != namespace {
				continue
			}
			h, n := 0, 0
			for _, c := range all {
				if c.Key.Namespace != namespace || c.Promoted.IsZero() || c.Promoted.After(at.Harmed) || at.Harmed.Sub(c.Promoted) > HarmWindow {
					continue
				}
				n++
				if counts(c) && !c.Harmed.After(at.Harmed) {
					h++
				}
			}
			if h >= 3 && h*100 > n*r.MaxHarmedPercent && (since.IsZero() || at.Harmed.Before(since)) {
				since = at.Harmed
			}
		}
		i := slices.IndexFunc(p.Halts, func(h Halt) bool { return h.Namespace == namespace })
		if since.IsZero() != (i < 0) || i >= 0 && !p.Halts[i].Since.Equal(since) {
			t.Errorf("halts %+v, want namespace %s since %v", p.Halts, namespace, since)
		}
	}
	assert.Equal(t, "halts in a year", p.Halts, Promote(r, p.Halts, all, promotionNow.Add(365*day)).Halts)
	for _, c := range all {
		if c.Harmed.After(r.Resumed) {
			r.Resumed = c.Harmed
		}
	}
	if p := Promote(r, p.Halts, all, promotionNow); len(p.Halts) > 0 {
		t.Errorf("still halted after resuming: %+v", p)
	}
}
