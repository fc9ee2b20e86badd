// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"cmp"
	"math"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"
)

// The line is the order of the scalers that wait.
//
// A higher class goes first. Within a class, namespaces below their share go first (the slots
// divided by the namespaces that use or want some), then the greatest benefit, then the longest
// wait. A scaler that has waited for five windows is overdue. Of two slots, at least one goes to
// the longest overdue scaler, both in total and in each namespace. Higher classes therefore
// delay a scaler but cannot starve it: if S scalers, R of them in its namespace, have waited
// longer, it is first within 5 + 2(S/Changes + R/PerNamespace + 2) windows.
//
// Each namespace sorts its scalers. The line sorts the namespaces that have room, by the best
// scaler of each and by the oldest.

// overdueWindows is the number of windows after which a wait is overdue.
const overdueWindows = 5

// degree is that of the B-trees: half of the items of a node.
const degree = 16

// rank is what decides between two scalers.
type rank struct {
	byAge      bool // it was its turn because it has waited the longest
	want       Want
	belowShare bool // its namespace is below its share
	arrival    uint64
}

// compare returns a negative number if a goes first. Only equal arrivals are equal.
func (a rank) compare(b rank) int {
	if a.byAge || b.byAge {
		if a.byAge != b.byAge {
			return trueFirst(a.byAge)
		}
		return cmp.Compare(a.arrival, b.arrival)
	}
	if a.belowShare != b.belowShare && a.want.Class == b.want.Class {
		return trueFirst(a.belowShare)
	}
	return cmp.Or(
		cmp.Compare(b.want.Class, a.want.Class),
		cmp.Compare(b.want.Benefit, a.want.Benefit),
		cmp.Compare(a.arrival, b.arrival),
	)
}

func trueFirst(a bool) int {
	if a {
		return -1
	}
	return 1
}

// namespace is a namespace that uses or wants slots.
type namespace struct {
	name    string
	limit   int
	slots   [pools]use
	waiting int // scalers that wait, wherever they are
	woken   int
	// ranked and byAge are the scalers in line, by rank and by arrival.
	ranked, byAge *btree.BTree[*entry]
	// lastWasOldest is true if its last place on the shortlist went to its longest overdue scaler.
	lastWasOldest bool
	filed         filed
}

// filed is what the line has sorted a namespace by. The zero value is a namespace that is not in
// it.
type filed struct {
	isFiled bool
	hasRoom bool
	best    rank
	oldest  uint64 // arrival
	taken   [pools]int
}

type line struct {
	namespaces map[string]*namespace
	// share is the number of slots up to which a namespace is below its share.
	share int
	// ranked and byAge are the namespaces that have a scaler in line and room for it.
	ranked, byAge *btree.BTree[*namespace]
	// emergencies are those with an Emergency, by their use of the reserve.
	emergencies *btree.BTree[*namespace]
	// byUse are all with a scaler in line, by the slots that count for their share.
	byUse *btree.BTree[*namespace]
	// lastWasOldest is true if the last place on the shortlist went to the longest overdue scaler.
	lastWasOldest bool
}

func newLine() line {
	return line{
		namespaces: map[string]*namespace{},
		ranked:     btree.New(degree, func(a, b *namespace) bool { return a.filed.best.compare(b.filed.best) < 0 }),
		byAge:      btree.New(degree, func(a, b *namespace) bool { return a.filed.oldest < b.filed.oldest }),
		emergencies: btree.New(degree, func(a, b *namespace) bool {
			return cmp.Or(cmp.Compare(a.filed.taken[reserve], b.filed.taken[reserve]), a.filed.best.compare(b.filed.best)) < 0
		}),
		byUse: btree.New(degree, func(a, b *namespace) bool {
			return cmp.Or(cmp.Compare(a.filed.taken[common], b.filed.taken[common]), cmp.Compare(a.name, b.name)) < 0
		}),
	}
}

// namespace returns a namespace, a new one if it neither uses nor wants slots.
func (b *Budget) namespace(name string) *namespace {
	in := b.line.namespaces[name]
	if in == nil {
		in = &namespace{
			name:   name,
			limit:  b.limitOf(name),
			ranked: btree.New(degree, func(a, b *entry) bool { return a.rank.compare(b.rank) < 0 }),
			byAge:  btree.New(degree, func(a, b *entry) bool { return a.arrival < b.arrival }),
		}
		b.line.namespaces[name] = in
		b.adjustShare()
	}
	return in
}

// rankOf is the rank of a scaler in line.
func (b *Budget) rankOf(e *entry) rank {
	return rank{want: e.want, arrival: e.arrival, belowShare: e.in.slots[common].taken() < b.line.share}
}

// joinLine adds a scaler to the line.
func (b *Budget) joinLine(e *entry) {
	e.place = inLine
	e.rank = rank{want: e.want, arrival: e.arrival} // within its namespace
	e.in.ranked.ReplaceOrInsert(e)
	e.in.byAge.ReplaceOrInsert(e)
	b.refile(e.in)
}

// leaveLine removes a scaler from the line.
func (b *Budget) leaveLine(e *entry) {
	e.in.ranked.Delete(e)
	e.in.byAge.Delete(e)
	b.refile(e.in)
}

// turn reports whether a scaler is the longest overdue one in line, of all that have room and of its
// namespace.
type turn struct{ ofAll, ofNamespace bool }

// first is the first scaler in line; nil if there is none.
func (b *Budget) first(now time.Time) (e *entry, t turn) {
	best, ok := b.line.ranked.Min()
	if !ok {
		return nil, turn{}
	}
	e, _ = best.ranked.Min()
	oldestNamespace, _ := b.line.byAge.Min()
	oldest, _ := oldestNamespace.byAge.Min()
	if b.isOverdue(oldest, now) && !b.line.lastWasOldest {
		e = oldest
	} else if own, _ := best.byAge.Min(); b.isOverdue(own, now) && !best.lastWasOldest {
		e = own
	}
	own, _ := e.in.byAge.Min()
	return e, turn{ofAll: e == oldest && b.isOverdue(e, now), ofNamespace: e == own && b.isOverdue(e, now)}
}

func (b *Budget) isOverdue(e *entry, now time.Time) bool {
	return now.Sub(e.since) >= overdueWindows*b.limits.Window
}

// firstEmergency is the first Emergency in line of the namespace that uses the least of the
// reserve; nil if there is none.
func (l *line) firstEmergency() *entry {
	in, ok := l.emergencies.Min()
	if !ok {
		return nil
	}
	e, _ := in.ranked.Min()
	return e
}

// refile sorts a namespace into the line again after a change, and forgets it if it neither uses
// nor wants slots.
func (b *Budget) refile(in *namespace) {
	var now filed
	if best, ok := in.ranked.Min(); ok {
		oldest, _ := in.byAge.Min()
		now = filed{
			isFiled: true,
			hasRoom: in.slots[common].taken() < b.withAhead(in.limit),
			best:    b.rankOf(best),
			oldest:  oldest.arrival,
			taken:   [pools]int{in.slots[common].taken(), in.slots[reserve].taken()},
		}
	}
	if now != in.filed {
		b.line.remove(in)
		in.filed = now
		b.line.add(in)
	}
	if in.slots == ([pools]use{}) && in.waiting == 0 && b.line.namespaces[in.name] == in {
		delete(b.line.namespaces, in.name)
		b.adjustShare()
	}
}

func (l *line) remove(in *namespace) {
	if !in.filed.isFiled {
		return
	}
	if in.filed.hasRoom {
		l.ranked.Delete(in)
		l.byAge.Delete(in)
	}
	if in.filed.best.want.Class == Emergency {
		l.emergencies.Delete(in)
	}
	l.byUse.Delete(in)
}

func (l *line) add(in *namespace) {
	if !in.filed.isFiled {
		return
	}
	if in.filed.hasRoom {
		l.ranked.ReplaceOrInsert(in)
		l.byAge.ReplaceOrInsert(in)
	}
	if in.filed.best.want.Class == Emergency {
		l.emergencies.ReplaceOrInsert(in)
	}
	l.byUse.ReplaceOrInsert(in)
}

// adjustShare computes the share of a namespace, and sorts those again that are below it now, or
// not any more.
func (b *Budget) adjustShare() {
	before := b.line.share
	b.line.share = max(1, b.changes/max(1, len(b.line.namespaces)))
	from := &namespace{filed: filed{taken: [pools]int{min(before, b.line.share)}}}
	to := &namespace{filed: filed{taken: [pools]int{max(before, b.line.share)}}}
	b.refileRange(from, to)
}

// refileAll sorts all namespaces again.
func (b *Budget) refileAll() {
	b.refileRange(&namespace{}, &namespace{filed: filed{taken: [pools]int{math.MaxInt}}})
}

func (b *Budget) refileRange(from, to *namespace) {
	var found []*namespace
	b.line.byUse.AscendRange(from, to, func(in *namespace) bool { found = append(found, in); return true })
	for _, in := range found {
		b.refile(in)
	}
}
