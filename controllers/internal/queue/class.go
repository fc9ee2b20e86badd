// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Class is the urgency of a request, and its priority in the queue. Higher classes are served first.
type Class int

// The classes, by trigger of the reconcile. The library uses two of them: no priority is Edit, and objects in the
// initial list of a watch have the lowest priority, Routine.
const (
	// Routine requests may wait a little: collected usage, resyncs, late retries, and the initial lists
	// of watches.
	Routine Class = handler.LowPriority
	// Workload is a change around a scaler: of its Deployment, its pods, an HPA or a quota.
	Workload Class = -50
	// Edit is a change by a user to the object itself.
	Edit Class = 0
	// crowd is an urgent request of a namespace that has many of them.
	crowd Class = 50
	// Urgent is an OOM kill, or a slot of the change budget that waits to be used.
	Urgent Class = 100
)

// String is the name of the class in metrics.
func (c Class) String() string {
	switch {
	case c >= crowd:
		return "Urgent"
	case c >= Edit:
		return "Edit"
	case c >= Workload:
		return "Workload"
	}
	return "Routine"
}

// Priority returns the class as controller-runtime expects it.
func (c Class) Priority() *int { return new(int(c)) }

// In returns the handler, for requests of that class. Its watch's initial list stays Routine.
func In(class Class, h handler.EventHandler) handler.EventHandler {
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q requests) { h.Create(ctx, e, InClass(q, class)) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q requests) { h.Update(ctx, e, InClass(q, class)) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q requests) { h.Delete(ctx, e, InClass(q, class)) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q requests) { h.Generic(ctx, e, InClass(q, class)) },
	}
}

// requests is the queue that handlers get.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// InClass is the queue, for requests of that class. A queue without priorities, as tests have it,
// stays as it is.
func InClass(q workqueue.TypedRateLimitingInterface[reconcile.Request], class Class) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	prioritized, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok {
		return q
	}
	return &oneClass{prioritized, class}
}

// oneClass is a queue whose requests have a class unless they are added with another one.
type oneClass struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	class Class
}

// Add implements workqueue.TypedInterface.
func (q *oneClass) Add(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, request)
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *oneClass) AddAfter(request reconcile.Request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, request)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *oneClass) AddRateLimited(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request)
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *oneClass) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	if o.Priority == nil {
		o.Priority = q.class.Priority()
	}
	q.PriorityQueue.AddWithOpts(o, requests...)
}
