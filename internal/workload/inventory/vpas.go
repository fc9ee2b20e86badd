// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// VPAResource is the resource of VerticalPodAutoscalers. Their API is installed separately from
// Kubernetes, and may appear and disappear.
var VPAResource = schema.GroupVersionResource{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"}

// VPAs knows the VerticalPodAutoscalers of some namespaces. The manager's cache cannot be used: an
// informer for a kind that is not served never syncs, and blocks the others.
type VPAs struct {
	// Client reads VerticalPodAutoscalers.
	Client dynamic.Interface
	// Namespaces are the namespaces to read; an empty list means all.
	Namespaces []string

	vpas *records[*vpaRecord]
	// failed has, for each informer, a channel that its first error closes.
	failed []chan struct{}
}

// vpaRecord is what is stored of a VerticalPodAutoscaler.
type vpaRecord struct {
	workload.VPA

	version string
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *vpaRecord) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, ResourceVersion: r.version}
}

// newVPARecord reads a VerticalPodAutoscaler. A field that cannot be decoded counts as not set: without
// a readable policy it sizes all containers, and without a readable target it sizes nothing.
func newVPARecord(vpa *unstructured.Unstructured) *vpaRecord {
	content, _ := vpa.Object["spec"].(map[string]any)
	return &vpaRecord{workload.ReadVPA(vpa.GetNamespace(), vpa.GetName(), readableSpec(content)), vpa.GetResourceVersion()}
}

// Of returns the VerticalPodAutoscalers whose target is the Deployment or the ScaledDeployment that
// controls it, in any API version and in any order.
func (v *VPAs) Of(deployment *appsv1.Deployment) (out []workload.VPA) {
	if v == nil || v.vpas == nil {
		return nil
	}
	for _, target := range workload.TargetsOf(deployment) {
		for _, found := range v.vpas.by(targetIndex, deployment.Namespace+"/"+targetKey(target)) {
			out = append(out, found.VPA)
		}
	}
	return out
}

// Follow watches until the context ends. changed is called with each VerticalPodAutoscaler that is
// created, deleted, or changed in a value of workload.VPA.
func (v *VPAs) Follow(ctx context.Context, changed func(workload.VPA)) {
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(VPAResource.GroupVersion().WithKind("VerticalPodAutoscaler"))
	v.vpas = newRecords(v.Namespaces, kind, v.source, newVPARecord, map[string]func(*vpaRecord) string{
		targetIndex: func(r *vpaRecord) string { return r.Namespace + "/" + targetKey(workload.TargetOf(r.Target)) },
	})
	for _, informer := range v.vpas.informers {
		failed := make(chan struct{})
		v.failed = append(v.failed, failed)
		_ = informer.SetWatchErrorHandlerWithContext(onVPAError(informer, changed, sync.OnceFunc(func() { close(failed) })))
		_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { changed(recordOf[*vpaRecord](object).VPA) },
			UpdateFunc: func(old, object any) {
				before, after := recordOf[*vpaRecord](old).VPA, recordOf[*vpaRecord](object).VPA
				if reflect.DeepEqual(before, after) {
					return // Most updates only change the status.
				}
				if before.Target != after.Target {
					changed(before)
				}
				changed(after)
			},
			DeleteFunc: func(object any) { changed(recordOf[*vpaRecord](deleted(object)).VPA) },
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

// source reads the VerticalPodAutoscalers of a namespace.
func (v *VPAs) source(namespace string) toolscache.ListerWatcher {
	client := v.Client.Resource(VPAResource).Namespace(namespace)
	return listThenWatch{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}}
}

// onVPAError returns the handler of errors of an informer, which retries after less than a minute. If the API is not
// served, or the right is missing, nothing is known any more.
func onVPAError(informer toolscache.SharedIndexInformer, changed func(workload.VPA), failed func()) toolscache.WatchErrorHandlerWithContext {
	lastError := ""
	return func(ctx context.Context, _ *toolscache.Reflector, err error) {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			for _, object := range informer.GetIndexer().List() {
				_ = informer.GetIndexer().Delete(object) // It fails only without a key.
				changed(recordOf[*vpaRecord](object).VPA)
			}
		}
		if !apierrors.IsNotFound(err) && ctx.Err() == nil && err.Error() != lastError {
			lastError = err.Error() // Log an error once, not every minute.
			log.FromContext(ctx).Info("Cannot read VerticalPodAutoscalers; conflicts with them are not detected", "error", lastError)
		}
		failed()
	}
}

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
