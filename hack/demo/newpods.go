// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// newPods keeps pods as they were created: what the first event of a pod has. What they are later may be a resize.
type newPods struct {
	mu      sync.Mutex
	created []*corev1.Pod
	err     error
}

// watchNewPods watches the pods of the scenario, of which none exists, until the context ends.
func watchNewPods(ctx context.Context, env *testkit.Env) (*newPods, error) {
	c, err := client.NewWithWatch(env.Config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	w, err := c.Watch(ctx, &corev1.PodList{}, client.HasLabels{rolloutLabel})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	n := &newPods{}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			n.add(event)
		}
		n.add(watch.Event{Type: watch.Error})
	}()
	return n, nil
}

func (n *newPods) add(event watch.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch pod, ok := event.Object.(*corev1.Pod); {
	case event.Type == watch.Error:
		n.err = errors.New("the watch of pods has ended")
	case ok && event.Type == watch.Added:
		n.created = append(n.created, pod)
	}
}

// list lists the pods in the order of their creation.
func (n *newPods) list() ([]*corev1.Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.created[:len(n.created):len(n.created)], n.err
}
