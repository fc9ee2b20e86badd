// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// fill leaves no room on a node.
func (w *fixture) fill(name string) {
	w.Helper()
	var node corev1.Node
	if err := env.Client.Get(w.Context(), types.NamespacedName{Name: name}, &node); err != nil {
		w.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "filler"}, Spec: testkit.Deployment(w.namespace, "filler").Spec.Template.Spec}
	pod.Spec.NodeName = name
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": *node.Status.Allocatable.Cpu()}
	pod.Spec.Containers[0].Resources.Limits = nil
	w.create(pod)
}

// A pod needs more than its node has room for. It moves to a node that has the room, and pods that fit stay where they are.
func TestAPodMovesToANodeWithRoom(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := evicting(t)
	w.deploy("web")
	before := w.pods("web")
	stuck := before[0]
	w.annotate(&stuck, resizeAnnotation, "deferred")
	w.fill(stuck.Spec.NodeName)
	w.uses("web", "app", 300, 240)
	w.scale("web", orRecreate)
	w.says("web", "Applied", "False", "Deferred", stuck.Name, "room")
	w.resizedBefore(stuck.Name, 30*time.Minute)
	w.saidBefore(stuck.Name, 2*time.Hour)

	requests := w.sized("web")
	w.between("cpu", *requests.Cpu(), "330m", "380m")
	if n := w.evictions(); n != 1 {
		t.Errorf("%d evictions", n)
	}
	nodes := map[types.UID]string{}
	for _, pod := range before {
		nodes[pod.UID] = pod.Spec.NodeName
	}
	moved := 0
	for _, pod := range w.pods("web") {
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
