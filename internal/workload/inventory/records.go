// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// record is the stored part of an object: a pointer, so that nil means none. An informer asks for its namespace, name
// and resource version.
type record interface {
	comparable
	metav1.ObjectMetaAccessor
}

// records are the objects of one kind in some namespaces. An informer for each namespace turns each object into a record as
// soon as it arrives, so the objects themselves never fill the memory.
type records[T record] struct {
	informers []toolscache.SharedIndexInformer
}

// newRecords watches all namespaces if there are none. Example has the kind of the objects. Each index has one value of a
// record; an empty value is not indexed.
func newRecords[O client.Object, T record](
	namespaces []string, example O, source func(namespace string) toolscache.ListerWatcher, read func(O) T, indexes map[string]func(T) string,
) *records[T] {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	indexers := toolscache.Indexers{}
	for name, value := range indexes {
		indexers[name] = func(object any) ([]string, error) {
			if value := value(recordOf[T](object)); value != "" {
				return []string{value}, nil
			}
			return nil, nil
		}
	}
	out := &records[T]{}
	for _, namespace := range namespaces {
		informer := toolscache.NewSharedIndexInformer(source(namespace), example, 0, indexers)
		_ = informer.SetTransform(func(object any) (any, error) { // It fails only after the start.
			if o, ok := object.(O); ok {
				return read(o), nil
			}
			return object, nil // A streamed list is transformed twice.
		})
		out.informers = append(out.informers, informer)
	}
	return out
}

// listed is the source of objects that a client lists and watches.
func listed(api client.WithWatch, newList func() client.ObjectList) func(namespace string) toolscache.ListerWatcher {
	return func(namespace string) toolscache.ListerWatcher {
		return toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := newList()
				err := api.List(ctx, list, &client.ListOptions{Namespace: namespace, Limit: o.Limit, Continue: o.Continue, Raw: &o})
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return api.Watch(ctx, newList(), &client.ListOptions{Namespace: namespace, Raw: &o})
			},
		}, api)
	}
}

// run watches until the context ends.
func (r *records[T]) run(ctx context.Context) {
	var watches sync.WaitGroup
	for _, informer := range r.informers {
		watches.Go(func() { informer.RunWithContext(ctx) })
	}
	watches.Wait()
}

// hasSynced reports whether all objects are known.
func (r *records[T]) hasSynced() bool {
	for _, informer := range r.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// wait waits until all objects are known, or until the context ends.
func (r *records[T]) wait(ctx context.Context) error {
	for _, informer := range r.informers {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// get returns the record of an object, or nil.
func (r *records[T]) get(namespace, name string) (out T) {
	for _, informer := range r.informers {
		if found, ok, _ := informer.GetIndexer().GetByKey(namespace + "/" + name); ok {
			return recordOf[T](found)
		}
	}
	return out
}

// by returns the records with a value in an index, in any order.
func (r *records[T]) by(index, value string) (out []T) {
	for _, informer := range r.informers {
		found, _ := informer.GetIndexer().ByIndex(index, value) // It fails only without the index.
		for _, object := range found {
			out = append(out, recordOf[T](object))
		}
	}
	return out
}

// all returns all records, in any order.
func (r *records[T]) all() (out []T) {
	for _, informer := range r.informers {
		for _, object := range informer.GetIndexer().List() {
			out = append(out, recordOf[T](object))
		}
	}
	return out
}

// onChange adds a handler, which gets each change after the first list. before is nil for a new object, and after for one
// that is deleted. It may be called several times at once.
func (r *records[T]) onChange(report func(before, after T)) {
	var none T
	for _, informer := range r.informers {
		_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{ // It fails only after the end.
			AddFunc: func(object any, isFirstList bool) {
				if !isFirstList {
					report(none, recordOf[T](object))
				}
			},
			UpdateFunc: func(before, after any) { report(recordOf[T](before), recordOf[T](after)) },
			DeleteFunc: func(object any) { report(recordOf[T](deleted(object)), none) },
		})
	}
}

// recordOf is the record in an informer.
func recordOf[T record](object any) T {
	record, _ := object.(T)
	return record
}

// deleted is the deleted object in an informer's event: in its last known state, if the deletion itself was missed.
func deleted(obj any) any {
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		return missed.Obj
	}
	return obj
}

// shared returns the same string in memory for all equal strings.
func shared[S ~string](s S) S { return S(unique.Make(string(s)).Value()) }
