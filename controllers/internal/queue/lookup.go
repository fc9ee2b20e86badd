// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// firstLookup and longestLookup bound the delay after a look-up that failed, which doubles.
const firstLookup, longestLookup = 100 * time.Millisecond, 30 * time.Second

// Find finds the requests that an event leads to.
type Find func(context.Context) ([]reconcile.Request, error)

// LookUp adds the requests that are found. A look-up that fails is repeated until it succeeds or the context ends, so that
// the event that led to it is not lost.
func LookUp(ctx context.Context, find Find, add func(reconcile.Request)) {
	err := lookUp(ctx, find, add)
	if err == nil {
		return
	}
	go func() {
		for delay := firstLookup; err != nil && ctx.Err() == nil; delay = min(2*delay, longestLookup) {
			log.FromContext(ctx).Error(err, "Cannot look up what an event concerns", "retryAfter", delay.String())
			select {
			case <-ctx.Done():
			case <-clock.RealClock{}.After(delay):
				err = lookUp(ctx, find, add)
			}
		}
	}()
}

func lookUp(ctx context.Context, find Find, add func(reconcile.Request)) error {
	found, err := find(ctx)
	for _, request := range found {
		add(request)
	}
	return err
}

// Mapped returns the handler that adds the requests found for an object; for an update, for the old and the new one. It is
// EnqueueRequestsFromMapFunc of controller-runtime with LookUp.
func Mapped(find func(context.Context, client.Object) ([]reconcile.Request, error)) handler.EventHandler {
	enqueue := func(ctx context.Context, q requests, objects ...client.Object) {
		LookUp(ctx, func(ctx context.Context) (all []reconcile.Request, err error) {
			for _, object := range objects {
				found, failed := find(ctx, object)
				all, err = append(all, found...), errors.Join(err, failed)
			}
			// A repeat would be reconciled twice if a worker takes the first one at once.
			seen := sets.New[reconcile.Request]()
			return slices.DeleteFunc(all, func(one reconcile.Request) bool {
				isRepeat := seen.Has(one)
				seen.Insert(one)
				return isRepeat
			}), err
		}, q.Add)
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q requests) { enqueue(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q requests) { enqueue(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q requests) { enqueue(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q requests) { enqueue(ctx, q, e.Object) },
	}
}
