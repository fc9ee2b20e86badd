// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"container/list"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// patience is how many requests of other classes are served in a row while a class waits. Then the
// class is next. So each class gets about one of eight requests, whatever the others do.
const patience = 7

// order is the order of a workqueue: the highest class first, unless a lower one has waited for too
// long. Within a class, namespaces take turns. Within a namespace, the first request that came is the
// first to be served.
//
// It promises, for any sequence of additions and servings:
//
//   - While no class was passed over patience times in a row, the highest class that waits is next.
//   - While a class waits, at most patience requests of others are served in a row, and one more for
//     each lower class that is late as well. For the highest class, it is only one for each lower class.
//   - In each class, the n-th request of a namespace is served after at most n requests of each other
//     namespace, however many of those wait.
//
// So the n-th request of a namespace, in a class where k namespaces have requests meanwhile, is served as
// one of the next n·k·(patience+3). Ageing counts requests and not seconds: in an overload all requests
// are late, and the latest first would be no order of urgency any more.
//
// The workqueue serializes all calls but those of announce and served. It never pushes a request that
// waits already.
type order struct {
	classes [classes]turns
	// passedOver are, for each class that waits, the requests of others since it was served last.
	passedOver [classes]int
	waiting    map[reconcile.Request]place
	// announced has the classes of requests that will be pushed or touched. The workqueue hands
	// over only the request.
	announced marks
	// popped has the classes of requests that were served, for the same reason.
	popped marks
}

var _ workqueue.Queue[reconcile.Request] = (*order)(nil)

func newOrder() *order { return &order{waiting: map[reconcile.Request]place{}} }

// announce notes the class with which a request is about to be added.
func (o *order) announce(request reconcile.Request, class Class) { o.announced.raise(request, class) }

// served is the class with which a popped request was served.
func (o *order) served(request reconcile.Request) Class { return o.popped.take(request) }

// Push implements workqueue.Queue.
func (o *order) Push(request reconcile.Request) { o.enter(request, o.announced.take(request)) }

// Touch implements workqueue.Queue. A request that is added again with a higher class moves up, behind
// the others of its namespace there. Otherwise it keeps its place.
func (o *order) Touch(request reconcile.Request) {
	class := o.announced.take(request)
	if at, waits := o.waiting[request]; waits && at.class < class {
		o.classes[at.class].remove(at)
		o.enter(request, class)
	}
}

func (o *order) enter(request reconcile.Request, class Class) {
	at := o.classes[class].push(request)
	at.class = class
	o.waiting[request] = at
}

// Len implements workqueue.Queue.
func (o *order) Len() int { return len(o.waiting) }

// Pop implements workqueue.Queue.
func (o *order) Pop() reconcile.Request {
	class := o.next()
	for other := range classes {
		o.passedOver[other]++
		if other == class || o.classes[other].isEmpty() {
			o.passedOver[other] = 0
		}
	}
	request := o.classes[class].pop()
	delete(o.waiting, request)
	o.popped.raise(request, class)
	return request
}

// next is the lowest class that was passed over too often, or else the highest that waits.
func (o *order) next() (class Class) {
	for other := range classes {
		if o.classes[other].isEmpty() {
			continue
		}
		class = other
		if o.passedOver[other] >= patience {
			break
		}
	}
	return class
}

// turns orders requests by round-robin over their namespaces, and first in, first out within a
// namespace. All operations take constant time.
type turns struct {
	// next are the rows in the order of their turns.
	next list.List
	// rows are those with a request, by namespace.
	rows map[string]*row
}

// row is the requests of a namespace, in the order in which they came.
type row struct {
	namespace string
	requests  list.List
	turn      *list.Element
}

// place is where a request waits.
type place struct {
	class Class
	row   *row
	in    *list.Element
}

func (t *turns) isEmpty() bool { return len(t.rows) == 0 }

// push adds a request. The first request of a namespace gets the last turn.
func (t *turns) push(request reconcile.Request) place {
	r := t.rows[request.Namespace]
	if r == nil {
		r = &row{namespace: request.Namespace}
		r.turn = t.next.PushBack(r)
		if t.rows == nil {
			t.rows = map[string]*row{}
		}
		t.rows[r.namespace] = r
	}
	return place{row: r, in: r.requests.PushBack(request)}
}

// pop removes the first request of the next namespace, which then gets the last turn.
func (t *turns) pop() reconcile.Request {
	r := valueOf[*row](t.next.Front())
	first := r.requests.Front()
	t.next.MoveToBack(r.turn)
	t.remove(place{row: r, in: first})
	return valueOf[reconcile.Request](first)
}

// remove removes a request. A namespace without requests is forgotten.
func (t *turns) remove(at place) {
	at.row.requests.Remove(at.in)
	if at.row.requests.Len() == 0 {
		t.next.Remove(at.row.turn)
		delete(t.rows, at.row.namespace)
	}
}

// valueOf is the value of an element of a list that has only such values.
func valueOf[T any](e *list.Element) T {
	value, _ := e.Value.(T)
	return value
}

// marks remember classes of requests. A request that is not known is Routine.
type marks struct {
	mu    sync.Mutex
	known map[reconcile.Request]Class
}

// raise remembers a class unless a higher one is known.
func (m *marks) raise(request reconcile.Request, class Class) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if class <= m.known[request] {
		return
	}
	if m.known == nil {
		m.known = map[reconcile.Request]Class{}
	}
	m.known[request] = class
}

// take returns the class and forgets it.
func (m *marks) take(request reconcile.Request) Class {
	m.mu.Lock()
	defer m.mu.Unlock()
	class := m.known[request]
	delete(m.known, request)
	return class
}
