// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/provision"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/upgradeable"
)

// addInstallation adds what concerns the operator's own installation: what OLM is told before an
// upgrade, and what is created in the operator's namespace.
func addInstallation(mgr ctrl.Manager, c config.Operator, scope Scope) error {
	namespace := os.Getenv(provision.NamespaceEnv)
	if err := upgradeable.Setup(mgr, namespace); err != nil {
		return fmt.Errorf("adding the gate for upgrades: %w", err)
	}
	if err := provision.Setup(mgr, provisionOptions(c, scope, namespace, os.Getenv(provision.DeploymentEnv))); err != nil {
		return fmt.Errorf("adding what is provisioned: %w", err)
	}
	return nil
}

// provisionOptions turns the configuration and the scope into what to provision.
func provisionOptions(c config.Operator, scope Scope, namespace, deployment string) provision.Options {
	return provision.Options{
		Namespace:  namespace,
		Deployment: deployment,
		// If no client can read metrics, there is nothing to monitor.
		Monitoring:    c.Provision.Monitoring && c.Metrics.BindAddress != "0" && scope.MetricsForbidden == "",
		NetworkPolicy: c.Provision.NetworkPolicy,
		SecureMetrics: c.Metrics.Secure,
		ResyncPeriod:  c.ResyncPeriod.Duration,
	}
}
