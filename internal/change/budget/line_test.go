// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// scan finds the first scaler in line by looking at all of them, as the documentation of the line
// says it.
func scan(b *Budget, now time.Time) *entry {
	var best, oldest *entry
	oldestOf := map[string]*entry{} // by namespace
	for key, e := range b.entries {
		if e.place != inLine || e.in.slots[common].taken() >= b.withAhead(e.in.limit) {
			continue
		}
		if best == nil || b.rankOf(e).compare(b.rankOf(best)) < 0 {
			best = e
		}
		if !b.isOverdue(e, now) {
			continue
		}
		if oldest == nil || e.arrival < oldest.arrival {
			oldest = e
		}
		if o := oldestOf[key.Namespace]; o == nil || e.arrival < o.arrival {
			oldestOf[key.Namespace] = e
		}
	}
	if best == nil {
		return nil
	}
	if oldest != nil && !b.line.lastWasOldest {
		return oldest
	}
	if o := oldestOf[best.key.Namespace]; o != nil && !best.in.lastWasOldest {
		return o
	}
	return best
}

// FuzzLine asks, leaves, ends changes and changes the fleet at random. The first in line is always
// the one that a scan of all finds.
func FuzzLine(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := New(Limits{Changes: 1 + r.IntN(40), PerNamespace: 1 + r.IntN(15), PodPercent: r.IntN(10), Window: time.Minute, Wakes: 1 + r.IntN(8)})
		now, firsts := noon, 0
		var changing []types.NamespacedName
		spaces, scalers := 1+r.IntN(30), 1+r.IntN(30)
		for i := range 3000 {
			key := named(fmt.Sprint(r.IntN(spaces)), fmt.Sprint(r.IntN(scalers)))
			switch r.IntN(10) {
			case 0:
				b.Leave(key)
			case 1:
				b.SetPods(key, r.IntN(200))
			case 2:
				b.Next(now)
			case 3, 4:
				if n := len(changing); n > 0 {
					if r.IntN(5) > 0 {
						b.Done(now, changing[n-1])
					} else {
						b.Return(changing[n-1])
					}
					changing = changing[:n-1]
				}
			default:
				// Few values, so that many are equal.
				if granted, _ := b.Ask(now, key, Want{Class(r.IntN(5)), float64(r.IntN(3))}); granted {
					changing = append(changing, key)
				}
			}
			now = now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
			got, _ := b.first(now)
			if want := scan(b, now); got != want {
				t.Fatalf("after %d steps, the first is %+v, want %+v", i, got, want)
			}
			if got != nil {
				firsts++
			}
		}
		if firsts == 0 && b.limits.Changes < 20 && b.limits.PodPercent == 0 {
			t.Errorf("nobody was ever in line: %+v", b.limits)
		}
	})
}

// Three scalers have waited for longer than all others, which are overdue as well and go first by
// their class. The three get every second slot.
func TestTheLongestOverdueAreNotPassedOverByOthers(t *testing.T) {
	b := minute(2, 2)
	spend(t, b, at(0), 2)
	wants := map[types.NamespacedName]Want{}
	patient := map[string]bool{}
	for i := range 3 {
		key := named(fmt.Sprint("p", i), fmt.Sprint("patient-", i))
		wants[key], patient[key.Name] = Want{ScaleDown, 0}, true
		asks(t, b, at(1), key, wants[key], false)
	}
	for i := range 20 {
		key := named("n", fmt.Sprint(i))
		wants[key] = Want{Urgent, 1}
		asks(t, b, at(2), key, wants[key], false)
	}
	for window := 1; window <= overdueWindows+2; window++ {
		for _, name := range served(b, at(60*window+2), wants) {
			delete(patient, name)
		}
	}
	if len(patient) > 0 {
		t.Errorf("not served: %v", patient)
	}
}

// A namespace that has its share goes behind the others. The share grows with the budget.
func TestTheShareFollowsTheBudget(t *testing.T) {
	b := New(Limits{Changes: 4, PerNamespace: 4, PodPercent: 6, Window: time.Minute})
	for i, namespace := range []string{"a", "a", "b", "c"} {
		asks(t, b, at(0), named(namespace, fmt.Sprint("busy-", i)), Want{}, true) // and does not end
	}
	asks(t, b, at(20), named("a", "rich"), Want{ScaleUp, 2}, false)
	asks(t, b, at(20), named("b", "poor"), Want{ScaleUp, 1}, false)
	if e, _ := b.first(at(20)); e.key.Name != "rich" {
		t.Errorf("%s is first, although both namespaces have their share of 4 / 3", e.key)
	}
	b.SetPods(named("large", "x"), 100)
	if e, _ := b.first(at(20)); e.key.Name != "poor" {
		t.Errorf("%s is first, although its namespace has its share of 6 / 3", e.key)
	}
}
