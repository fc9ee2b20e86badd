// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cached makes the cache of a manager without an API server, so that a benchmark reads what the operator
// reads and at the same cost.
package cached

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache holds copies of the objects, and never changes. Setup is called before it starts, for indexes and handlers.
func Cache(tb testing.TB, scheme *runtime.Scheme, trim toolscache.TransformFunc, setup func(cache.Cache) error, objects ...client.Object) cache.Cache {
	tb.Helper()
	c, err := cache.New(&rest.Config{Host: "http://nowhere"}, cache.Options{
		HTTPClient: nowhere(), Scheme: scheme, Mapper: mapper(scheme), DefaultTransform: trim,
		NewInformer: func(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(copies(kind, objects), kind, resync, indexers)
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := setup(c); err != nil {
		tb.Fatal(err)
	}
	go func() { _ = c.Start(tb.Context()) }() // until the test ends
	if !c.WaitForCacheSync(tb.Context()) {
		tb.Fatal("the cache has not synced")
	}
	return c
}

// Client reads from the cache. Writes fail.
func Client(tb testing.TB, scheme *runtime.Scheme, c cache.Cache) client.Client {
	tb.Helper()
	reader, err := client.New(&rest.Config{Host: "http://nowhere"}, client.Options{
		HTTPClient: nowhere(), Scheme: scheme, Mapper: mapper(scheme), Cache: &client.CacheOptions{Reader: c},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return reader
}

func mapper(scheme *runtime.Scheme) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if kind.Kind == "Node" {
			scope = meta.RESTScopeRoot
		}
		m.Add(kind, scope)
	}
	return m
}

type noServer struct{}

func (noServer) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("there is no API server")
}

func nowhere() *http.Client { return &http.Client{Transport: noServer{}} }

// copies lists the objects of a kind. Of ReplicaSets, only the metadata is asked for.
func copies(kind runtime.Object, objects []client.Object) toolscache.ListerWatcher {
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, object := range objects {
		set, isSet := object.(*appsv1.ReplicaSet)
		switch _, wantsSets := kind.(*metav1.PartialObjectMetadata); {
		case isSet && wantsSets:
			metadata := &metav1.PartialObjectMetadata{ObjectMeta: *set.ObjectMeta.DeepCopy()}
			metadata.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
			list.Items = append(list.Items, runtime.RawExtension{Object: metadata})
		case reflect.TypeOf(object) == reflect.TypeOf(kind):
			list.Items = append(list.Items, runtime.RawExtension{Object: object.DeepCopyObject()})
		}
	}
	return listThenWatch{&toolscache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}}
}

// listThenWatch cannot stream a list.
type listThenWatch struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported implements the interface that the reflector checks.
func (listThenWatch) IsWatchListSemanticsUnSupported() bool { return true }
