// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// slowPeriod is the least time between status writes for states, new pods and savings alone: they follow each
// recommendation and each change.
const slowPeriod = 10 * time.Second

// writeStatus writes the status unless it is unchanged.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	before, status := *s.status.DeepCopy(), statusOf(s)
	metrics.RecordPolicy(client.ObjectKeyFromObject(s.object), status)
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	if wait := r.slowWait(client.ObjectKeyFromObject(s.object), before, status, s.now); wait > 0 {
		s.lookAgainIn(wait)
		return nil
	}
	*s.status = status
	if err := r.Client.Status().Update(ctx, s.object, client.FieldOwner(Name)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status: %w", err))
	}
	r.written.Remember(s.object, s.now)
	r.writtenAt.Store(client.ObjectKeyFromObject(s.object), s.now)
	r.recordEvents(s, before.Conditions, status.Conditions)
	return nil
}

// slowWait is the wait of a status in which only states, new pods and savings have changed.
func (r *Reconciler) slowWait(policy client.ObjectKey, before, after v1beta1.ScalingPolicyStatus, now time.Time) time.Duration {
	after.States, after.UnsizedNewPods, after.Savings = before.States, before.UnsizedNewPods, before.Savings
	if !equality.Semantic.DeepEqual(before, after) {
		return 0
	}
	last, ok := r.writtenAt.Load(policy)
	at, isTime := last.(time.Time)
	if !ok || !isTime {
		return 0
	}
	return max(slowPeriod-now.Sub(at), 0)
}

// statusOf turns the values of a reconcile into the status.
func statusOf(s *scope) v1beta1.ScalingPolicyStatus {
	status := *s.status.DeepCopy()
	status.ObservedGeneration = s.object.GetGeneration()
	state := stateOf(s)
	now := []metav1.Condition{
		conditions.New(v1beta1.ConditionReady, !state.isStalled, state.reason, state.message), reconciling(s, state), stalled(state),
	}
	if s.policy != nil {
		status.Summary = s.survey.Summary(s.promoted())
		status.Selected, status.Scaled = int32(s.survey.Selected), int32(s.survey.Scaled)
		status.Skipped, status.States, status.UnsizedNewPods, status.Savings = s.survey.Skipped, s.survey.States, s.survey.UnsizedNewPods, s.survey.Savings
		status.Rollout = nil
		if s.policy.Promotes() {
			status.Rollout = rolloutOf(s)
			now = append(now, promoting(s))
		}
	}
	status.Conditions = conditions.Merge(status.Conditions, now, s.object.GetGeneration(), s.now)
	return status
}

// promoted is the number of scalers that have the update mode of the template.
func (s *scope) promoted() int {
	if !s.policy.Promotes() {
		return s.survey.Scaled
	}
	return s.promotion.Promoted
}

func rolloutOf(s *scope) *v1beta1.PolicyRolloutStatus {
	p := s.promotion
	out := &v1beta1.PolicyRolloutStatus{
		Collecting: int32(p.Collecting), Waiting: int32(p.Waiting), Verifying: int32(p.Verifying), Promoted: int32(p.Promoted), Harmed: int32(p.Harmed),
	}
	for _, key := range p.HarmedExamples {
		out.HarmedExamples = append(out.HarmedExamples, key.String())
	}
	for _, h := range p.Halts {
		out.Halts = append(out.Halts, v1beta1.PolicyHalt{
			Namespace: cmp.Or(h.Namespace, everywhere), Time: metav1.NewTime(h.Since), Message: conditions.Truncated(h.Message),
		})
	}
	return out
}

// everywhere is the namespace of a halt in all namespaces.
const everywhere = "*"

// haltsIn are the halts in a status.
func haltsIn(status *v1beta1.PolicyRolloutStatus) (halts []fleet.Halt) {
	if status == nil {
		return nil
	}
	for _, h := range status.Halts {
		known := fleet.Halt{Namespace: h.Namespace, Since: h.Time.Time, Message: h.Message}
		if h.Namespace == everywhere {
			known.Namespace = ""
		}
		halts = append(halts, known)
	}
	return halts
}

// state is the state of a policy in kstatus terms.
type state struct {
	isStalled       bool
	reason, message string
}

const selectsNothing = ". The policy selects nothing, and its scalers stay as they are"

// stateOf is the first of these that is true.
func stateOf(s *scope) state {
	switch {
	case s.forbidden != "":
		return state{true, v1beta1.ReasonForbidden, s.forbidden}
	case s.isSurplus:
		return state{true, v1beta1.ReasonTooManyPolicies, fmt.Sprintf("Namespace %s has more than %d ScalingPolicies, and this one is not among the oldest: delete policies", s.object.GetNamespace(), fleet.MaxPolicies) + selectsNothing}
	case s.invalid != nil:
		return state{true, v1beta1.ReasonInvalidSelector, s.invalid.Error() + selectsNothing}
	case s.isPaused:
		return state{false, v1beta1.ReasonPaused, pauseMessage(s)}
	case s.survey.Rejected != "":
		return state{true, v1beta1.ReasonScalersRejected, "The API server rejects scalers, such as: " + s.survey.Rejected}
	case len(s.promotion.Halts) > 0:
		return state{true, v1beta1.ReasonPromotionHalted, s.promotion.Message}
	case s.survey.Selected == 0:
		return state{false, v1beta1.ReasonNoDeployments, "The policy selects no Deployment"}
	}
	return state{false, v1beta1.ReasonOperatingNormally, "Each selected Deployment has the scaler of the policy, or is listed in status.skipped"}
}

func pauseMessage(s *scope) string {
	return scaler.PauseMessage(s.object, ": no scaler is created, changed, deleted or promoted")
}

func reconciling(s *scope, state state) metav1.Condition {
	if s.survey.Pending > 0 && !state.isStalled && !s.isPaused {
		return conditions.New(v1beta1.ConditionReconciling, true, v1beta1.ReasonCreatingScalers, "Scalers are created, changed or deleted")
	}
	return conditions.New(v1beta1.ConditionReconciling, false, v1beta1.ReasonOperatingNormally, "No change in progress")
}

func stalled(s state) metav1.Condition {
	if s.isStalled {
		return conditions.New(v1beta1.ConditionStalled, true, s.reason, s.message)
	}
	return conditions.New(v1beta1.ConditionStalled, false, v1beta1.ReasonOperatingNormally, "No action required")
}

// promoting is the condition about the progress of the promotion.
func promoting(s *scope) metav1.Condition {
	switch {
	case len(s.promotion.Halts) > 0:
		return conditions.New(v1beta1.ConditionPromoting, false, s.promotion.Reason, s.promotion.Message)
	case s.isPaused:
		return conditions.New(v1beta1.ConditionPromoting, false, v1beta1.ReasonPaused, pauseMessage(s))
	case s.frozen != "" && s.promotion.Promoted < len(s.survey.Candidates):
		return conditions.New(v1beta1.ConditionPromoting, false, v1beta1.ReasonFrozen, s.frozen)
	}
	return conditions.New(v1beta1.ConditionPromoting, true, s.promotion.Reason, s.promotion.Message)
}

// recordEvents records that a policy requires action, or that it does not anymore.
func (r *Reconciler) recordEvents(s *scope, before, after []metav1.Condition) {
	old, now := meta.FindStatusCondition(before, v1beta1.ConditionReady), meta.FindStatusCondition(after, v1beta1.ConditionReady)
	switch {
	case now == nil || old != nil && old.Status == now.Status && old.Reason == now.Reason:
	case now.Status != metav1.ConditionTrue:
		r.Recorder.Eventf(s.object, nil, corev1.EventTypeWarning, now.Reason, "Reconcile", "%s", now.Message)
	case old != nil && old.Status != metav1.ConditionTrue:
		r.Recorder.Eventf(s.object, nil, corev1.EventTypeNormal, now.Reason, "Reconcile", "%s", now.Message)
	}
}
