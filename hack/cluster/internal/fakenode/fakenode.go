// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakenode describes nodes that exist in the API only, and tells kwok how their pods behave.
//
// Kwok simulates the nodes. Its own stages start nodes, end Jobs and delete pods. Ours, in the folder stages, start pods and do
// what a kubelet does when a pod is resized in place or runs out of memory. The pod's annotations set its resource usage.
//
// Annotations on a pod, and what they do:
//
//	usage.verticalscaler.io/cpu: 250m               usage of every container
//	usage.verticalscaler.io/memory: 64Mi
//	usage.verticalscaler.io/cpu.NAME: 250m          usage of the container called NAME, which wins
//	usage.verticalscaler.io/memory.NAME: 64Mi
//	kwok.verticalscaler.io/resize: deferred         resizes wait, with the condition a kubelet would set,
//	kwok.verticalscaler.io/resize: infeasible       until the annotation is removed
//	kwok.verticalscaler.io/oom: TOKEN               the first container is OOM-killed and restarted,
//	                                                once for every new value
//	kwok.verticalscaler.io/oom-container: NAME      that container instead of the first one
package fakenode

import (
	"embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	pods "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

const (
	// Selector picks our nodes by an annotation, so that there can be real nodes too.
	Selector = annotation + "=fake"

	// Limit is the number of nodes whose pod addresses fit into the cluster's pod network.
	Limit = 250

	annotation = "kwok.x-k8s.io/node"
)

// ours holds our stages, and the usage and metrics that metrics-server reads.
//
//go:embed stages/*.yaml usage.yaml metrics.yaml
var ours embed.FS

// Config is the whole configuration of kwok, as one YAML stream.
func Config() (string, error) {
	documents := []string{
		fast.DefaultNodeInit,
		heartbeat.DefaultNodeHeartbeatWithLease,
		pods.DefaultPodComplete,
		pods.DefaultPodDelete,
	}
	names, err := ours.ReadDir("stages")
	if err != nil {
		return "", err
	}
	files := make([]string, 0, len(names)+2)
	for _, name := range names {
		files = append(files, "stages/"+name.Name())
	}
	for _, file := range append(files, "usage.yaml", "metrics.yaml") {
		content, err := ours.ReadFile(file)
		if err != nil {
			return "", err
		}
		documents = append(documents, strings.ReplaceAll(string(content), "${resized}", resized))
	}
	return strings.Join(documents, "\n---\n"), nil
}

// resized is a jq expression that three stages share: do the resources that a pod asks for differ from the ones it
// runs with? It looks at containers and at sidecars, the only init containers that can be resized.
const resized = `. as $pod` +
	` | any((.spec.containers[], ((.spec.initContainers // [])[] | select(.restartPolicy == "Always")));` +
	` . as $container` +
	` | first(($pod.status.containerStatuses // [])[], ($pod.status.initContainerStatuses // [])[]` +
	` | select(.name == $container.name))` +
	` | (.resources.requests // {}) != ($container.resources.requests // {})` +
	` or (.resources.limits // {}) != ($container.resources.limits // {}))`

// Nodes are fake-1 to fake-n, each with 8 CPUs, 16Gi of memory and room for 110 pods.
func Nodes(n int) []*corev1.Node {
	nodes := make([]*corev1.Node, n)
	for i := range nodes {
		name := fmt.Sprintf("fake-%d", i+1)
		room := corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("8"),
			corev1.ResourceMemory: resource.MustParse("16Gi"),
			corev1.ResourcePods:   resource.MustParse("110"),
		}
		nodes[i] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name,
				Annotations: map[string]string{
					annotation: "fake",
					// All fake nodes share kwok's one address; the path tells metrics-server which of them to read.
					"metrics.k8s.io/resource-metrics-path": "/metrics/nodes/" + name + "/metrics/resource",
				},
				Labels: map[string]string{
					corev1.LabelHostname:   name,
					corev1.LabelOSStable:   "linux", // without it the API server refuses every resize
					corev1.LabelArchStable: "amd64",
				},
			},
			Status: corev1.NodeStatus{Capacity: room, Allocatable: room.DeepCopy()},
		}
	}
	return nodes
}
