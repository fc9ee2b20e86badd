// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// fixture is a world in a namespace of its own.
type fixture struct {
	*world.World
	t *testing.T
}

// newFixture creates a namespace on an API server in memory, and an operator for it. Each option changes the operator's
// configuration.
func newFixture(t *testing.T, options ...func(*operatorconfig.Operator)) *fixture {
	t.Helper()
	capacity := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10000")}
	var objects []client.Object
	for _, node := range world.Nodes {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity}})
	}
	return newFixtureOn(t, world.NewAPI(objects...), "shop", nil, options...)
}

func newFixtureOn(t *testing.T, api client.WithWatch, namespace string, actsAs client.WithWatch, options ...func(*operatorconfig.Operator)) *fixture {
	t.Helper()
	return &fixture{world.New(t, api, namespace, world.Options{ActsAs: actsAs, Configure: func(c *operatorconfig.Operator) {
		for _, option := range options {
			option(c)
		}
	}}), t}
}

// deploy creates a Deployment with three replicas and lets it run.
func (w *fixture) deploy(name string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	w.Helper()
	d := testkit.Deployment(w.Namespace, name)
	d.Spec.Replicas = ptr.To[int32](3)
	for _, change := range changes {
		change(d)
	}
	return w.Deploy(d)
}

func restarts(pods []corev1.Pod) map[string]int32 {
	out := map[string]int32{}
	for _, pod := range pods {
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if status.RestartCount > 0 {
				out[pod.Name+"/"+status.Name] += status.RestartCount
			}
		}
	}
	return out
}

// runs lets time pass until the Deployment is rolled out, and returns it.
func (w *fixture) runs(name string) (d *appsv1.Deployment) {
	w.Helper()
	w.Until(func() string { return w.IsRunning(name) })
	return w.Deployment(name)
}

// wipe empties the scaler's status, as a restore from a copy does.
func (w *fixture) wipe(name string) {
	w.Helper()
	s := w.Scaler(name)
	s.Status = v1beta1.VerticalScalerStatus{ObservedGeneration: -1}
	must.Succeed(w, w.Client.Status().Update(w.t.Context(), s))
}

// mark is a place in the operator's writes.
func (w *fixture) mark() int { return len(w.Writes()) }

// writes are the operator's writes since a mark.
func (w *fixture) writes(mark int) []world.Write { return w.Writes()[mark:] }

// accepted are the writes that the API server has accepted.
func accepted(writes []world.Write) (out []world.Write) {
	for _, write := range writes {
		if write.Err == nil {
			out = append(out, write)
		}
	}
	return out
}

// count counts the writes of a resource, by object.
func count(writes []world.Write, resource string) map[string]int {
	out := map[string]int{}
	for _, write := range writes {
		if write.Resource == resource {
			out[write.Name]++
		}
	}
	return out
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// twoContainers adds a container "agent".
func twoContainers(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, testkit.Container("agent"))
}
