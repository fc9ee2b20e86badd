// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// spec is the spec of a scaler of the policy. A scaler that is not promoted has the update mode of the start. Its
// pointers are shared with the policy, and may not be modified.
func (p *Policy) spec(deployment string, promoted bool) v1beta1.VerticalScalerSpec {
	spec := v1beta1.VerticalScalerSpec{DeploymentName: deployment, Scaling: p.Rules.Template}
	if !promoted {
		spec.UpdatePolicy.UpdateMode = p.Rules.Rollout.Start
	}
	return spec
}

// Scaler is a new scaler of the policy.
func (p *Policy) Scaler(d *Deployment) *v1beta1.VerticalScaler {
	return p.Desired(&v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}})
}

// Desired is the wanted scaler of a policy: a copy with the spec, the label and the controller from the
// policy. Everything else stays.
func (p *Policy) Desired(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
	out := s.DeepCopy()
	spec := p.spec(s.Name, IsPromoted(s))
	spec.DeepCopyInto(&out.Spec)
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[v1beta1.PolicyLabel] = p.Object.GetName()
	out.OwnerReferences = slices.DeleteFunc(out.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Controller != nil && *r.Controller
	})
	// The scaler does not block the deletion of its policy: some API servers require a right on policies for that.
	out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{
		APIVersion: v1beta1.GroupVersion.String(), Kind: p.Kind, Name: p.Object.GetName(), UID: p.Object.GetUID(), Controller: new(true),
	})
	return out
}

// IsUpToDate reports whether a scaler equals the wanted one.
func (p *Policy) IsUpToDate(s *v1beta1.VerticalScaler) bool {
	return p.Controls(s) && s.Labels[v1beta1.PolicyLabel] == p.Object.GetName() &&
		equality.Semantic.DeepEqual(s.Spec, p.spec(s.Name, IsPromoted(s)))
}

// Controls reports whether the policy is the controller of the scaler.
func (p *Policy) Controls(s *v1beta1.VerticalScaler) bool {
	controller := metav1.GetControllerOfNoCopy(s)
	return controller != nil && controller.UID == p.Object.GetUID()
}

// IsGenerated reports whether a policy has created the scaler, and has not released it.
func IsGenerated(s *v1beta1.VerticalScaler) bool {
	return v1beta1.IsPolicy(metav1.GetControllerOfNoCopy(s))
}

// IsReleasable reports whether a scaler becomes one of its users: it is detached, or its policy was deleted with
// --cascade=orphan.
func IsReleasable(s *v1beta1.VerticalScaler) bool {
	if IsGenerated(s) {
		return IsDetached(s.Annotations)
	}
	return metav1.GetControllerOfNoCopy(s) == nil && s.Labels[v1beta1.PolicyLabel] != ""
}

// Released is the scaler as one of its users: a copy without the policy's label and controller.
func Released(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
	out := s.DeepCopy()
	delete(out.Labels, v1beta1.PolicyLabel)
	out.OwnerReferences = slices.DeleteFunc(out.OwnerReferences, func(r metav1.OwnerReference) bool { return v1beta1.IsPolicy(&r) })
	return out
}

// IsPromoted reports whether the scaler was promoted.
func IsPromoted(s *v1beta1.VerticalScaler) bool {
	_, ok := s.Annotations[v1beta1.PromotedAnnotation]
	return ok
}

// PromotedAt is the time of the scaler's promotion; zero before, or if the annotation is invalid.
func PromotedAt(s *v1beta1.VerticalScaler) time.Time { return timeIn(s, v1beta1.PromotedAnnotation) }

// HarmedAt is the time of the promoted scaler's harm; zero without any.
func HarmedAt(s *v1beta1.VerticalScaler) time.Time { return timeIn(s, v1beta1.HarmedAnnotation) }

func timeIn(s *v1beta1.VerticalScaler, annotation string) time.Time {
	at, err := time.Parse(time.RFC3339, s.Annotations[annotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// Promoted is the scaler after its promotion, a copy.
func (p *Policy) Promoted(s *v1beta1.VerticalScaler, now time.Time) *v1beta1.VerticalScaler {
	return p.Desired(Marked(s, v1beta1.PromotedAnnotation, now))
}

// Marked is a copy of the scaler with a time in an annotation.
func Marked(s *v1beta1.VerticalScaler, annotation string, at time.Time) *v1beta1.VerticalScaler {
	out := s.DeepCopy()
	out.Annotations = maps.Clone(out.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotation] = at.UTC().Format(time.RFC3339)
	return out
}
