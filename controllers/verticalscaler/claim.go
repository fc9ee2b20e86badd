// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// The claim is the target key recorded in the scaler's status. It wakes the scaler
// when its Deployment changes, and it is authority for nothing: what a scaler may
// touch follows from its spec.deploymentName and its own namespace alone.

// recordedClaim is the claim that the scaler's status carries, well-formed or not.
func recordedClaim(s *v1beta1.VerticalScaler) string {
	return s.Status.Annotations[v1beta1.ClaimAnnotation]
}

// claimFor is the claim that the scaler's status should carry.
func claimFor(s *v1beta1.VerticalScaler) string { return targetOf(s).String() }

// targetOf is the Deployment that the scaler names.
func targetOf(s *v1beta1.VerticalScaler) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.DeploymentName}
}

// isOwnClaim says whether a claim is well-formed and names the scaler's own
// namespace. Any other claim, however it came there, wakes nobody.
func isOwnClaim(s *v1beta1.VerticalScaler, claim string) bool {
	namespace, name, found := strings.Cut(claim, string(types.Separator))
	return found && namespace == s.Namespace && name != "" && !strings.ContainsRune(name, types.Separator)
}

// recordClaim puts the claim into the status, leaving other annotations alone.
func recordClaim(status *v1beta1.VerticalScalerStatus, claim string) {
	annotations := map[string]string{v1beta1.ClaimAnnotation: claim}
	for key, value := range status.Annotations {
		if key != v1beta1.ClaimAnnotation {
			annotations[key] = value
		}
	}
	status.Annotations = annotations
}

// isPaused says whether the break-glass annotation is set.
func isPaused(s *v1beta1.VerticalScaler) bool {
	return s.Annotations[v1beta1.PausedAnnotation] == "true"
}
