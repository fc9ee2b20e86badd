// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package monitor

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Watch feeds the monitor with all events of a cluster until the context ends.
func (m *Monitor) Watch(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) error {
	informers, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("preparing to watch: %w", err)
	}
	for _, kind := range []client.Object{&v1beta1.VerticalScaler{}, &appsv1.ReplicaSet{}, &appsv1.Deployment{}, &corev1.Pod{}} {
		informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(m); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	go informers.Start(ctx) //nolint:errcheck // it ends with the context
	if !informers.WaitForCacheSync(ctx) {
		return fmt.Errorf("watching: %w", context.Cause(ctx))
	}
	return nil
}

// OnAdd implements cache.ResourceEventHandler.
func (m *Monitor) OnAdd(object any, _ bool) { m.saw(watch.Added, object) }

// OnUpdate implements cache.ResourceEventHandler.
func (m *Monitor) OnUpdate(_, object any) { m.saw(watch.Modified, object) }

// OnDelete implements cache.ResourceEventHandler.
func (m *Monitor) OnDelete(object any) {
	if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	m.saw(watch.Deleted, object)
}

func (m *Monitor) saw(kind watch.EventType, object any) {
	if o, ok := object.(client.Object); ok {
		m.Saw(watch.Event{Type: kind, Object: o})
	}
}
