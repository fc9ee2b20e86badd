// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package apierror

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOfEviction(t *testing.T) {
	cause := func(message string) metav1.StatusCause {
		return metav1.StatusCause{Type: "DisruptionBudget", Message: message}
	}
	later := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: "Failure", Code: 429, Reason: "TooManyRequests", Details: &metav1.StatusDetails{
			RetryAfterSeconds: 10, Causes: []metav1.StatusCause{cause("The disruption budget web is still being processed by the server.")},
		},
	}}
	for name, tc := range map[string]struct {
		err           error
		want, message string
		after         time.Duration
	}{
		"a budget": {
			answer(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", cause("The disruption budget web needs 3 healthy pods and has 3 currently")),
			"DisruptionBudget", "PodDisruptionBudget web does not allow an eviction now", 0,
		},
		"a budget with a retry delay": {later, "DisruptionBudget", "PodDisruptionBudget web does not allow an eviction now", 10 * time.Second},
		"a budget without a name":     {answer(429, "TooManyRequests", "no", cause("no")), "DisruptionBudget", "A PodDisruptionBudget does not allow an eviction now", 0},
		"an overloaded API server":    {answer(429, "TooManyRequests", "The request was rejected"), "", "", 0},
		"several budgets":             {answer(500, "", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."), "ManyDisruptionBudgets", "Several PodDisruptionBudgets select the pod, which Kubernetes evictions do not support", 0},
		"an API server that fails":    {answer(500, "InternalError", "etcdserver: leader changed"), "", "", 0},
		"a missing permission":        {answer(403, "Forbidden", `pods "web-1" is forbidden: User "x" cannot create resource "pods/eviction" in API group "" in the namespace "shop"`), "Forbidden", `pods "web-1" is forbidden: User "x" cannot create resource "pods/eviction" in API group "" in the namespace "shop"`, 0},
		"a terminating namespace":     {answer(403, "Forbidden", "no", metav1.StatusCause{Type: "NamespaceTerminating"}), "NamespaceTerminating", "The namespace is being deleted", 0},
		"a policy":                    {answer(403, "Forbidden", "denied request"), "Rejected", "denied request", 0},
		"a deleted pod":               {answer(404, "NotFound", "no", metav1.StatusCause{Type: "UnexpectedServerResponse"}), "", "", 0},
		"another pod with that name":  {answer(409, "Conflict", "Precondition failed: UID in precondition"), "", "", 0},
		"no answer":                   {context.DeadlineExceeded, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, after := OfEviction(tc.err)
			if got.Reason != tc.want || got.Message != tc.message || after != tc.after {
				t.Errorf("OfEviction() = %+v, %s", got, after)
			}
		})
	}
}
