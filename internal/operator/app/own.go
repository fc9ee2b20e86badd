// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/provision"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/upgradeable"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
)

// addInstallation adds the parts that concern the operator's own installation: the OLM
// upgrade gate, the check of the admission policies, and the objects that the operator
// provisions in its namespace.
func addInstallation(mgr ctrl.Manager, c config.Operator, scope Scope) error {
	namespace := os.Getenv(provision.NamespaceEnv)
	if err := upgradeable.Setup(mgr, namespace); err != nil {
		return fmt.Errorf("adding the upgrade gate: %w", err)
	}
	if err := policies.Setup(mgr, namespace, releaseOf(c)); err != nil {
		return fmt.Errorf("adding the check of the admission policies: %w", err)
	}
	if err := provision.Setup(mgr, provisionOptions(c, scope, namespace, os.Getenv(provision.DeploymentEnv))); err != nil {
		return fmt.Errorf("adding the provisioner: %w", err)
	}
	return nil
}

// releaseOf is the release that the operator belongs to.
func releaseOf(c config.Operator) release.Release {
	return release.Release{Version: c.Version, Namespace: os.Getenv(provision.NamespaceEnv)}
}

// provisionOptions converts the configuration and the scope to options of the provisioner.
func provisionOptions(c config.Operator, scope Scope, namespace, deployment string) provision.Options {
	return provision.Options{
		Namespace:  namespace,
		Deployment: deployment,
		// If all requests for metrics are rejected, there is nothing to monitor.
		Monitoring:    c.Provision.Monitoring && c.Metrics.BindAddress != "0" && scope.MetricsForbidden == "",
		NetworkPolicy: c.Provision.NetworkPolicy,
		SecureMetrics: c.Metrics.Secure,
		CertDir:       c.Metrics.CertDir,
		ResyncPeriod:  c.ResyncPeriod.Duration,
	}
}
