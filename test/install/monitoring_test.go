// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// TestTheScraperMayOnlyReadMetrics applies what docs/monitoring.md says, on a control plane
// that writes tokens.
func TestTheScraperMayOnlyReadMetrics(t *testing.T) {
	bare(t)
	mustRun(t, commandsOf(t, "## Install")[0])
	prometheusOperator := envtest.CRDInstallOptions{Paths: []string{filepath.Join("testdata", "monitoring-crds.yaml")}, ErrorIfPathMissing: true}
	if _, err := envtest.InstallCRDs(env.Config, prometheusOperator); err != nil {
		t.Fatal(err)
	}
	defer func() { must.Succeed(t, envtest.UninstallCRDs(env.Config, prometheusOperator)) }()
	mustRun(t, "kubectl apply -f dist/monitoring.yaml")
	defer func() { mustRun(t, "kubectl delete --ignore-not-found -f dist/monitoring.yaml") }()
	var secret corev1.Secret
	testkit.Eventually(t, soon, func() string {
		if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: system, Name: "verticalscaler-metrics-scraper"}, &secret); err != nil {
			return err.Error()
		}
		if len(secret.Data["token"]) == 0 {
			return "the Secret has no token"
		}
		return ""
	})
	as := rest.AnonymousClientConfig(env.Config)
	as.BearerToken = string(secret.Data["token"])
	reviews, err := authorizationclient.NewForConfig(as)
	must.Succeed(t, err)
	may := func(spec authorizationv1.SelfSubjectAccessReviewSpec) (bool, error) {
		review, err := reviews.SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
	testkit.Eventually(t, soon, func() string { // the API server observes a binding with a delay
		allowed, err := may(authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}})
		if !allowed || err != nil {
			return fmt.Sprintf("the token may get /metrics: %t, %v", allowed, err)
		}
		return ""
	})
	// Every account may read public data only: itself, and the bundles of certificate authorities.
	rules, err := reviews.SelfSubjectRulesReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: system}}, metav1.CreateOptions{})
	must.Succeed(t, err)
	public := []string{"authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io"}
	for _, rule := range rules.Status.ResourceRules {
		if slices.ContainsFunc(rule.APIGroups, func(group string) bool { return !slices.Contains(public, group) }) {
			t.Errorf("the token also may %+v", rule)
		}
	}
}
