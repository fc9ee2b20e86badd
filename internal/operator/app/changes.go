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

	"github.com/verticalscaler/verticalscaler-operator/controllers/verticalscaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/provision"
)

// newBudget makes the budget of changes. One serves all managers of the process, so
// that one that starts anew does not begin with a full purse.
func newBudget(c config.Operator) *budget.Budget {
	return budget.New(budget.Limits{
		Changes:      c.Budget.ChangesPerMinute,
		PerNamespace: c.Budget.ChangesPerMinutePerNamespace,
		Window:       c.Budget.Window,
	})
}

// freezeName is the ConfigMap that freezes changes; ok is false for none.
func freezeName(c config.Operator, own string) (name types.NamespacedName, ok bool) {
	name = types.NamespacedName{Namespace: cmp.Or(c.Freeze.Namespace, own), Name: c.Freeze.ConfigMap}
	return name, name.Namespace != "" && name.Name != ""
}

// addFreeze gives the reconciler its freeze switch.
func addFreeze(mgr ctrl.Manager, c config.Operator, r *verticalscaler.Reconciler) error {
	name, ok := freezeName(c, os.Getenv(provision.NamespaceEnv))
	if !ok {
		mgr.GetLogger().Info("There is no freeze switch: the operator does not know its own namespace, or the configuration names no ConfigMap",
			"unset", provision.NamespaceEnv)
		return nil
	}
	api, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client for the freeze switch: %w", err)
	}
	r.Freeze, r.FreezeAPI = freeze.New(name), api
	return nil
}
