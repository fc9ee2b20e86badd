// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// apply is a phase: it takes the plan's step. An edit of the Deployment is reported in the status first.
func (r *Reconciler) apply(ctx context.Context, s *scope) (done bool, err error) {
	r.chooseEvicted(ctx, s)
	ended, err := r.permit(s)
	if err != nil {
		log.FromContext(ctx).V(1).Info("Step not taken", "reason", err.Error())
		return false, s.answer(err)
	}
	if r.reportsFirst(s) {
		ended(errStaleCache) // The slot is free until the next reconcile.
		s.plan = plan.NotTaken(s.plan, s.observation.situation, s.policy, s.now, plan.Obstacle{})
		s.again(staleCacheRetry)
		return false, nil
	}
	if err = r.saveNow(ctx, s); err == nil {
		err = r.take(ctx, s)
	}
	ended(err)
	return false, s.answer(err)
}

// reportsFirst reports whether the status reports an edit before a pod is resized, which may take two slow writes. This happens
// once per edit. An OOM-killed or starting pod does not wait for it.
func (r *Reconciler) reportsFirst(s *scope) (first bool) {
	step, isResize := s.plan.Step.(plan.Resize)
	if !isResize || step.Boost || !s.isEdited() || plan.WantOf(s.plan, s.observation.situation).Class == budget.Emergency {
		return false
	}
	version := s.scaler.ResourceVersion
	r.memory.change(client.ObjectKeyFromObject(s.scaler), func(m *memory) { first, m.reportedFirst = m.reportedFirst != version, version })
	return first
}

// isEdited reports whether the status is about an older generation of the scaler or its Deployment.
func (s *scope) isEdited() bool {
	before := &s.scaler.Status
	return before.Target != nil && (before.ObservedGeneration != s.scaler.Generation || before.Target.Generation != s.observation.situation.Deployment.Generation)
}

// take takes the plan's step.
func (r *Reconciler) take(ctx context.Context, s *scope) error {
	switch step := s.plan.Step.(type) {
	case plan.Resize:
		return r.resize(ctx, s, step)
	case plan.TakeOver:
		return r.takeOver(ctx, s, step)
	case plan.Rewrite:
		return r.rewrite(ctx, s, step)
	case plan.Evict:
		return r.evict(ctx, s, step)
	case plan.Restore:
		if err := r.restore(ctx, s.scaler, s.status.OriginalResources); err != nil {
			return err
		}
		s.status.OriginalResources = nil
		s.again(staleCacheRetry)
	case plan.Record:
		s.again(staleCacheRetry)
	default:
		log.FromContext(ctx).V(1).Info("Nothing to change", "reason", s.plan.Verdict.Reason, "message", s.plan.Verdict.Message)
	}
	return nil
}

// causeOf is the reason for a step, for the log.
func causeOf(p plan.Plan) string {
	resize, _ := p.Step.(plan.Resize)
	switch {
	case resize.SetsBack:
		return v1beta1.ReasonNodeCapacity
	case resize.Boost, p.Decision == nil:
		return v1beta1.ReasonBoosted
	}
	return p.Decision.Reason
}

// actionOutcome names the outcome of a failed write, for the metric.
func actionOutcome(err error) string {
	switch {
	case isConflict(err):
		return "conflict"
	case obstacleTo(err).Exists():
		return obstacleTo(err).Reason
	}
	return "failed"
}
