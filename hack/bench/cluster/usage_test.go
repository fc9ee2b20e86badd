// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

// The operator's own client must understand the served usage.
func TestTheOperatorReadsTheServedUsage(t *testing.T) {
	u := &usage{deployments: fleet.PerNamespace + 10}
	u.raise(func(deployment int) bool { return deployment < 5 })
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	source, err := metricsapi.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]int{
		fleet.Namespace(0): fleet.PerNamespace, fleet.Namespace(fleet.PerNamespace): 10, fleet.Namespace(5 * fleet.PerNamespace): 0, "other-0000": 0,
	} {
		samples, refused, err := source.List(t.Context(), namespace, time.Now())
		if err != nil || len(refused) > 0 {
			t.Errorf("%s: %v, %v", namespace, refused, err)
		}
		if len(samples) != want*fleet.Pods*fleet.Containers {
			t.Errorf("%s has %d samples, not those of %d Deployments", namespace, len(samples), want)
		}
		for _, s := range samples {
			cpu := int64(fleet.CPUMillis)
			if s.Pod < fleet.Name(5) {
				cpu = raisedCPU
			}
			if s.CPUMillis != cpu {
				t.Errorf("pod %s uses %dm, not %dm", s.Pod, s.CPUMillis, cpu)
			}
		}
	}
	if got := len(u.list("").Items); got != (fleet.PerNamespace+10)*fleet.Pods {
		t.Errorf("there are %d pods in all", got)
	}
}
