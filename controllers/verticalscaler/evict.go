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
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

const (
	// budgetRetry is when a PodDisruptionBudget is asked again that does not say when.
	budgetRetry = 30 * time.Second
	// mostRetry bounds what a budget says.
	mostRetry = 5 * time.Minute
	// evictionTakes bounds one request. The client waits by itself where it is told when to
	// try again, for longer than a worker has.
	evictionTakes = 10 * time.Second
)

// evict asks for the eviction of one pod, which must still be as the plan saw it: one that has
// got its size meanwhile, or another one by that name, is not evicted.
func (r *Reconciler) evict(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope, step plan.Evict) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vs.Namespace, Name: step.Pod}}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: vs.Namespace, Name: step.Pod},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &step.UID, ResourceVersion: &step.ResourceVersion}},
	}
	limited, cancel := context.WithTimeout(ctx, evictionTakes)
	defer cancel()
	err := r.Client.SubResource("eviction").Create(limited, pod, eviction)
	key := client.ObjectKeyFromObject(vs)
	if err == nil {
		countAction("evict", "done")
		r.pods.remember(key, step.UID, func(what *remembered) { what.evicted, what.at = true, p.now })
		p.evicted = step.Pod
		log.FromContext(ctx).Info("Evicted pod", "Pod", step.Pod, "reason", p.plan.Decision.Reason, "message", p.plan.Verdict.Message)
		return nil
	}
	refused, retryAfter := apierror.OfEviction(err)
	if refused.Reason == "" {
		countAction("evict", actionOutcome(err))
		return fmt.Errorf("evicting pod %s: %w", step.Pod, err)
	}
	countAction("evict", refused.Reason)
	log.FromContext(ctx).Info("Eviction refused", "Pod", step.Pod, "reason", refused.Reason, "message", refused.Message)
	no := &plan.RejectedEviction{Reason: refused.Reason, Message: refused.Message}
	switch refused.Reason {
	case v1beta1.ReasonDisruptionBudget:
		no.Until = p.now.Add(min(max(retryAfter, budgetRetry), mostRetry))
	case v1beta1.ReasonNamespaceTerminating:
		no.Until = p.now.Add(r.resync(vs.UID))
	default:
		no.Stalled, no.Until = true, p.now.Add(r.resync(vs.UID))
	}
	r.pods.remember(key, p.observation.situation.Deployment.UID, func(what *remembered) { what.eviction = no })
	situation := &p.observation.situation
	situation.RejectedEviction = no
	policy := scaler.PlanPolicy(vs, situation.Deployment)
	policy.Edited = false // this is the answer to it
	p.plan = plan.Next(*situation, policy, p.now).WithoutStep().WithNewPods(p.plan.NewPods)
	return nil
}
