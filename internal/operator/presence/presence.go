// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package presence notices when objects appear and disappear that an administrator may apply at any time.
package presence

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Watch watches the metadata of objects without a namespace by their names.
type Watch struct {
	informers []cache.SharedIndexInformer
	handlers  []cache.ResourceEventHandlerRegistration
	clock     clock.Clock
	changed   atomic.Bool
	// rejected is the number of informers that may not watch, or whose kind is not served.
	rejected atomic.Int32
}

// rejectedInterval is the time until a rejected watch is tried again: the right or the kind may come later.
const rejectedInterval = 10 * time.Minute

// New is a watch of the objects that have one of the resources and one of the names.
func New(api metadata.Interface, by clock.Clock, resources []schema.GroupVersionResource, names ...string) (*Watch, error) {
	w := &Watch{clock: by}
	changed := func(any) { w.changed.Store(true) }
	for _, resource := range resources {
		for _, name := range names {
			informer := metadatainformer.NewFilteredMetadataInformer(api, resource, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}).Informer()
			handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: changed})
			if err != nil {
				return nil, fmt.Errorf("watching %s %s: %w", resource.Resource, name, err)
			}
			w.informers, w.handlers = append(w.informers, informer), append(w.handlers, handler)
		}
	}
	return w, nil
}

// Start watches until the context ends.
func (w *Watch) Start(ctx context.Context) error {
	for _, informer := range w.informers {
		if err := informer.SetWatchErrorHandlerWithContext(w.onError); err != nil {
			return fmt.Errorf("handling the errors of a watch: %w", err)
		}
		go informer.RunWithContext(ctx)
	}
	return nil
}

// onError waits after a rejection, before the informer tries again.
func (w *Watch) onError(ctx context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	log.FromContext(ctx).V(1).Info("Watch rejected", "error", err.Error())
	w.rejected.Add(1)
	select {
	case <-ctx.Done():
	case <-w.clock.After(rejectedInterval):
	}
	w.changed.Store(true)
	w.rejected.Add(-1)
}

// Works reports whether all changes are noticed from now on. It may become false.
func (w *Watch) Works() bool {
	return w.rejected.Load() == 0 && !slices.ContainsFunc(w.handlers, func(h cache.ResourceEventHandlerRegistration) bool { return !h.HasSynced() })
}

// TakeChange reports whether an object was created, changed or deleted since the last call.
func (w *Watch) TakeChange() bool { return w.changed.Swap(false) }
