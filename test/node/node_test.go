// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

// Package node runs the operator against a real kubelet with containerd, and reads
// from the kernel what has become of its decisions. It needs root on Linux;
// hack/node/check.sh says what else.
package node

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/test/node/internal/realnode"
)

const (
	replicas = 2
	// long is how long anything may take here: metrics-server looks every 10 s, the
	// kubelet every few, and the machine may be busy.
	long = 4 * time.Minute
)

var (
	node *realnode.Node
	env  *testkit.Env
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
		return nil
	})
}

// TestTheKernelEnforcesWhatWasDecided follows a Deployment of real pods through a
// rise of CPU and memory and an OOM kill.
func TestTheKernelEnforcesWhatWasDecided(t *testing.T) {
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 5 * time.Second
	// A day is half a minute here, so that there is something to see within minutes.
	c.Recommendation.CPUHalfLife.Duration = 30 * time.Second
	c.Recommendation.RecentHalfLife.Duration = 10 * time.Second
	c.Recommendation.MinEvidence.Duration = 10 * time.Second
	c.Recommendation.ConfidenceUnit.Duration = 30 * time.Second
	source, err := metricsapi.New(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	env.StartOperator(t, c, source)

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

	t.Run("a rise of usage raises requests and limits in the cgroup", func(t *testing.T) {
		for _, pod := range node.RunningPods(t, load) {
			node.Load(t, pod, 250, 100)
		}
		testkit.Eventually(t, long, func() string {
			return node.InForce(t, load, replicas, func(requests realnode.Requests) string {
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
		pods := node.RunningPods(t, load)
		limit := node.Limits(t, pods[0]).MemoryLimitBytes
		victim := pods[0]
		node.Load(t, victim, 10, limit>>20+40)
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
			return node.InForce(t, load, replicas, func(requests realnode.Requests) string {
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

func create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := env.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}
