// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
)

// pause is the time in which events of a policy become one reconcile.
const pause = time.Second

// requests is the queue of a controller.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// outlet is the queue of a controller, for requests from elsewhere. Before the controller starts, it drops
// them: the controller then starts with all requests there are.
type outlet struct {
	class queue.Class
	after time.Duration
	// all adds what there is when the controller starts.
	all func(ctx context.Context, add func(types.NamespacedName)) error

	mu    sync.RWMutex
	queue requests
	// lookUp adds what is found, at last; nil before the controller starts.
	lookUp func(queue.Find)
}

// Start implements source.Source.
func (o *outlet) Start(ctx context.Context, q requests) error {
	o.mu.Lock()
	o.queue = queue.InClass(q, o.class)
	o.lookUp = func(find queue.Find) {
		queue.LookUp(ctx, clock.RealClock{}, find, func(request reconcile.Request) { o.add(request.NamespacedName) })
	}
	o.mu.Unlock()
	if o.all == nil {
		return nil
	}
	routine := queue.InClass(q, queue.Routine)
	return o.all(ctx, func(key types.NamespacedName) { routine.Add(reconcile.Request{NamespacedName: key}) })
}

// add adds a request.
func (o *outlet) add(key types.NamespacedName) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	switch {
	case o.queue == nil:
	case o.after > 0:
		o.queue.AddAfter(reconcile.Request{NamespacedName: key}, o.after)
	default:
		o.queue.Add(reconcile.Request{NamespacedName: key})
	}
}

// addFound adds the requests that are found. A look-up that fails is repeated while the controller runs.
func (o *outlet) addFound(find queue.Find) {
	o.mu.RLock()
	lookUp := o.lookUp
	o.mu.RUnlock()
	if lookUp != nil {
		lookUp(find)
	}
}
