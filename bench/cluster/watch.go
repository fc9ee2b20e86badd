// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// observer notes when it sees what the bench waits for, by a watch of its own.
type observer struct {
	mu     sync.Mutex
	memory map[types.NamespacedName]int64     // of pods: what the first container requests
	killed map[types.NamespacedName]time.Time // of pods: when the first OOM kill was seen
	raised map[types.NamespacedName]time.Time // of pods: when their request was last seen to rise
}

// observe watches pods until the context ends.
func (r *rig) observe(ctx context.Context) (*observer, error) {
	o := &observer{
		memory: map[types.NamespacedName]int64{}, killed: map[types.NamespacedName]time.Time{}, raised: map[types.NamespacedName]time.Time{},
	}
	watching, err := client.NewWithWatch(r.env.Config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("creating a client that watches: %w", err)
	}
	go func() {
		for ctx.Err() == nil {
			if err := o.follow(ctx, watching); err != nil && ctx.Err() == nil {
				r.progress("%v", err)
			}
		}
	}()
	return o, nil
}

// follow notes what one watch tells. It begins with all objects, and the API server ends it after a while.
func (o *observer) follow(ctx context.Context, c client.WithWatch) error {
	watcher, err := c.Watch(ctx, &corev1.PodList{})
	if err != nil {
		return errors.Join(fmt.Errorf("watching: %w", err), Pause(ctx, time.Second))
	}
	for event := range watcher.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			o.note(pod, time.Now())
		}
	}
	return nil
}

func (o *observer) note(pod *corev1.Pod, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key, request := client.ObjectKeyFromObject(pod), pod.Spec.Containers[0].Resources.Requests.Memory().Value()
	if before, ok := o.memory[key]; ok && request > before {
		o.raised[key] = now
	}
	o.memory[key] = request
	if _, ok := o.killed[key]; !ok && slices.ContainsFunc(pod.Status.ContainerStatuses, isKilled) {
		o.killed[key] = now
	}
}

func isKilled(s corev1.ContainerStatus) bool {
	const reason = "OOMKilled"
	return s.State.Terminated != nil && s.State.Terminated.Reason == reason ||
		s.LastTerminationState.Terminated != nil && s.LastTerminationState.Terminated.Reason == reason
}

// answered is how long after an OOM kill in Deployment i its first pod got more memory.
func (o *observer) answered(i int) (time.Duration, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	killed, ok := o.killed[podKey(i, 0)]
	if !ok {
		return 0, false
	}
	var first time.Duration
	ok = false
	for j := range Pods {
		if raised := o.raised[podKey(i, j)]; raised.After(killed) && (!ok || raised.Sub(killed) < first) {
			first, ok = raised.Sub(killed), true
		}
	}
	return first, ok
}

func podKey(i, j int) types.NamespacedName {
	return types.NamespacedName{Namespace: Namespace(i), Name: PodName(i, j)}
}
