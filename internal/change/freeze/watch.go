// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Watch updates the switch from the ConfigMap until the context ends, and calls changed after
// each new state.
//
// It lists and watches one object by metadata.name, which the API server authorizes by name.
// Permissions on that name are enough.
func (s *Switch) Watch(ctx context.Context, client corev1client.ConfigMapsGetter, changed func()) error {
	logger := log.FromContext(ctx).WithName("freeze").WithValues("ConfigMap", s.ConfigMap)
	selector := fields.OneTermEqualSelector("metadata.name", s.ConfigMap.Name).String()
	api := client.ConfigMaps(s.ConfigMap.Namespace)
	informer := toolscache.NewSharedInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return api.Watch(ctx, o)
		},
	}, &corev1.ConfigMap{}, 0)
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) {
		if ctx.Err() == nil {
			logger.Info("Cannot watch the freeze switch; the last known state stays", "error", err.Error())
		}
	})
	if err != nil {
		return fmt.Errorf("watching the freeze switch: %w", err)
	}
	notify := func(isNew bool, state State) {
		if isNew {
			logger.Info("Freeze switch changed", "frozen", state.Active, "namespaces", state.Namespaces, "reason", state.Reason)
			changed()
		}
	}
	set := func(c *corev1.ConfigMap) {
		state := Read(c)
		notify(s.Set(state), state)
	}
	read := func(obj any) {
		if c, ok := obj.(*corev1.ConfigMap); ok {
			set(c)
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    read,
		UpdateFunc: func(_, obj any) { read(obj) },
		DeleteFunc: func(any) { set(nil) },
	})
	if err != nil {
		return fmt.Errorf("watching the freeze switch: %w", err)
	}
	go informer.RunWithContext(ctx)
	go func() {
		// An empty list causes no event.
		if toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) && len(informer.GetStore().ListKeys()) == 0 {
			notify(s.setAbsent(), State{}) // no effect if an event has arrived since
		}
	}()
	return nil
}
