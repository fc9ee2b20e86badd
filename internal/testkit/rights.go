// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
)

// findPolicyRights completes the scope of an operator that acts as a service account with what the operator itself finds out
// when it starts: whether it has the rights for policies. They are opt-in, and an operator that waits for a kind that
// it may not read reconciles nothing.
func findPolicyRights(config *rest.Config, scope *app.Scope) error {
	if config.Impersonate.UserName == "" {
		return nil // an administrator
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "testkit"
	reviews, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client for access reviews: %w", err)
	}
	wanted := map[string]authorizationv1.ResourceAttributes{"update verticalscalers": {
		Verb: "update", Group: "autoscaling.verticalscaler.io", Resource: "verticalscalers",
	}}
	if len(scope.Namespaces) == 0 {
		wanted["watch namespaces"] = authorizationv1.ResourceAttributes{Verb: "watch", Resource: "namespaces"}
	}
	namespaces := scope.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		for name, attributes := range wanted {
			attributes.Namespace = namespace
			answer, err := reviews.SelfSubjectAccessReviews().Create(context.Background(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("asking whether the operator may %s: %w", name, err)
			}
			if !answer.Status.Allowed {
				scope.PoliciesForbidden = name
			}
		}
	}
	return nil
}
