// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package budget decides which scaler may make a change next. It limits the changes in any window
// of time, in total and for each namespace, and queues the scalers that must wait.
//
// A change is one write to a pod or a pod template that was sent to the API server, accepted or
// not. Each change takes a slot when it is granted, and keeps it until one window after the change
// has ended. So no window has more changes than slots, wherever it begins and however long the API
// server takes. A change that failed because the object had changed meanwhile returns its slot at
// once.
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

// patience is the time for which a slot is reserved for a requeued scaler. The queue serves it
// first, so it asks as soon as a worker is free.
const patience = 5 * time.Second

// Class is the priority of a waiting scaler: higher classes go first.
type Class int

// The classes, by the effect of a wait.
const (
	ScaleDown Class = iota // requested resources stay unused
	ScaleUp                // pods have less than recommended, and usage is within it
	Bounds                 // a user's bounds are not applied yet
	Urgent                 // containers use more than they request, or another pod of theirs was OOM-killed, or a rollout waits for a pod without a node
	Emergency              // containers are OOM-killed, or unhealthy since a change of ours
)

// Want is the change that a scaler waits for.
type Want struct {
	Class Class
	// Benefit orders the scalers of one class. It is the size of the change over all pods, in
	// cores, and at least 0; infinite for a change that has begun (plan.WantOf).
	Benefit float64
}

// Budget grants changes. It is safe for concurrent use.
//
// The scalers that wait form a line (line.go). A free slot is reserved for the first one. Next
// returns it to be requeued, and it gets the slot when it asks. Only a few slots are reserved at a
// time: requeueing more scalers than there are workers would only delay other reconciles. A scaler
// that does not ask in time leaves the line until it asks again.
//
// An Emergency without a free slot takes one of the reserve (limits.go).
type Budget struct {
	mu     sync.Mutex
	limits Limits
	pods   map[types.NamespacedName]int // that a scaler may change
	podsIn map[string]int               // by namespace, and all of them under ""

	waiting    map[types.NamespacedName]*entry
	namespaces map[string]*namespace
	reserved   []*entry                        // a slot is reserved for them
	changing   map[types.NamespacedName][]pool // the slots of changes that have not ended
	cooling    []cooling                       // slots of ended changes, by time
	used       [pools]int                      // slots that are reserved, changing or cooling
	arrivals   uint64                          // of entries, ever
	oldestTurn bool                            // every second slot is for the longest overdue scaler
	changed    chan struct{}
}

// pool is the source of a slot.
type pool int

const (
	common pool = iota
	reserve
	pools // number of slots
)

type cooling struct {
	in    *namespace
	from  pool
	until time.Time
}

// New returns a budget with all slots free.
func New(limits Limits) *Budget {
	limits.Wakes = cmp.Or(limits.Wakes, defaultWakes)
	return &Budget{
		limits:     limits,
		pods:       map[types.NamespacedName]int{},
		podsIn:     map[string]int{},
		waiting:    map[types.NamespacedName]*entry{},
		namespaces: map[string]*namespace{},
		changing:   map[types.NamespacedName][]pool{},
		changed:    make(chan struct{}, 1),
	}
}

// Ask requests one change. If it is granted, Done must follow. Otherwise the scaler waits until
// Next returns it, it asks again, or it leaves. isNew is true if it did not wait before.
func (b *Budget) Ask(now time.Time, scaler types.NamespacedName, want Want) (granted, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	e := b.waiting[scaler]
	if e != nil && e.from == reserve && want.Class != Emergency {
		b.leave(e) // The slot that is reserved for it is for emergencies only.
		e = nil
	}
	if isNew = e == nil; isNew {
		e = b.enter(now, scaler)
	}
	b.setWant(e, want)
	b.reserveSlots(now)
	if e.isReserved {
		b.changing[scaler] = append(b.changing[scaler], e.from)
		b.take(e.in, e.from)
		b.leave(e)
	}
	b.notify()
	return e.isReserved, isNew
}

// Done ends a granted change, successful or not.
func (b *Budget) Done(now time.Time, scaler types.NamespacedName) {
	b.end(scaler, now.Add(b.limits.Window))
}

// Return ends a granted change that is known not to have happened, and frees its slot.
func (b *Budget) Return(scaler types.NamespacedName) { b.end(scaler, time.Time{}) }

// end ends a granted change, if there is one. Its slot is free at that time.
func (b *Budget) end(scaler types.NamespacedName, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slots := b.changing[scaler]
	if len(slots) == 0 {
		return
	}
	if b.changing[scaler] = slots[1:]; len(slots) == 1 {
		delete(b.changing, scaler)
	}
	slot := cooling{b.namespaces[scaler.Namespace], slots[0], at}
	after, _ := slices.BinarySearchFunc(b.cooling, slot, func(a, b cooling) int { return a.until.Compare(b.until) })
	b.cooling = slices.Insert(b.cooling, after, slot)
	b.notify()
}

// Leave removes the scaler from the line.
func (b *Budget) Leave(scaler types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.waiting[scaler]; e != nil {
		b.leave(e)
		b.notify()
	}
}

// Next returns the scalers to requeue, and when to call it again; zero if Changed announces the
// next call. Their reconciles should start before all others: their slots are unused
// until then.
func (b *Budget) Next(now time.Time) (requeue []types.NamespacedName, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	b.reserveSlots(now)
	if len(b.waiting) > 0 && len(b.cooling) > 0 {
		at = b.cooling[0].until
	}
	for _, e := range b.reserved {
		if !e.isRequeued {
			e.isRequeued = true
			requeue = append(requeue, e.key)
		}
		if late := e.reservedAt.Add(patience); at.IsZero() || late.Before(at) {
			at = late
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
	return len(b.waiting)
}

func (b *Budget) notify() {
	if len(b.waiting) == 0 {
		return
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// expire frees the slots whose window is over, and the slots of requeued scalers that do not ask.
func (b *Budget) expire(now time.Time) {
	for len(b.cooling) > 0 && !now.Before(b.cooling[0].until) {
		b.free(b.cooling[0].in, b.cooling[0].from)
		b.cooling = b.cooling[1:]
	}
	for _, e := range slices.Clone(b.reserved) {
		if now.Sub(e.reservedAt) >= patience {
			b.leave(e)
		}
	}
}

// reserveSlots reserves free slots for the first in line.
func (b *Budget) reserveSlots(now time.Time) {
	for len(b.reserved) < b.limits.Wakes && b.used[common] < b.limit() {
		e := b.next(now)
		if e == nil {
			break
		}
		b.reserve(now, e, common)
	}
	for e := b.firstEmergency(); e != nil; e = b.firstEmergency() {
		b.reserve(now, e, reserve)
	}
}

// reserve reserves a slot for a scaler in line.
func (b *Budget) reserve(now time.Time, e *entry, from pool) {
	e.in.remove(e)
	e.isReserved, e.from, e.reservedAt = true, from, now
	b.take(e.in, from)
	b.reserved = append(b.reserved, e)
}

func (b *Budget) take(in *namespace, from pool) {
	b.used[from]++
	in.used[from]++
}

func (b *Budget) free(in *namespace, from pool) {
	b.used[from]--
	in.used[from]--
	b.forget(in)
}
