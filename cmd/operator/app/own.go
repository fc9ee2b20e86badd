// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/upgradeable"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
)

// NamespaceEnv is the environment variable with the operator's namespace.
const NamespaceEnv = "POD_NAMESPACE"

// addInstallation adds the parts that concern the operator's own installation: the OLM
// upgrade gate, and the check of the admission policies.
func addInstallation(mgr ctrl.Manager, c config.Operator) error {
	namespace := os.Getenv(NamespaceEnv)
	if err := upgradeable.Setup(mgr, namespace); err != nil {
		return fmt.Errorf("adding the upgrade gate: %w", err)
	}
	if err := policies.Setup(mgr, namespace, releaseOf(c)); err != nil {
		return fmt.Errorf("adding the check of the admission policies: %w", err)
	}
	return nil
}

// releaseOf is the release that the operator belongs to.
func releaseOf(c config.Operator) release.Release {
	return release.Release{Version: c.Version, Namespace: os.Getenv(NamespaceEnv)}
}
