// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"strings"

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

// refusal is what the API server's answer to a change means.
type refusal struct {
	// reason is one of the reasons of the condition Applied; empty where the answer
	// is no verdict on the change: a conflict, a pod that has gone, an outage.
	reason  string
	message string
}

// refusalOf tells the API server's answers apart.
//
// The status code alone does not: 403 stands for a missing right, a node that is
// too small, a quota, a LimitRange and more. Where the answer has a cause, the
// cause decides. The rest differ by free text only, so what is read from the text
// is the name that we give to the refusal, never what we do about it: all of them
// wait until the wish, the pod or the time has changed.
func refusalOf(err error) refusal {
	if err == nil || apierrors.IsConflict(err) {
		return refusal{}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return refusal{} // not an answer at all
	}
	said := status.Status()
	switch {
	case apierrors.IsNotFound(err) && hasCause(said, metav1.CauseTypeUnexpectedServerResponse):
		return refusal{v1beta1.ReasonUnsupported, "The API server does not know pods/resize: it cannot resize pods in place"}
	case apierrors.IsNotFound(err):
		return refusal{} // it has gone
	case hasCause(said, causeNodeCapacity):
		return refusal{v1beta1.ReasonNodeCapacity, said.Message}
	case hasCause(said, causeUnsupportedPlatform):
		return refusal{v1beta1.ReasonUnsupported, said.Message}
	case hasCause(said, causeNamespaceTerminating):
		return refusal{v1beta1.ReasonNamespaceTerminating, "The namespace is being deleted"}
	case apierrors.IsForbidden(err):
		return refusal{forbiddenFor(said.Message), said.Message}
	case apierrors.IsInvalid(err) && isUIDImmutable(said):
		return refusal{} // another pod by that name: what a 409 means elsewhere
	case apierrors.IsInvalid(err):
		return refusal{invalidFor(said.Message), said.Message}
	case apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
		return refusal{v1beta1.ReasonRejected, said.Message} // some webhooks deny with a 400
	}
	return refusal{}
}

// refusedBy says why the step is not taken, and whether the answer was a refusal at all.
func (p *pass) refusedBy(err error) bool {
	refused := refusalOf(err)
	if refused.reason == "" {
		return false
	}
	p.plan.Reason, p.plan.Message, p.plan.Stalled = refused.reason, refused.message, true
	p.plan.Changing = false
	return true
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

func forbiddenFor(message string) string {
	switch {
	case strings.Contains(message, "exceeded quota"):
		return v1beta1.ReasonQuotaExceeded
	case strings.Contains(message, " per Container is ") || strings.Contains(message, " per Pod is ") || strings.Contains(message, " ratio per "):
		return v1beta1.ReasonLimitRange
	case strings.Contains(message, "cannot patch resource") || strings.Contains(message, "cannot get resource"):
		return v1beta1.ReasonForbidden
	}
	return v1beta1.ReasonRejected
}

func invalidFor(message string) string {
	switch {
	case strings.Contains(message, "Pod QOS Class may not change"):
		return v1beta1.ReasonQoSChange
	case strings.Contains(message, "without support for resize"):
		return v1beta1.ReasonUnsupported
	}
	return v1beta1.ReasonRejected
}
