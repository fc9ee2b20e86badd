// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// fill leaves no room on a node.
func (w *fixture) fill(name string) {
	w.Helper()
	w.occupy(name, *w.allocatable(name))
}

// fillUpTo leaves that much CPU on a node, on which the pods of this namespace run.
func (w *fixture) fillUpTo(name, cpu string) {
	w.Helper()
	free := w.allocatable(name)
	free.Sub(resource.MustParse(cpu))
	var pods corev1.PodList
	must.Succeed(w, env.Client.List(w.Context(), &pods, client.InNamespace(w.Namespace)))
	for _, pod := range pods.Items {
		for _, c := range workload.ReadPod(&pod, true).Containers {
			free.Sub(quantity.CPU(c.Requests.CPUMillis))
		}
	}
	w.occupy(name, *free)
}

func (w *fixture) allocatable(node string) *resource.Quantity {
	w.Helper()
	var n corev1.Node
	must.Succeed(w, env.Client.Get(w.Context(), types.NamespacedName{Name: node}, &n))
	return n.Status.Allocatable.Cpu()
}

// occupy creates a pod that requests that much CPU on a node.
func (w *fixture) occupy(name string, cpu resource.Quantity) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "filler"}, Spec: testkit.Deployment(w.Namespace, "filler").Spec.Template.Spec}
	pod.Spec.NodeName = name
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": cpu}
	pod.Spec.Containers[0].Resources.Limits = nil
	w.Add(pod)
}

// cordonOthers cordons all nodes but one during the test.
func (w *fixture) cordonOthers(but string) {
	w.Helper()
	var nodes corev1.NodeList
	must.Succeed(w, env.Client.List(w.Context(), &nodes))
	for _, node := range nodes.Items {
		if node.Name == but {
			continue
		}
		w.Patch(&node, `{"spec":{"unschedulable":true}}`)
		w.Cleanup(func() {
			if err := env.Client.Patch(context.Background(), &node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`))); err != nil {
				w.Errorf("uncordoning node %s: %v", node.Name, err)
			}
		})
	}
}

// A pod needs more than its node has room for. It moves to a node that has the room, and pods that fit stay where they are.
func TestAPodMovesToANodeWithRoom(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := evicting(t)
	w.deploy("web")
	before := w.Pods("web")
	stuck := before[0]
	w.annotate(&stuck, resizeAnnotation, "deferred")
	w.fill(stuck.Spec.NodeName)
	w.uses("web", "app", 300, 240)
	w.Scale("web", orRecreate)
	w.Reports("web", "Applied", "False", "Deferred", stuck.Name, "room")
	w.resizedBefore(stuck.Name, 30*time.Minute)
	w.backdate(stuck.Name, 2*time.Hour, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })

	requests := w.Sized("web")
	w.Between("cpu", *requests.Cpu(), "330m", "380m")
	if _, granted := w.evictions(); granted != 1 {
		t.Errorf("%d evictions", granted)
	}
	nodes := map[types.UID]string{}
	for _, pod := range before {
		nodes[pod.UID] = pod.Spec.NodeName
	}
	moved := 0
	for _, pod := range w.Pods("web") {
		switch was, isOld := nodes[pod.UID]; {
		case pod.UID == stuck.UID:
			t.Errorf("pod %s is still on the full node %s", pod.Name, was)
		case isOld:
			if pod.Spec.NodeName != was {
				t.Errorf("pod %s was moved from %s to %s", pod.Name, was, pod.Spec.NodeName)
			}
		default:
			moved++
			if pod.Spec.NodeName == stuck.Spec.NodeName {
				t.Errorf("pod %s is on the full node %s, too", pod.Name, pod.Spec.NodeName)
			}
		}
	}
	if moved != 1 {
		t.Errorf("%d pods are new", moved)
	}
}

// No node has room for the replacement of a pod that its node will never resize. Without an autoscaler, an eviction would leave a pod
// Pending, so all pods stay. Once there is room, they are evicted one by one. The test has all nodes for itself: it is not parallel.
func TestNoPodIsEvictedWithoutRoomForAnother(t *testing.T) {
	env.NeedKwok(t)
	w := evicting(t)
	w.operator.Stop(t)
	w.operator = env.StartOperator(t, w.config, w.usage) // of all namespaces, which reads nodes
	only := "only-" + w.Namespace
	w.node(only, "4")
	w.deploy("web", func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		d.Spec.Replicas = ptr.To[int32](2)
		spec.NodeSelector = map[string]string{"test": w.Namespace}
		spec.Tolerations = []corev1.Toleration{{Key: "test", Operator: corev1.TolerationOpExists}}
	})
	before := w.Pods("web")
	for i := range before {
		w.annotate(&before[i], resizeAnnotation, "infeasible")
	}
	w.fillUpTo(only, "100m")
	w.cordonOthers(only)
	w.uses("web", "app", 300, 240)
	w.Scale("web", orRecreate)
	w.Reports("web", "Applied", "False", "NodeCapacity", "No node has room", "no pod is evicted")
	w.rounds(10)
	if asked, granted := w.evictions(); len(asked)+granted > 0 {
		t.Errorf("%d evictions were granted, and asked for: %q", granted, asked)
	}
	w.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "filler"}})
	w.Reports("web", "Applied", "True", "Applied")
	if _, granted := w.evictions(); granted != len(before) {
		t.Errorf("%d evictions", granted)
	}
}
