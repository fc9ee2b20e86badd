// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// A change needs the permission of the freeze switch and of the budget. The client checks the
// freeze switch again right before the write (freeze.Guard).

// deferral says why a change must wait although nothing blocks it.
type deferral struct{ reason, message string }

func (h *deferral) Error() string { return h.message }

var budgetDeferral = &deferral{v1beta1.ReasonWaitingForBudget, "The change waits: the operator limits the changes per minute and per namespace"}

// deferralFrom returns why an error makes a change wait; nil if it does not.
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

// permit asks for permission to take the plan's step. The caller must call done after the
// step, with its error.
func (r *Reconciler) permit(s *scope) (done func(error), err error) {
	key := client.ObjectKeyFromObject(s.scaler)
	done = func(error) {}
	switch s.plan.Step.(type) {
	case nil, plan.Record:
		r.dequeue(key)
		return done, nil
	}
	if why, frozen := r.Freeze.Frozen(s.scaler.Namespace); frozen {
		r.dequeue(key)
		return nil, &deferral{v1beta1.ReasonFrozen, why}
	}
	switch s.plan.Step.(type) {
	case plan.Restore, plan.TakeOver:
		return done, nil // restore asks by itself, and takeOver writes only to the scaler
	}
	return r.slot(s.scaler, plan.WantOf(s.plan, s.observation.situation))
}

// slot asks the budget for one change. After a conflict, nothing has changed, and the slot is
// returned: a cache that lags would otherwise use up the budget of its namespace.
func (r *Reconciler) slot(vs *v1beta1.VerticalScaler, want budget.Want) (done func(error), err error) {
	if r.Budget == nil {
		return func(error) {}, nil
	}
	key := client.ObjectKeyFromObject(vs)
	granted, isNew := r.Budget.Ask(r.Clock.Now(), key, want)
	countAsk(granted, isNew, r.Budget.Waiting())
	if !granted {
		return nil, budgetDeferral
	}
	return func(err error) {
		if isConflict(err) {
			r.Budget.Return(key)
			return
		}
		r.Budget.Done(r.Clock.Now(), key)
	}, nil
}

// countPods tells the budget how many pods the scaler may change: the budget grows with them. A
// Deployment that is only rolled out counts as one. While nothing is known, the last number counts.
func (r *Reconciler) countPods(s *scope) {
	if r.Budget == nil || !s.isPlanned() && s.outcome != settled {
		return
	}
	pods := 0
	switch spec := &s.scaler.Spec; {
	case !s.standing.isFirst():
	case scaler.ResizesPods(spec):
		pods = s.plan.Progress.Pods
	case scaler.WritesTemplate(spec):
		pods = min(1, s.plan.Progress.Pods)
	}
	r.Budget.SetPods(client.ObjectKeyFromObject(s.scaler), pods)
	allowed.Set(float64(r.Budget.Limit()))
}

// forgetBudget removes a deleted scaler from the budget.
func (r *Reconciler) forgetBudget(key client.ObjectKey) {
	r.dequeue(key)
	if r.Budget != nil {
		r.Budget.SetPods(key, 0)
	}
}

// dequeue removes the scaler from the queue of the budget.
func (r *Reconciler) dequeue(key client.ObjectKey) {
	if r.Budget != nil {
		r.Budget.Leave(key)
		waiting.Set(float64(r.Budget.Waiting()))
	}
}

// deferBy makes the plan wait. Nothing is decided: when the step may be taken, the newest
// recommendation counts.
func (s *scope) deferBy(why *deferral) {
	if s.postponed == nil {
		s.postponed = s.plan.Decision
	}
	s.plan = s.plan.Postponed(s.observation.situation, why.reason, why.message)
	s.keepsNewPods = true
}
