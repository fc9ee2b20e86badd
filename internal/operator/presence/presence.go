// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package presence notices when objects appear and disappear that an administrator may apply at any time.
package presence

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// Watch watches the metadata of objects without a namespace by their names.
type Watch struct {
	informers []cache.SharedIndexInformer
	changed   atomic.Bool
	// isRejected is true if the operator may not watch one of them, or if its kind is not served.
	isRejected atomic.Bool
}

// New is a watch of the objects that have one of the resources and one of the names.
func New(api metadata.Interface, resources []schema.GroupVersionResource, names ...string) (*Watch, error) {
	w := &Watch{}
	changed := func(any) { w.changed.Store(true) }
	for _, resource := range resources {
		for _, name := range names {
			informer := metadatainformer.NewFilteredMetadataInformer(api, resource, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}).Informer()
			if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: changed}); err != nil {
				return nil, fmt.Errorf("watching %s %s: %w", resource.Resource, name, err)
			}
			w.informers = append(w.informers, informer)
		}
	}
	return w, nil
}

// Start watches until the context ends, or until the API server rejects it.
func (w *Watch) Start(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	onError := func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			w.isRejected.Store(true)
			stop()
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
	for _, informer := range w.informers {
		if err := informer.SetWatchErrorHandlerWithContext(onError); err != nil {
			stop()
			return fmt.Errorf("handling the errors of a watch: %w", err)
		}
		go informer.RunWithContext(ctx)
	}
	return nil
}

// Works reports whether all changes are noticed from now on. It may become false.
func (w *Watch) Works() bool {
	if w.isRejected.Load() {
		return false
	}
	for _, informer := range w.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// TakeChange reports whether an object was created, changed or deleted since the last call.
func (w *Watch) TakeChange() bool { return w.changed.Swap(false) }
