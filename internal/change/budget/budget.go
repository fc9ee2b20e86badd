// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package budget says who may change something next: so many changes in any window of
// time, so many of them in one namespace, and a queue for those who have to wait.
//
// A change is one write to a pod or a pod template that was asked of the API server,
// accepted or not. Each takes a slot when it is granted and keeps it until a whole window
// after it has ended. So however long the API server takes over it, no window, wherever it
// begins, sees more changes than there are slots.
//
// Time is an argument of everything. The book is kept in memory: a process begins with
// all slots free, and a window with a restart in it may see twice as many.
package budget

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Limits are what may be changed.
type Limits struct {
	// Changes is how many there may be in any window, PerNamespace how many of them in
	// one namespace. At least 1.
	Changes, PerNamespace int
	// Window is the window's length.
	Window time.Duration
}

// Class orders those who wait: the higher goes first.
type Class int

// The classes, by what happens while one waits.
const (
	ScaleDown Class = iota // something is reserved in vain
	ScaleUp                // there is less than wanted, and usage is within it
	Bounds                 // what a person has asked for is not so yet
	Urgent                 // a container is killed or starved
)

// Want is what somebody waits for.
type Want struct {
	Class Class
	// Benefit orders those of a class: what is changed in all pods, in cores
	// (plan.WantOf). At least 0.
	Benefit float64
}

const (
	// reservation is how long a slot is kept for the one that was woken for it. A pass
	// comes within milliseconds, on a busy machine within seconds.
	reservation = 10 * time.Second
	// patience is after how many windows a wait is overdue.
	overdueWindows = 5
)

// Budget grants changes. It is safe for concurrent use.
//
// A free slot goes to the highest class; within it to namespaces that have not had their
// share (the slots, divided by the namespaces that use or want some); within these to the
// greatest benefit, and then to the longest wait. Who has waited for five windows is
// overdue, and of two slots at least one goes to the longest overdue, over all and in each
// namespace, so that the class of the others delays it but cannot keep it out: where S
// scalers, R of them in its namespace, have waited for longer, it is served within
// 5 + 2(S/Changes + R/PerNamespace + 2) windows.
//
// The first to ask while slots are free get them, whatever they are worth: nobody knows
// who comes next.
//
// It remembers one entry for each scaler that waits and one for each slot.
type Budget struct {
	limits Limits

	mu             sync.Mutex
	entries        map[types.NamespacedName]*entry
	changing       map[types.NamespacedName]int // granted and not ended
	cooling        []cooling                    // slots of changes that have ended, by time
	used           int                          // slots that are reserved, in use or resting
	namespaces     map[string]*namespaceUse
	reserved       int  // entries that have a slot reserved
	lastWasOverdue bool // the last slot went to one that was overdue
	// fresh says that a slot was freed since slots were last handed out. Otherwise
	// nobody can have one but who asks anew.
	slotFreed bool
	arrivals  uint64 // of entries, ever
	requeue   []types.NamespacedName
	changed   chan struct{}
}

// space is what is known of a namespace. There is one as long as it uses or wants slots.
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
	// reserved until then, if it is set.
	reservedUntil time.Time
	// absent has not come for its reservation: it gets none before it asks again.
	missedReservation bool
}

// New makes a budget with all slots free.
func New(limits Limits) *Budget {
	return &Budget{
		limits:     limits,
		entries:    map[types.NamespacedName]*entry{},
		changing:   map[types.NamespacedName]int{},
		namespaces: map[string]*namespaceUse{},
		changed:    make(chan struct{}, 1),
	}
}

// Ask asks for one change. Granted, it must be followed by Done. Otherwise the scaler
// waits and is woken by Next, until it asks again or leaves; isNew says that it did not
// wait before.
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
	b.remove(scaler, e) // its slot stays taken
	b.changing[scaler]++
	return true, isNew
}

// Done says that the change has ended, well or not.
func (b *Budget) Done(now time.Time, scaler types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changing[scaler] == 0 {
		return
	}
	if b.changing[scaler]--; b.changing[scaler] == 0 {
		delete(b.changing, scaler)
	}
	until := now.Add(b.limits.Window)
	if n := len(b.cooling); n > 0 && until.Before(b.cooling[n-1].until) {
		until = b.cooling[n-1].until // of two that end together, the later time holds for both
	}
	b.cooling = append(b.cooling, cooling{scaler.Namespace, until})
	b.notify()
}

// Leave says that the scaler wants nothing any more.
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

// Next hands out what is free and says whom to wake for it, and when to come again; zero
// for when Changed says so.
func (b *Budget) Next(now time.Time) (wake []types.NamespacedName, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freeExpired(now)
	b.assignSlots(now, types.NamespacedName{})
	wake, b.requeue = b.requeue, nil
	if len(b.entries) == 0 {
		return wake, at
	}
	if len(b.cooling) > 0 {
		at = b.cooling[0].until
	}
	for _, e := range b.entries {
		if !e.reservedUntil.IsZero() && (at.IsZero() || e.reservedUntil.Before(at)) {
			at = e.reservedUntil
		}
	}
	return wake, at
}

// Changed receives when Next may have something new to say.
func (b *Budget) Changed() <-chan struct{} { return b.changed }

// Waiting is the number of scalers that wait.
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

// collect frees the slots whose window is over, and those that nobody came for.
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

// hand gives the free slots to those who wait. The one that asks needs not be woken.
func (b *Budget) assignSlots(now time.Time, asks types.NamespacedName) {
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
		if key != asks {
			b.requeue = append(b.requeue, key)
		}
	}
}

// first is who gets the next slot.
func (b *Budget) nextInLine(now time.Time) (types.NamespacedName, bool) {
	share := max(1, b.limits.Changes/max(1, len(b.namespaces)))
	var best, oldest candidate
	late := map[string]candidate{} // the longest overdue, by namespace
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
		if l := late[key.Namespace]; l.entry == nil || e.arrival < l.arrival {
			late[key.Namespace] = c
		}
	}
	if best.entry == nil {
		return types.NamespacedName{}, false
	}
	if oldest.entry != nil && !b.lastWasOverdue {
		return oldest.key, true
	}
	if l := late[best.key.Namespace]; l.entry != nil && !b.namespaces[best.key.Namespace].lastWasOverdue {
		return l.key, true
	}
	return best.key, true
}

type candidate struct {
	key types.NamespacedName
	*entry
	belowShare bool // its namespace has not had its share
}

// compare is less than 0 if a goes first.
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
