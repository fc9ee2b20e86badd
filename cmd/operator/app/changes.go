// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

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

// freezeName returns the ConfigMap that freezes changes; ok is false if there is none.
func freezeName(c config.Operator, own string) (name types.NamespacedName, ok bool) {
	name = types.NamespacedName{Namespace: cmp.Or(c.Freeze.Namespace, own), Name: c.Freeze.ConfigMap}
	return name, name.Namespace != "" && name.Name != ""
}

// freezeSwitch returns the switch that freezes changes and the client that watches it; nil
// if there is none.
func freezeSwitch(mgr ctrl.Manager, c config.Operator) (*freeze.Switch, corev1client.ConfigMapsGetter, error) {
	name, ok := freezeName(c, os.Getenv(NamespaceEnv))
	if !ok {
		mgr.GetLogger().Info("Freeze switch is disabled because the operator's namespace is unknown or the configuration names no ConfigMap",
			"unset", NamespaceEnv)
		return nil, nil, nil
	}
	api, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("creating a client for the freeze switch: %w", err)
	}
	return freeze.New(name), api, nil
}
