// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

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

	mu    sync.Mutex
	known map[string]map[string]workload.VPA // by namespace and name
}

// Of returns the VerticalPodAutoscalers of a namespace, sorted by name.
func (v *VPAs) Of(namespace string) (out []workload.VPA) {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(v.known[namespace])) {
		out = append(out, v.known[namespace][name])
	}
	return out
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
		go v.follow(ctx, &vpaStore{vpas: v, namespace: namespace, changed: changed, answered: sync.OnceFunc(v.unanswered.Done)})
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

func (v *VPAs) follow(ctx context.Context, store *vpaStore) {
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(VPAResource.GroupVersion().WithKind("VerticalPodAutoscaler"))
	client := v.Client.Resource(VPAResource).Namespace(store.namespace)
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
			store.clear()
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil && err.Error() != lastError {
			lastError = err.Error() // Log an error once, not every minute.
			log.FromContext(ctx).Info("Cannot read VerticalPodAutoscalers; conflicts with them are not detected", "namespace", store.namespace, "error", lastError)
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

// vpaStore stores the VerticalPodAutoscalers of one namespace, or of all.
type vpaStore struct {
	vpas      *VPAs
	namespace string
	changed   func(workload.VPA)
	answered  func()
}

// Add implements cache.ReflectorStore.
func (s *vpaStore) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *vpaStore) Update(obj any) error {
	vpa, err := readVPA(obj)
	if err != nil {
		return err
	}
	s.set(vpa)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *vpaStore) Delete(obj any) error {
	vpa, err := readVPA(obj)
	if err != nil {
		return err
	}
	s.drop(vpa)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *vpaStore) Replace(objs []any, _ string) error {
	kept := map[string]bool{}
	for _, obj := range objs {
		vpa, err := readVPA(obj)
		if err != nil {
			return err
		}
		kept[vpa.Namespace+"/"+vpa.Name] = true
		s.set(vpa)
	}
	for _, vpa := range s.all() {
		if !kept[vpa.Namespace+"/"+vpa.Name] {
			s.drop(vpa)
		}
	}
	s.answered()
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *vpaStore) Resync() error { return nil }

func (s *vpaStore) clear() {
	for _, vpa := range s.all() {
		s.drop(vpa)
	}
}

func (s *vpaStore) all() (out []workload.VPA) {
	v := s.vpas
	v.mu.Lock()
	defer v.mu.Unlock()
	for namespace, vpas := range v.known {
		if s.namespace != metav1.NamespaceAll && s.namespace != namespace {
			continue
		}
		for _, vpa := range vpas {
			out = append(out, vpa)
		}
	}
	return out
}

func (s *vpaStore) set(vpa workload.VPA) {
	v := s.vpas
	v.mu.Lock()
	before, known := v.known[vpa.Namespace][vpa.Name]
	if v.known == nil {
		v.known = map[string]map[string]workload.VPA{}
	}
	if v.known[vpa.Namespace] == nil {
		v.known[vpa.Namespace] = map[string]workload.VPA{}
	}
	v.known[vpa.Namespace][vpa.Name] = vpa
	v.mu.Unlock()
	if known && reflect.DeepEqual(before, vpa) {
		return // Most updates only change the status.
	}
	if known && before.Target != vpa.Target {
		s.changed(before)
	}
	s.changed(vpa)
}

func (s *vpaStore) drop(vpa workload.VPA) {
	v := s.vpas
	v.mu.Lock()
	delete(v.known[vpa.Namespace], vpa.Name)
	v.mu.Unlock()
	s.changed(vpa)
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
