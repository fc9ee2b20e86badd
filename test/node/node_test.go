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
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/test/node/internal/realnode"
)

const (
	replicas = 2
	// long is the timeout of every wait: metrics-server scrapes every 10 s, the kubelet
	// syncs every few seconds, and the machine may be busy.
	long = 4 * time.Minute
)

var (
	node *realnode.Node
	env  *testkit.Env
	// resizes counts the resizes that the operator requests; told is the usage that the tests report.
	resizes = &counter{asked: map[string]int{}}
	told    = &source{said: map[string]amounts{}, rounds: map[string]int{}, start: time.Now()}

	load = client.ObjectKey{Namespace: "default", Name: "load"}
)

func TestMain(m *testing.M) {
	realnode.Main(m, []string{"node/up.sh"}, func(n *realnode.Node) error {
		if _, err := envtest.InstallCRDs(n.Config, envtest.CRDInstallOptions{
			Paths: []string{filepath.Join(testkit.Root(), "config", "crd", "bases")}, ErrorIfPathMissing: true,
		}); err != nil {
			return fmt.Errorf("installing the CRDs: %w", err)
		}
		node, env = n, &testkit.Env{Config: n.Config, Client: n.Client}
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
	if told.metrics, err = metricsapi.New(env.Config); err != nil {
		return err
	}
	operator := testkit.Env{Config: rest.CopyConfig(env.Config), Client: env.Client}
	operator.Config.Wrap(resizes.counting)
	_, err = operator.Operate("all-tests", c, told)
	return err
}

// TestTheKernelEnforcesWhatWasDecided follows a Deployment of real pods through a rise of
// CPU and memory and an OOM kill, with usage from metrics-server.
func TestTheKernelEnforcesWhatWasDecided(t *testing.T) {
	t.Parallel()
	create(t, realnode.Deployment(load, replicas))
	create(t, &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: load.Namespace, Name: load.Name},
		Spec: v1beta1.VerticalScalerSpec{
			DeploymentName: load.Name,
			Scaling:        v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{CooldownSeconds: ptr.To(int32(0))}},
		},
	})
	testkit.Eventually(t, long, func() string {
		if n := len(node.RunningPods(t, load)); n != replicas {
			return fmt.Sprintf("%d pods run", n)
		}
		return ""
	})

	t.Run("rising usage raises requests and limits in the cgroup", func(t *testing.T) {
		for _, pod := range node.RunningPods(t, load) {
			node.Load(t, pod, realnode.AppPort, 250, 100)
		}
		testkit.Eventually(t, long, func() string {
			return node.Unapplied(t, load, replicas, func(requests realnode.Requests) string {
				if requests.CPUMillis < 250 || requests.MemoryBytes < 100<<20 {
					return fmt.Sprintf("decided is %+v, below the usage", requests)
				}
				return ""
			})
		})
		for _, pod := range node.RunningPods(t, load) {
			if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
				t.Errorf("pod %s was restarted %d times", pod.Name, n)
			}
		}
	})

	t.Run("an OOM kill of one pod raises the memory of all", func(t *testing.T) {
		var victim corev1.Pod
		testkit.Eventually(t, long, func() string {
			// Statuses have whole seconds: nobody knows which size a kill within the second of a resize has hit.
			victim = node.RunningPods(t, load)[0]
			if age := time.Since(workload.ReadPod(&victim, true).Resized); age < 2*time.Second {
				return fmt.Sprintf("pod %s was resized %s ago", victim.Name, age)
			}
			return ""
		})
		limit := node.Limits(t, victim).MemoryLimitBytes
		node.Overload(t, victim, realnode.AppPort, 10, limit>>20+40)
		testkit.Eventually(t, long, func() string {
			for _, pod := range node.RunningPods(t, load) {
				last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated
				if pod.Name == victim.Name && last != nil && last.Reason == "OOMKilled" {
					return ""
				}
			}
			return "no OOM kill yet of pod " + victim.Name
		})
		testkit.Eventually(t, long, func() string {
			return node.Unapplied(t, load, replicas, func(requests realnode.Requests) string {
				if floor := limit * 12 / 10; requests.MemoryBytes < floor {
					return fmt.Sprintf("decided is %d bytes, below the floor of the kill, %d", requests.MemoryBytes, floor)
				}
				return ""
			})
		})
		for _, pod := range node.RunningPods(t, load) {
			want := int32(0)
			if pod.Name == victim.Name {
				want = 1
			}
			if n := pod.Status.ContainerStatuses[0].RestartCount; n != want {
				t.Errorf("pod %s was restarted %d times, not %d", pod.Name, n, want)
			}
		}
	})
}
