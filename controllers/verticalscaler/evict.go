// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
)

const (
	// budgetRetry is the time until an eviction is retried if the PodDisruptionBudget gives none.
	budgetRetry = 30 * time.Second
	// longestRetry bounds the time that a budget asks to wait.
	longestRetry = 5 * time.Minute
	// evictionTimeout bounds one request. The client itself waits for as long as the API
	// server asks, which is too long for a worker.
	evictionTimeout = 10 * time.Second
)

// evict evicts one pod. The pod must still be the one that the plan saw, with the same
// resources.
func (r *Reconciler) evict(ctx context.Context, s *scope, step plan.Evict) error {
	if err := r.confirmNewPods(ctx, s); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.scaler.Namespace, Name: step.Pod}}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: s.scaler.Namespace, Name: step.Pod},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &step.UID, ResourceVersion: &step.ResourceVersion}},
	}
	if err := r.Freeze.Check(s.scaler.Namespace); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	err := r.Client.SubResource("eviction").Create(limited, pod, eviction)
	if err == nil {
		r.countDone(client.ObjectKeyFromObject(s.scaler), "evict", metrics.Evicted)
		r.memory.changePod(client.ObjectKeyFromObject(s.scaler), step.UID, func(what *remembered) { what.evicted, what.at = true, s.now })
		if left, ok := s.observation.situation.Pod(step.UID); ok && r.Pressure != nil {
			r.Pressure.Evicted(left.Node)
		}
		s.taken, s.takenNote = eventEvicted, fmt.Sprintf("Pod %s: its replacement starts with the decided size", step.Pod)
		log.FromContext(ctx).Info("Evicted pod", "Pod", step.Pod, "reason", s.plan.Decision.Reason, "message", s.plan.Verdict.Message)
		return nil
	}
	rejection, retryAfter := apierror.OfEviction(err)
	if rejection.Reason == "" {
		countAction("evict", actionOutcome(err))
		return fmt.Errorf("evicting pod %s: %w", step.Pod, err)
	}
	if rejection.Reason == v1beta1.ReasonForbidden {
		rejection.Message += ". An administrator can grant it: " + r.Release.Install(release.Recreate)
	}
	countAction("evict", rejection.Reason)
	log.FromContext(ctx).Info("Eviction rejected", "Pod", step.Pod, "reason", rejection.Reason, "message", rejection.Message)
	r.rememberRejection(s, rejection, retryAfter)
	return errRefused
}

// rememberRejection remembers a rejected eviction until the next one may be tried, or the scaler is edited.
func (r *Reconciler) rememberRejection(s *scope, rejection apierror.Rejection, retryAfter time.Duration) {
	rejected := &plan.RejectedEviction{Reason: rejection.Reason, Message: rejection.Message, Until: s.now.Add(r.retryPeriod(s.scaler.UID))}
	switch rejection.Reason {
	case v1beta1.ReasonDisruptionBudget:
		rejected.Until = s.now.Add(min(max(retryAfter, budgetRetry), longestRetry))
	case v1beta1.ReasonNamespaceTerminating:
	default:
		rejected.Stalled = true
	}
	r.memory.changePod(client.ObjectKeyFromObject(s.scaler), s.observation.situation.Deployment.UID, func(what *remembered) {
		what.eviction, what.evictionOf = rejected, s.scaler.Generation
	})
}
