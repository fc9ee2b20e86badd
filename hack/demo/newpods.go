// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// newPods keeps pods as they were created: what the first event of a pod has. What they are later may be a resize.
type newPods struct {
	mu      sync.Mutex
	created []*corev1.Pod
	err     error
	stop    func() // ends the watch
}

// watchNewPods watches the pods of the scenario, of which none exists, until the context ends. A busy API server may end a
// watch: the next one goes on where that ended.
func watchNewPods(ctx context.Context, env *testkit.Env) (*newPods, error) {
	c, err := client.NewWithWatch(env.Config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.HasLabels{rolloutLabel}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, pods.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, &corev1.PodList{}, client.HasLabels{rolloutLabel}, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	n := &newPods{stop: w.Stop}
	go func() {
		for event := range w.ResultChan() {
			n.add(event)
		}
	}()
	return n, nil
}

func (n *newPods) add(event watch.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch pod, ok := event.Object.(*corev1.Pod); {
	case event.Type == watch.Error:
		n.err = fmt.Errorf("the watch of pods has ended: %w", apierrors.FromObject(event.Object))
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
