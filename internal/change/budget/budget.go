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
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// Class is the priority of a waiting scaler: higher classes go first.
type Class int

// The classes, by what happens while a scaler waits.
const (
	ScaleDown Class = iota // requested resources stay unused
	ScaleUp                // pods have less than recommended, and usage is within it
	Bounds                 // a user's bounds are not applied yet
	Urgent                 // containers use more than they request, or a rollout waits for a pod without a node
	Emergency              // containers are OOM-killed, or unhealthy since a change of ours
)

// Want is the change that a scaler waits for.
type Want struct {
	Class Class
	// Benefit orders the scalers of one class. It is the size of the change over all pods, in
	// cores (plan.WantOf), and at least 0.
	Benefit float64
}

// Budget grants changes. It is safe for concurrent use.
//
// The scalers that wait form a line (line.go). The first ones are on the shortlist: as many as
// there are free slots. A free slot goes to the first scaler of the shortlist that asks, and to
// any scaler that asks and is better than the last one of the shortlist. So a slot goes to a
// scaler that is there and among the best.
//
// Next returns the scalers of the shortlist to requeue, best first, only a few at a time. A
// scaler that does not ask within the time that the others need (delay.go) loses its place
// until it asks. If the others need more than a second, the queue is long, and few of the
// waiting scalers are there. Then the shortlist also has those for the slots that will be freed
// meanwhile.
//
// An Emergency for which no slot is free takes one of the reserve (limits.go).
//
// While slots are free and no scaler waits, the first scalers to ask get them, whatever their
// benefit.
//
// The memory is one entry for each waiting scaler, one for each slot and one for each scaler
// with pods. Each method takes time that grows with the logarithm of the waiting scalers.
type Budget struct {
	mu      sync.Mutex
	limits  Limits
	fleet   fleet
	changes int // the current limit of all namespaces together

	entries   map[types.NamespacedName]*entry
	changing  map[types.NamespacedName]granted // granted and not ended
	cooling   []cooling                        // slots of ended changes, by time
	slots     [pools]use
	line      line
	shortlist *btree.BTree[*entry]
	woken     []*entry // requeued, and did not ask yet; at most limits.Wakes and the size of the reserve
	delay     delay
	arrivals  uint64 // of entries, ever
	requeue   []types.NamespacedName
	changed   chan struct{}
}

// mostLooks bounds the search for the next scaler to requeue.
const mostLooks = 1000

// pool is where a slot comes from.
type pool int

const (
	common pool = iota
	reserve
	pools // how many there are
)

// use counts slots of one pool.
type use struct {
	used   int // by changes that are granted or were made in the last window
	listed int // wanted by scalers on the shortlist
}

func (u use) taken() int { return u.used + u.listed }

// granted counts the changes of one scaler that have not ended.
type granted [pools]int

type cooling struct {
	in    *namespace
	pool  pool
	until time.Time
}

// entry is a scaler that waits.
type entry struct {
	key     types.NamespacedName
	in      *namespace
	want    Want
	since   time.Time
	arrival uint64
	place   place
	// pool and rank are those of its place on the shortlist.
	pool pool
	rank rank
	// wokenAt is when it was requeued; zero if it has asked since.
	wokenAt time.Time
}

// place is where a scaler waits.
type place int

const (
	absent      place = iota // it did not come when it was requeued, and must ask again
	inLine                   // it is not its turn
	onShortlist              // it may take a free slot
)

// New returns a budget with all slots free.
func New(limits Limits) *Budget {
	b := &Budget{
		limits:    limits,
		fleet:     newFleet(),
		entries:   map[types.NamespacedName]*entry{},
		changing:  map[types.NamespacedName]granted{},
		line:      newLine(),
		shortlist: btree.New(degree, func(a, b *entry) bool { return a.rank.compare(b.rank) < 0 }),
		changed:   make(chan struct{}, 1),
	}
	b.adjust()
	return b
}

// Ask requests one change. If it is granted, Done must follow. Otherwise the scaler waits until
// Next returns it, it asks again, or it leaves. isNew says that it did not wait before.
func (b *Budget) Ask(now time.Time, scaler types.NamespacedName, want Want) (granted, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	e, isNew := b.enter(now, scaler)
	b.arrived(now, e)
	b.setWant(e, want)
	b.fill(now)
	from, granted := b.poolFor(e)
	if granted {
		b.grant(e, from)
		b.fill(now) // Another one may have lost its place.
	}
	b.wake(now)
	b.notify()
	return granted, isNew
}

// enter returns the entry of a scaler, a new one if it did not wait.
func (b *Budget) enter(now time.Time, scaler types.NamespacedName) (e *entry, isNew bool) {
	if e = b.entries[scaler]; e != nil {
		return e, false
	}
	b.arrivals++
	e = &entry{key: scaler, in: b.namespace(scaler.Namespace), since: now, arrival: b.arrivals}
	e.in.waiting++
	b.entries[scaler] = e
	return e, true
}

// arrived notes how long a scaler that was requeued has taken to ask.
func (b *Budget) arrived(now time.Time, e *entry) {
	if e.wokenAt.IsZero() {
		return
	}
	b.measure(now.Sub(e.wokenAt))
	b.unwake(e)
	e.wokenAt = time.Time{}
}

// measure notes how long a scaler has taken to ask.
func (b *Budget) measure(took time.Duration) {
	before := b.delay.ahead
	b.delay.measure(took)
	if b.delay.ahead != before {
		b.refileAll()
	}
}

// setWant notes what a scaler that is there wants. It waits in line or on the shortlist then.
func (b *Budget) setWant(e *entry, want Want) {
	switch {
	case e.place == onShortlist && e.pool == common:
		b.shortlist.Delete(e)
		e.want, e.rank.want = want, want
		b.shortlist.ReplaceOrInsert(e)
		return
	case e.place == onShortlist:
		b.unlist(e) // It may be no Emergency any more.
	case e.place == inLine && e.want == want:
		return
	case e.place == inLine:
		b.leaveLine(e)
	}
	e.want = want
	b.joinLine(e)
}

// poolFor says which free slot a scaler that is there takes.
func (b *Budget) poolFor(e *entry) (from pool, ok bool) {
	if b.slots[common].used < b.changes && e.in.slots[common].used < e.in.limit && (e.place == onShortlist || b.displaces(e)) {
		return common, true
	}
	if e.want.Class == Emergency && b.reserveHasRoom(b.slots[reserve].used, e.in.slots[reserve].used) {
		return reserve, true
	}
	return 0, false
}

// displaces reports whether a scaler that is there is better than the last one of the shortlist,
// which then waits in line again.
func (b *Budget) displaces(e *entry) bool {
	last, ok := b.shortlist.Max()
	if !ok {
		return true
	}
	if b.rankOf(e).compare(last.rank) > 0 {
		return false
	}
	b.unlist(last)
	b.joinLine(last)
	return true
}

// grant gives the scaler a slot.
func (b *Budget) grant(e *entry, from pool) {
	b.slots[from].used++
	e.in.slots[from].used++
	of := b.changing[e.key]
	of[from]++
	b.changing[e.key] = of
	b.remove(e)
}

// Done ends a granted change, successful or not.
func (b *Budget) Done(now time.Time, scaler types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from, ok := b.end(scaler)
	if !ok {
		return
	}
	until := now.Add(b.limits.Window)
	if n := len(b.cooling); n > 0 && until.Before(b.cooling[n-1].until) {
		until = b.cooling[n-1].until // Concurrent calls keep the list sorted by the later time.
	}
	b.cooling = append(b.cooling, cooling{b.line.namespaces[scaler.Namespace], from, until})
	b.notify()
}

// Return ends a granted change that is known not to have happened, and frees its slot.
func (b *Budget) Return(scaler types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from, ok := b.end(scaler); ok {
		b.free(b.line.namespaces[scaler.Namespace], from)
		b.notify()
	}
}

// end ends a granted change. It returns false if there is none.
func (b *Budget) end(scaler types.NamespacedName) (from pool, ok bool) {
	of := b.changing[scaler]
	switch {
	case of[common] > 0:
		from = common
	case of[reserve] > 0:
		from = reserve
	default:
		return 0, false
	}
	of[from]--
	b.changing[scaler] = of
	if of == (granted{}) {
		delete(b.changing, scaler)
	}
	return from, true
}

// free frees a slot.
func (b *Budget) free(in *namespace, from pool) {
	b.slots[from].used--
	in.slots[from].used--
	b.refile(in)
}

// Leave removes the scaler from the queue.
func (b *Budget) Leave(scaler types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[scaler]; e != nil {
		b.remove(e)
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
	b.fill(now)
	b.wake(now)
	requeue, b.requeue = b.requeue, nil
	if len(b.entries) == 0 {
		return requeue, at
	}
	if len(b.cooling) > 0 {
		at = b.cooling[0].until
	}
	for _, e := range b.woken {
		if late := e.wokenAt.Add(b.delay.patience()); at.IsZero() || late.Before(at) {
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
	return len(b.entries)
}

func (b *Budget) notify() {
	if len(b.entries) == 0 {
		return
	}
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// expire frees the slots whose window is over. Scalers that were requeued and do not come lose
// their place.
func (b *Budget) expire(now time.Time) {
	for len(b.cooling) > 0 && !now.Before(b.cooling[0].until) {
		b.free(b.cooling[0].in, b.cooling[0].pool)
		b.cooling = b.cooling[1:]
	}
	for i := len(b.woken) - 1; i >= 0; i-- {
		e := b.woken[i]
		waited := now.Sub(e.wokenAt)
		if waited < b.delay.patience() {
			continue
		}
		b.measure(waited) // It takes at least that long.
		b.unwake(e)
		if e.place == onShortlist {
			b.unlist(e)
			e.place = absent
		}
	}
}

// fill moves the first of the line to the shortlist.
func (b *Budget) fill(now time.Time) {
	for b.slots[common].taken() < b.withAhead(b.changes) {
		e, turn := b.first(now)
		if e == nil {
			break
		}
		b.line.lastWasOldest, e.in.lastWasOldest = turn.ofAll, turn.ofNamespace
		b.list(e, common, turn.ofNamespace)
	}
	for {
		e := b.line.firstEmergency()
		if e == nil || !b.reserveHasRoom(b.slots[reserve].taken(), e.in.slots[reserve].taken()) {
			return
		}
		b.list(e, reserve, false)
		b.call(now, e)
	}
}

// withAhead is how many scalers use a limit or are on the shortlist: as many as the limit
// allows, and those for the slots that will be freed until a scaler comes.
func (b *Budget) withAhead(limit int) int {
	return limit + int(float64(limit)*b.delay.ahead.Seconds()/b.limits.Window.Seconds())
}

// list moves a scaler from the line to the shortlist. byAge says that it is there because it has
// waited the longest.
func (b *Budget) list(e *entry, from pool, byAge bool) {
	r := b.rankOf(e)
	b.leaveLine(e)
	e.place, e.pool, e.rank = onShortlist, from, r
	e.rank.byAge = byAge
	b.slots[from].listed++
	e.in.slots[from].listed++
	b.shortlist.ReplaceOrInsert(e)
	b.refile(e.in)
}

// unlist removes a scaler from the shortlist.
func (b *Budget) unlist(e *entry) {
	b.shortlist.Delete(e)
	b.slots[e.pool].listed--
	e.in.slots[e.pool].listed--
	b.refile(e.in)
}

// wake requeues the first scalers of the shortlist, one for each free slot. More than a few
// would only delay each other, and all that the queue has besides.
func (b *Budget) wake(now time.Time) {
	looked := 0 // Most of those that are not requeued are in namespaces without a free slot.
	b.shortlist.Ascend(func(e *entry) bool {
		looked++
		if len(b.woken) >= b.limits.wakes() || looked > mostLooks || b.slots[common].used+len(b.woken) >= b.changes {
			return false
		}
		if e.wokenAt.IsZero() && e.in.slots[common].used+e.in.woken < e.in.limit {
			b.call(now, e)
		}
		return true
	})
}

// call requeues a scaler.
func (b *Budget) call(now time.Time, e *entry) {
	if !e.wokenAt.IsZero() {
		return
	}
	e.wokenAt = now
	e.in.woken++
	b.woken = append(b.woken, e)
	b.requeue = append(b.requeue, e.key)
}

// unwake notes that a scaler that was requeued is not expected any more.
func (b *Budget) unwake(e *entry) {
	if i := slices.Index(b.woken, e); i >= 0 {
		b.woken = slices.Delete(b.woken, i, i+1)
		e.in.woken--
	}
	b.requeue = slices.DeleteFunc(b.requeue, func(key types.NamespacedName) bool { return key == e.key })
}

// remove removes a scaler that waits.
func (b *Budget) remove(e *entry) {
	switch e.place {
	case inLine:
		b.leaveLine(e)
	case onShortlist:
		b.unlist(e)
	case absent:
	}
	b.unwake(e)
	delete(b.entries, e.key)
	if len(b.entries) == 0 {
		b.delay = delay{} // Nothing is sorted by it.
	}
	e.in.waiting--
	b.refile(e.in)
}
