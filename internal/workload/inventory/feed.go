// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// feed watches one kind in one namespace, or in all of them, and stores what belongs to claimed Deployments. O is
// the kind, T what is stored of it.
type feed[O client.Object, T object[T]] struct {
	objects   *objects[T]
	claims    Claims
	namespace string
	// deploymentOf is the Deployment that an object belongs to; without a name if there is none.
	deploymentOf func(O) types.NamespacedName
	read         func(O) T
	changed      func(change[T])
	// synced is called after each list.
	synced func()
}

var _ toolscache.TransformingStore = &feed[*metav1.PartialObjectMetadata, *setRecord]{}

// run watches until the context ends.
func (f *feed[O, T]) run(ctx context.Context, api client.WithWatch, newList func() client.ObjectList) {
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Continue == "" {
				f.begin(ctx)
			}
			list := newList()
			err := api.List(ctx, list, &client.ListOptions{Namespace: f.namespace, Limit: o.Limit, Continue: o.Continue, Raw: &o})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if ptr.Deref(o.SendInitialEvents, false) { // a watch that begins with a list
				f.begin(ctx)
			}
			return api.Watch(ctx, newList(), &client.ListOptions{Namespace: f.namespace, Raw: &o})
		},
	}
	var kind O
	lists := toolscache.ToListWatcherWithWatchListSemantics(source, api)
	toolscache.NewReflectorWithOptions(lists, kind, f, toolscache.ReflectorOptions{Name: fmt.Sprintf("%T", kind)}).RunWithContext(ctx)
}

// begin notes which Deployments are claimed when a list begins.
func (f *feed[O, T]) begin(ctx context.Context) {
	claimed, err := f.claims.AllClaimed(ctx, f.namespace)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot list scalers: the pods of each are listed later", "namespace", f.namespace)
	}
	f.objects.begin(f.namespace, claimed)
}

// Transformer implements cache.TransformingStore. It shrinks each object of a list as soon as it arrives.
func (f *feed[O, T]) Transformer() toolscache.TransformFunc {
	return func(object any) (any, error) {
		o, ok := object.(O)
		if !ok {
			return nil, fmt.Errorf("a %T is no %T", object, o)
		}
		deployment := f.deploymentOf(o)
		if !f.objects.claimed(deployment) {
			f.objects.doubt(deployment)
			return dropped, nil
		}
		return entry[T]{deployment, f.read(o)}, nil
	}
}

// dropped stands for all objects of a list that are not stored.
var dropped = new(struct{})

// Replace implements cache.ReflectorStore.
func (f *feed[O, T]) Replace(listed []any, version string) error {
	shrink := f.Transformer()
	var entries []entry[T]
	for _, object := range listed {
		if o, isWhole := object.(O); isWhole { // of a list that was not streamed
			var err error
			if object, err = shrink(o); err != nil {
				return err
			}
		}
		if e, isStored := object.(entry[T]); isStored {
			entries = append(entries, e)
		}
	}
	f.tellAll(f.objects.replace(f.namespace, entries, version))
	f.synced()
	return nil
}

// Add implements cache.ReflectorStore.
func (f *feed[O, T]) Add(object any) error { return f.Update(object) }

// Update implements cache.ReflectorStore.
func (f *feed[O, T]) Update(object any) error {
	o, ok := object.(O)
	if !ok {
		return fmt.Errorf("a %T is no %T", object, o)
	}
	f.tellAll(f.objects.set(f.deploymentOf(o), o.GetUID(), o.GetResourceVersion(), func() T { return f.read(o) }))
	return nil
}

// Delete implements cache.ReflectorStore.
func (f *feed[O, T]) Delete(object any) error {
	o, ok := object.(O)
	if !ok {
		return fmt.Errorf("a %T is no %T", object, o)
	}
	f.tellAll(f.objects.delete(o.GetUID(), o.GetResourceVersion()))
	return nil
}

// Resync implements cache.ReflectorStore.
func (f *feed[O, T]) Resync() error { return nil }

func (f *feed[O, T]) tellAll(changes []change[T]) {
	for _, c := range changes {
		f.changed(c)
	}
}
