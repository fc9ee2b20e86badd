// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
)

// The events that are recorded on the owner, by reason.
const (
	eventCreated = "Created" // the Deployment or the VerticalScaler was created
	eventUpdated = "Updated" // it was changed to the owner's spec
	eventDeleted = "Deleted" // it was deleted because the owner's spec no longer has it
	eventRefused = "Refused" // the owner's spec cannot be applied, and a user must act
	eventReady   = "Ready"   // the owner becomes Ready: all pods have its spec, and are available
)

// actionKeep is the action of all these events: the operator keeps the objects of the owner.
const actionKeep = "Keep"

// change is a write to an object of the owner.
type change struct {
	reason string
	object client.Object
}

// changed notes a write for the events.
func (s *scope) changed(reason string, object client.Object) {
	s.changes = append(s.changes, change{reason, object})
}

// recordChanges records the writes of this reconcile.
func (r *Reconciler) recordChanges(s *scope) {
	for _, c := range s.changes {
		r.Recorder.Eventf(s.owner, c.object, corev1.EventTypeNormal, c.reason, actionKeep, "%s %s %s", c.reason, kindOf(c.object), c.object.GetName())
	}
}

// recordEvents records that the owner becomes Ready, and each new rejection.
func (r *Reconciler) recordEvents(s *scope, now []metav1.Condition) {
	before := s.owner.Status.Conditions
	var related runtime.Object
	if s.deployment != nil {
		related = s.deployment
	}
	if ready, ok := conditions.Became(before, now, v1beta1.ConditionReady); ok {
		r.Recorder.Eventf(s.owner, related, corev1.EventTypeNormal, eventReady, actionKeep, "%s", conditions.Truncated(ready.Reason+": "+ready.Message))
	}
	stalled, known := meta.FindStatusCondition(now, v1beta1.ConditionStalled), meta.FindStatusCondition(before, v1beta1.ConditionStalled)
	isKnown := known != nil && known.Status == stalled.Status && known.Reason == stalled.Reason && known.Message == stalled.Message
	if stalled.Status == metav1.ConditionTrue && !isKnown {
		r.Recorder.Eventf(s.owner, related, corev1.EventTypeWarning, eventRefused, actionKeep, "%s", conditions.Truncated(stalled.Reason+": "+stalled.Message))
	}
}

// describeForeignObject describes the object with the name and its controller to a user.
func describeForeignObject(object client.Object) string {
	controller := "has no controller"
	if by := metav1.GetControllerOf(object); by != nil {
		controller = fmt.Sprintf("is controlled by %s %s", by.Kind, by.Name)
	}
	return fmt.Sprintf("%s %s already exists and %s: delete or rename one of the two", kindOf(object), object.GetName(), controller)
}

// kindOf names the kind of an object that an owner can have.
func kindOf(object client.Object) string {
	if _, ok := object.(*v1beta1.VerticalScaler); ok {
		return "VerticalScaler"
	}
	return "Deployment"
}
