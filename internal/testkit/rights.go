// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
)

// findPolicyRights completes the scope of an operator that acts as a service account with what the operator itself finds out
// when it starts: whether it has the rights of config/policies. They are opt-in, and an operator that waits for a kind that
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
	const right = "update verticalscalers"
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: "update", Group: v1beta1.GroupVersion.Group, Resource: "verticalscalers", Namespace: strings.Join(scope.Namespaces[:min(1, len(scope.Namespaces))], ""),
	}}}
	if review, err = reviews.SelfSubjectAccessReviews().Create(context.Background(), review, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("asking whether the operator may %s: %w", right, err)
	}
	if !review.Status.Allowed {
		scope.PoliciesForbidden = right
	}
	return nil
}
