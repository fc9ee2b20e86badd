// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is the manager's cache. It stores all Deployments and pods as small records, and everything else as usual.
type Cache struct {
	cache.Cache

	Deployments *Deployments
	Pods        *Pods
}

// NewCache returns a Cache.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	usual, err := cache.New(config, options)
	if err != nil {
		return nil, err
	}
	api, err := client.NewWithWatch(config, client.Options{HTTPClient: options.HTTPClient, Scheme: options.Scheme, Mapper: options.Mapper})
	if err != nil {
		return nil, fmt.Errorf("creating a client of the cache: %w", err)
	}
	return Over(usual, api, slices.Sorted(maps.Keys(options.DefaultNamespaces))...), nil
}

// Over returns a Cache of some namespaces, or of all if there are none. Its parts list and watch with the client.
func Over(usual cache.Cache, api client.WithWatch, namespaces ...string) *Cache {
	return &Cache{Cache: usual, Deployments: NewDeployments(api, namespaces...), Pods: NewPods(api, namespaces...)}
}

// Start implements cache.Cache.
func (c *Cache) Start(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var own sync.WaitGroup
	own.Go(func() { _ = c.Deployments.Start(ctx) })
	own.Go(func() { _ = c.Pods.Start(ctx) })
	err := c.Cache.Start(ctx)
	stop()
	own.Wait()
	return err
}

// WaitForCacheSync implements cache.Cache.
func (c *Cache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) && c.Deployments.WaitForSync(ctx) == nil && c.Pods.WaitForSync(ctx) == nil
}

// Get implements cache.Cache.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, out client.Object, options ...client.GetOption) error {
	deployment, ok := out.(*appsv1.Deployment)
	if !ok {
		return c.Cache.Get(ctx, key, out, options...)
	}
	if err := c.Deployments.WaitForSync(ctx); err != nil {
		return fmt.Errorf("waiting for the Deployments: %w", err)
	}
	found := c.Deployments.deployments.get(key.Namespace, key.Name)
	if found == nil {
		return apierrors.NewNotFound(appsv1.Resource("deployments"), key.Name)
	}
	return found.into(deployment)
}

// List implements cache.Cache. Of Deployments, it lists those of one owner.
func (c *Cache) List(ctx context.Context, out client.ObjectList, options ...client.ListOption) error {
	list, ok := out.(*appsv1.DeploymentList)
	if !ok {
		return c.Cache.List(ctx, out, options...)
	}
	var selected client.ListOptions
	selected.ApplyOptions(options)
	if selected.FieldSelector == nil {
		return errUnsupported
	}
	owner, ok := selected.FieldSelector.RequiresExactMatch(controllerIndex)
	if !ok {
		return errUnsupported
	}
	if err := c.Deployments.WaitForSync(ctx); err != nil {
		return fmt.Errorf("waiting for the Deployments: %w", err)
	}
	list.Items = nil
	for _, found := range c.Deployments.deployments.by(ownerIndex, owner) {
		var d appsv1.Deployment
		if err := found.into(&d); err != nil {
			return err
		}
		if d.Namespace == selected.Namespace {
			list.Items = append(list.Items, d)
		}
	}
	return nil
}

// IndexField implements cache.Cache.
func (c *Cache) IndexField(ctx context.Context, object client.Object, field string, value client.IndexerFunc) error {
	if _, ok := object.(*appsv1.Deployment); ok && field == controllerIndex {
		return nil // Deployments are listed by it already.
	}
	return c.Cache.IndexField(ctx, object, field, value)
}

// GetInformer implements cache.Cache.
func (c *Cache) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if _, ok := object.(*appsv1.Deployment); ok {
		return deploymentInformer{c.Deployments.deployments}, nil
	}
	return c.Cache.GetInformer(ctx, object, options...)
}

// deploymentInformer reports changes of Deployments. A new handler gets no events for known objects.
type deploymentInformer struct{ deployments *records[*deploymentRecord] }

var errUnsupported = errors.New("not supported for Deployments")

// AddEventHandler implements cache.Informer.
func (i deploymentInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	decoded := func(r *deploymentRecord) *appsv1.Deployment {
		var d appsv1.Deployment
		if err := r.into(&d); err != nil {
			panic(err) // We have encoded it ourselves.
		}
		return &d
	}
	i.deployments.onChange(func(before, after *deploymentRecord) {
		switch {
		case before == nil:
			handler.OnAdd(decoded(after), false)
		case after == nil:
			handler.OnDelete(decoded(before))
		case before.version != after.version: // It was not only listed again.
			handler.OnUpdate(decoded(before), decoded(after))
		}
	})
	return i, nil
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i deploymentInformer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i deploymentInformer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// RemoveEventHandler implements cache.Informer.
func (deploymentInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return errUnsupported
}

// AddIndexers implements cache.Informer.
func (deploymentInformer) AddIndexers(toolscache.Indexers) error { return errUnsupported }

// HasSynced implements cache.Informer and its registrations.
func (i deploymentInformer) HasSynced() bool { return i.deployments.hasSynced() }

// HasSyncedChecker implements cache.Informer and its registrations.
func (i deploymentInformer) HasSyncedChecker() toolscache.DoneChecker { return i }

// Name implements toolscache.DoneChecker.
func (deploymentInformer) Name() string { return "Deployments" }

// Done implements toolscache.DoneChecker.
func (i deploymentInformer) Done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = i.deployments.wait(context.Background())
	}()
	return done
}

// IsStopped implements cache.Informer.
func (deploymentInformer) IsStopped() bool { return false }
