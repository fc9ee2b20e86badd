// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// cache reads each kind of the namespace once, until something is written. It has the indexes of the operator's cache.
type cache struct {
	api       client.Client
	namespace string
	kinds     map[reflect.Type][]client.Object
}

func (c *cache) forget() { c.kinds = map[reflect.Type][]client.Object{} }

// forgetKind forgets the objects of one kind, or all if the object has no type of its own. The API server counts what is written
// in quotas.
func (c *cache) forgetKind(like client.Object) {
	delete(c.kinds, reflect.TypeOf(&corev1.ResourceQuota{}))
	switch like.(type) {
	case *metav1.PartialObjectMetadata, *unstructured.Unstructured:
		c.forget()
	default:
		delete(c.kinds, reflect.TypeOf(like))
	}
}

// of returns the objects of a kind in the namespace. They must not be modified.
func (c *cache) of(ctx context.Context, like client.Object) ([]client.Object, error) {
	kind := reflect.TypeOf(like)
	if objects, ok := c.kinds[kind]; ok {
		return objects, nil
	}
	gvk, err := apiutil.GVKForObject(like, c.api.Scheme())
	if err != nil {
		return nil, err
	}
	empty, err := c.api.Scheme().New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, err
	}
	list, ok := empty.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is no list", empty)
	}
	if err := c.api.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return nil, err
	}
	objects := itemsOf(list)
	c.kinds[kind] = objects
	return objects, nil
}

// Get implements client.Reader.
func (c *cache) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if key.Namespace != c.namespace {
		return c.api.Get(ctx, key, o)
	}
	objects, err := c.of(ctx, o)
	if err != nil {
		return err
	}
	for _, found := range objects {
		if found.GetName() == key.Name {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
			return nil
		}
	}
	gvk, err := apiutil.GVKForObject(o, c.api.Scheme())
	if err != nil {
		return err
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: plural.Resource}, key.Name)
}

// List implements client.Reader.
func (c *cache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	how := (&client.ListOptions{}).ApplyOptions(options)
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	one, ok := reflect.New(reflect.TypeOf(items).Elem().Elem()).Interface().(client.Object)
	if !ok || isUntyped(list) || how.Namespace != c.namespace {
		how.UnsafeDisableDeepCopy = nil
		return c.api.List(ctx, list, how)
	}
	objects, err := c.of(ctx, one)
	if err != nil {
		return err
	}
	var found []runtime.Object
	for _, o := range objects {
		switch {
		case how.LabelSelector != nil && !how.LabelSelector.Matches(labels.Set(o.GetLabels())) || !hasFields(o, how):
		case ptr.Deref(how.UnsafeDisableDeepCopy, false):
			found = append(found, o)
		default:
			found = append(found, o.DeepCopyObject())
		}
	}
	return meta.SetList(list, found)
}

// isUntyped reports whether the type of a list does not tell its kind.
func isUntyped(list client.ObjectList) bool {
	switch list.(type) {
	case *metav1.PartialObjectMetadataList, *unstructured.UnstructuredList:
		return true
	}
	return false
}

// hasFields reports whether an object has the values that a selector asks of its name and of indexes.
func hasFields(o client.Object, how *client.ListOptions) bool {
	if how.FieldSelector == nil {
		return true
	}
	for _, r := range how.FieldSelector.Requirements() {
		values := []string{o.GetName()}
		if r.Field != metav1.ObjectNameField {
			values = indexes[fieldIndex{reflect.TypeOf(o), r.Field}](o)
		}
		has := false
		for _, value := range values {
			has = has || value == r.Value
		}
		if !has {
			return false
		}
	}
	return true
}

// indexes are those of the operator's cache.
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
