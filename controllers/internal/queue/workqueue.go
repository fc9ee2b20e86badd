// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// maxFirst is how many urgent requests of a namespace are served before the crowd.
const maxFirst = 8

// fairQueue is the priority queue of controller-runtime. It only bounds how many urgent requests of a namespace
// go first: a namespace with thousands of OOM kills does not delay those of another namespace.
type fairQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]

	mu sync.Mutex
	// first are the waiting urgent requests that are not in the crowd, by namespace.
	first map[string]sets.Set[reconcile.Request]
}

func newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return &fairQueue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter }),
		first:         map[string]sets.Set[reconcile.Request]{},
	}
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *fairQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	if o.Priority == nil || *o.Priority < int(crowd) {
		q.PriorityQueue.AddWithOpts(o, requests...)
		return
	}
	for _, request := range requests {
		o.Priority = q.urgency(request).Priority()
		q.PriorityQueue.AddWithOpts(o, request)
	}
}

// urgency is Urgent for the first requests of a namespace, and crowd for the others.
func (q *fairQueue) urgency(request reconcile.Request) Class {
	q.mu.Lock()
	defer q.mu.Unlock()
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
	return request, priority, shutdown
}
