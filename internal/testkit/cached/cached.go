// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cached makes the cache of a manager without an API server, so that a benchmark reads the same objects
// as the operator, at the same cost.
package cached

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// Cache holds copies of the objects, and never changes. Setup is called before it starts, for indexes and handlers.
func Cache(tb testing.TB, scheme *runtime.Scheme, trim toolscache.TransformFunc, setup func(cache.Cache) error, objects ...client.Object) *inventory.Cache {
	tb.Helper()
	usual, err := cache.New(&rest.Config{Host: "http://nowhere"}, cache.Options{
		HTTPClient: nowhere(), Scheme: scheme, Mapper: mapper(scheme), DefaultTransform: trim,
		NewInformer: func(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(copies(kind, objects), kind, resync, indexers)
		},
	})
	must.Succeed(tb, err)
	c := inventory.Over(usual, memory{objects: objects})
	must.Succeed(tb, setup(c))
	go func() { _ = c.Start(tb.Context()) }() // until the test ends
	if !c.WaitForCacheSync(tb.Context()) {
		tb.Fatal("the cache has not synced")
	}
	return c
}

// LivePods are read from lists of all ReplicaSets and pods, so they are never old.
type LivePods struct{ Reader client.Reader }

// Of reads the pods of a Deployment.
func (p LivePods) Of(ctx context.Context, d *appsv1.Deployment) ([]workload.Pod, error) {
	sets := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSetList"}}
	if err := p.Reader.List(ctx, sets, client.InNamespace(d.Namespace)); err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := p.Reader.List(ctx, &pods, client.InNamespace(d.Namespace)); err != nil {
		return nil, err
	}
	return inventory.PodsAmong(d, sets.Items, pods.Items), nil
}

// OnChange does nothing: a test reconciles when it wants to.
func (LivePods) OnChange(inventory.PodHandler) {}

// memory lists the objects, which never change.
type memory struct {
	client.WithWatch
	objects []client.Object
}

func (m memory) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	kinds := map[string]runtime.Object{"*v1.PodList": &corev1.Pod{}, "*v1.DeploymentList": &appsv1.Deployment{}, "*v1.PartialObjectMetadataList": &metav1.PartialObjectMetadata{}}
	found, err := toolscache.ToListerWatcherWithContext(copies(kinds[fmt.Sprintf("%T", list)], m.objects)).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(found)
	if err != nil {
		return err
	}
	list.SetResourceVersion("1")
	return meta.SetList(list, items)
}

func (memory) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return watch.NewFake(), nil
}

// IsWatchListSemanticsUnSupported implements the interface that the reflector checks.
func (memory) IsWatchListSemanticsUnSupported() bool { return true }

// Client reads from the cache. Writes fail.
func Client(tb testing.TB, scheme *runtime.Scheme, c cache.Cache) client.Client {
	tb.Helper()
	reader, err := client.New(&rest.Config{Host: "http://nowhere"}, client.Options{
		HTTPClient: nowhere(), Scheme: scheme, Mapper: mapper(scheme), Cache: &client.CacheOptions{Reader: c},
	})
	must.Succeed(tb, err)
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
