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
	"k8s.io/apimachinery/pkg/types"
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

	mu       sync.Mutex
	known    map[types.NamespacedName]workload.VPA
	byTarget map[vpaTarget]map[string]workload.VPA // and by name
}

// vpaTarget is the object that VerticalPodAutoscalers of its namespace size.
type vpaTarget struct {
	namespace string
	workload.Target
}

func targetOf(vpa workload.VPA) vpaTarget {
	return vpaTarget{vpa.Namespace, workload.TargetOf(vpa.Target)}
}

// Of returns the VerticalPodAutoscalers whose target is the Deployment or the ScaledDeployment that
// controls it, in any API version and in any order.
func (v *VPAs) Of(deployment *appsv1.Deployment) (out []workload.VPA) {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, target := range workload.TargetsOf(deployment) {
		for _, vpa := range v.byTarget[vpaTarget{deployment.Namespace, target}] {
			out = append(out, vpa)
		}
	}
	return out
}

// put stores a VerticalPodAutoscaler, and returns what was stored before.
func (v *VPAs) put(vpa workload.VPA) (before workload.VPA, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key, target := keyOf(vpa), targetOf(vpa)
	if before, known = v.known[key]; known {
		v.remove(before)
	}
	if v.known == nil {
		v.known, v.byTarget = map[types.NamespacedName]workload.VPA{}, map[vpaTarget]map[string]workload.VPA{}
	}
	if v.byTarget[target] == nil {
		v.byTarget[target] = map[string]workload.VPA{}
	}
	v.known[key], v.byTarget[target][vpa.Name] = vpa, vpa
	return before, known
}

// remove removes a known VerticalPodAutoscaler. The lock is held.
func (v *VPAs) remove(vpa workload.VPA) {
	target := targetOf(vpa)
	delete(v.known, keyOf(vpa))
	if delete(v.byTarget[target], vpa.Name); len(v.byTarget[target]) == 0 {
		delete(v.byTarget, target)
	}
}

func keyOf(vpa workload.VPA) types.NamespacedName {
	return types.NamespacedName{Namespace: vpa.Namespace, Name: vpa.Name}
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
	kept := map[types.NamespacedName]bool{}
	for _, obj := range objs {
		vpa, err := readVPA(obj)
		if err != nil {
			return err
		}
		kept[keyOf(vpa)] = true
		s.set(vpa)
	}
	for _, vpa := range s.all() {
		if !kept[keyOf(vpa)] {
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
	s.vpas.mu.Lock()
	defer s.vpas.mu.Unlock()
	for key, vpa := range s.vpas.known {
		if s.namespace == metav1.NamespaceAll || s.namespace == key.Namespace {
			out = append(out, vpa)
		}
	}
	return out
}

func (s *vpaStore) set(vpa workload.VPA) {
	before, known := s.vpas.put(vpa)
	if known && reflect.DeepEqual(before, vpa) {
		return // Most updates only change the status.
	}
	if known && before.Target != vpa.Target {
		s.changed(before)
	}
	s.changed(vpa)
}

func (s *vpaStore) drop(vpa workload.VPA) {
	s.vpas.mu.Lock()
	s.vpas.remove(s.vpas.known[keyOf(vpa)])
	s.vpas.mu.Unlock()
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
