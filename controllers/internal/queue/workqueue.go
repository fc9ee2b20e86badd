// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
)

// maxFirst is the number of urgent requests of a namespace that are served first.
const maxFirst = 8

// longWait is the wait of a routine request that is logged. The end is logged once a request has waited for half of that.
const longWait = time.Minute

var waits = metrics.NewHistogram(metrics.Metric{
	Name:      "verticalscaler_queue_wait_seconds",
	Help:      "How long requests to reconcile have waited in the queue of a controller, by class: Urgent, Edit, Workload, Routine. Delays that a controller asks for do not count.",
	Labels:    []string{"controller", "class"},
	Stability: metrics.Alpha,
}, 0.01, 0.1, 1, 10, 60, 600)

// fairQueue is the priority queue of controller-runtime. It limits the urgent requests of a namespace that go
// first: thousands of OOM kills in one namespace do not delay those in another. It also measures waits by
// class.
type fairQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	name    string
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	log     logr.Logger

	mu sync.Mutex
	// first are the waiting urgent requests that are not in the crowd, by namespace.
	first map[string]sets.Set[reconcile.Request]
	// waiting are all requests that wait.
	waiting map[reconcile.Request]waiting
	// isLate is true while routine requests wait for longer than longWait.
	isLate bool
}

// waiting is a request in the queue: its class, and since when it has waited for its turn in that class, which may be later.
type waiting struct {
	class Class
	since time.Time
}

func newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q := &fairQueue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter }),
		name:          name, limiter: limiter, log: log.Log.WithName("queue").WithValues("controller", name),
		first: map[string]sets.Set[reconcile.Request]{}, waiting: map[reconcile.Request]waiting{},
	}
	return InClass(q, Edit)
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *fairQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	for _, request := range requests {
		one, class := o, Class(ptr.Deref(o.Priority, int(Edit)))
		if o.RateLimited {
			one.After, one.RateLimited = q.limiter.When(request), false
			if o.After > 0 {
				one.After = min(one.After, o.After)
			}
		}
		q.mu.Lock()
		if class >= crowd {
			class = q.urgency(request)
		}
		q.note(request, class, clock.RealClock{}.Now(), one.After)
		q.mu.Unlock()
		one.Priority = class.Priority()
		q.PriorityQueue.AddWithOpts(one, request)
	}
}

// note notes that a request waits, as the library does: a higher class is another queue, and the earlier time counts.
func (q *fairQueue) note(request reconcile.Request, class Class, now time.Time, after time.Duration) {
	next := waiting{class, now.Add(after)}
	if was, ok := q.waiting[request]; ok {
		next.class = max(class, was.class)
		if was.since.Before(next.since) {
			next.since = was.since
		}
		if class > was.class && next.since.Before(now) {
			next.since = now
		}
	}
	q.waiting[request] = next
}

// urgency is Urgent for the first requests of a namespace, and crowd for the others.
func (q *fairQueue) urgency(request reconcile.Request) Class {
	first := q.first[request.Namespace]
	if first == nil {
		first = sets.New[reconcile.Request]()
		q.first[request.Namespace] = first
	}
	if len(first) >= maxFirst && !first.Has(request) {
		return crowd
	}
	first.Insert(request)
	return Urgent
}

// Get implements workqueue.TypedInterface.
func (q *fairQueue) Get() (request reconcile.Request, shutdown bool) {
	request, _, shutdown = q.GetWithPriority()
	return request, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *fairQueue) GetWithPriority() (request reconcile.Request, priority int, shutdown bool) {
	request, priority, shutdown = q.PriorityQueue.GetWithPriority()
	q.mu.Lock()
	defer q.mu.Unlock()
	if first := q.first[request.Namespace]; first.Delete(request).Len() == 0 {
		delete(q.first, request.Namespace)
	}
	if was, ok := q.waiting[request]; ok && !shutdown {
		q.measure(was.class, clock.RealClock{}.Since(was.since))
	}
	delete(q.waiting, request)
	return request, priority, shutdown
}

// measure measures a wait. Long waits of routine requests are logged once, and so is their end.
func (q *fairQueue) measure(class Class, wait time.Duration) {
	waits.WithLabelValues(q.name, class.String()).Observe(wait.Seconds())
	switch {
	case class != Routine:
	case wait > longWait && !q.isLate:
		q.isLate = true
		q.log.Info("Warning: routine reconciles wait for more than a minute. The API server answers slowly, or the operator needs more CPU",
			"waited", wait.Round(time.Second).String(), "averageRequestDuration", metrics.Latency.Mean().Round(time.Millisecond).String())
	case wait < longWait/2 && q.isLate:
		q.isLate = false
		q.log.Info("Routine reconciles do not wait for long anymore", "waited", wait.Round(time.Second).String())
	}
}
