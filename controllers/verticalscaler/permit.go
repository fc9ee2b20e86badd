// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// A change needs the permission of the freeze switch and of the budget. The freeze switch is checked again right
// before each write.

// observePermission is a phase: it reads whether changes are allowed, and whether the API server sizes new pods.
func (r *Reconciler) observePermission(ctx context.Context, s *scope) (done bool, err error) {
	situation := &s.observation.situation
	s.frozen, _ = r.Freeze.Announced(s.scaler.Namespace)
	if why, frozen := r.Freeze.Frozen(s.scaler.Namespace); frozen {
		situation.Frozen = plan.Obstacle{Reason: v1beta1.ReasonFrozen, Message: why}
	}
	situation.IsUnclaimed = scaler.RecordedClaim(s.scaler) != scaler.Claim(s.scaler)
	if s.unreleased != nil {
		situation.Unable = obstacleTo(s.unreleased)
		if situation.Unable.Stalled {
			situation.Unable.Message = "The original values of the former target cannot be restored: " + situation.Unable.Message
		}
	}
	return false, r.observeNewPods(ctx, s)
}

// deferral is the reason why a change must wait although nothing blocks it.
type deferral struct{ reason, message string }

func (d *deferral) Error() string { return d.message }

var budgetDeferral = &deferral{v1beta1.ReasonWaitingForBudget, "The change waits: the operator limits the changes per minute and per namespace"}

// obstacleTo is the obstacle to a change that must wait or that the API server rejects. Other errors have none.
func obstacleTo(err error) plan.Obstacle {
	var why *deferral
	var frozen *freeze.Error
	switch {
	case errors.As(err, &why):
		return plan.Obstacle{Reason: why.reason, Message: why.message}
	case errors.As(err, &frozen):
		return plan.Obstacle{Reason: v1beta1.ReasonFrozen, Message: frozen.Why}
	}
	return stalledBy(apierror.Of(err))
}

// stalledBy is a rejection as an obstacle.
func stalledBy(r apierror.Rejection) plan.Obstacle {
	return plan.Obstacle{Reason: r.Reason, Message: r.Message, Stalled: r.Reason != ""}
}

// isWait reports whether an error only makes a change wait.
func isWait(err error) bool {
	o := obstacleTo(err)
	return o.Exists() && !o.Stalled
}

// answer turns the error of a step into the plan's verdict. It returns any other error for the queue to retry.
func (s *scope) answer(err error) error {
	if err == nil || !s.isPlanned() {
		return err
	}
	o := obstacleTo(err)
	s.plan = plan.NotTaken(s.plan, s.observation.situation, s.policy, s.now, o)
	if o.Exists() {
		return nil
	}
	return err
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
	case plan.Restore, plan.TakeOver:
		return done, nil // restore asks the budget itself, and takeOver writes only to the scaler
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

// countPods sets the number of pods that the scaler may change: the budget grows with them. A
// Deployment that is only rolled out counts as one. Without new information, the last number stays.
func (r *Reconciler) countPods(s *scope) {
	if r.Budget == nil || !s.isPlanned() && s.outcome != settled {
		return
	}
	pods := 0
	switch spec := &s.scaler.Spec; {
	case !s.standing.IsFirst():
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
