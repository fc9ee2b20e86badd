// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/newpods"
	"github.com/verticalscaler/verticalscaler-operator/controllers/scaleddeployment"
	"github.com/verticalscaler/verticalscaler-operator/controllers/verticalscaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
)

// Operator is one process: the operator's reconcilers, which the world calls one after the other.
type Operator struct {
	Scalers   *verticalscaler.Reconciler
	Owners    *scaleddeployment.Reconciler
	Sizes     *newpods.Reconciler
	Collector *collect.Collector
	// Errors are the errors that reconciles have returned, in order.
	Errors []error

	world *World
	// cache is the operator's cache of the API server; nil if it reads live.
	cache  *view
	wakes  chan event.GenericEvent
	known  map[types.NamespacedName]bool // owners and scalers that it has seen
	again  time.Duration                 // the shortest delay that the last round of reconciles has asked for; 0 for none
	killed bool
}

// manyWakes is more than the scalers of any world.
const manyWakes = 10000

func newOperator(w *World) *Operator {
	o := &Operator{world: w, wakes: make(chan event.GenericEvent, manyWakes), known: map[types.NamespacedName]bool{}}
	c, live := o.client(false), o.client(true)
	o.fill()
	params := w.config.Params()
	histories := &checkpoint.Store{Client: c, Live: live, Params: params.History}
	pods := cached.LivePods{Reader: c}
	o.Collector = &collect.Collector{
		Cached: c, Pods: pods, Source: w.Usage, Histories: histories, Interval: time.Minute, Clock: w.Clock, Params: params, Wake: o.wakes,
	}
	o.Sizes = &newpods.Reconciler{Client: c, Clock: w.Clock}
	o.Scalers = &verticalscaler.Reconciler{
		Client: c, Live: live, Recorder: recorder{w}, Pods: pods, Histories: histories, Usage: o.Collector, Params: params, Clock: w.Clock,
		Ceilings: w.config.Ceilings.Plan(), Metrics: &metrics.Scalers{Detail: w.config.Metrics.Scalers}, Policies: c, NewPodsRefused: o.Sizes.Refused,
		ResyncPeriod: w.config.ResyncPeriod.Duration,
	}
	o.Scalers.Direct()
	o.Owners = &scaleddeployment.Reconciler{Client: c, Live: live, Recorder: recorder{w}, Clock: w.Clock, ResyncPeriod: w.config.ResyncPeriod.Duration}
	return o
}

// kill ends the process: it sends no request any more.
func (o *Operator) kill() error {
	o.killed = true
	return errKilled
}

// fill fills the cache with what there was some rounds ago, if the API server is in memory. A new process reads what
// there is.
func (o *Operator) fill() {
	w := o.world
	if w.api == nil {
		return
	}
	w.views = append(w.views, w.cacheable(w.api.snapshot()))
	if o.cache == nil {
		w.views = w.views[len(w.views)-1:]
	}
	w.views = w.views[max(0, len(w.views)-1-w.Lag):]
	o.cache = w.views[0]
}

// collect makes one round of usage.
func (o *Operator) collect(ctx context.Context) {
	o.fill()
	o.Collector.Collect(ctx)
	for len(o.wakes) > 0 {
		<-o.wakes // every scaler is reconciled anyway
	}
}

// reconcile reconciles all objects of the namespace once.
func (o *Operator) reconcile(ctx context.Context) {
	o.again = 0
	o.fill()
	w := o.world
	var owners v1beta1.ScaledDeploymentList
	var scalers v1beta1.VerticalScalerList
	here := client.InNamespace(w.Namespace)
	for _, list := range []client.ObjectList{&owners, &scalers} {
		must.Succeed(w, o.Scalers.Client.List(ctx, list, here))
	}
	found := map[types.NamespacedName]bool{}
	for _, owner := range owners.Items {
		key := client.ObjectKeyFromObject(&owner)
		found[key], o.known[key] = true, true
		o.call(ctx, o.Owners, key)
	}
	for i := range scalers.Items {
		key := client.ObjectKeyFromObject(&scalers.Items[i])
		found[key], o.known[key] = true, true
		o.Scalers.Saw(&scalers.Items[i])
	}
	for key := range o.known {
		if !found[key] {
			delete(o.known, key)
			o.Scalers.Lost(key)
			o.call(ctx, o.Owners, key)
			o.call(ctx, o.Scalers, key)
		}
	}
	for _, scaler := range scalers.Items {
		o.call(ctx, o.Scalers, client.ObjectKeyFromObject(&scaler))
	}
	o.call(ctx, o.Sizes, types.NamespacedName{Namespace: w.Namespace, Name: v1beta1.NewPodSizesName})
}

// call reconciles one object.
func (o *Operator) call(ctx context.Context, r reconcile.Reconciler, key types.NamespacedName) {
	if o.killed {
		return
	}
	result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: key})
	if err != nil {
		o.Errors = append(o.Errors, fmt.Errorf("reconciling %s: %w", key, err))
		result.RequeueAfter = time.Second // as a queue with back-off does
	}
	if after := result.RequeueAfter; after > 0 && (o.again == 0 || after < o.again) {
		o.again = after
	}
}

// Event is an event that the operator has recorded.
type Event struct {
	UID          types.UID
	Reason, Note string
}

// recorder keeps the operator's events.
type recorder struct{ world *World }

// Eventf implements events.EventRecorder.
func (r recorder) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	e := Event{Reason: reason, Note: fmt.Sprintf(note, args...)}
	if o, ok := regarding.(client.Object); ok {
		e.UID = o.GetUID()
	}
	r.world.events = append(r.world.events, e)
}
