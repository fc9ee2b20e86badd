// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// A change needs two permits: that of the freeze switch, which is asked again by the
// client right before the write (freeze.Guard), and a slot of the budget.

// putOff says why a change has to wait although nothing is wrong with it.
type deferral struct{ reason, message string }

func (h *deferral) Error() string { return h.message }

var budgetDeferral = &deferral{v1beta1.ReasonWaitingForBudget, "The change waits for its turn: the operator makes so many changes a minute, and so many in a namespace"}

// putOffBy tells why an error means that a change has to wait; nil if it does not.
func deferralFrom(err error) *deferral {
	var h *deferral
	if errors.As(err, &h) {
		return h
	}
	var frozen *freeze.Error
	if errors.As(err, &frozen) {
		return &deferral{v1beta1.ReasonFrozen, frozen.Why}
	}
	return nil
}

// permit asks for leave to take the plan's step. Where it is given, done must be called
// once the step is taken.
func (r *Reconciler) permit(vs *v1beta1.VerticalScaler, p *scope) (done func(), err error) {
	key := client.ObjectKeyFromObject(vs)
	done = func() {}
	switch p.plan.Step.(type) {
	case nil, plan.Record:
		r.dequeue(key)
		return done, nil
	}
	if why, frozen := r.Freeze.Frozen(vs.Namespace); frozen {
		r.dequeue(key)
		return nil, &deferral{v1beta1.ReasonFrozen, why}
	}
	switch p.plan.Step.(type) {
	case plan.Restore, plan.TakeOver:
		return done, nil // the first asks by itself, the other writes only to the scaler
	}
	return r.slot(vs, plan.WantOf(p.plan, p.observation.situation))
}

// slot asks the budget for one change.
func (r *Reconciler) slot(vs *v1beta1.VerticalScaler, want budget.Want) (done func(), err error) {
	if r.Budget == nil {
		return func() {}, nil
	}
	key := client.ObjectKeyFromObject(vs)
	granted, isNew := r.Budget.Ask(r.Clock.Now(), key, want)
	countAsk(granted, isNew, r.Budget.Waiting())
	if !granted {
		return nil, budgetDeferral
	}
	return func() { r.Budget.Done(r.Clock.Now(), key) }, nil
}

// leave takes the scaler out of the queue for the budget.
func (r *Reconciler) dequeue(scaler client.ObjectKey) {
	if r.Budget != nil {
		r.Budget.Leave(scaler)
		waiting.Set(float64(r.Budget.Waiting()))
	}
}

// wait puts the step off. Nothing is decided: when the turn comes, the newest
// recommendation counts.
func (p *scope) wait(why *deferral) {
	p.plan = p.plan.Postponed(p.observation.situation, why.reason, why.message)
	p.keepsNewPods = true
}

// turns wakes those whose turn in the budget has come.
type budgetSource struct {
	budget *budget.Budget
	clock  clock.WithTicker
}

// Start implements source.Source.
func (t *budgetSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		for {
			wake, at := t.budget.Next(t.clock.Now())
			for _, key := range wake {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
			var after <-chan time.Time
			var timer clock.Timer
			if !at.IsZero() {
				timer = t.clock.NewTimer(at.Sub(t.clock.Now()))
				after = timer.C()
			}
			select {
			case <-ctx.Done():
			case <-t.budget.Changed():
			case <-after:
			}
			if timer != nil {
				timer.Stop()
			}
			if ctx.Err() != nil {
				return
			}
		}
	}()
	return nil
}

// thaws watches the freeze switch and wakes all scalers when it is set anew.
type freezeSource struct {
	freeze  *freeze.Switch
	api     corev1client.ConfigMapsGetter
	scalers client.Reader
	clock   clock.WithTicker
}

// firstLook is how long passes wait for the switch to be known. Later than that they
// say that it is not, and hold changes.
const firstLook = 10 * time.Second

// Start implements source.Source.
func (t *freezeSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return t.freeze.Watch(ctx, t.api, func() {
		var all v1beta1.VerticalScalerList
		if err := t.scalers.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Scalers are not woken by the freeze switch, but by the next resync")
			return
		}
		for i := range all.Items {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	})
}

// WaitForSync implements source.SyncingSource.
func (t *freezeSource) WaitForSync(ctx context.Context) error {
	timer := t.clock.NewTimer(firstLook)
	defer timer.Stop()
	select {
	case <-t.freeze.Known():
	case <-timer.C():
		log.FromContext(ctx).Info("It is not known whether changes are frozen: nothing is changed until it is", "ConfigMap", t.freeze.ConfigMap)
	case <-ctx.Done():
	}
	return nil
}
