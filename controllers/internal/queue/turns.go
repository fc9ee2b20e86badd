// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newQueue is the workqueue of client-go with another order: namespaces take turns. Delays,
// retries, deduplication and metrics are those of the library.
func newQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name: name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{
				Name:  name,
				Queue: newTurns(),
			}),
		}),
	})
}

// turns orders requests by round-robin over their namespaces, and first in, first out within a
// namespace. The n-th request of a namespace is served after at most n requests of each other
// namespace, however many of those wait.
//
// The workqueue serializes all calls, and never pushes a request that waits already.
type turns struct {
	// namespaces are those with a waiting request, in the order of their next turns.
	namespaces workqueue.Queue[string]
	// waiting are the requests of each of these namespaces.
	waiting map[string]workqueue.Queue[reconcile.Request]
	// requests is the number of waiting requests of all namespaces.
	requests int
}

var _ workqueue.Queue[reconcile.Request] = (*turns)(nil)

func newTurns() *turns {
	return &turns{namespaces: workqueue.DefaultQueue[string](), waiting: map[string]workqueue.Queue[reconcile.Request]{}}
}

// Touch implements workqueue.Queue: a request that is added again keeps its place.
func (t *turns) Touch(reconcile.Request) {}

// Push implements workqueue.Queue. The first request of a namespace gets the last turn.
func (t *turns) Push(request reconcile.Request) {
	of := t.waiting[request.Namespace]
	if of == nil {
		of = workqueue.DefaultQueue[reconcile.Request]()
		t.waiting[request.Namespace] = of
		t.namespaces.Push(request.Namespace)
	}
	of.Push(request)
	t.requests++
}

// Len implements workqueue.Queue.
func (t *turns) Len() int { return t.requests }

// Pop implements workqueue.Queue: it serves the next namespace, which then gets the last turn.
func (t *turns) Pop() reconcile.Request {
	namespace := t.namespaces.Pop()
	of := t.waiting[namespace]
	request := of.Pop()
	t.requests--
	if of.Len() > 0 {
		t.namespaces.Push(namespace)
	} else {
		delete(t.waiting, namespace)
	}
	return request
}
