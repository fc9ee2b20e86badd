// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// classQueue is the workqueue of client-go with another order, behind the interface of
// controller-runtime's priority queue. Delays, retries, deduplication and metrics are those of the
// workqueue.
//
// A request that is added again before it is served is served once, with the highest of its classes.
type classQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	ready *readyQueue
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = (*classQueue)(nil)

func newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	order := newOrder()
	ready := &readyQueue{order: order, Typed: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: order})}
	return &classQueue{
		ready: ready,
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: ready}),
		}),
	}
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *classQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	class := classOf(o.Priority)
	for _, request := range requests {
		switch {
		case o.RateLimited:
			q.ready.delayed.raise(request, class)
			q.TypedRateLimitingInterface.AddRateLimited(request)
		case o.After > 0:
			q.ready.delayed.raise(request, class)
			q.TypedRateLimitingInterface.AddAfter(request, o.After)
		default:
			q.ready.add(request, class)
		}
	}
}

// Add implements workqueue.TypedInterface.
func (q *classQueue) Add(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, request)
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *classQueue) AddAfter(request reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, request)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *classQueue) AddRateLimited(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request)
}

// Get implements workqueue.TypedInterface.
func (q *classQueue) Get() (request reconcile.Request, shutdown bool) {
	request, _, shutdown = q.GetWithPriority()
	return request, shutdown
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *classQueue) GetWithPriority() (request reconcile.Request, priority int, shutdown bool) {
	if request, shutdown = q.ready.Get(); shutdown {
		return request, 0, true
	}
	return request, *q.ready.order.served(request).Priority(), false
}

// readyQueue is the workqueue of the requests that need not wait any longer.
type readyQueue struct {
	*workqueue.Typed[reconcile.Request]
	order *order
	// delayed has the classes of requests whose time has not come.
	delayed marks
}

// Add adds a request whose delay is over.
func (q *readyQueue) Add(request reconcile.Request) { q.add(request, q.delayed.take(request)) }

func (q *readyQueue) add(request reconcile.Request, class Class) {
	q.order.announce(request, class)
	q.Typed.Add(request)
}
