// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// newBudget creates the change budget. All managers of the process share it, so that a
// restarted manager does not start with a full budget.
func newBudget(c config.Operator) *budget.Budget {
	return budget.New(budget.Limits{
		Changes:      c.Budget.ChangesPerMinute,
		PerNamespace: c.Budget.ChangesPerMinutePerNamespace,
		PodPercent:   c.Budget.PodPercentPerMinute,
		Window:       c.Budget.Window,
		Wakes:        2 * c.Workers.VerticalScalers,
	})
}

// addFreezeSwitch adds the switch that freezes changes, and the client that watches its ConfigMap, if both have a name.
func (a *assembly) addFreezeSwitch(context.Context) error {
	name := types.NamespacedName{Namespace: cmp.Or(a.config.Freeze.Namespace, a.namespace), Name: a.config.Freeze.ConfigMap}
	if name.Namespace == "" || name.Name == "" {
		a.mgr.GetLogger().Info("Freeze switch is disabled because the operator's namespace is unknown or the configuration names no ConfigMap",
			"unset", NamespaceEnv)
		return nil
	}
	api, err := corev1client.NewForConfigAndClient(a.mgr.GetConfig(), a.mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("creating a client for the freeze switch: %w", err)
	}
	a.freeze, a.freezeAPI = freeze.New(name), api
	return nil
}
