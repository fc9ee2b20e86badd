// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// cache reads each kind of the namespace once, until something is written.
type cache struct {
	view
	api       client.Client
	namespace string
	known     map[schema.GroupKind]bool
}

func (c *cache) forget() { c.known = map[schema.GroupKind]bool{} }

// forgetKind forgets the objects of one kind. The API server counts what is written in quotas.
func (c *cache) forgetKind(like client.Object) {
	kind, err := kindOf(like)
	if err != nil {
		c.forget()
		return
	}
	delete(c.known, corev1.SchemeGroupVersion.WithKind("ResourceQuota").GroupKind())
	delete(c.known, kind.GroupKind())
}

// has reads the objects of a kind, and reports whether the cache has them: those of its namespace.
func (c *cache) has(ctx context.Context, like runtime.Object, namespace string) (bool, error) {
	kind, err := kindOf(like)
	if err != nil {
		return false, err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	if namespace != c.namespace || c.known[kind.GroupKind()] {
		return namespace == c.namespace, nil
	}
	empty, err := scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	list, ok := empty.(client.ObjectList)
	if err != nil || !ok {
		return false, err
	}
	if err := c.api.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return false, err
	}
	c.objects[kind.GroupKind()], c.known[kind.GroupKind()] = itemsOf(list), true
	return true, nil
}

// Get implements client.Reader.
func (c *cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	has, err := c.has(ctx, o, key.Namespace)
	if err != nil {
		return err
	}
	if has {
		return c.view.Get(ctx, key, o, options...)
	}
	return c.api.Get(ctx, key, o)
}

// List implements client.Reader.
func (c *cache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	how := (&client.ListOptions{}).ApplyOptions(options)
	has, err := c.has(ctx, list, how.Namespace)
	if err != nil {
		return err
	}
	if has {
		return c.view.List(ctx, list, how)
	}
	return c.api.List(ctx, list, how)
}

// itemsOf are the objects of a list.
func itemsOf(list client.ObjectList) (objects []client.Object) {
	_ = meta.EachListItem(list, func(item runtime.Object) error { // the function returns no error
		if o, ok := item.(client.Object); ok {
			objects = append(objects, o)
		}
		return nil
	})
	return objects
}

// indexes are the indexes of the operator's cache.
var indexes = indexesOf()

// fieldIndex is an index of a kind.
type fieldIndex struct {
	kind  reflect.Type
	field string
}

type indexer map[fieldIndex]client.IndexerFunc

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, object client.Object, field string, value client.IndexerFunc) error {
	i[fieldIndex{reflect.TypeOf(object), field}] = value
	return nil
}

func indexesOf() indexer {
	all := indexer{}
	if err := inventory.Index(context.Background(), all); err != nil {
		panic(err) // IndexField returns no error
	}
	return all
}
