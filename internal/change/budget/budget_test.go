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

// spend uses up n slots at that time.
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

// served lets everybody come who is woken, and returns them in order. Each change ends
// at once.
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

func TestAWindowIsCountedFromTheEndOfAChange(t *testing.T) {
	b := minute(1, 1)
	a, c := named("a", "a"), named("c", "c")
	asks(t, b, at(0), a, Want{}, true)
	asks(t, b, at(50), c, Want{}, false)
	b.Done(at(50), a) // the API server may have taken it up any time before
	for _, s := range []int{60, 109} {
		if wake, next := b.Next(at(s)); len(wake) > 0 || !next.Equal(at(110)) {
			t.Errorf("at %d s: %v are woken, the next at %s", s, wake, next.Sub(noon))
		}
	}
	if wake, _ := b.Next(at(110)); !slices.Equal(wake, []types.NamespacedName{c}) {
		t.Errorf("woken: %v", wake)
	}
	asks(t, b, at(111), a, Want{Class: Urgent}, false) // the slot is kept for c
	asks(t, b, at(111), c, Want{}, true)
}

func TestTheOrderIsByClassAndBenefit(t *testing.T) {
	b := minute(6, 6)
	spend(t, b, at(0), 6)
	wants := map[types.NamespacedName]Want{
		named("n", "4th"): {ScaleUp, 5},
		named("n", "6th"): {ScaleDown, 1000},
		named("n", "2nd"): {Urgent, 1},
		named("n", "5th"): {ScaleUp, 4},
		named("n", "1st"): {Urgent, 2},
		named("n", "3rd"): {Bounds, 0},
	}
	for key, want := range wants {
		asks(t, b, at(1), key, want, false)
	}
	if got, want := served(b, at(60), wants), []string{"1st", "2nd", "3rd", "4th", "5th", "6th"}; !slices.Equal(got, want) {
		t.Errorf("served: %v", got)
	}
}

func TestWhoWaitedLongerGoesFirstAmongEquals(t *testing.T) {
	b := minute(3, 3)
	spend(t, b, at(0), 3)
	wants := map[types.NamespacedName]Want{}
	for i, name := range []string{"c", "a", "b"} {
		wants[named("n", name)] = Want{}
		asks(t, b, at(i), named("n", name), Want{}, false)
	}
	if got := served(b, at(60), wants); !slices.Equal(got, []string{"c", "a", "b"}) {
		t.Errorf("served: %v", got)
	}
}

func TestANamespaceHasItsOwnLimit(t *testing.T) {
	b := minute(10, 2)
	for i := range 5 {
		asks(t, b, at(0), named("full", fmt.Sprint(i)), Want{Class: Urgent}, i < 2)
		if i < 2 {
			b.Done(at(0), named("full", fmt.Sprint(i)))
		}
	}
	asks(t, b, at(1), named("other", "x"), Want{}, true)
	if wake, _ := b.Next(at(59)); len(wake) > 0 {
		t.Errorf("woken: %v", wake)
	}
	if wake, _ := b.Next(at(60)); len(wake) != 2 {
		t.Errorf("woken: %v", wake)
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
	// Namespaces that were served in the last window count until it is over.
	for _, name := range append(served(b, at(60), wants), served(b, at(120), wants)...) {
		if len(name) > len("quiet-") {
			quiet++
		}
	}
	if quiet != 5 {
		t.Errorf("%d of 5 of the quiet namespace had their turn within a window and a half", quiet)
	}
}

func TestTheUrgentDoNotKeepTheOthersOutForEver(t *testing.T) {
	b := minute(2, 2)
	spend(t, b, at(0), 2)
	patient := named("n", "patient")
	wants := map[types.NamespacedName]Want{patient: {ScaleDown, 0}}
	asks(t, b, at(1), patient, wants[patient], false)
	for window := 1; ; window++ {
		for i := range 3 { // more than there are slots for
			key := named("n", fmt.Sprintf("urgent %d of %d", i, window))
			wants[key] = Want{Urgent, 1}
			asks(t, b, at(60*window-1), key, wants[key], false)
		}
		isServed := slices.Contains(served(b, at(60*window), wants), patient.Name)
		if isServed != (window == overdueWindows+1) {
			t.Fatalf("served in window %d: %v", window, isServed)
		}
		if isServed {
			return
		}
	}
}

// The slots of two namespaces get free in turn, so that the one that is due to the
// longest overdue is always the other namespace's.
func TestTheUrgentDoNotKeepTheOthersOutOfTheirNamespace(t *testing.T) {
	b := minute(2, 1)
	for i, key := range []types.NamespacedName{named("b", "x"), named("a", "x")} {
		asks(t, b, at(30*i), key, Want{}, true)
		b.Done(at(30*i), key)
	}
	wants := map[types.NamespacedName]Want{}
	for i := range 20 {
		wants[named("b", fmt.Sprint(i))] = Want{}
		asks(t, b, at(40), named("b", fmt.Sprint(i)), Want{}, false)
	}
	patient := named("a", "patient")
	wants[patient] = Want{}
	asks(t, b, at(41), patient, Want{}, false)
	for window := 1; window <= overdueWindows+2; window++ {
		if got := served(b, at(60*window), wants); len(got) != 1 {
			t.Fatalf("served: %v", got)
		}
		key := named("a", fmt.Sprint("urgent ", window))
		wants[key] = Want{Class: Urgent}
		asks(t, b, at(60*window+1), key, wants[key], false)
		if slices.Contains(served(b, at(60*window+30), wants), patient.Name) {
			return
		}
	}
	t.Error("it was never served")
}

func TestAReservationThatNobodyComesForIsPassedOn(t *testing.T) {
	b := minute(1, 1)
	spend(t, b, at(0), 1)
	first, second := named("a", "first"), named("b", "second")
	asks(t, b, at(1), first, Want{Class: Urgent}, false)
	asks(t, b, at(2), second, Want{}, false)
	if wake, next := b.Next(at(60)); !slices.Equal(wake, []types.NamespacedName{first}) || !next.Equal(at(70)) {
		t.Errorf("woken: %v, the next at %s", wake, next.Sub(noon))
	}
	if wake, _ := b.Next(at(70)); !slices.Equal(wake, []types.NamespacedName{second}) {
		t.Errorf("woken: %v", wake)
	}
	asks(t, b, at(71), first, Want{Class: Urgent}, false)
	b.Leave(second) // its plan has changed
	if wake, _ := b.Next(at(72)); !slices.Equal(wake, []types.NamespacedName{first}) {
		t.Errorf("woken: %v", wake)
	}
	asks(t, b, at(73), first, Want{Class: Urgent}, true)
}

func TestNothingIsRememberedOfThoseWhoHaveGone(t *testing.T) {
	b := minute(3, 2)
	r := rand.New(rand.NewPCG(1, 1))
	now := noon
	for i := range 10000 {
		key := named(fmt.Sprint(r.IntN(50)), fmt.Sprint(r.IntN(50)))
		if granted, _ := b.Ask(now, key, Want{Class: Class(r.IntN(4))}); granted {
			b.Done(now, key)
		}
		now = now.Add(time.Duration(r.IntN(3)) * time.Second)
		b.Next(now)
		if i%100 == 99 {
			for space := range 50 {
				for name := range 50 {
					b.Leave(named(fmt.Sprint(space), fmt.Sprint(name)))
				}
			}
		}
	}
	now = now.Add(2 * time.Minute)
	b.Next(now)
	if len(b.entries)+len(b.changing)+len(b.cooling)+len(b.namespaces)+len(b.requeue)+b.used+b.reserved != 0 {
		t.Errorf("left over: %+v", b)
	}
}

func TestDoneWithoutAGrantIsIgnored(t *testing.T) {
	b := minute(1, 1)
	b.Done(at(0), named("a", "a"))
	asks(t, b, at(0), named("a", "a"), Want{}, true)
}

// FuzzBudget lets scalers ask at random, leave, come late or not at all for their
// reservations, and take their time over changes. At whatever instant between grant and
// end the API server takes a change up: no window has more than there may be, and
// nobody waits for longer than promised.
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
	comes   map[types.NamespacedName]time.Time // woken, and asks then
	ends    map[types.NamespacedName]time.Time
	writes  map[string][]time.Time // by namespace, and "" for all
	waited  time.Duration
	most    int // that ever waited at once
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
	const load = 3600 // seconds in which new ones come
	spaces, crowd := 1+s.IntN(6), 1+s.IntN(150)
	for second := 0; second < load || len(s.since)+len(s.ends) > 0; second++ {
		if second > 100*load {
			t.Fatalf("after %d s, %d still wait", second, len(s.since))
		}
		s.now = s.now.Add(time.Second)
		for key, end := range s.ends {
			if !s.now.Before(end) {
				s.Done(s.now, key)
				delete(s.ends, key)
			}
		}
		if second < load {
			// Twice as many as can be served, and the urgent ones do not end.
			for range s.Poisson(2 * float64(s.limits.Changes) / 60) {
				space := min(s.IntN(spaces), s.IntN(spaces)) // some are noisier
				key := named(fmt.Sprint("n", space), fmt.Sprint(s.IntN(crowd)))
				s.ask(key, Want{Class(s.IntN(4)), s.Float64()})
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
		if s.used > s.limits.Changes {
			t.Fatalf("%d slots are taken, of %d", s.used, s.limits.Changes)
		}
	}
	s.check(t)
}

// Poisson is how many come in a second at that rate.
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
		most := s.limits.PerNamespace
		if space == "" {
			most = s.limits.Changes
		}
		slices.SortFunc(times, time.Time.Compare)
		for i := range times {
			if j := i + most; j < len(times) && times[j].Sub(times[i]) < s.limits.Window {
				t.Fatalf("%d changes of %q within %s from %s on, of %d", most+1, space, times[j].Sub(times[i]), times[i].Sub(noon), most)
			}
		}
	}
	// No more than all that ever waited at once were ahead. A slot also rests while its
	// change is under way and while nobody comes for it: a third of a window at most.
	windows := 5 + 2*(float64(s.most)/float64(s.limits.Changes)+float64(s.most)/float64(s.limits.PerNamespace)+2)
	if most := time.Duration(1.34 * windows * float64(s.limits.Window)); s.waited > most {
		t.Errorf("somebody waited for %s, promised are %s (%+v, %d waited)", s.waited, most, s.limits, s.most)
	}
	if s.granted == 0 {
		t.Error("nobody was served")
	}
}
