// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue decides how all controllers queue and retry. Urgent requests are served first, and no object that hangs,
// fails or meets conflicts keeps the others waiting for long. OOM kills in one namespace do not delay those in another.
package queue

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// Deadline is the longest time that one reconcile may take. It has room for one request that
	// is not answered (35 seconds), and for the status that reports it.
	Deadline = time.Minute

	// firstFailure and longestFailure bound the delay after a failed reconcile, which doubles.
	firstFailure, longestFailure = 100 * time.Millisecond, 5 * time.Minute
	// firstConflict and longestConflict bound the delay after a conflict, which doubles: to that of a resync. From silentConflict
	// on, the watch is silent.
	firstConflict, silentConflict, longestConflict = 50 * time.Millisecond, time.Minute, 10 * time.Minute
)

// Options are the options of a controller with that many workers.
func Options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   Deadline,
		NewQueue:                newQueue,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstFailure, longestFailure),
	}
}

// UntilSlot is the time until an object's place in a period, which is a share of it, from 0 to less than 1.
// Places spread periodic work evenly over all objects. A place closer than a tenth of the period counts for the
// next period, so the time is from one tenth of the period to eleven.
func UntilSlot(now time.Time, period time.Duration, share float64) time.Duration {
	place := time.Duration(share * float64(period))
	until := (place - time.Duration(now.UnixNano()%int64(period)) + period) % period
	if until < period/10 {
		until += period
	}
	return until
}

// Conflicts counts the reconciles of an object in a row that found an old cache. The zero value is
// ready for concurrent use.
//
// Our own last write arrives in the cache within milliseconds, so the first retry is soon. A cache
// that stays behind, or another writer of the same object, causes retries less and less often.
type Conflicts struct {
	once sync.Once
	row  workqueue.TypedRateLimiter[types.NamespacedName]
	// silent is true since a silent watch was logged, until it is not anymore.
	silent atomic.Bool
}

// Delay is the time until the next reconcile after a conflict. It is 50 ms after the first in a
// row, and twice as long after each further one, up to 10 minutes. A watch may be silent for longer, which is logged once. Its
// next event triggers a reconcile at once, unless it only shows our own write.
func (c *Conflicts) Delay(object types.NamespacedName) time.Duration {
	delay := c.limiter().When(object)
	if delay >= silentConflict && !c.silent.Swap(true) {
		log.Log.WithName("queue").Info("The cache has been older than the API server for a minute, so writes conflict: a watch is silent, or another "+
			"client keeps writing the object. Each such object is retried after up to 10 minutes, or when it changes",
			"namespace", object.Namespace, "name", object.Name)
	}
	return delay
}

// Forget ends the row of conflicts of an object.
func (c *Conflicts) Forget(object types.NamespacedName) {
	if c.silent.Load() && c.limiter().NumRequeues(object) > 0 {
		c.silent.Store(false)
	}
	c.limiter().Forget(object)
}

func (c *Conflicts) limiter() workqueue.TypedRateLimiter[types.NamespacedName] {
	c.once.Do(func() {
		c.row = workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstConflict, longestConflict)
	})
	return c.row
}
