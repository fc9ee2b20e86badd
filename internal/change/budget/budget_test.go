// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func named(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func minute(changes, perNamespace int) *Budget {
	return New(Limits{Changes: changes, PerNamespace: perNamespace, Window: time.Minute})
}

// spend uses n slots at that time.
func spend(t *testing.T, b *Budget, now time.Time, n int) {
	t.Helper()
	for i := range n {
		key := named(fmt.Sprintf("spent-%d", i), "x")
		if granted, _ := b.Ask(now, key, Want{}); !granted {
			t.Fatalf("change %d of %d is not granted", i, n)
		}
		b.Done(now, key)
	}
}

func asks(t *testing.T, b *Budget, now time.Time, key types.NamespacedName, want Want, granted bool) {
	t.Helper()
	if got, _ := b.Ask(now, key, want); got != granted {
		t.Fatalf("%s at %s: granted is %v", key, now.Sub(noon), got)
	}
}

// served lets all requeued scalers ask, and returns the granted ones in order. Each change
// ends at once.
func served(b *Budget, now time.Time, wants map[types.NamespacedName]Want) (out []string) {
	for {
		wake, _ := b.Next(now)
		if len(wake) == 0 {
			return out
		}
		for _, key := range wake {
			if granted, _ := b.Ask(now, key, wants[key]); granted {
				out = append(out, key.Name)
				b.Done(now, key)
			}
		}
	}
}

func TestAWindowStartsAtTheEndOfAChange(t *testing.T) {
	b := minute(1, 1)
	a, c := named("a", "a"), named("c", "c")
	asks(t, b, at(0), a, Want{}, true)
	asks(t, b, at(50), c, Want{}, false)
	b.Done(at(50), a) // The API server may have handled it at any time before.
	for _, s := range []int{60, 109} {
		if wake, next := b.Next(at(s)); len(wake) > 0 || !next.Equal(at(110)) {
			t.Errorf("at %d s: requeued %v, next at %s", s, wake, next.Sub(noon))
		}
	}
	if wake, _ := b.Next(at(110)); !slices.Equal(wake, []types.NamespacedName{c}) {
		t.Errorf("requeued: %v", wake)
	}
	asks(t, b, at(110), a, Want{}, false) // The slot is reserved for c.
	asks(t, b, at(110), c, Want{}, true)
}

func TestTheOrderIsByClassAndBenefitAndAge(t *testing.T) {
	b := minute(7, 7)
	spend(t, b, at(0), 7)
	wants := map[types.NamespacedName]Want{}
	for i, w := range []struct {
		name string
		want Want
	}{
		{"4th", Want{ScaleUp, 5}},
		{"7th", Want{ScaleDown, 1000}},
		{"2nd", Want{Urgent, 1}},
		{"5th", Want{ScaleUp, 4}},
		{"1st", Want{Urgent, 2}},
		{"3rd", Want{Bounds, 0}},
		{"6th", Want{ScaleUp, 4}},
	} {
		wants[named("n", w.name)] = w.want
		asks(t, b, at(i), named("n", w.name), Want{}, false)
		asks(t, b, at(i), named("n", w.name), w.want, false) // the newest want counts
	}
	if got, want := served(b, at(60), wants), []string{"1st", "2nd", "3rd", "4th", "5th", "6th", "7th"}; !slices.Equal(got, want) {
		t.Errorf("served: %v", got)
	}
}

func TestOneNamespaceDoesNotKeepOthersWaiting(t *testing.T) {
	b := minute(10, 10)
	spend(t, b, at(0), 10)
	wants := map[types.NamespacedName]Want{}
	for i := range 1000 {
		wants[named("noisy", fmt.Sprint(i))] = Want{ScaleUp, 1000}
	}
	for i := range 5 {
		wants[named("quiet", fmt.Sprintf("quiet-%d", i))] = Want{ScaleUp, 1}
	}
	for key, want := range wants {
		asks(t, b, at(1), key, want, false)
	}
	quiet := 0
	// Namespaces that were served in the last window count until it ends.
	for _, name := range append(served(b, at(60), wants), served(b, at(120), wants)...) {
		if len(name) > len("quiet-") {
			quiet++
		}
	}
	if quiet != 5 {
		t.Errorf("%d of 5 scalers of the quiet namespace were served within a window and a half", quiet)
	}
}

func TestAnUnusedReservationIsPassedOn(t *testing.T) {
	b := minute(1, 1)
	spend(t, b, at(0), 1)
	first, second, third := named("a", "first"), named("b", "second"), named("c", "third")
	asks(t, b, at(1), first, Want{Class: ScaleUp}, false)
	asks(t, b, at(2), second, Want{}, false)
	asks(t, b, at(3), third, Want{}, false)
	if wake, next := b.Next(at(60)); !slices.Equal(wake, []types.NamespacedName{first}) || !next.Equal(at(65)) {
		t.Errorf("requeued: %v, next at %s", wake, next.Sub(noon))
	}
	if wake, _ := b.Next(at(65)); !slices.Equal(wake, []types.NamespacedName{second}) {
		t.Errorf("requeued: %v", wake)
	}
	asks(t, b, at(66), first, Want{Class: ScaleUp}, false) // It comes late.
	b.Leave(second)                                        // Its plan has changed.
	if wake, _ := b.Next(at(66)); !slices.Equal(wake, []types.NamespacedName{first}) {
		t.Errorf("requeued: %v", wake)
	}
	asks(t, b, at(66), third, Want{}, false)
	asks(t, b, at(66), first, Want{Class: ScaleUp}, true)
}

// Slots are free, but only a few scalers are requeued at the same time. After each one that asks, the next one follows.
func TestFewAreRequeuedAtATime(t *testing.T) {
	b := New(Limits{Changes: 10, PerNamespace: 10, Window: time.Minute, Wakes: 2})
	spend(t, b, at(0), 10)
	for i := range 20 {
		asks(t, b, at(1), named("a", fmt.Sprint(i)), Want{}, false)
	}
	if wake, _ := b.Next(at(60)); !slices.Equal(wake, []types.NamespacedName{named("a", "0"), named("a", "1")}) {
		t.Errorf("requeued: %v", wake)
	}
	asks(t, b, at(60), named("a", "11"), Want{}, false)
	if wake, _ := b.Next(at(60)); len(wake) > 0 {
		t.Errorf("requeued although two are expected: %v", wake)
	}
	asks(t, b, at(60), named("a", "0"), Want{}, true)
	if wake, _ := b.Next(at(60)); !slices.Equal(wake, []types.NamespacedName{named("a", "2")}) {
		t.Errorf("requeued: %v", wake)
	}
}

func TestTheLimitGrowsWithTheFleet(t *testing.T) {
	b := New(Limits{Changes: 300, PerNamespace: 60, PodPercent: 5, Window: time.Minute})
	pods := func(namespace, name string, n, all, own int) {
		t.Helper()
		b.SetPods(named(namespace, name), n)
		if got := b.Limit(); got != all {
			t.Errorf("the limit is %d, want %d", got, all)
		}
		if got := b.limitOf(namespace); got != own {
			t.Errorf("the limit of namespace %s is %d, want %d", namespace, got, own)
		}
	}
	pods("a", "x", 1200, 300, 60)
	pods("a", "y", 1200, 300, 120)
	pods("b", "x", 3619, 300, 180)
	pods("b", "x", 3620, 301, 181)
	pods("b", "x", 0, 300, 60)
	pods("a", "y", 0, 300, 60)
	pods("a", "x", -1, 300, 60)
	if n := len(b.pods) + b.podsIn["a"] + b.podsIn["b"] + b.podsIn[""]; n > 0 {
		t.Errorf("remaining state: %v", b.podsIn)
	}
}

// A namespace that is full has room as soon as its fleet has grown.
func TestALimitThatGrowsAppliesToThoseThatWait(t *testing.T) {
	b := New(Limits{Changes: 100, PerNamespace: 1, PodPercent: 10, Window: time.Minute})
	asks(t, b, at(0), named("a", "x"), Want{}, true)
	asks(t, b, at(0), named("a", "y"), Want{}, false)
	b.SetPods(named("a", "y"), 20)
	if wake, _ := b.Next(at(0)); len(wake) != 1 || wake[0].Name != "y" {
		t.Errorf("requeued: %v", wake)
	}
}

// Others have used up all slots. Any number of emergencies in one namespace leaves room for those
// of another one, and of a third.
func TestOneNamespaceCannotUseUpTheReserve(t *testing.T) {
	b := minute(100, 100)
	spend(t, b, at(0), 100)
	asks(t, b, at(1), named("urgent", "x"), Want{Class: Urgent, Benefit: 100}, false)
	for _, c := range []struct {
		namespace string
		granted   int
	}{{"noisy", 10}, {"second", 5}, {"noisy", 0}, {"third", 3}, {"fourth", 1}, {"fifth", 1}, {"sixth", 0}} {
		granted := 0
		for i := range 20 {
			key := named(c.namespace, fmt.Sprint(i))
			if ok, _ := b.Ask(at(1), key, Want{Class: Emergency}); ok {
				granted++
				b.Done(at(1), key)
			}
		}
		if granted != c.granted {
			t.Errorf("%d emergencies of namespace %s are granted, want %d", granted, c.namespace, c.granted)
		}
	}
}

// An emergency that waits is requeued as soon as its namespace may use the reserve again, even if all
// other slots are in use. If its class has changed by then, it has no right to the reserve.
func TestAnEmergencyWaitsForTheReserve(t *testing.T) {
	for _, class := range []Class{Emergency, Urgent} {
		b := minute(10, 10)
		for i := range 10 {
			asks(t, b, at(0), named("busy", fmt.Sprint(i)), Want{}, true) // and does not end
		}
		first, second := named("a", "first"), named("a", "second")
		asks(t, b, at(0), first, Want{Class: Emergency}, true)
		b.Done(at(0), first)
		asks(t, b, at(1), second, Want{Class: Emergency}, false)
		if wake, next := b.Next(at(59)); len(wake) > 0 || !next.Equal(at(60)) {
			t.Errorf("requeued: %v, next at %s", wake, next.Sub(noon))
		}
		if wake, _ := b.Next(at(60)); len(wake) != 1 || wake[0] != second {
			t.Errorf("requeued: %v", wake)
		}
		asks(t, b, at(60), named("b", "other"), Want{Class: Urgent}, false)
		asks(t, b, at(60), second, Want{Class: class}, class == Emergency)
		b.Return(second)
		asks(t, b, at(60), first, Want{Class: Emergency}, true) // The slot is free again.
	}
}

// Slots become free in the order of time, also if two changes end at once and the later one is noted first.
func TestTheFirstSlotIsFreeFirst(t *testing.T) {
	b := New(Limits{Changes: 2, PerNamespace: 2, Window: time.Minute})
	for _, name := range []string{"late", "early"} {
		asks(t, b, at(0), named("a", name), Want{ScaleUp, 1}, true)
	}
	b.Done(at(10), named("a", "late"))
	b.Done(at(0), named("a", "early"))
	asks(t, b, at(60), named("a", "next"), Want{ScaleUp, 1}, true)
}

// A change that met a conflict has changed nothing. After any number of attempts, its namespace and
// the others keep their slots.
func TestAChangeThatDidNotHappenReturnsItsSlot(t *testing.T) {
	b := New(Limits{Changes: 2, PerNamespace: 1, Window: time.Minute})
	lagging, neighbour, other := named("a", "lagging"), named("a", "neighbour"), named("b", "other")
	for range 100 {
		asks(t, b, at(0), lagging, Want{ScaleUp, 1}, true)
		asks(t, b, at(0), neighbour, Want{ScaleUp, 1}, false)
		b.Return(lagging)
		if wake, _ := b.Next(at(0)); !slices.Equal(wake, []types.NamespacedName{neighbour}) {
			t.Fatalf("%v goes next, want %v", wake, neighbour)
		}
		asks(t, b, at(0), neighbour, Want{ScaleUp, 1}, true)
		b.Return(neighbour)
	}
	b.Return(lagging) // without a grant, nothing is returned
	b.Done(at(0), lagging)
	asks(t, b, at(0), neighbour, Want{ScaleUp, 1}, true)
	asks(t, b, at(0), other, Want{ScaleUp, 1}, true)
	b.Done(at(0), neighbour)
	asks(t, b, at(59), lagging, Want{ScaleUp, 1}, false)
}

// FuzzBudget lets scalers ask and leave at random, miss reservations, and take some time for
// changes. The API server handles a change at a random time between its grant and its end. No
// window has more changes than the limit, no scaler waits longer than documented or while there is
// a slot for it, and no state is left.
func FuzzBudget(f *testing.F) {
	for seed := range uint64(30) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { newSimulation(seed).run(t) })
}

type simulation struct {
	*rand.Rand
	*Budget
	now     time.Time
	wants   map[types.NamespacedName]Want
	since   map[types.NamespacedName]time.Time
	comes   map[types.NamespacedName]time.Time // requeued, and asks then
	ends    map[types.NamespacedName]time.Time
	writes  map[string][]time.Time // by namespace, and "" for all
	waited  time.Duration
	most    int // scalers that waited at the same time
	granted int
}

func newSimulation(seed uint64) *simulation {
	r := rand.New(rand.NewPCG(seed, 2))
	limits := Limits{Changes: 1 + r.IntN(30), PerNamespace: 1 + r.IntN(12), Window: time.Minute}
	return &simulation{
		Rand: r, Budget: New(limits), now: noon,
		wants: map[types.NamespacedName]Want{}, since: map[types.NamespacedName]time.Time{},
		comes: map[types.NamespacedName]time.Time{}, ends: map[types.NamespacedName]time.Time{},
		writes: map[string][]time.Time{},
	}
}

func (s *simulation) run(t *testing.T) {
	t.Helper()
	const load = 3600 // seconds with new requests
	spaces, scalers := 1+s.IntN(6), 1+s.IntN(150)
	for second := 0; second < load || len(s.since)+len(s.ends) > 0; second++ {
		if second > 100*load {
			t.Fatalf("after %d s, %d scalers still wait", second, len(s.since))
		}
		s.now = s.now.Add(time.Second)
		for key, end := range s.ends {
			if !s.now.Before(end) {
				s.Done(s.now, key)
				delete(s.ends, key)
			}
		}
		if second < load {
			// Twice as many as can be served, with urgent ones all the time.
			for range s.Poisson(2 * float64(s.limits.Changes) / 60) {
				space := min(s.IntN(spaces), s.IntN(spaces)) // some ask more often
				key := named(fmt.Sprint("n", space), fmt.Sprint(s.IntN(scalers)))
				s.ask(key, Want{Class(s.IntN(5)), s.Float64()})
			}
		}
		if len(s.since) > 0 && s.IntN(50) == 0 {
			s.leave()
		}
		for key, when := range s.comes {
			if !s.now.Before(when) {
				delete(s.comes, key)
				if want, ok := s.wants[key]; ok {
					s.ask(key, want)
				}
			}
		}
		wake, _ := s.Next(s.now)
		for _, key := range wake {
			late := s.IntN(4)
			if s.IntN(40) == 0 {
				late = 15 // too late
			}
			s.comes[key] = s.now.Add(time.Duration(late) * time.Second)
		}
		used := s.used[common]
		if used > s.limits.Changes {
			t.Fatalf("%d of %d slots are used", used, s.limits.Changes)
		}
		for _, in := range s.namespaces {
			if used < s.limits.Changes && len(s.reserved) < s.limits.Wakes && len(in.ranked) > 0 && in.used[common] < s.limits.PerNamespace {
				t.Fatalf("%v waits although a slot is free", in.ranked[0].key)
			}
		}
	}
	s.check(t)
}

// Poisson is a random number of requests in a second at that rate.
func (s *simulation) Poisson(rate float64) (n int) {
	for left := rate - s.ExpFloat64(); left > 0; left -= s.ExpFloat64() {
		n++
	}
	return n
}

func (s *simulation) ask(key types.NamespacedName, want Want) {
	if _, busy := s.ends[key]; busy {
		return
	}
	s.wants[key] = want
	if _, waits := s.since[key]; !waits {
		s.since[key] = s.now
	}
	s.most = max(s.most, len(s.since))
	if granted, _ := s.Ask(s.now, key, want); !granted {
		return
	}
	s.waited = max(s.waited, s.now.Sub(s.since[key]))
	delete(s.since, key)
	delete(s.wants, key)
	s.granted++
	takes := time.Duration(s.IntN(5)) * time.Second
	s.ends[key] = s.now.Add(takes)
	when := s.now.Add(time.Duration(s.Int64N(int64(takes) + 1)))
	s.writes[""] = append(s.writes[""], when)
	s.writes[key.Namespace] = append(s.writes[key.Namespace], when)
}

func (s *simulation) leave() {
	keys := make([]types.NamespacedName, 0, len(s.since))
	for key := range s.since {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
	key := keys[s.IntN(len(keys))]
	delete(s.since, key)
	delete(s.wants, key)
	s.Leave(key)
}

func (s *simulation) check(t *testing.T) {
	t.Helper()
	for space, times := range s.writes {
		extra := (s.limits.Changes + 4) / 5 // for emergencies
		most := s.limits.PerNamespace + (extra+1)/2
		if space == "" {
			most = s.limits.Changes + extra
		}
		slices.SortFunc(times, time.Time.Compare)
		for i := range times {
			if j := i + most; j < len(times) && times[j].Sub(times[i]) < s.limits.Window {
				t.Fatalf("%d changes of %q within %s from %s, limit %d", most+1, space, times[j].Sub(times[i]), times[i].Sub(noon), most)
			}
		}
	}
	// At most all scalers that ever waited were ahead. A slot is also unavailable during its
	// change and during an unused reservation: at most a third of a window.
	windows := 5 + 2*(float64(s.most)/float64(s.limits.Changes)+float64(s.most)/float64(s.limits.PerNamespace)+2)
	if most := time.Duration(1.34 * windows * float64(s.limits.Window)); s.waited > most {
		t.Errorf("a scaler waited for %s, the documented maximum is %s (%+v, %d waited)", s.waited, most, s.limits, s.most)
	}
	if s.granted == 0 {
		t.Error("no scaler was served")
	}
	s.Next(s.now.Add(2 * s.limits.Window))
	if left := len(s.waiting) + len(s.reserved) + len(s.changing) + len(s.cooling) + len(s.namespaces); left+s.used[common]+s.used[reserve] != 0 {
		t.Errorf("remaining state: %+v", s.Budget)
	}
}

// A namespace that uses its whole share waits for one that does not, even if its change has a greater benefit.
func TestANamespaceAtItsShareGoesAfterOneBelow(t *testing.T) {
	for range 20 { // Namespaces are compared in any order.
		b := minute(4, 4)
		for _, key := range []types.NamespacedName{named("noisy", "1"), named("noisy", "2"), named("quiet", "1"), named("quiet", "2")} {
			asks(t, b, at(0), key, Want{}, true)
		}
		asks(t, b, at(0), named("noisy", "3"), Want{ScaleUp, 1000}, false)
		asks(t, b, at(0), named("quiet", "3"), Want{ScaleUp, 1}, false)
		b.Return(named("quiet", "2")) // The share is 2 of 4 slots. The namespace noisy uses 2, and quiet 1.
		if next, _ := b.Next(at(0)); !slices.Equal(next, []types.NamespacedName{named("quiet", "3")}) {
			t.Fatalf("next is %v, want quiet/3", next)
		}
	}
}
