// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Nodes knows the allocatable resources of the nodes, and of the largest one. It is updated by node events, so a
// read costs the same with five nodes and five thousand.
//
// Every node counts for the largest one, even if it is unschedulable: a node that is cordoned for an hour keeps its
// pods.
type Nodes struct {
	registration toolscache.ResourceEventHandlerRegistration
	pods         *Pods

	mu          sync.Mutex
	allocatable map[string]quantity.Amounts
	cordoned    sets.Set[string]
	largest     quantity.Amounts
}

// WatchNodes starts to watch nodes through the cache. pods has the pods of all namespaces.
func WatchNodes(ctx context.Context, c cache.Cache, pods *Pods) (*Nodes, error) {
	informer, err := c.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("getting the informer of nodes: %w", err)
	}
	n := &Nodes{pods: pods}
	n.registration, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    n.set,
		UpdateFunc: func(_, obj any) { n.set(obj) },
		DeleteFunc: n.remove,
	})
	if err != nil {
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	return n, nil
}

// Largest is the largest allocatable amount of each resource on any node. 0 means unknown: there
// are no nodes, or the cache has not synced yet.
func (n *Nodes) Largest() quantity.Amounts {
	if n.registration != nil && !n.registration.HasSynced() {
		return quantity.Amounts{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.largest
}

// CPUOf is the allocatable CPU of a node, in millicores; 0 if unknown.
func (n *Nodes) CPUOf(name string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.allocatable[name].CPUMillis
}

// Free is the part of a node's allocatable resources that its pods do not request. It is negative if they request more.
// isKnown is false for an unknown node.
func (n *Nodes) Free(name string) (free quantity.Amounts, isKnown bool) {
	n.mu.Lock()
	free, isKnown = n.allocatable[name]
	n.mu.Unlock()
	if !isKnown {
		return free, false
	}
	requested := n.pods.requestedOn(name)
	return quantity.Amounts{CPUMillis: free.CPUMillis - requested.CPUMillis, MemoryBytes: free.MemoryBytes - requested.MemoryBytes}, true
}

// HaveRoom reports whether a node that takes new pods has room for one with these requests, once a pod with other requests has left
// its own node. Taints, affinities and volumes do not count, so a new pod may find no node nevertheless. Unknown nodes have room.
func (n *Nodes) HaveRoom(requests quantity.Amounts, own string, leaving quantity.Amounts) bool {
	if n.Largest() == (quantity.Amounts{}) {
		return true
	}
	n.mu.Lock()
	names := slices.DeleteFunc(slices.Collect(maps.Keys(n.allocatable)), n.cordoned.Has)
	n.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool {
		free, isKnown := n.Free(name)
		if name == own {
			free = free.Plus(leaving)
		}
		return isKnown && free.CPUMillis >= requests.CPUMillis && free.MemoryBytes >= requests.MemoryBytes
	})
}

func (n *Nodes) set(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	now := workload.ReadNode(node)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.allocatable == nil {
		n.allocatable, n.cordoned = map[string]quantity.Amounts{}, sets.New[string]()
	}
	if n.cordoned.Delete(node.Name); node.Spec.Unschedulable {
		n.cordoned.Insert(node.Name)
	}
	if before, known := n.allocatable[node.Name]; known && now == before {
		return // Most updates are heartbeats.
	}
	n.allocatable[node.Name] = now
	n.recount()
}

func (n *Nodes) remove(obj any) {
	node, ok := deleted(obj).(*corev1.Node)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.allocatable, node.Name)
	n.cordoned.Delete(node.Name)
	n.recount()
}

func (n *Nodes) recount() {
	n.largest = quantity.Amounts{}
	for _, a := range n.allocatable {
		n.largest.CPUMillis = max(n.largest.CPUMillis, a.CPUMillis)
		n.largest.MemoryBytes = max(n.largest.MemoryBytes, a.MemoryBytes)
	}
}
