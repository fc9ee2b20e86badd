// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refusal tells the API server's answers to a change apart: those that are a
// verdict on the change, and those that are not.
package refusal

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Causes of refusals that Kubernetes does not export as constants.
const (
	causeNodeCapacity         = "NodeCapacity"
	causeUnsupportedPlatform  = "UnsupportedPlatform"
	causeNamespaceTerminating = "NamespaceTerminating"
)

// Refusal is what the API server's answer to a change means.
type Rejection struct {
	// Reason is one of the reasons of conditions in api/v1beta1; empty where the answer
	// is no verdict on the change: a conflict, an object that has gone, an outage.
	Reason string
	// Message is what the API server said.
	Message string
}

// Of tells the API server's answers apart.
//
// The status code alone does not: 403 stands for a missing right, a node that is
// too small, a quota, a LimitRange and more. Where the answer has a cause, the
// cause decides. The rest differ by free text only, so what is read from the text
// is the name that we give to the refusal, never what we do about it: all of them
// wait until the wish, the pod or the time has changed.
func Of(err error) Rejection {
	if err == nil || apierrors.IsConflict(err) {
		return Rejection{}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Rejection{} // not an answer at all
	}
	said := status.Status()
	switch {
	case apierrors.IsNotFound(err) && hasCause(said, metav1.CauseTypeUnexpectedServerResponse):
		return Rejection{v1beta1.ReasonUnsupported, "The API server does not know pods/resize: it cannot resize pods in place"}
	case apierrors.IsNotFound(err):
		return Rejection{} // it has gone
	case hasCause(said, causeNodeCapacity):
		return Rejection{v1beta1.ReasonNodeCapacity, said.Message}
	case hasCause(said, causeUnsupportedPlatform):
		return Rejection{v1beta1.ReasonUnsupported, said.Message}
	case hasCause(said, causeNamespaceTerminating):
		return Rejection{v1beta1.ReasonNamespaceTerminating, "The namespace is being deleted"}
	case apierrors.IsForbidden(err) && strings.Contains(said.Message, unknownOwnerKind):
		return Rejection{}
	case apierrors.IsForbidden(err):
		return Rejection{forbiddenReason(said.Message), said.Message}
	case apierrors.IsInvalid(err) && isUIDImmutable(said):
		return Rejection{} // another pod by that name: what a 409 means elsewhere
	case apierrors.IsInvalid(err):
		return Rejection{invalidReason(said.Message), said.Message}
	case apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return Rejection{v1beta1.ReasonRejected, said.Message} // some webhooks deny with a 400
	}
	return Rejection{}
}

// OfEviction tells the answers to an eviction apart. retryAfter is what the API server asks for
// where a PodDisruptionBudget does not allow it now; 0 for nothing.
func OfEviction(err error) (refused Rejection, retryAfter time.Duration) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Rejection{}, 0
	}
	said := status.Status()
	switch {
	case apierrors.IsTooManyRequests(err) && hasCause(said, policyv1.DisruptionBudgetCause):
		return Rejection{v1beta1.ReasonDisruptionBudget, disruptionBudgetMessage(said)}, time.Duration(said.Details.RetryAfterSeconds) * time.Second
	case apierrors.IsInternalError(err) || said.Code == http.StatusInternalServerError:
		if strings.Contains(said.Message, "more than one PodDisruptionBudget") {
			return Rejection{v1beta1.ReasonManyDisruptionBudgets, "Several PodDisruptionBudgets select the pod, and Kubernetes then evicts none"}, 0
		}
		return Rejection{}, 0
	case apierrors.IsForbidden(err) && hasCause(said, causeNamespaceTerminating):
		return Rejection{v1beta1.ReasonNamespaceTerminating, "The namespace is being deleted"}, 0
	case apierrors.IsNotFound(err):
		return Rejection{}, 0 // the pod has gone
	}
	return Of(err), 0
}

// budgetName is how the API server names the budget. It also tells the numbers of pods, which
// change all the time.
var disruptionBudgetName = regexp.MustCompile(`The disruption budget (\S+) `)

func disruptionBudgetMessage(said metav1.Status) string {
	for _, cause := range said.Details.Causes {
		if name := disruptionBudgetName.FindStringSubmatch(cause.Message); name != nil {
			return "PodDisruptionBudget " + name[1] + " does not allow an eviction now"
		}
	}
	return "A PodDisruptionBudget does not allow an eviction now"
}

func hasCause(status metav1.Status, cause metav1.CauseType) bool {
	if status.Details == nil {
		return false
	}
	for _, c := range status.Details.Causes {
		if c.Type == cause {
			return true
		}
	}
	return false
}

func isUIDImmutable(status metav1.Status) bool {
	if status.Details == nil {
		return false
	}
	for _, c := range status.Details.Causes {
		if c.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

// unknownKind is how the admission of owner references says, for half a minute after an
// installation, that it has not heard of the owner's kind yet.
const unknownOwnerKind = "cannot find RESTMapping"

func forbiddenReason(message string) string {
	switch {
	case strings.Contains(message, "exceeded quota"):
		return v1beta1.ReasonQuotaExceeded
	case strings.Contains(message, " per Container is ") || strings.Contains(message, " per Pod is ") || strings.Contains(message, " ratio per "):
		return v1beta1.ReasonLimitRange
	case missingPermission.MatchString(message):
		return v1beta1.ReasonForbidden
	}
	return v1beta1.ReasonRejected
}

// lackingRight is how the API server words that a right is missing.
var missingPermission = regexp.MustCompile(` cannot [a-z]+ resource "`)

func invalidReason(message string) string {
	switch {
	case strings.Contains(message, "Pod QOS Class may not change"):
		return v1beta1.ReasonQoSChange
	case strings.Contains(message, "without support for resize"):
		return v1beta1.ReasonUnsupported
	}
	return v1beta1.ReasonRejected
}
