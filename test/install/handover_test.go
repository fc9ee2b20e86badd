// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"net/http"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// TestANewLeaderFinishesAnUninstallation deletes the CRDs one after another, in the order of their names, as "operator-sdk
// cleanup" does. Most are gone when another replica takes the lead, as right after an upgrade. It still restores the
// template of the last scaler.
func TestANewLeaderFinishesAnUninstallation(t *testing.T) {
	bare(t)
	mustRun(t, commandsOf(t, "## Install")[0])
	running(t)
	c := testkit.OperatorConfig()
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, system
	leader := operatorWith(t, c)
	w := scaled(newNamespace(t), v1beta1.UpdateModeRollout)
	var err error
	if c.Health.BindAddress, err = process.FreeAddress(); err != nil {
		t.Fatal(err)
	}
	operatorWith(t, c)
	ready(t, c.Health.BindAddress)

	listed(t)
	const group = ".autoscaling.verticalscaler.io"
	for _, kind := range []string{"clusterscalingpolicies", "newpodsizes", "scaleddeployments", "scalingpolicies", "verticalscalercheckpoints"} {
		mustRun(t, "kubectl delete crd "+kind+group)
	}
	leader.Stop(t)
	mustRun(t, "kubectl delete crd verticalscalers"+group)
	w.isRestored()
}

// ready waits until the operator that serves its health at the address is ready.
func ready(t *testing.T, address string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close() //nolint:errcheck // It is only read.
		if response.StatusCode != http.StatusOK {
			return "the operator is not ready: " + response.Status
		}
		return ""
	})
}
