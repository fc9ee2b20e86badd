// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apierror classifies the API server's answers to a write: rejections and other errors.
package apierror

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Causes of rejections that Kubernetes does not export as constants.
const (
	causeNodeCapacity         = "NodeCapacity"
	causeUnsupportedPlatform  = "UnsupportedPlatform"
	causeNamespaceTerminating = "NamespaceTerminating"
)

// Rejection is the API server's rejection of a write. Without a Reason, there is none.
type Rejection struct {
	// Reason is one of the condition reasons in api/v1beta1. It is empty if the error does
	// not reject the write: a conflict, a deleted object, an outage.
	Reason string
	// Message is the message of the API server.
	Message string
}

// Of classifies an answer of the API server.
//
// The status code is not enough: 403 stands for a missing permission, a node that is too
// small, a quota, a LimitRange and more. A cause decides if the answer has one. Other answers
// differ only in their text. So the text selects the reason that users see, never what the
// operator does: after any rejection it waits until the request, the pod or the time has
// changed.
func Of(err error) Rejection {
	if err == nil || apierrors.IsConflict(err) {
		return Rejection{}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Rejection{} // not an answer of the API server
	}
	answer := status.Status()
	switch {
	case apierrors.IsNotFound(err) && hasCause(answer, metav1.CauseTypeUnexpectedServerResponse):
		return Rejection{v1beta1.ReasonUnsupported, "The API server has no pods/resize subresource and cannot resize pods in place"}
	case apierrors.IsNotFound(err):
		return Rejection{} // the object is deleted
	case hasCause(answer, causeNodeCapacity):
		return Rejection{v1beta1.ReasonNodeCapacity, answer.Message}
	case hasCause(answer, causeUnsupportedPlatform):
		return Rejection{v1beta1.ReasonUnsupported, answer.Message}
	case hasCause(answer, causeNamespaceTerminating):
		return Rejection{v1beta1.ReasonNamespaceTerminating, "The namespace is being deleted"}
	case apierrors.IsForbidden(err) && strings.Contains(answer.Message, unknownOwnerKind):
		return Rejection{}
	case apierrors.IsForbidden(err):
		return Rejection{forbiddenReason(answer.Message), answer.Message}
	case apierrors.IsInvalid(err) && isUIDImmutable(answer):
		return Rejection{} // another pod with that name; other requests return a 409
	case apierrors.IsInvalid(err):
		return Rejection{invalidReason(answer.Message), answer.Message}
	case apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return Rejection{v1beta1.ReasonRejected, answer.Message} // some webhooks reject with a 400
	case apierrors.IsInternalError(err) && strings.Contains(answer.Message, failedWebhook):
		return Rejection{v1beta1.ReasonRejected, answer.Message}
	}
	return Rejection{}
}

// OfEviction classifies an answer to an eviction. retryAfter is the API server's delay if a
// PodDisruptionBudget allows no eviction now.
func OfEviction(err error) (rejection Rejection, retryAfter time.Duration) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Rejection{}, 0
	}
	answer := status.Status()
	switch {
	case apierrors.IsTooManyRequests(err) && hasCause(answer, policyv1.DisruptionBudgetCause):
		return Rejection{v1beta1.ReasonDisruptionBudget, disruptionBudgetMessage(answer)}, time.Duration(answer.Details.RetryAfterSeconds) * time.Second
	case apierrors.IsInternalError(err) || answer.Code == http.StatusInternalServerError:
		if strings.Contains(answer.Message, "more than one PodDisruptionBudget") {
			return Rejection{v1beta1.ReasonManyDisruptionBudgets, "Several PodDisruptionBudgets select the pod, which Kubernetes evictions do not support"}, 0
		}
		return Rejection{}, 0
	case apierrors.IsNotFound(err):
		return Rejection{}, 0 // the pod is deleted
	}
	return Of(err), 0
}

// disruptionBudgetName matches the name of the budget. The message also has numbers of pods,
// which change often.
var disruptionBudgetName = regexp.MustCompile(`The disruption budget (\S+) `)

func disruptionBudgetMessage(answer metav1.Status) string {
	for _, cause := range answer.Details.Causes {
		if name := disruptionBudgetName.FindStringSubmatch(cause.Message); name != nil {
			return "PodDisruptionBudget " + name[1] + " does not allow an eviction now"
		}
	}
	return "A PodDisruptionBudget does not allow an eviction now"
}

func hasCause(status metav1.Status, cause metav1.CauseType) bool {
	return hasCauseThat(status, func(c metav1.StatusCause) bool { return c.Type == cause })
}

func hasCauseThat(status metav1.Status, is func(metav1.StatusCause) bool) bool {
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, is)
}

func isUIDImmutable(status metav1.Status) bool {
	return hasCauseThat(status, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// failedWebhook is part of the message while a webhook with the failure policy Fail does not answer. Its objects
// cannot be written while it is down.
const failedWebhook = "failed calling webhook"

// unknownOwnerKind is part of the message of the owner reference admission while it does not
// know the owner's kind yet, up to half a minute after an installation.
const unknownOwnerKind = "cannot find RESTMapping"

func forbiddenReason(message string) string {
	switch {
	case strings.Contains(message, "exceeded quota"):
		return v1beta1.ReasonQuotaExceeded
	case strings.Contains(message, " per Container is ") || strings.Contains(message, " per Pod is ") || strings.Contains(message, " ratio per "):
		return v1beta1.ReasonLimitRange
	case strings.Contains(message, "which are not available on node"): // of features
		return v1beta1.ReasonUnsupported
	case missingPermission.MatchString(message):
		return v1beta1.ReasonForbidden
	}
	return v1beta1.ReasonRejected
}

// missingPermission matches the message for a missing permission.
var missingPermission = regexp.MustCompile(` cannot [a-z]+ resource "`)

func invalidReason(message string) string {
	switch {
	case strings.Contains(message, "Pod QOS Class may not change"):
		return v1beta1.ReasonQoSChange
	case strings.Contains(message, "without support for resize"), strings.Contains(message, "pods with pod-level resources"),
		strings.Contains(message, "windows pods cannot be resized"):
		return v1beta1.ReasonUnsupported
	}
	return v1beta1.ReasonRejected
}
