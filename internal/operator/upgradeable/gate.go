// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upgradeable keeps OLM from replacing the operator in the middle of a step.
//
// While pods are being resized or a Deployment rolls out our sizes, the condition
// Upgradeable of the operator's OperatorCondition is False, and OLM lets the next
// version wait. This spares whoever watches a step the change of the observer. It is
// not needed for safety: a step survives its operator. So a running operator holds
// upgrades for minutes, never for hours; verdict.go has the rules. One that is killed in
// the middle of a step leaves the condition as it is, to be corrected by the next one.
//
// Whoever must upgrade at once overrides the condition in the OperatorCondition's
// spec.overrides.
package upgradeable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

const (
	// leastBackoff and mostBackoff bound the pause after a failed request.
	leastBackoff = time.Second
	mostBackoff  = 5 * time.Minute
	// farewell is how long the last request may take. It is shorter than the time that
	// a lost lease still keeps the next leader out.
	farewell = 3 * time.Second
)

// Setup adds the gate to the manager, if OLM has given the operator an
// OperatorCondition. The namespace is the operator's own, for a process outside of a
// pod; it may be empty.
func Setup(mgr ctrl.Manager, namespace string) error {
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: Scheme()})
	if err != nil {
		return fmt.Errorf("making a client for the OperatorCondition: %w", err)
	}
	condition, err := Open(live, namespace)
	switch {
	case errors.Is(err, ErrNoCondition):
		mgr.GetLogger().V(1).Info("Upgrades are not held: OLM has given the operator no OperatorCondition")
		return nil
	case err != nil:
		// An operator that scales is worth more than one that waits to be upgraded.
		mgr.GetLogger().Error(err, "Upgrades are not held")
		return nil
	}
	return mgr.Add(&Gate{Informers: mgr.GetCache(), Condition: condition, Clock: clock.RealClock{}})
}

// Gate keeps the condition in step with the scalers. It runs on the leader only, and
// asks the API server for nothing while nothing changes. So it does not notice that
// somebody else has changed the condition, or that the OperatorCondition was made anew,
// before it has something new to say: a hold may be lost, and no upgrade is held for it.
type Gate struct {
	// Informers has the one of the scalers.
	Informers cache.Informers
	Condition Condition
	Clock     clock.Clock
}

// NeedLeaderElection says that only the leader knows what is under way.
func (g *Gate) NeedLeaderElection() bool { return true }

// Start runs until the context ends. A request that fails is made again, and never
// ends the operator.
func (g *Gate) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("upgradeable")
	w := &watch{clock: g.Clock, steps: map[types.NamespacedName]seen{}, changed: make(chan struct{}, 1)}
	informer, err := g.Informers.GetInformer(ctx, &v1beta1.VerticalScaler{})
	if err != nil {
		return fmt.Errorf("finding the informer of scalers: %w", err)
	}
	registration, err := informer.AddEventHandler(w)
	if err != nil {
		return fmt.Errorf("watching scalers: %w", err)
	}
	defer informer.RemoveEventHandler(registration) //nolint:errcheck // it ends with the operator in any case
	// A verdict over half of the scalers might let an upgrade through.
	if !toolscache.WaitFor(ctx, "", registration.HasSyncedChecker()) {
		return nil
	}
	r := &run{Gate: g, watch: w, logger: logger}
	for ctx.Err() == nil {
		r.wait(ctx, r.round(ctx))
	}
	r.letGo(ctx)
	return nil
}

// run is the state of a running gate.
type run struct {
	*Gate
	watch  *watch
	logger logr.Logger

	memory memory
	// written is what the API server has, once that is known.
	written answer
	known   bool
	// unsure says that a write has failed, which may have arrived all the same.
	unsure bool
	// backoff is the pause after the last request, if that failed, and retryAt its end.
	backoff time.Duration
	retryAt time.Time
}

// round decides, and writes what is new. It returns when to come again, zero for
// when something happens.
func (r *run) round(ctx context.Context) time.Time {
	now := r.Clock.Now()
	if now.Before(r.retryAt) && !r.known {
		return r.retryAt
	}
	if !r.known {
		recorded, err := r.Condition.Get(ctx)
		if err != nil {
			return r.failed(ctx, err, now)
		}
		r.memory, r.known = remember(recorded, now), true
		r.written = r.memory.said
		r.succeeded()
	}
	var next time.Time
	r.memory, next = verdict(r.memory, r.watch.snapshot(), now)
	said := r.memory.said
	if said == r.written && !r.unsure {
		return next
	}
	if now.Before(r.retryAt) {
		return sooner(next, r.retryAt)
	}
	if err := r.set(ctx, said); err != nil {
		return sooner(next, r.failed(ctx, err, now))
	}
	r.succeeded()
	return next
}

// set writes an answer.
func (r *run) set(ctx context.Context, a answer) error {
	status, put := metav1.ConditionTrue, a
	switch {
	case a.held:
		status = metav1.ConditionFalse
	case a.reason == "":
		put = nothing // a condition that was not there cannot be taken away again
	}
	if err := r.Condition.Set(ctx, status, put.reason, put.message); err != nil {
		r.unsure = true
		return err
	}
	if a.held != r.written.held {
		r.logger.Info("Changed whether OLM may upgrade the operator", "upgradeable", !a.held, "reason", put.reason, "message", put.message)
	}
	r.written, r.unsure = a, false
	return nil
}

func (r *run) failed(ctx context.Context, err error, now time.Time) time.Time {
	r.backoff = min(max(2*r.backoff, leastBackoff), mostBackoff)
	r.retryAt = now.Add(r.backoff)
	if ctx.Err() == nil {
		r.logger.Error(err, "Cannot tell OLM whether it may upgrade the operator", "retryAfter", r.backoff.String())
	}
	return r.retryAt
}

func (r *run) succeeded() { r.backoff, r.retryAt = 0, time.Time{} }

// wait waits until something changes, or until then, unless that is zero.
func (r *run) wait(ctx context.Context, then time.Time) {
	var timeUp <-chan time.Time
	if !then.IsZero() {
		timer := r.Clock.NewTimer(then.Sub(r.Clock.Now()))
		defer timer.Stop()
		timeUp = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-r.watch.changed:
	case <-timeUp:
	}
}

// letGo lets upgrades through at the end: an operator that is gone cannot, and the next
// one holds them again if there is a reason.
func (r *run) letGo(ctx context.Context) {
	if !r.written.held && !r.unsure {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := r.set(ctx, answer{reason: ReasonOperatorStopped, message: "The operator has stopped; a step survives that"}); err != nil {
		r.logger.Error(err, "Cannot let upgrades through; override the condition Upgradeable if one waits")
	}
}

// remember makes a memory of what the API server has.
func remember(recorded *metav1.Condition, now time.Time) memory {
	if recorded == nil {
		return memory{}
	}
	since := earliest(recorded.LastTransitionTime.Time, now)
	m := memory{saidAt: since}
	m.said = answer{held: recorded.Status == metav1.ConditionFalse, reason: recorded.Reason, message: recorded.Message}
	if m.said.held {
		m.heldSince = since
		return m
	}
	m.openedAt = since
	if recorded.Reason == ReasonHeldLongEnough {
		m.openUntil = since.Add(opensFor)
	}
	return m
}

// sooner is the earlier of two times, of which zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	if b.IsZero() {
		return a
	}
	return earliest(a, b)
}

// watch keeps the steps under way. It is told of every scaler by the informer.
type watch struct {
	clock clock.PassiveClock
	// changed receives, without blocking, when the steps have changed.
	changed chan struct{}

	mu    sync.Mutex
	steps map[types.NamespacedName]seen
}

// seen is a step as its scaler's status tells it.
type seen struct {
	step
	// recorded is the status's own time. When two clocks disagree, it may be in the
	// future: the step counts from when it is first seen.
	recorded metav1.Time
}

// OnAdd implements cache.ResourceEventHandler.
func (w *watch) OnAdd(obj any, _ bool) { w.see(obj) }

// OnUpdate implements cache.ResourceEventHandler.
func (w *watch) OnUpdate(_, obj any) { w.see(obj) }

// OnDelete implements cache.ResourceEventHandler.
func (w *watch) OnDelete(obj any) {
	if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if scaler, ok := obj.(*v1beta1.VerticalScaler); ok {
		w.forget(client.ObjectKeyFromObject(scaler))
	}
}

// see takes in a scaler.
func (w *watch) see(obj any) {
	scaler, ok := obj.(*v1beta1.VerticalScaler)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(scaler)
	c := meta.FindStatusCondition(scaler.Status.Conditions, v1beta1.ConditionReconciling)
	if c == nil || c.Status != metav1.ConditionTrue {
		w.forget(key)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.steps[key]; ok && known.recorded.Equal(&c.LastTransitionTime) {
		return
	}
	w.steps[key] = seen{
		step:     step{scaler: key, since: earliest(c.LastTransitionTime.Time, w.clock.Now())},
		recorded: c.LastTransitionTime,
	}
	w.tell()
}

func (w *watch) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.steps[key]; ok {
		delete(w.steps, key)
		w.tell()
	}
}

func (w *watch) tell() {
	select {
	case w.changed <- struct{}{}:
	default: // it will look in any case
	}
}

func (w *watch) snapshot() []step {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]step, 0, len(w.steps))
	for _, s := range w.steps {
		out = append(out, s.step)
	}
	return out
}
