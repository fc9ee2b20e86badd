// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resizeAnnotation tells the simulated kubelet how to answer a resize.
const resizeAnnotation = "kwok.verticalscaler.io/resize"

// node creates a node for the test, simulated by kwok, and waits until the scheduler may use it.
func (w *fixture) node(name, cpu string) {
	w.Helper()
	room := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			Labels:      map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", "test": w.Namespace},
		},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: "test", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
	w.Add(node)
	w.Cleanup(func() {
		if err := env.Client.Delete(context.Background(), node); err != nil {
			w.Logf("deleting node %s: %v", name, err)
		}
	})
	w.eventually(func() string {
		var now corev1.Node
		if err := env.Client.Get(w.Context(), client.ObjectKeyFromObject(node), &now); err != nil {
			return err.Error()
		}
		for _, taint := range now.Spec.Taints {
			if taint.Key != "test" {
				return "node " + name + " has the taint " + taint.Key
			}
		}
		return ""
	})
}
