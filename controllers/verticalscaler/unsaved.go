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

// refusedAfter is the time after which failing requests for a checkpoint count as rejected. Most outages of an API server are
// shorter. Webhooks may fail with any error, for ever.
const refusedAfter = 10 * time.Second

// youngDelay is the time after which a new scaler's history has a complete interval of CPU usage.
const youngDelay = 5 * time.Minute

// mayWaitToSave reports whether the history is saved only once the budget permits a change of the scaler. It waits for 10
// minutes at most, while some scalers wait for the budget, an edit is reported first, or the history is young.
func (r *Reconciler) mayWaitToSave(s *scope) (may bool) {
	mayWait := s.isYoung || s.isEdited() || r.Budget != nil && r.Budget.Waiting() > 0
	r.memory.change(client.ObjectKeyFromObject(s.scaler), func(m *memory) {
		since := cmp.Or(m.unsavedSince, s.now)
		may = mayWait && m.failingSince.IsZero() && s.now.Sub(since) < waitingDelay
		m.unsavedSince = time.Time{}
		if may {
			m.unsavedSince = since
		}
	})
	return may
}

// errUnsaved is returned if a history that has waited cannot be saved. The next reconcile saves it first, and reports the error.
var errUnsaved = errors.New("the usage history is not saved")

// saveNow saves a history that has waited, before a change that the budget has permitted.
func (r *Reconciler) saveNow(ctx context.Context, s *scope) error {
	if !s.needsSave() {
		return nil
	}
	key := client.ObjectKeyFromObject(s.scaler)
	if err := r.Histories.Save(ctx, s.scaler, s.observation.situation.Recommendations, s.now); err != nil {
		log.FromContext(ctx).V(1).Info("Checkpoint not saved", "reason", err.Error())
		r.memory.change(key, func(m *memory) { m.failingSince = s.now })
		return errUnsaved
	}
	r.memory.change(key, func(m *memory) { m.unsavedSince = time.Time{} })
	return nil
}

// needsSave reports whether the plan's step is based on an unsaved history. One more resize for a recorded decision is not: its
// basis was saved before the first one. The evidence of an OOM kill ends with the resize, and a boost needs no decision.
func (s *scope) needsSave() bool {
	if !s.isUnsaved || s.plan.Step == nil {
		return false
	}
	resize, isResize := s.plan.Step.(plan.Resize)
	if !isResize || resize.Boost || s.plan.Decided || s.isYoung {
		return true
	}
	pod, _ := s.observation.situation.Pod(resize.UID)
	return len(pod.Kills) > 0
}

// noteRefused sets the obstacle if the API server rejects a request for the checkpoint, with the consequence for the user. It
// returns any other error.
func (r *Reconciler) noteRefused(ctx context.Context, s *scope, err error, consequence string, obstacle *plan.Obstacle) error {
	failing := r.failingFor(s, err)
	if err == nil || errors.Is(err, checkpoint.ErrOvertaken) {
		return err
	}
	refused := apierror.Of(err)
	advice := resolves[refused.Reason]
	if refused.Reason == "" || apierrors.IsNotFound(err) {
		if failing < refusedAfter {
			return err
		}
		refused = apierror.Rejection{Reason: v1beta1.ReasonRejected, Message: innermost(err).Error()}
		advice = ". Check the API server, and the webhooks for verticalscalercheckpoints"
	}
	log.FromContext(ctx).V(1).Info("Checkpoint rejected", "reason", refused.Reason, "message", refused.Message)
	refused.Message = consequence + ": " + refused.Message + advice
	*obstacle = stalledBy(refused)
	s.again(unsavedRetry)
	return nil
}

// failingFor records the outcome of a request for the checkpoint, and returns for how long requests have failed.
func (r *Reconciler) failingFor(s *scope, err error) time.Duration {
	key := client.ObjectKeyFromObject(s.scaler)
	since := r.memory.of(key).failingSince
	switch {
	case errors.Is(err, checkpoint.ErrOvertaken), err == nil && since.IsZero():
		return 0
	case err == nil:
		since = time.Time{}
	case since.IsZero():
		since = s.now
	}
	r.memory.change(key, func(m *memory) { m.failingSince = since })
	return s.now.Sub(since)
}

// innermost is the error that others wrap. Those add addresses, which change with each request.
func innermost(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}
