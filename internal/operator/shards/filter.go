// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// NewInformer creates informers that drop objects of other replicas' namespaces before they are stored. It is
// for cache.Options.NewInformer.
func (v View) NewInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(v.Filter(lw), example, resync, indexers)
}

// Filter lists and watches only objects of the view's namespaces, and all cluster-scoped objects. The API
// server still sends all: it cannot select by a hash of our own.
func (v View) Filter(lw cache.ListerWatcher) cache.ListerWatcher {
	return &filtered{view: v, of: lw, next: cache.ToListerWatcherWithContext(lw)}
}

type filtered struct {
	view View
	of   cache.ListerWatcher
	next cache.ListerWatcherWithContext
}

// isForeign reports whether the object belongs to another replica.
func (f *filtered) isForeign(object runtime.Object) bool {
	accessor, err := meta.Accessor(object)
	return err == nil && !f.view.Owns(accessor.GetNamespace())
}

// List implements cache.Lister.
func (f *filtered) List(options metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWithContext.
func (f *filtered) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := f.next.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("dropping objects of other replicas from %T: %w", list, err)
	}
	if err := meta.SetList(list, slices.DeleteFunc(items, f.isForeign)); err != nil {
		return nil, fmt.Errorf("dropping objects of other replicas from %T: %w", list, err)
	}
	return list, nil
}

// Watch implements cache.Watcher.
func (f *filtered) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), options)
}

// WatchWithContext implements cache.WatcherWithContext.
func (f *filtered) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := f.next.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	out := &filteredWatch{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go out.forward(f.isForeign)
	return out, nil
}

// IsWatchListSemanticsUnSupported tells the reflector whether the client streams lists.
func (f *filtered) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(f.of)
}

// filteredWatch passes the events of a watch. watch.Filter of apimachinery would block for good if it were
// stopped while it passes one.
type filteredWatch struct {
	watch.Interface

	events  chan watch.Event
	stop    sync.Once
	stopped chan struct{}
}

func (w *filteredWatch) forward(isForeign func(runtime.Object) bool) {
	defer close(w.events)
	for event := range w.Interface.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			if isForeign(event.Object) {
				continue
			}
		case watch.Bookmark, watch.Error:
		}
		select {
		case w.events <- event:
		case <-w.stopped:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (w *filteredWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *filteredWatch) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.Interface.Stop()
	})
}
