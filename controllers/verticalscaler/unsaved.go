// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"cmp"
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
)

// The usage history is saved before anything changes, so that a restarted operator knows the basis
// of a change. While the API server rejects the checkpoint, the status reports it, and only urgent
// changes are made: an OOM-killed or starved container does not wait for a record.

// unsavedRetry is the time until a rejected checkpoint is retried. Changes of roles, quotas and
// policies send no event.
const unsavedRetry = 30 * time.Second

// resolves has the advice for a rejected checkpoint, by reason.
var resolves = map[string]string{
	v1beta1.ReasonForbidden:     ". Give the operator the role of its release, which allows verticalscalercheckpoints",
	v1beta1.ReasonQuotaExceeded: ". Raise the ResourceQuota, or remove verticalscalercheckpoints from it",
	v1beta1.ReasonRejected:      ". Make the policy or webhook accept verticalscalercheckpoints of the operator",
}

// failingFor is the time after which failing requests for a checkpoint count as rejected. Most outages of an API server are
// shorter. Webhooks may fail with any error, for ever.
const failingFor = 10 * time.Second

// mayWaitToSave reports whether the history is saved once the budget permits a change of the scaler: while some scalers wait for
// the budget, or the status is to tell an edit first, and for 10 minutes at most.
func (r *Reconciler) mayWaitToSave(s *scope) (may bool) {
	mayWait := s.isEdited() || r.Budget != nil && r.Budget.Waiting() > 0
	r.memory.change(client.ObjectKeyFromObject(s.scaler), func(m *memory) {
		since := cmp.Or(m.unsavedSince, s.now)
		if may = mayWait && m.failingSince.IsZero() && s.now.Sub(since) < waitingDelay; may {
			m.unsavedSince = since
		} else {
			m.unsavedSince = time.Time{}
		}
	})
	return may
}

// saveNow saves a history that has waited, before a change that the budget has permitted. If that fails, the next reconcile
// does so first, and tells why it cannot. One more resize for a recorded decision needs no save: what led to the decision was
// saved before its first one. The evidence of an OOM kill ends with the resize, and a boost needs no decision.
func (r *Reconciler) saveNow(ctx context.Context, s *scope) error {
	step, isResize := s.plan.Step.(plan.Resize)
	pod, _ := s.observation.situation.Pod(step.UID)
	if !s.isUnsaved || s.plan.Step == nil || isResize && !step.Boost && !s.plan.Decided && len(pod.Kills) == 0 {
		return nil
	}
	err := r.Histories.Save(ctx, s.scaler, s.observation.situation.Recommendations, s.now)
	if err != nil {
		log.FromContext(ctx).V(1).Info("Checkpoint not saved", "reason", err.Error())
		r.memory.change(client.ObjectKeyFromObject(s.scaler), func(m *memory) { m.failingSince = s.now })
		return errStaleCache
	}
	r.memory.change(client.ObjectKeyFromObject(s.scaler), func(m *memory) { m.unsavedSince = time.Time{} })
	return nil
}

// noteRefused notes in an obstacle what follows from it that the API server refuses a request for the checkpoint, or has not
// answered one for a while. It returns any other error.
func (r *Reconciler) noteRefused(ctx context.Context, s *scope, err error, follows string, to *plan.Obstacle) error {
	key, since := client.ObjectKeyFromObject(s.scaler), time.Time{}
	if err == nil && !r.memory.of(key).failingSince.IsZero() {
		r.memory.change(key, func(m *memory) { m.failingSince = time.Time{} })
	}
	if err == nil || errors.Is(err, checkpoint.ErrOvertaken) {
		return err
	}
	r.memory.change(key, func(m *memory) {
		if m.failingSince.IsZero() {
			m.failingSince = s.now
		}
		since = m.failingSince
	})
	refused := apierror.Of(err)
	advice := resolves[refused.Reason]
	if refused.Reason == "" || apierrors.IsNotFound(err) {
		if s.now.Sub(since) < failingFor {
			return err
		}
		refused = apierror.Rejection{Reason: v1beta1.ReasonRejected, Message: innermost(err).Error()}
		advice = ". Check the API server, and the webhooks for verticalscalercheckpoints"
	}
	log.FromContext(ctx).V(1).Info("Checkpoint rejected", "reason", refused.Reason, "message", refused.Message)
	refused.Message = follows + ": " + refused.Message + advice
	*to = stalledBy(refused)
	s.again(unsavedRetry)
	return nil
}

// innermost is the error that others wrap. Those add addresses, which change with each request.
func innermost(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}
