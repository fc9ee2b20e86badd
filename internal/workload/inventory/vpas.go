// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// VPAResource is the resource of VerticalPodAutoscalers. Their API is installed separately from
// Kubernetes, and may appear and disappear.
var VPAResource = schema.GroupVersionResource{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"}

// VPARetryPeriod is how often VerticalPodAutoscalers are listed again after the list failed.
const VPARetryPeriod = time.Minute

// VPAs knows the VerticalPodAutoscalers of some namespaces. The manager's cache cannot be used: an
// informer for a kind that is not served never syncs, and blocks the others.
type VPAs struct {
	// Client reads VerticalPodAutoscalers.
	Client dynamic.Interface
	// Namespaces are the namespaces to read; an empty list means all.
	Namespaces []string
	// RetryPeriod is VPARetryPeriod, except in tests.
	RetryPeriod time.Duration
	// Clock is the time.
	Clock clock.Clock

	unanswered sync.WaitGroup // namespaces without a first answer

	stores []*vpaStore // one for each namespace
}

// Of returns the VerticalPodAutoscalers whose target is the Deployment or the ScaledDeployment that
// controls it, in any API version and in any order.
func (v *VPAs) Of(deployment *appsv1.Deployment) (out []workload.VPA) {
	if v == nil {
		return nil
	}
	for _, target := range workload.TargetsOf(deployment) {
		for _, store := range v.stores {
			found, _ := store.ByIndex(targetIndex, deployment.Namespace+"/"+targetKey(target)) // It fails only without the index.
			for _, vpa := range found {
				out = append(out, vpaOf(vpa))
			}
		}
	}
	return out
}

// vpaOf is the VerticalPodAutoscaler in a store.
func vpaOf(object any) workload.VPA {
	vpa, _ := object.(workload.VPA)
	return vpa
}

// Follow watches until the context ends. changed is called with each VerticalPodAutoscaler that is
// created, deleted, or changed in a value of workload.VPA.
func (v *VPAs) Follow(ctx context.Context, changed func(workload.VPA)) {
	namespaces := v.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	v.unanswered.Add(len(namespaces))
	for _, namespace := range namespaces {
		v.stores = append(v.stores, newVPAStore(changed, sync.OnceFunc(v.unanswered.Done)))
		go v.follow(ctx, namespace, v.stores[len(v.stores)-1])
	}
}

// Wait waits until each namespace was listed once. A failed list counts, because a broken API of
// another project must not block the operator.
func (v *VPAs) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		v.unanswered.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the VerticalPodAutoscalers: %w", ctx.Err())
	}
}

func (v *VPAs) follow(ctx context.Context, namespace string, store *vpaStore) {
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(VPAResource.GroupVersion().WithKind("VerticalPodAutoscaler"))
	client := v.Client.Resource(VPAResource).Namespace(namespace)
	source := listThenWatch{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}}
	lastError := ""
	for ctx.Err() == nil {
		err := toolscache.NewReflectorWithOptions(source, kind, store, toolscache.ReflectorOptions{Name: "VerticalPodAutoscalers"}).
			ListAndWatchWithContext(ctx)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			_ = store.dropAllBut(nil) // It fails only without a key.
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil && err.Error() != lastError {
			lastError = err.Error() // Log an error once, not every minute.
			log.FromContext(ctx).Info("Cannot read VerticalPodAutoscalers; conflicts with them are not detected", "namespace", namespace, "error", lastError)
		}
		store.answered()
		select {
		case <-ctx.Done():
		case <-v.Clock.After(v.RetryPeriod):
		}
	}
	store.answered()
}

// listThenWatch lists before it watches. So an unknown resource fails at once, without an attempt
// to stream the list first.
type listThenWatch struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported implements the interface that the reflector checks.
func (listThenWatch) IsWatchListSemanticsUnSupported() bool { return true }

// vpaStore stores the VerticalPodAutoscalers of one namespace, or of all, and tells of their changes.
type vpaStore struct {
	toolscache.Indexer
	changed  func(workload.VPA)
	answered func()
}

func newVPAStore(changed func(workload.VPA), answered func()) *vpaStore {
	return &vpaStore{changed: changed, answered: answered, Indexer: toolscache.NewIndexer(
		func(object any) (string, error) { return keyOf(vpaOf(object)), nil },
		toolscache.Indexers{targetIndex: func(object any) ([]string, error) {
			vpa := vpaOf(object)
			return []string{vpa.Namespace + "/" + targetKey(workload.TargetOf(vpa.Target))}, nil
		}},
	)}
}

func keyOf(vpa workload.VPA) string { return vpa.Namespace + "/" + vpa.Name }

// Add implements cache.ReflectorStore.
func (s *vpaStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *vpaStore) Update(obj any) error {
	vpa, err := readVPA(obj)
	if err != nil {
		return err
	}
	return s.set(vpa)
}

// Delete implements cache.ReflectorStore.
func (s *vpaStore) Delete(obj any) error {
	vpa, err := readVPA(obj)
	if err != nil {
		return err
	}
	return s.drop(keyOf(vpa))
}

// Replace implements cache.ReflectorStore.
func (s *vpaStore) Replace(objs []any, _ string) error {
	kept := map[string]bool{}
	for _, obj := range objs {
		vpa, err := readVPA(obj)
		if err != nil {
			return err
		}
		kept[keyOf(vpa)] = true
		if err := s.set(vpa); err != nil {
			return err
		}
	}
	defer s.answered()
	return s.dropAllBut(kept)
}

func (s *vpaStore) dropAllBut(kept map[string]bool) error {
	for _, key := range s.ListKeys() {
		if !kept[key] {
			if err := s.drop(key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *vpaStore) set(vpa workload.VPA) error {
	found, known, err := s.GetByKey(keyOf(vpa))
	before := vpaOf(found)
	if err != nil || known && reflect.DeepEqual(before, vpa) {
		return err // Most updates only change the status.
	}
	if err := s.Indexer.Update(vpa); err != nil {
		return err
	}
	if known && before.Target != vpa.Target {
		s.changed(before)
	}
	s.changed(vpa)
	return nil
}

func (s *vpaStore) drop(key string) error {
	found, known, err := s.GetByKey(key)
	if err != nil || !known {
		return err
	}
	if err := s.Indexer.Delete(found); err != nil {
		return err
	}
	s.changed(vpaOf(found))
	return nil
}

// readVPA reads a VerticalPodAutoscaler. A field that cannot be decoded counts as not set: without
// a readable policy it sizes all containers, and without a readable target it sizes nothing.
func readVPA(obj any) (workload.VPA, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return workload.VPA{}, fmt.Errorf("%T is not a VerticalPodAutoscaler", obj)
	}
	content, _ := u.Object["spec"].(map[string]any)
	return workload.ReadVPA(u.GetNamespace(), u.GetName(), readableSpec(content)), nil
}

// readableSpec is the spec without the fields that cannot be decoded.
func readableSpec(content map[string]any) (spec workload.VPASpec) {
	readable := map[string]any{}
	for name, value := range content {
		readable[name] = value
		var with workload.VPASpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(readable, &with); err != nil {
			delete(readable, name)
			continue
		}
		spec = with
	}
	return spec
}
