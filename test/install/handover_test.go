// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"fmt"
	"net/http"
	"strings"
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
	must(t, commandsOf(t, "## Install")[0])
	running(t)
	c := testkit.OperatorConfig()
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, system
	leader := operatorWith(t, c)
	w := scaled(t, env.Namespace(t), v1beta1.UpdateModeRollout)
	ready(t, func(address string) {
		c.Health.BindAddress = address
		operatorWith(t, c)
	})

	listed(t)
	const group = ".autoscaling.verticalscaler.io"
	for _, kind := range []string{"clusterscalingpolicies", "newpodsizes", "scaleddeployments", "scalingpolicies", "verticalscalercheckpoints"} {
		must(t, "kubectl delete crd "+kind+group)
	}
	leader.Stop(t)
	must(t, "kubectl delete crd verticalscalers"+group)
	if got := w.templateCPU(t); got != 100 {
		t.Errorf("the template asks for %dm, not for its own 100m", got)
	}
}

// ready starts a replica that serves its health at an address, and waits until it is ready.
func ready(t *testing.T, start func(address string)) {
	t.Helper()
	address, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	start(address)
	testkit.Eventually(t, soon, func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz?verbose", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close() //nolint:errcheck // It is only read.
		if response.StatusCode != http.StatusOK {
			return fmt.Sprintf("the replica is not ready: %s", strings.TrimSpace(response.Status))
		}
		return ""
	})
}
