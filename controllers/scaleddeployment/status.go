// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// writeStatus writes the status unless it is unchanged, and then records the news.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	status := statusOf(s)
	if equality.Semantic.DeepEqual(s.owner.Status, status) {
		return nil
	}
	updated := s.owner.DeepCopy()
	updated.Status = status
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.recordEvents(s, status.Conditions)
	s.owner.ResourceVersion = updated.ResourceVersion
	return nil
}

// statusOf turns the values of a reconcile into the status.
func statusOf(s *scope) v1beta1.ScaledDeploymentStatus {
	status := v1beta1.ScaledDeploymentStatus{ObservedGeneration: s.owner.Generation}
	if s.err != nil && s.deployment == nil {
		status = *s.owner.Status.DeepCopy() // The Deployment was not read: keep the last known counts.
		status.ObservedGeneration = s.owner.Generation
	}
	if d := s.deployment; d != nil {
		status.Replicas = d.Status.Replicas
		status.ReadyReplicas = d.Status.ReadyReplicas
		status.AvailableReplicas = d.Status.AvailableReplicas
		status.UpdatedReplicas = d.Status.UpdatedReplicas
	}
	// An HPA reads the selector, even before there are pods.
	if selector, err := metav1.LabelSelectorAsSelector(selectorOf(s.owner)); err == nil {
		status.Selector = selector.String()
	}
	status.Conditions = conditionsOf(s)
	return status
}

// conditionsOf returns all conditions. A condition whose status is unchanged keeps its
// transition time.
func conditionsOf(s *scope) []metav1.Condition {
	before, state := s.owner.Status.Conditions, workloadState(s)
	ready, reconciling, stalled := state.conditions()
	if last := meta.FindStatusCondition(before, v1beta1.ConditionStalled); last != nil && state.kind == stateUnknown {
		stalled = *last // Nothing new is known.
	}
	now := []metav1.Condition{ready, reconciling, stalled}
	if s.owner.Spec.Scaling != nil {
		now = append(now, sizedCondition(s.scaler))
	}
	now = append(now, deploymentConditions(s)...)
	return conditions.Merge(before, now, s.owner.Generation, s.now)
}

// deploymentConditions repeats the conditions of the Deployment, so that kubectl wait works as on a
// Deployment. They are absent without a Deployment and while it is replaced, and stay if it could not
// be read.
func deploymentConditions(s *scope) (out []metav1.Condition) {
	for _, kind := range []string{v1beta1.ConditionAvailable, v1beta1.ConditionProgressing} {
		switch {
		case s.deployment == nil && s.err != nil:
			if last := meta.FindStatusCondition(s.owner.Status.Conditions, kind); last != nil {
				out = append(out, *last)
			}
		case s.deployment == nil || s.waiting != "":
		default:
			out = append(out, repeated(s.deployment, kind)...)
		}
	}
	return out
}

// repeated is the condition of the Deployment, if it has that type.
func repeated(d *appsv1.Deployment, kind string) []metav1.Condition {
	for _, c := range d.Status.Conditions {
		if string(c.Type) == kind && c.Reason != "" {
			return []metav1.Condition{{Type: kind, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}}
		}
	}
	return nil
}

// state is the state of the workload in kstatus terms.
type state struct {
	kind            stateKind
	reason, message string
}

type stateKind int

const (
	stateReady      stateKind = iota // everything matches the owner's spec
	stateInProgress                  // a change is in progress, and no action is required
	stateStalled                     // a user must act
	stateUnknown                     // the reconcile failed and is retried
)

func workloadState(s *scope) state {
	switch {
	case s.rejection.Reason != "":
		return state{stateStalled, s.rejection.Reason, s.rejection.Message}
	case s.err != nil:
		return state{stateUnknown, v1beta1.ReasonUnknown, "The last reconcile failed and is retried; see the operator's log"}
	case s.waiting != "":
		return state{stateInProgress, v1beta1.ReasonReplacing, s.waiting}
	}
	out := rolloutState(s.deployment)
	if s.scaledBy != "" {
		out.message += fmt.Sprintf("; HorizontalPodAutoscaler %s sets the number of replicas because it targets the Deployment directly", s.scaledBy)
	}
	return out
}

// rolloutState reads the progress of a Deployment by the rules of kstatus.
func rolloutState(d *appsv1.Deployment) state {
	desired, status := ptr.Deref(d.Spec.Replicas, 1), d.Status
	inProgress := func(format string, args ...any) state {
		return state{stateInProgress, v1beta1.ReasonRollingOut, fmt.Sprintf("Deployment %s: ", d.Name) + fmt.Sprintf(format, args...)}
	}
	if status.ObservedGeneration < d.Generation {
		return inProgress("the Deployment controller has not observed the latest template yet")
	}
	for _, c := range status.Conditions {
		switch {
		case workload.IsDeadlineExceeded(c):
			return state{stateStalled, v1beta1.ReasonProgressDeadlineExceeded, fmt.Sprintf("Deployment %s: %s", d.Name, c.Message)}
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			return inProgress("%s", c.Message)
		}
	}
	switch {
	case status.UpdatedReplicas < desired:
		return inProgress("%d of %d pods are updated to the latest template", status.UpdatedReplicas, desired)
	case status.Replicas > desired:
		return inProgress("%d old or surplus pods are pending termination", status.Replicas-desired)
	case status.AvailableReplicas < status.UpdatedReplicas:
		return inProgress("%d of %d pods are available", status.AvailableReplicas, status.UpdatedReplicas)
	}
	return state{stateReady, v1beta1.ReasonAvailable, fmt.Sprintf("Deployment %s: all %d pods are available", d.Name, desired)}
}

// conditions are Ready, Reconciling and Stalled. kstatus reads at most one of them as True.
func (s state) conditions() (ready, reconciling, stalled metav1.Condition) {
	ready = conditions.New(v1beta1.ConditionReady, s.kind == stateReady, s.reason, s.message)
	reconciling = conditions.New(v1beta1.ConditionReconciling, false, v1beta1.ReasonOperatingNormally, "No change in progress")
	stalled = conditions.New(v1beta1.ConditionStalled, false, v1beta1.ReasonOperatingNormally, "No action required")
	switch s.kind {
	case stateReady:
	case stateStalled:
		stalled = conditions.New(v1beta1.ConditionStalled, true, s.reason, s.message)
	case stateUnknown:
		ready.Status = metav1.ConditionUnknown
		fallthrough
	case stateInProgress:
		reconciling = conditions.New(v1beta1.ConditionReconciling, true, s.reason, s.message)
	}
	return ready, reconciling, stalled
}

// sizedCondition repeats the VerticalScaler's Ready condition.
func sizedCondition(scaler *v1beta1.VerticalScaler) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionSized, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonUnknown, Message: "The VerticalScaler has not reported its status yet"}
	if scaler == nil {
		return c
	}
	if ready := readyOf(scaler); ready != nil {
		c.Status, c.Reason, c.Message = ready.Status, ready.Reason, ready.Message
	}
	return c
}
