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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is the manager's cache. It stores Deployments and pods only if they are claimed. Everything else is stored as
// usual.
type Cache struct {
	cache.Cache

	Deployments *Deployments
	Pods        *Pods
}

// NewCache returns a Cache. Its parts store nothing without claims.
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
	return &Cache{Cache: usual, Deployments: newDeployments(api, namespaces...), Pods: NewPods(api, namespaces...)}
}

// allIfNone are the namespaces to watch.
func allIfNone(namespaces []string) []string {
	if len(namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return namespaces
}

// Start implements cache.Cache.
func (c *Cache) Start(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var own sync.WaitGroup
	own.Go(func() { c.Deployments.start(ctx) })
	own.Go(func() { c.Pods.start(ctx) })
	err := c.Cache.Start(ctx)
	stop()
	own.Wait()
	return err
}

// WaitForCacheSync implements cache.Cache.
func (c *Cache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) && c.Deployments.lists.wait(ctx) == nil && c.Pods.lists.wait(ctx) == nil
}

// Get implements cache.Cache.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, out client.Object, options ...client.GetOption) error {
	if deployment, ok := out.(*appsv1.Deployment); ok {
		return c.Deployments.get(ctx, key, deployment)
	}
	return c.Cache.Get(ctx, key, out, options...)
}

// List implements cache.Cache. Of Deployments, it lists those of one owner.
func (c *Cache) List(ctx context.Context, out client.ObjectList, options ...client.ListOption) error {
	list, ok := out.(*appsv1.DeploymentList)
	if !ok {
		return c.Cache.List(ctx, out, options...)
	}
	var selected client.ListOptions
	selected.ApplyOptions(options)
	if selected.FieldSelector != nil {
		if owner, ok := selected.FieldSelector.RequiresExactMatch(controllerIndex); ok {
			var err error
			list.Items, err = c.Deployments.ofOwner(ctx, selected.Namespace, types.UID(owner))
			return err
		}
	}
	return errors.New("the cache lists only the Deployments of an owner")
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
		return deploymentInformer{c.Deployments}, nil
	}
	return c.Cache.GetInformer(ctx, object, options...)
}

// deploymentInformer tells of changes of claimed Deployments. A new handler is not told of what is stored already.
type deploymentInformer struct{ deployments *Deployments }

var errUnsupported = errors.New("not supported for Deployments")

// AddEventHandler implements cache.Informer.
func (i deploymentInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.deployments.mu.Lock()
	defer i.deployments.mu.Unlock()
	i.deployments.handlers = append(i.deployments.handlers, handler)
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
func (i deploymentInformer) HasSynced() bool { return i.deployments.lists.hasSynced() }

// HasSyncedChecker implements cache.Informer and its registrations.
func (i deploymentInformer) HasSyncedChecker() toolscache.DoneChecker { return i }

// Name implements toolscache.DoneChecker.
func (deploymentInformer) Name() string { return "Deployments" }

// Done implements toolscache.DoneChecker.
func (i deploymentInformer) Done() <-chan struct{} { return i.deployments.lists.done }

// IsStopped implements cache.Informer.
func (deploymentInformer) IsStopped() bool { return false }
