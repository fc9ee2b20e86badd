// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The line is the order of the scalers that wait.
//
// A higher class goes first. Within a class, namespaces below their share go first (the slots
// divided by the namespaces that use or want some), then the greatest benefit, then the longest
// wait. A scaler that has waited for five windows is overdue. Every second slot goes to the
// longest overdue scaler, both in total and in each namespace. Higher classes therefore delay a
// scaler but cannot starve it. If S scalers, R of them in its namespace, have waited longer, it is
// first within 5 + 2(S/Changes + R/PerNamespace + 2) windows.
//
// Each namespace sorts its scalers. The first one is found by looking at all namespaces.

// overdueWindows is the number of windows after which a wait is overdue.
const overdueWindows = 5

// entry is a scaler that waits, in line or for the slot that is reserved for it.
type entry struct {
	key     types.NamespacedName
	in      *namespace
	want    Want
	since   time.Time
	arrival uint64

	isReserved bool
	from       pool // of the reserved slot
	reservedAt time.Time
	isRequeued bool
}

// namespace is a namespace that uses or wants slots.
type namespace struct {
	name    string
	used    [pools]int
	waiting int // scalers, also those with a reserved slot
	// ranked and byAge are the scalers in line, by rank and by arrival.
	ranked, byAge []*entry
	oldestTurn    bool // every second of its slots is for its longest overdue scaler
}

// rank orders the scalers of a namespace.
func rank(a, b *entry) int {
	return cmp.Or(cmp.Compare(b.want.Class, a.want.Class), cmp.Compare(b.want.Benefit, a.want.Benefit), age(a, b))
}

func age(a, b *entry) int { return cmp.Compare(a.arrival, b.arrival) }

// add adds a scaler to the line.
func (in *namespace) add(e *entry) {
	at, _ := slices.BinarySearchFunc(in.ranked, e, rank)
	in.ranked = slices.Insert(in.ranked, at, e)
	at, _ = slices.BinarySearchFunc(in.byAge, e, age)
	in.byAge = slices.Insert(in.byAge, at, e)
}

// remove removes a scaler from the line.
func (in *namespace) remove(e *entry) {
	at, _ := slices.BinarySearchFunc(in.ranked, e, rank)
	in.ranked = slices.Delete(in.ranked, at, at+1)
	at, _ = slices.BinarySearchFunc(in.byAge, e, age)
	in.byAge = slices.Delete(in.byAge, at, at+1)
}

// enter adds a scaler that did not wait.
func (b *Budget) enter(now time.Time, scaler types.NamespacedName) *entry {
	in := b.namespaces[scaler.Namespace]
	if in == nil {
		in = &namespace{name: scaler.Namespace}
		b.namespaces[scaler.Namespace] = in
	}
	b.arrivals++
	e := &entry{key: scaler, in: in, since: now, arrival: b.arrivals}
	in.waiting++
	in.add(e)
	b.waiting[scaler] = e
	return e
}

// setWant sets the want of a scaler.
func (b *Budget) setWant(e *entry, want Want) {
	if e.isReserved || e.want == want {
		return
	}
	e.in.remove(e)
	e.want = want
	e.in.add(e)
}

// leave removes a scaler that waits, and frees the slot that is reserved for it.
func (b *Budget) leave(e *entry) {
	delete(b.waiting, e.key)
	e.in.waiting--
	if e.isReserved {
		b.reserved = slices.DeleteFunc(b.reserved, func(other *entry) bool { return other == e })
		b.free(e.in, e.from)
		return
	}
	e.in.remove(e)
	b.forget(e.in)
}

// forget forgets a namespace that neither uses nor wants slots.
func (b *Budget) forget(in *namespace) {
	if in.waiting == 0 && in.used == [pools]int{} {
		delete(b.namespaces, in.name)
	}
}

// next returns the scaler in line that gets the next slot; nil if no namespace with a free slot has
// a scaler in line.
func (b *Budget) next(now time.Time) *entry {
	var best, oldest *entry
	for _, in := range b.namespaces {
		if len(in.ranked) == 0 || in.used[common] >= b.limitOf(in.name) {
			continue
		}
		if best == nil || b.goesBefore(in.ranked[0], best) {
			best = in.ranked[0]
		}
		if oldest == nil || age(in.byAge[0], oldest) < 0 {
			oldest = in.byAge[0]
		}
	}
	if best == nil {
		return nil
	}
	if b.oldestTurn = !b.oldestTurn; b.oldestTurn && b.isOverdue(oldest, now) {
		return oldest
	}
	in := best.in
	if in.oldestTurn = !in.oldestTurn; in.oldestTurn && b.isOverdue(in.byAge[0], now) {
		return in.byAge[0]
	}
	return best
}

// goesBefore compares the first scalers of two namespaces.
func (b *Budget) goesBefore(e, other *entry) bool {
	share := max(1, b.limit()/len(b.namespaces))
	if below := e.in.used[common] < share; e.want.Class == other.want.Class && below != (other.in.used[common] < share) {
		return below
	}
	return rank(e, other) < 0
}

func (b *Budget) isOverdue(e *entry, now time.Time) bool {
	return now.Sub(e.since) >= overdueWindows*b.limits.Window
}

// firstEmergency returns the first Emergency in line of the namespace that uses the least of the
// reserve; nil if none may use it.
func (b *Budget) firstEmergency() (first *entry) {
	for _, in := range b.namespaces {
		if len(in.ranked) == 0 || in.ranked[0].want.Class != Emergency || !b.reserveHasRoom(in) {
			continue
		}
		if e := in.ranked[0]; first == nil || cmp.Or(cmp.Compare(in.used[reserve], first.in.used[reserve]), rank(e, first)) < 0 {
			first = e
		}
	}
	return first
}
