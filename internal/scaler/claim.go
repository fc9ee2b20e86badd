// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
)

// The claim is the key of the target, recorded in the scaler's status. A change of that Deployment
// triggers a reconcile of the scaler. The claim grants nothing: a scaler may change only the
// Deployment of its spec.deploymentName in its own namespace.

// RecordedClaim is the claim in the scaler's status, well-formed or not.
func RecordedClaim(s *v1beta1.VerticalScaler) string {
	return s.Status.Annotations[v1beta1.ClaimAnnotation]
}

// Claim is the claim that belongs into the scaler's status.
func Claim(s *v1beta1.VerticalScaler) string { return Target(s).String() }

// Target is the Deployment that the scaler names.
func Target(s *v1beta1.VerticalScaler) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.DeploymentName}
}

// IsOwnClaim reports whether a claim is well-formed and names the scaler's own namespace.
// Any other claim is ignored.
func IsOwnClaim(s *v1beta1.VerticalScaler, claim string) bool {
	namespace, name, found := strings.Cut(claim, string(types.Separator))
	return found && namespace == s.Namespace && name != "" && !strings.ContainsRune(name, types.Separator)
}

// RecordClaim writes the claim into the status, or removes it if it is empty, and keeps the other annotations. A shared map
// is not modified.
func RecordClaim(status *v1beta1.VerticalScalerStatus, claim string) {
	if status.Annotations[v1beta1.ClaimAnnotation] == claim {
		return
	}
	annotations := map[string]string{}
	maps.Copy(annotations, status.Annotations)
	if annotations[v1beta1.ClaimAnnotation] = claim; claim == "" {
		delete(annotations, v1beta1.ClaimAnnotation)
	}
	status.Annotations = annotations
}

// IsSet reports whether an annotation has any value but false: a user who sets one of ours wants its effect.
func IsSet(annotations map[string]string, key string) bool {
	value, ok := annotations[key]
	return ok && value != "false"
}

// IsPaused reports whether the annotation that pauses the scaler is set.
func IsPaused(s *v1beta1.VerticalScaler) bool { return IsSet(s.Annotations, v1beta1.PausedAnnotation) }

// PauseMessage reports that an object is paused and the consequence, and quotes the value of the annotation unless it is only
// "true".
func PauseMessage(object metav1.Object, follows string) string {
	text := "The annotation " + v1beta1.PausedAnnotation + " is set" + follows
	if value := conditions.OneLine(object.GetAnnotations()[v1beta1.PausedAnnotation]); value != "" && value != "true" {
		text += ": " + value
	}
	return text
}
