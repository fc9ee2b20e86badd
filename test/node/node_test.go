// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

// Package node runs the operator against a real kubelet with containerd, and reads from
// the kernel how its decisions are enforced. It needs root on Linux; hack/node/check.sh
// checks the other requirements.
//
// One node and one operator serve all tests, which run in parallel, each in its own
// namespace.
//
// The following resize problems cannot be tested on this node:
//   - Infeasible. A kubelet of 1.37 reports it for Guaranteed pods under a static policy
//     for CPU or memory, for containers with swap, and for volumes in memory. This node has
//     neither such a policy nor swap, and volumes are not sized. The API server itself
//     rejects more than the node has (NodeCapacity, which is tested here).
//   - Unsupported. The API server refuses to resize pods on Windows, and a kubelet that
//     reports no resources is older than this one.
//
// internal/plan tests how the planner handles them, and internal/apiserver/apierror
// classifies the API server's answers.
package node

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/node/internal/realnode"
)

const (
	// long is the timeout of every wait: metrics-server scrapes every 10 s, the kubelet
	// syncs every few seconds, and the machine may be busy.
	long = 4 * time.Minute
)

var (
	node *realnode.Node
	env  *testkit.Env
	// resizes counts the resizes that the operator requests; reportedUsage is the usage that the tests report. test/node/olm has
	// usage from metrics-server.
	resizes       = &counter{asked: map[string]int{}}
	reportedUsage = &source{reported: map[string]amounts{}, rounds: map[string]int{}, start: time.Now()}
)

func TestMain(m *testing.M) {
	realnode.Main(m, "node/up.sh", func(n *realnode.Node) error {
		if _, err := envtest.InstallCRDs(n.Config, envtest.CRDInstallOptions{
			Paths: []string{filepath.Join(testkit.Root(), "config", "crd", "bases")}, ErrorIfPathMissing: true,
		}); err != nil {
			return fmt.Errorf("installing the CRDs: %w", err)
		}
		node, env = n, &testkit.Env{Config: n.Config, Client: n.Client}
		for _, object := range []client.Object{admission.Policy(), admission.Binding()} {
			if err := n.Client.Create(context.Background(), object); err != nil {
				return fmt.Errorf("installing the policy for new pods: %w", err)
			}
		}
		return startOperator()
	})
}

// startOperator starts the operator of all tests.
func startOperator() (err error) {
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 5 * time.Second
	// A day is compressed to half a minute, so that the tests see results within minutes.
	c.Recommendation.CPUHalfLife.Duration = 30 * time.Second
	c.Recommendation.RecentHalfLife.Duration = 10 * time.Second
	c.Recommendation.MinEvidence.Duration = 10 * time.Second
	c.Recommendation.ConfidenceUnit.Duration = 30 * time.Second
	operator := testkit.Env{Config: rest.CopyConfig(env.Config), Client: env.Client}
	operator.Config.Wrap(resizes.counting)
	_, err = operator.Operate("all-tests", c, reportedUsage)
	return err
}
