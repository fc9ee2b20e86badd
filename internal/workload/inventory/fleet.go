// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Fleet knows all Deployments of some namespaces as policies see them: labels, number of pods and requests. It has
// a watch of its own, and stores a few hundred bytes for each. Changes of anything else, such as the status, are dropped.
type Fleet struct {
	api        client.WithWatch
	namespaces []string
	lists      firstLists

	mu          sync.RWMutex
	deployments map[string]map[string]*fleet.Deployment // by namespace and name
	handlers    []func(types.NamespacedName)
}

// NewFleet returns a Fleet of some namespaces, or of all if there are none. It must be started.
func NewFleet(api client.WithWatch, namespaces ...string) *Fleet {
	f := &Fleet{api: api, namespaces: allIfNone(namespaces), deployments: map[string]map[string]*fleet.Deployment{}}
	f.lists.expect(len(f.namespaces))
	return f
}

// OnChange adds a function that is called after a Deployment has appeared, changed or gone. It must be added before the
// start, and may not block.
func (f *Fleet) OnChange(handler func(types.NamespacedName)) {
	f.handlers = append(f.handlers, handler)
}

// Start watches until the context ends.
func (f *Fleet) Start(ctx context.Context) error {
	var watches sync.WaitGroup
	for _, namespace := range f.namespaces {
		watches.Go(func() { f.watch(ctx, namespace) })
	}
	watches.Wait()
	return nil
}

// WaitForSync waits until all Deployments are known, or until the context ends.
func (f *Fleet) WaitForSync(ctx context.Context) error { return f.lists.wait(ctx) }

func (f *Fleet) watch(ctx context.Context, namespace string) {
	source := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &appsv1.DeploymentList{}
			err := f.api.List(ctx, list, &client.ListOptions{Namespace: namespace, Limit: o.Limit, Continue: o.Continue, Raw: &o})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.api.Watch(ctx, &appsv1.DeploymentList{}, &client.ListOptions{Namespace: namespace, Raw: &o})
		},
	}
	store := &fleetStore{fleet: f, namespace: namespace, synced: f.lists.one()}
	lists := toolscache.ToListWatcherWithWatchListSemantics(source, f.api)
	toolscache.NewReflectorWithOptions(lists, &appsv1.Deployment{}, store, toolscache.ReflectorOptions{Name: "Fleet"}).RunWithContext(ctx)
}

// Get returns a Deployment, which may not be modified; nil if there is none.
func (f *Fleet) Get(key types.NamespacedName) *fleet.Deployment {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.deployments[key.Namespace][key.Name]
}

// All returns the Deployments of a namespace, or of all namespaces, in any order. They may not be modified.
func (f *Fleet) All(namespace string) (all []*fleet.Deployment) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if namespace != metav1.NamespaceAll {
		return slices.Collect(maps.Values(f.deployments[namespace]))
	}
	for _, deployments := range f.deployments {
		all = slices.AppendSeq(all, maps.Values(deployments))
	}
	return all
}

// set stores a Deployment, and reports whether it has changed.
func (f *Fleet) set(d *fleet.Deployment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.deployments[d.Namespace][d.Name]
	if before != nil && isSameDeployment(before, d) {
		return false
	}
	if f.deployments[d.Namespace] == nil {
		f.deployments[d.Namespace] = map[string]*fleet.Deployment{}
	}
	f.deployments[d.Namespace][d.Name] = d
	return true
}

// drop forgets a Deployment, and reports whether it was known.
func (f *Fleet) drop(key types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deployments[key.Namespace][key.Name] == nil {
		return false
	}
	if delete(f.deployments[key.Namespace], key.Name); len(f.deployments[key.Namespace]) == 0 {
		delete(f.deployments, key.Namespace)
	}
	return true
}

// tell calls the handlers about a Deployment that has changed.
func (f *Fleet) tell(key types.NamespacedName, changed bool) {
	if !changed {
		return
	}
	for _, handler := range f.handlers {
		handler(key)
	}
}

func isSameDeployment(a, b *fleet.Deployment) bool {
	return a.Excluded == b.Excluded && a.IsOwned == b.IsOwned && a.Replicas == b.Replicas && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Requests, b.Requests)
}

// fleetStore is what one watch of a Fleet fills.
type fleetStore struct {
	fleet     *Fleet
	namespace string
	synced    func()
}

var _ toolscache.TransformingStore = &fleetStore{}

// Transformer implements cache.TransformingStore. It shrinks each Deployment of a list as soon as it arrives.
func (s *fleetStore) Transformer() toolscache.TransformFunc {
	return func(object any) (any, error) {
		if d, ok := object.(*appsv1.Deployment); ok {
			return ReadForFleet(d), nil
		}
		return object, nil
	}
}

// ReadForFleet reads what policies see of a Deployment.
func ReadForFleet(d *appsv1.Deployment) *fleet.Deployment {
	controller := metav1.GetControllerOfNoCopy(d)
	out := &fleet.Deployment{
		Namespace: d.Namespace, Name: d.Name, Labels: d.Labels, Excluded: fleet.IsExcluded(d.Annotations),
		IsOwned: controller != nil && v1beta1.IsScaledDeployment(controller), Replicas: 1, Requests: map[string]quantity.Amounts{},
	}
	if d.Spec.Replicas != nil {
		out.Replicas = *d.Spec.Replicas
	}
	for _, c := range workload.ReadDeployment(d).Containers {
		out.Requests[c.Name] = c.Requests
	}
	return out
}

// Replace implements cache.ReflectorStore.
func (s *fleetStore) Replace(listed []any, _ string) error {
	gone := map[types.NamespacedName]bool{}
	for _, d := range s.fleet.All(s.namespace) {
		gone[d.Key()] = true
	}
	for _, object := range listed {
		d, err := deploymentOfFleet(object)
		if err != nil {
			return err
		}
		delete(gone, d.Key())
		s.fleet.tell(d.Key(), s.fleet.set(d))
	}
	for key := range gone {
		s.fleet.tell(key, s.fleet.drop(key))
	}
	s.synced()
	return nil
}

// Add implements cache.ReflectorStore.
func (s *fleetStore) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore.
func (s *fleetStore) Update(object any) error {
	d, err := deploymentOfFleet(object)
	if err != nil {
		return err
	}
	s.fleet.tell(d.Key(), s.fleet.set(d))
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *fleetStore) Delete(object any) error {
	d, err := deploymentOfFleet(object)
	if err != nil {
		return err
	}
	s.fleet.tell(d.Key(), s.fleet.drop(d.Key()))
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *fleetStore) Resync() error { return nil }

func deploymentOfFleet(object any) (*fleet.Deployment, error) {
	switch d := object.(type) {
	case *fleet.Deployment:
		return d, nil
	case *appsv1.Deployment:
		return ReadForFleet(d), nil
	}
	return nil, fmt.Errorf("a %T is no Deployment", object)
}
