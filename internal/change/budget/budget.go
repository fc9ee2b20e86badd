// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package budget decides which scaler may change something next. It limits the changes in any
// window of time, in total and for each namespace, and queues the scalers that must wait.
//
// A change is one write to a pod or a pod template that was sent to the API server, accepted
// or not. Each change takes a slot when it is granted, and keeps it until one window after
// the change has ended. So no window has more changes than slots, wherever it begins and
// however long the API server takes. A change that is known not to have happened, because the
// object had changed meanwhile, returns its slot at once.
//
// Time is an argument of every method. The state is in memory: a new process starts with all
// slots free, so a window with a restart in it may have twice as many changes.
package budget

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Limits are the limits of a Budget.
type Limits struct {
	// Changes is the maximum in any window, PerNamespace the maximum in one namespace. Both
	// are at least 1.
	Changes, PerNamespace int
	// Window is the length of the window.
	Window time.Duration
}

// Class is the priority of a waiting scaler: higher classes go first.
type Class int

// The classes, by what happens while a scaler waits.
const (
	ScaleDown Class = iota // requested resources stay unused
	ScaleUp                // pods have less than recommended, and usage is within it
	Bounds                 // a user's bounds are not applied yet
	Urgent                 // containers are OOM-killed or starved
)

// Want is the change that a scaler waits for.
type Want struct {
	Class Class
	// Benefit orders the scalers of one class. It is the size of the change over all pods, in
	// cores (plan.WantOf), and at least 0.
	Benefit float64
}

const (
	// reservation is how long a slot is reserved for a requeued scaler. Its reconcile starts
	// within milliseconds, on a busy machine within seconds.
	reservation = 10 * time.Second
	// overdueWindows is the number of windows after which a wait is overdue.
	overdueWindows = 5
)

// Budget grants changes. It is safe for concurrent use.
//
// A free slot goes to the highest class. Within a class it goes to namespaces below their
// share (the slots divided by the namespaces that use or want some), then to the greatest
// benefit, then to the longest wait. A scaler that has waited for five windows is overdue. Of
// two slots, at least one goes to the longest overdue scaler, both in total and in each
// namespace. Higher classes therefore delay a scaler but cannot starve it: if S scalers, R of
// them in its namespace, have waited longer, it is served within
// 5 + 2(S/Changes + R/PerNamespace + 2) windows.
//
// While slots are free, the first scalers to ask get them, whatever their benefit.
//
// The memory is one entry for each waiting scaler and one for each slot.
type Budget struct {
	limits Limits

	mu             sync.Mutex
	entries        map[types.NamespacedName]*entry
	changing       map[types.NamespacedName]int // granted and not ended
	cooling        []cooling                    // slots of ended changes, by time
	used           int                          // slots that are reserved, in use or cooling
	namespaces     map[string]*namespaceUse
	reserved       int  // entries that have a slot reserved
	lastWasOverdue bool // the last slot went to an overdue scaler
	// slotFreed says that a slot was freed since the last assignment. Otherwise only a
	// scaler that asks again can get one.
	slotFreed bool
	arrivals  uint64 // of entries, ever
	requeue   []types.NamespacedName
	changed   chan struct{}
}

// namespaceUse is the state of a namespace that uses or wants slots.
type namespaceUse struct {
	used, waiting  int
	lastWasOverdue bool
}

type cooling struct {
	namespace string
	until     time.Time
}

type entry struct {
	want    Want
	since   time.Time
	arrival uint64
	// reservedUntil is zero without a reservation.
	reservedUntil time.Time
	// missedReservation is set after a reservation expires: the scaler must ask again.
	missedReservation bool
}

// New returns a budget with all slots free.
func New(limits Limits) *Budget {
	return &Budget{
		limits:     limits,
		entries:    map[types.NamespacedName]*entry{},
		changing:   map[types.NamespacedName]int{},
		namespaces: map[string]*namespaceUse{},
		changed:    make(chan struct{}, 1),
	}
}

// Ask requests one change. If it is granted, Done must follow. Otherwise the scaler waits until
// Next returns it, it asks again, or it leaves. isNew says that it did not wait before.
func (b *Budget) Ask(now time.Time, scaler types.NamespacedName, want Want) (granted, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[scaler]
	if isNew = e == nil; isNew {
		b.arrivals++
		e = &entry{since: now, arrival: b.arrivals}
		b.entries[scaler] = e
		b.use(scaler.Namespace).waiting++
	}
	e.want, e.missedReservation = want, false
	b.freeExpired(now)
	if full := b.namespaces[scaler.Namespace].used >= b.limits.PerNamespace; e.reservedUntil.IsZero() && (b.slotFreed || !full) {
		b.assignSlots(now, scaler)
	}
	b.notify()
	if e.reservedUntil.IsZero() {
		return false, isNew
	}
	b.remove(scaler, e) // its slot stays in use
	b.changing[scaler]++
	return true, isNew
}

// Done ends a granted change, successful or not.
func (b *Budget) Done(now time.Time, scaler types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.end(scaler) {
		return
	}
	until := now.Add(b.limits.Window)
	if n := len(b.cooling); n > 0 && until.Before(b.cooling[n-1].until) {
		until = b.cooling[n-1].until // Concurrent calls keep the list sorted by the later time.
	}
	b.cooling = append(b.cooling, cooling{scaler.Namespace, until})
	b.notify()
}

// Return ends a granted change that is known not to have happened, and frees its slot.
func (b *Budget) Return(scaler types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end(scaler) {
		b.freeSlot(scaler.Namespace)
		b.notify()
	}
}

// end ends a granted change. It returns false if there is none.
func (b *Budget) end(scaler types.NamespacedName) bool {
	if b.changing[scaler] == 0 {
		return false
	}
	if b.changing[scaler]--; b.changing[scaler] == 0 {
		delete(b.changing, scaler)
	}
	return true
}

// Leave removes the scaler from the queue.
func (b *Budget) Leave(scaler types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[scaler]
	if e == nil {
		return
	}
	b.remove(scaler, e)
	if !e.reservedUntil.IsZero() {
		b.freeSlot(scaler.Namespace)
	}
	b.notify()
}

// Next assigns free slots. It returns the scalers to requeue and when to call it again; zero if
// Changed announces the next call.
func (b *Budget) Next(now time.Time) (requeue []types.NamespacedName, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freeExpired(now)
	b.assignSlots(now, types.NamespacedName{})
	requeue, b.requeue = b.requeue, nil
	if len(b.entries) == 0 {
		return requeue, at
	}
	if len(b.cooling) > 0 {
		at = b.cooling[0].until
	}
	for _, e := range b.entries {
		if !e.reservedUntil.IsZero() && (at.IsZero() || e.reservedUntil.Before(at)) {
			at = e.reservedUntil
		}
	}
	return requeue, at
}

// Changed receives a value when Next may have a new result.
func (b *Budget) Changed() <-chan struct{} { return b.changed }

// Waiting is the number of waiting scalers.
func (b *Budget) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries)
}

func (b *Budget) notify() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// freeExpired frees slots whose window is over and reservations that were not used.
func (b *Budget) freeExpired(now time.Time) {
	for len(b.cooling) > 0 && !now.Before(b.cooling[0].until) {
		b.freeSlot(b.cooling[0].namespace)
		b.cooling = b.cooling[1:]
	}
	if b.reserved == 0 {
		return
	}
	for key, e := range b.entries {
		if !e.reservedUntil.IsZero() && !now.Before(e.reservedUntil) {
			e.reservedUntil, e.missedReservation = time.Time{}, true
			b.reserved--
			b.freeSlot(key.Namespace)
		}
	}
}

// assignSlots reserves the free slots for waiting scalers. The scaler that asks is not requeued.
func (b *Budget) assignSlots(now time.Time, asking types.NamespacedName) {
	b.slotFreed = false
	for b.used < b.limits.Changes {
		key, ok := b.nextInLine(now)
		if !ok {
			return
		}
		b.entries[key].reservedUntil = now.Add(reservation)
		b.reserved++
		b.used++
		in := b.use(key.Namespace)
		in.used++
		b.lastWasOverdue = b.isOverdue(b.entries[key], now)
		in.lastWasOverdue = b.lastWasOverdue
		if key != asking {
			b.requeue = append(b.requeue, key)
		}
	}
}

// nextInLine is the scaler that gets the next slot.
func (b *Budget) nextInLine(now time.Time) (types.NamespacedName, bool) {
	share := max(1, b.limits.Changes/max(1, len(b.namespaces)))
	var best, oldest candidate
	longestOverdue := map[string]candidate{} // by namespace
	for key, e := range b.entries {
		in := b.namespaces[key.Namespace]
		if e.missedReservation || !e.reservedUntil.IsZero() || in.used >= b.limits.PerNamespace {
			continue
		}
		c := candidate{key: key, entry: e, belowShare: in.used < share}
		if best.entry == nil || c.compare(best) < 0 {
			best = c
		}
		if !b.isOverdue(e, now) {
			continue
		}
		if oldest.entry == nil || e.arrival < oldest.arrival {
			oldest = c
		}
		if l := longestOverdue[key.Namespace]; l.entry == nil || e.arrival < l.arrival {
			longestOverdue[key.Namespace] = c
		}
	}
	if best.entry == nil {
		return types.NamespacedName{}, false
	}
	if oldest.entry != nil && !b.lastWasOverdue {
		return oldest.key, true
	}
	if l := longestOverdue[best.key.Namespace]; l.entry != nil && !b.namespaces[best.key.Namespace].lastWasOverdue {
		return l.key, true
	}
	return best.key, true
}

type candidate struct {
	key types.NamespacedName
	*entry
	belowShare bool // its namespace is below its share
}

// compare returns a negative number if a goes first.
func (a candidate) compare(b candidate) int {
	if a.belowShare != b.belowShare && a.want.Class == b.want.Class {
		if a.belowShare {
			return -1
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(b.want.Class, a.want.Class),
		cmp.Compare(b.want.Benefit, a.want.Benefit),
		cmp.Compare(a.arrival, b.arrival),
	)
}

func (b *Budget) isOverdue(e *entry, now time.Time) bool {
	return now.Sub(e.since) >= overdueWindows*b.limits.Window
}

func (b *Budget) use(namespace string) *namespaceUse {
	in := b.namespaces[namespace]
	if in == nil {
		in = &namespaceUse{}
		b.namespaces[namespace] = in
	}
	return in
}

func (b *Budget) remove(scaler types.NamespacedName, e *entry) {
	delete(b.entries, scaler)
	if !e.reservedUntil.IsZero() {
		b.reserved--
		b.requeue = slices.DeleteFunc(b.requeue, func(key types.NamespacedName) bool { return key == scaler })
	}
	b.use(scaler.Namespace).waiting--
	b.forgetUnused(scaler.Namespace)
}

func (b *Budget) freeSlot(namespace string) {
	b.used--
	b.slotFreed = true
	b.use(namespace).used--
	b.forgetUnused(namespace)
}

func (b *Budget) forgetUnused(namespace string) {
	if in := b.namespaces[namespace]; in.used == 0 && in.waiting == 0 {
		delete(b.namespaces, namespace)
	}
}
