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
)

// writeStatus writes the status if it says anything new.
func (r *Reconciler) writeStatus(ctx context.Context, owner *v1beta1.ScaledDeployment, p *scope) error {
	status := statusOf(owner, p)
	if equality.Semantic.DeepEqual(owner.Status, status) {
		return nil
	}
	updated := owner.DeepCopy()
	updated.Status = status
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.written.Remember(updated, p.now)
	return nil
}

// statusOf turns what a pass found and did into the status.
func statusOf(owner *v1beta1.ScaledDeployment, p *scope) v1beta1.ScaledDeploymentStatus {
	s := v1beta1.ScaledDeploymentStatus{ObservedGeneration: owner.Generation}
	if p.err != nil && p.deployment == nil {
		s = *owner.Status.DeepCopy() // it was not read: what was known stands
		s.ObservedGeneration = owner.Generation
	}
	if d := p.deployment; d != nil {
		s.Replicas = d.Status.Replicas
		s.ReadyReplicas = d.Status.ReadyReplicas
		s.AvailableReplicas = d.Status.AvailableReplicas
		s.UpdatedReplicas = d.Status.UpdatedReplicas
	}
	// An HPA reads it, also before there are pods.
	if selector, err := metav1.LabelSelectorAsSelector(selectorOf(owner)); err == nil {
		s.Selector = selector.String()
	}
	s.Conditions = conditionsOf(owner, p)
	return s
}

// conditionsOf makes all conditions, keeping the transition times of those that stay.
func conditionsOf(owner *v1beta1.ScaledDeployment, p *scope) []metav1.Condition {
	before, state := owner.Status.Conditions, workloadState(p)
	said := []metav1.Condition{readyCondition(state), reconcilingCondition(state), stalledCondition(state)}
	if was := meta.FindStatusCondition(before, v1beta1.ConditionStalled); was != nil && state.kind == stateUnknown {
		said[2] = *was // nothing was found out
	}
	if owner.Spec.Scaling != nil {
		said = append(said, sizedCondition(p))
	}
	return conditions.Merge(before, said, owner.Generation, p.now)
}

// state is where the workload is, in kstatus's terms.
type state struct {
	kind            stateKind
	reason, message string
}

type stateKind int

const (
	stateReady      stateKind = iota // all is as the owner says
	stateInProgress                  // it will be, by itself
	stateStalled                     // a person must act
	stateUnknown                     // the pass failed, and is tried again
)

func workloadState(p *scope) state {
	switch {
	case p.rejection.Reason != "":
		return state{stateStalled, p.rejection.Reason, p.rejection.Message}
	case p.err != nil:
		return state{stateUnknown, v1beta1.ReasonUnknown, "The pass could not be finished; it is tried again"}
	case p.waiting != "":
		return state{stateInProgress, v1beta1.ReasonReplacing, p.waiting}
	}
	s := rolloutState(p.deployment)
	if p.scaledBy != "" {
		s.message += fmt.Sprintf("; HorizontalPodAutoscaler %s says how many, since it scales the Deployment itself", p.scaledBy)
	}
	return s
}

// rollout reads how far a Deployment is, by the rules of kstatus.
func rolloutState(d *appsv1.Deployment) state {
	name, wanted, has := d.Name, ptr.Deref(d.Spec.Replicas, 1), d.Status
	progress := func(format string, args ...any) state {
		return state{stateInProgress, v1beta1.ReasonProgressing, fmt.Sprintf("Deployment %s: ", name) + fmt.Sprintf(format, args...)}
	}
	if has.ObservedGeneration < d.Generation {
		return progress("its controller has not seen the newest template yet")
	}
	for _, c := range has.Conditions {
		switch {
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == v1beta1.ReasonProgressDeadlineExceeded:
			return state{stateStalled, c.Reason, fmt.Sprintf("Deployment %s: %s", name, c.Message)}
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			return progress("%s", c.Message)
		}
	}
	switch {
	case has.UpdatedReplicas < wanted:
		return progress("%d of %d pods have the newest template", has.UpdatedReplicas, wanted)
	case has.Replicas > wanted:
		return progress("%d pods of an older template, or too many, are still there", has.Replicas-wanted)
	case has.AvailableReplicas < has.UpdatedReplicas:
		return progress("%d of %d pods are available", has.AvailableReplicas, has.UpdatedReplicas)
	}
	return state{stateReady, v1beta1.ReasonAvailable, fmt.Sprintf("Deployment %s: all %d pods are available", name, wanted)}
}

func readyCondition(s state) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: s.reason, Message: s.message}
	switch s.kind {
	case stateReady:
		c.Status = metav1.ConditionTrue
	case stateUnknown:
		c.Status = metav1.ConditionUnknown
	case stateInProgress, stateStalled:
	}
	return c
}

func reconcilingCondition(s state) metav1.Condition {
	if s.kind == stateInProgress || s.kind == stateUnknown {
		return metav1.Condition{Type: v1beta1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: s.reason, Message: s.message}
	}
	return metav1.Condition{Type: v1beta1.ConditionReconciling, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonOperatingNormally, Message: "No change is under way"}
}

func stalledCondition(s state) metav1.Condition {
	if s.kind == stateStalled {
		return metav1.Condition{Type: v1beta1.ConditionStalled, Status: metav1.ConditionTrue, Reason: s.reason, Message: s.message}
	}
	return metav1.Condition{Type: v1beta1.ConditionStalled, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonOperatingNormally, Message: "Nothing waits for a person"}
}

// sized repeats what the scaler says of itself.
func sizedCondition(p *scope) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionSized, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonUnknown, Message: "The VerticalScaler has said nothing yet"}
	if p.scaler == nil {
		return c
	}
	if said := readyOf(p.scaler); said != nil {
		c.Status, c.Reason, c.Message = said.Status, said.Reason, said.Message
	}
	return c
}
