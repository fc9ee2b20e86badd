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
	eventCreated = "Created" // the Deployment, or the VerticalScaler, was made
	eventUpdated = "Updated" // it was changed, or put back
	eventDeleted = "Deleted" // it was deleted, since the owner no longer asks for it
	eventRefused = "Refused" // what the owner asks for cannot be had, and a person must act
)

// actionKeep is what all these events are about.
const actionKeep = "Keep"

// deed is something that was done to an object of the owner's.
type deed struct {
	reason string
	object client.Object
	note   string
}

func (p *scope) did(reason string, object client.Object) {
	p.changes = append(p.changes, deed{reason: reason, object: object, note: fmt.Sprintf("%s %s %s", reason, kindOf(object), object.GetName())})
}

// tellDeeds records what this pass has done.
func (r *Reconciler) recordChanges(owner *v1beta1.ScaledDeployment, p *scope) {
	for _, d := range p.changes {
		r.Recorder.Eventf(owner, d.object, corev1.EventTypeNormal, d.reason, actionKeep, "%s", d.note)
	}
}

// tellRefusal records a refusal the first time. It is called once the status that says
// the same is written.
func (r *Reconciler) recordRejection(owner *v1beta1.ScaledDeployment, p *scope) {
	before := meta.FindStatusCondition(owner.Status.Conditions, v1beta1.ConditionStalled)
	now := stalledCondition(workloadState(p))
	if now.Status != metav1.ConditionTrue {
		return
	}
	note := conditions.Truncated(now.Reason + ": " + now.Message)
	if before != nil && before.Status == metav1.ConditionTrue && conditions.Truncated(before.Reason+": "+before.Message) == note {
		return
	}
	var about runtime.Object
	if p.deployment != nil {
		about = p.deployment
	}
	r.Recorder.Eventf(owner, about, corev1.EventTypeWarning, eventRefused, actionKeep, "%s", note)
}

// sayStranger says whose an object is that is not the owner's.
func describeForeignObject(object client.Object) string {
	whose := "is controlled by nobody"
	if by := metav1.GetControllerOf(object); by != nil {
		whose = fmt.Sprintf("is controlled by %s %s", by.Kind, by.Name)
	}
	return fmt.Sprintf("%s %s exists and %s: delete or rename one of the two", kindOf(object), object.GetName(), whose)
}

// kindOf names the kind of one of the objects that an owner has.
func kindOf(object client.Object) string {
	if _, ok := object.(*v1beta1.VerticalScaler); ok {
		return "VerticalScaler"
	}
	return "Deployment"
}
