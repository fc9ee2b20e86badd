// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/pressure"
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

const (
	// mostNodes limits the nodes that are read for one eviction.
	mostNodes = 32
	// turnOfNodes is time for two readings of these nodes. Then it is the turn of the next ones.
	turnOfNodes = 3 * time.Minute
)

// chooseEvicted leaves the one pod in the plan that is evicted. If the plan asks for a busy node and none is known, or if no node has room
// for the replacement, nothing is evicted.
func (r *Reconciler) chooseEvicted(ctx context.Context, s *scope) {
	step, isEviction := s.plan.Step.(plan.Evict)
	if !isEviction {
		return
	}
	if step.IfBusy {
		pod, why := r.onBusyNode(ctx, step.Pods, s.now)
		if pod == nil {
			s.plan = plan.WithoutEviction(s.plan, why)
			return
		}
		step.Pods = []plan.EvictedPod{*pod}
	}
	leaving, _ := s.observation.situation.Pod(step.Pods[0].UID)
	if r.Nodes != nil && step.Needs != (quantity.Amounts{}) && !r.Nodes.HaveRoom(step.Needs, leaving.Node, leaving.Counted().Requests) {
		s.plan = plan.WithoutRoom(s.plan)
		return
	}
	s.plan.Step = step
}

// onBusyNode is the first pod on a node that has used up its CPU; nil for none, or why that is not known.
func (r *Reconciler) onBusyNode(ctx context.Context, pods []plan.EvictedPod, now time.Time) (*plan.EvictedPod, string) {
	if r.Pressure == nil {
		return nil, "the operator does not read nodes"
	}
	why := ""
	turns := slices.Collect(slices.Chunk(pods, mostNodes))
	for _, pod := range turns[int(now.Unix()/int64(turnOfNodes.Seconds()))%len(turns)] {
		isBusy, err := r.Pressure.IsBusy(ctx, pod.Node)
		switch {
		case isBusy:
			return &pod, ""
		case err == nil:
		case apierrors.IsForbidden(err):
			return nil, "the operator may not get nodes.metrics.k8s.io. An administrator can grant it: " + r.Release.Install(release.Recreate)
		default:
			log.FromContext(ctx).V(1).Info("The use of a node is not known", "Node", pod.Node, "error", err)
			why = "the metrics API has no current usage of them"
			if !apierrors.IsNotFound(err) && !errors.Is(err, pressure.ErrNotKnown) {
				return nil, why // the same for other nodes, and each question may take long
			}
		}
	}
	return nil, why
}

// evict evicts one pod. The pod must still be the one that the plan saw, with the same
// resources.
func (r *Reconciler) evict(ctx context.Context, s *scope, step plan.Evict) error {
	pod := step.Pods[0]
	if err := r.confirmNewPods(ctx, s); err != nil {
		return err
	}
	if err := r.Freeze.Check(s.scaler.Namespace); err != nil {
		return err
	}
	if step.IfBusy && !r.Pressure.Take(pod.Node) {
		return &deferral{v1beta1.ReasonDeferred, "Another pod has left the node of pod " + pod.Name + ": new readings show whether its CPU is still used up"}
	}
	limited, cancel := context.WithTimeout(ctx, evictionTimeout)
	defer cancel()
	// An eviction that fails its preconditions has already spent the PodDisruptionBudget, for two minutes. A dry run spends nothing.
	err := r.askToEvict(limited, s.scaler.Namespace, pod, metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}, client.DryRunAll)
	if err == nil {
		err = r.askToEvict(limited, s.scaler.Namespace, pod, metav1.Preconditions{UID: &pod.UID})
	}
	if err == nil {
		r.countDone(client.ObjectKeyFromObject(s.scaler), "evict", metrics.Evicted)
		r.memory.changePod(client.ObjectKeyFromObject(s.scaler), pod.UID, func(what *remembered) { what.evicted, what.at = true, s.now })
		s.taken, s.takenNote = eventEvicted, fmt.Sprintf("Pod %s: its replacement starts with the decided size", pod.Name)
		log.FromContext(ctx).Info("Evicted pod", "Pod", pod.Name, "reason", s.plan.Decision.Reason, "message", s.plan.Verdict.Message)
		return nil
	}
	rejection, retryAfter := apierror.OfEviction(err)
	if rejection.Reason == "" {
		countAction("evict", actionOutcome(err))
		return fmt.Errorf("evicting pod %s: %w", pod.Name, err)
	}
	if rejection.Reason == v1beta1.ReasonForbidden {
		rejection.Message += ". An administrator can grant it: " + r.Release.Install(release.Recreate)
	}
	countAction("evict", rejection.Reason)
	log.FromContext(ctx).Info("Eviction rejected", "Pod", pod.Name, "reason", rejection.Reason, "message", rejection.Message)
	r.rememberRejection(s, rejection, retryAfter)
	return errRefused
}

func (r *Reconciler) askToEvict(ctx context.Context, namespace string, pod plan.EvictedPod, is metav1.Preconditions, options ...client.SubResourceCreateOption) error {
	named := metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}
	eviction := &policyv1.Eviction{ObjectMeta: named, DeleteOptions: &metav1.DeleteOptions{Preconditions: &is}}
	return r.Client.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: named}, eviction, options...)
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
