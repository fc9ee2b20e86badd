// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// A name in the spec without a match may be early or misspelt. It is reported at once, and needs a
// user if it still matches nothing after unmatchedLimit. The time is in the condition, so an
// operator restart does not reset it.

// unmatchedLimit is the time after which a name without a match stalls the scaler.
const unmatchedLimit = 10 * time.Minute

// maxNames limits the names that a message lists.
const maxNames = 5

// namesWithoutMatch are the conditions that report names without a match, by the reason that they
// have then.
var namesWithoutMatch = map[string]string{
	v1beta1.ConditionTargetFound:     v1beta1.ReasonDeploymentNotFound,
	v1beta1.ConditionContainersFound: v1beta1.ReasonContainerNotFound,
}

// containersFound is the condition about the containers that the spec names. It is false without
// anything to report.
func containersFound(s *scope) (metav1.Condition, bool) {
	policy := s.scaler.Spec.ResourcePolicy
	if s.observation.deployment == nil || policy == nil {
		return metav1.Condition{}, false
	}
	known := containerNames(s)
	var unknown []string
	for i, c := range policy.ContainerPolicies {
		if c.ContainerName != v1beta1.AnyContainer && !slices.Contains(known, c.ContainerName) {
			unknown = append(unknown, fmt.Sprintf("containerPolicies[%d] names %s", i, c.ContainerName))
		}
	}
	if len(unknown) == 0 {
		return metav1.Condition{}, false
	}
	return metav1.Condition{
		Type: v1beta1.ConditionContainersFound, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonContainerNotFound,
		Message: fmt.Sprintf("A policy without a container has no effect: %s. Deployment %s has: %s",
			strings.Join(firstOf(unknown), ", "), scaler.Target(s.scaler), strings.Join(firstOf(known), ", ")),
	}, true
}

// containerNames are the names of the containers of the pod template and of the pods, which may have
// more, in their order.
func containerNames(s *scope) (names []string) {
	template := s.observation.deployment.Spec.Template.Spec
	for _, c := range slices.Concat(template.Containers, template.InitContainers) {
		names = append(names, c.Name)
	}
	for _, pod := range s.observation.situation.Pods {
		for _, c := range pod.Containers {
			if !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

func firstOf(names []string) []string {
	if len(names) > maxNames {
		return append(slices.Clone(names[:maxNames]), "and more")
	}
	return names
}

// unmatchedFor is the time for which the condition has reported a name without a match: 0 in the
// reconcile that finds it, or without such a name.
func unmatchedFor(before []metav1.Condition, now metav1.Condition, at time.Time) time.Duration {
	was := meta.FindStatusCondition(before, now.Type)
	if now.Reason == "" || now.Reason != namesWithoutMatch[now.Type] || was == nil || was.Reason != now.Reason || was.Status != now.Status {
		return 0
	}
	return at.Sub(was.LastTransitionTime.Time)
}

// untilUnmatchedStalls is the time until names without a match are checked again; 0 if there are
// none.
func untilUnmatchedStalls(s *scope) (wait time.Duration) {
	for kind, reason := range namesWithoutMatch {
		if c := meta.FindStatusCondition(s.status.Conditions, kind); c != nil && c.Reason == reason {
			wait = soonest(wait, c.LastTransitionTime.Add(unmatchedLimit).Sub(s.now))
		}
	}
	return wait
}
