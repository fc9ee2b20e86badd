// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// VPAResource is the resource of VerticalPodAutoscalers. Their API is installed separately from
// Kubernetes, and may appear and disappear.
var VPAResource = schema.GroupVersionResource{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"}

// VPAs knows the VerticalPodAutoscalers of some namespaces. The manager's cache cannot be used: an
// informer for a kind that is not served never syncs, and blocks the others.
//
// Their status changes each minute, and is large. So they are listed once, and then only their metadata is watched. An object
// of a new generation is read again.
type VPAs struct {
	// Client lists VerticalPodAutoscalers.
	Client dynamic.Interface
	// Metadata watches their metadata.
	Metadata metadata.Interface
	// Namespaces are the namespaces to read; an empty list means all.
	Namespaces []string
	// Clock is the time until an API that is not served is asked for again.
	Clock clock.Clock

	vpas *records[*vpaRecord]
	// failed has, for each informer, a channel that its first error closes.
	failed []chan struct{}
}

// vpaRecord is the stored part of a VerticalPodAutoscaler. Of its metadata, it has the identity and the version.
type vpaRecord struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	vpa workload.VPA
}

// DeepCopyObject implements runtime.Object.
func (r *vpaRecord) DeepCopyObject() runtime.Object { return r.as(r) }

// as is the record with the metadata of a version of the object.
func (r *vpaRecord) as(o metav1.Object) *vpaRecord {
	return &vpaRecord{vpa: r.vpa, ObjectMeta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Generation: o.GetGeneration(), ResourceVersion: o.GetResourceVersion(),
	}}
}

// newVPARecord reads a VerticalPodAutoscaler. A field that cannot be decoded counts as not set: without
// a readable policy it sizes all containers, and without a readable target it sizes nothing.
func newVPARecord(vpa *unstructured.Unstructured) *vpaRecord {
	content, _ := vpa.Object["spec"].(map[string]any)
	r := &vpaRecord{vpa: workload.ReadVPA(vpa.GetNamespace(), vpa.GetName(), readableSpec(content))}
	return r.as(vpa)
}

// Of returns the VerticalPodAutoscalers whose target is the Deployment or the ScaledDeployment that
// controls it, in any API version and in any order.
func (v *VPAs) Of(deployment *appsv1.Deployment) (out []workload.VPA) {
	if v == nil || v.vpas == nil {
		return nil
	}
	for _, target := range workload.TargetsOf(deployment) {
		for _, found := range v.vpas.by(targetIndex, deployment.Namespace+"/"+targetKey(target)) {
			out = append(out, found.vpa)
		}
	}
	return out
}

// Follow watches until the context ends. changed is called with each VerticalPodAutoscaler that is
// created, deleted, or changed in a value of workload.VPA.
func (v *VPAs) Follow(ctx context.Context, changed func(workload.VPA)) {
	asRead := func(r *vpaRecord) *vpaRecord { return r }
	v.vpas = newRecords(v.Namespaces, &vpaRecord{}, v.source, asRead, map[string]func(*vpaRecord) string{
		targetIndex: func(r *vpaRecord) string { return r.Namespace + "/" + targetKey(workload.TargetOf(r.vpa.Target)) },
	})
	for _, informer := range v.vpas.informers {
		failed := make(chan struct{})
		v.failed = append(v.failed, failed)
		_ = informer.SetWatchErrorHandlerWithContext(onVPAError(informer, v.Clock, changed, sync.OnceFunc(func() { close(failed) })))
		_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { changed(recordOf[*vpaRecord](object).vpa) },
			UpdateFunc: func(old, object any) {
				before, after := recordOf[*vpaRecord](old).vpa, recordOf[*vpaRecord](object).vpa
				if reflect.DeepEqual(before, after) {
					return
				}
				if before.Target != after.Target {
					changed(before)
				}
				changed(after)
			},
			DeleteFunc: func(object any) { changed(recordOf[*vpaRecord](deleted(object)).vpa) },
		})
	}
	go v.vpas.run(ctx)
}

// Wait waits until each namespace was listed once. A failed list counts, because a broken API of
// another project must not block the operator.
func (v *VPAs) Wait(ctx context.Context) error {
	for i, informer := range v.vpas.informers {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-v.failed[i]:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the VerticalPodAutoscalers: %w", ctx.Err())
		}
	}
	return nil
}

// source lists the VerticalPodAutoscalers of a namespace, and watches their metadata.
func (v *VPAs) source(namespace string) toolscache.ListerWatcher {
	s := &vpaSource{api: v.Client.Resource(VPAResource), namespace: namespace, known: map[types.NamespacedName]*vpaRecord{}}
	return listThenWatch{&toolscache.ListWatch{
		ListWithContextFunc: s.listAll,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			watched, err := v.Metadata.Resource(VPAResource).Namespace(namespace).Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return watch.Filter(watched, func(e watch.Event) (watch.Event, bool) { return s.complete(ctx, e) }), nil
		},
	}}
}

// vpaSource turns events of metadata into events of records.
type vpaSource struct {
	api       dynamic.NamespaceableResourceInterface
	namespace string

	mu    sync.Mutex                          // a watch that was stopped may still handle an event
	known map[types.NamespacedName]*vpaRecord // the records in the informer
}

func (s *vpaSource) listAll(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	found, err := s.api.Namespace(s.namespace).List(ctx, o)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Continue == "" {
		clear(s.known)
	}
	out := &internalversion.List{ListMeta: metav1.ListMeta{ResourceVersion: found.GetResourceVersion(), Continue: found.GetContinue()}}
	for i := range found.Items {
		r := newVPARecord(&found.Items[i])
		s.known[client.ObjectKeyFromObject(r)] = r
		out.Items = append(out.Items, r)
	}
	return out, nil
}

// complete is the event with a record, which is read again if its generation is new. An error ends the watch, so that all are
// listed again. A deleted object has another event.
func (s *vpaSource) complete(ctx context.Context, e watch.Event) (watch.Event, bool) {
	changed, ok := e.Object.(*metav1.PartialObjectMetadata)
	if !ok {
		return e, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(changed)
	r := s.known[key]
	switch {
	case e.Type == watch.Bookmark:
		e.Object = (&vpaRecord{}).as(changed)
		return e, true
	case r == nil && e.Type == watch.Deleted:
		return e, false
	case e.Type == watch.Deleted:
		delete(s.known, key)
	case r == nil || r.UID != changed.UID || r.Generation < changed.Generation:
		found, err := s.api.Namespace(key.Namespace).List(ctx, metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + key.Name})
		if err != nil {
			return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(fmt.Errorf("reading VerticalPodAutoscaler %s: %w", key, err)).ErrStatus}, true
		}
		at := slices.IndexFunc(found.Items, func(u unstructured.Unstructured) bool { return u.GetUID() == changed.UID })
		if at < 0 {
			return e, false
		}
		r = newVPARecord(&found.Items[at])
		s.known[key] = r
	}
	reported := r.as(changed) // The informer continues from the version of the event, not from a later one that was read.
	reported.Generation = max(r.Generation, changed.Generation)
	e.Object = reported
	return e, true
}

// onVPAError returns the handler of errors of an informer, which retries after less than a minute, or after notServedInterval. If the API is not
// served, or the right is missing, all records are dropped.
func onVPAError(informer toolscache.SharedIndexInformer, by clock.Clock, changed func(workload.VPA), failed func()) toolscache.WatchErrorHandlerWithContext {
	lastError := ""
	return func(ctx context.Context, _ *toolscache.Reflector, err error) {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			for _, object := range informer.GetIndexer().List() {
				_ = informer.GetIndexer().Delete(object) // It fails only without a key.
				changed(recordOf[*vpaRecord](object).vpa)
			}
		}
		if !apierrors.IsNotFound(err) && ctx.Err() == nil && err.Error() != lastError {
			lastError = err.Error() // Log an error once, not every minute.
			log.FromContext(ctx).Info("Cannot read VerticalPodAutoscalers; conflicts with them are not detected", "error", lastError)
		}
		failed()
		if apierrors.IsNotFound(err) { // before the reflector asks again
			select {
			case <-ctx.Done():
			case <-by.After(notServedInterval):
			}
		}
	}
}

// notServedInterval is the time between two requests for an API that is not served: as a resync, because VPA is installed rarely.
const notServedInterval = 10 * time.Minute

// listThenWatch lists before it watches. So an unknown resource fails at once, without an attempt
// to stream the list first.
type listThenWatch struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported implements the interface that the reflector checks.
func (listThenWatch) IsWatchListSemanticsUnSupported() bool { return true }

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
