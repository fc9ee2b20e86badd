// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoapplyconfigurations "k8s.io/client-go/applyconfigurations"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// knownTypes has the schemas of the kinds of Kubernetes.
var knownTypes = sync.OnceValue(func() managedfields.TypeConverter {
	return clientgoapplyconfigurations.NewTypeConverter(clientgoscheme.Scheme)
})

// noDefaults implements runtime.ObjectDefaulter.
type noDefaults struct{}

// Default implements runtime.ObjectDefaulter.
func (noDefaults) Default(runtime.Object) {}

// fields is the field manager of a write.
func (w write) fields() (*managedfields.FieldManager, error) {
	types := managedfields.NewDeducedTypeConverter()
	if w.kind.Group != v1beta1.GroupVersion.Group {
		types = knownTypes()
	}
	return managedfields.NewDefaultFieldManager(types, scheme(), noDefaults{}, scheme(), w.kind, w.kind.GroupVersion(), w.subresource, nil)
}

// isTracked reports whether the fields of a write are recorded: those that the operator or an oracle reads.
func (w write) isTracked(o client.Object) bool {
	_, isDeployment := o.(*appsv1.Deployment)
	return w.manager != "" && (isDeployment && w.subresource == "" || w.subresource == "resize")
}

// track records who has written which fields. before is nil for a new object.
func (w write) track(before, after client.Object, now metav1.Time) error {
	if before != nil && after.GetManagedFields() == nil {
		after.SetManagedFields(before.GetManagedFields())
	}
	if _, isPod := after.(*corev1.Pod); isPod && before == nil {
		// A field manager adds nothing to an object without an entry. The fields of a new pod do not matter.
		after.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: w.manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`),
		}})
	}
	if !w.isTracked(after) {
		return nil
	}
	fields, err := w.fields()
	if err != nil {
		return err
	}
	live, err := w.live(before)
	if err != nil {
		return err
	}
	after.GetObjectKind().SetGroupVersionKind(w.kind)
	if _, err := fields.Update(live, after, w.manager); err != nil {
		return err
	}
	w.setTimes(before, after, now)
	return nil
}

// merge is the object that an apply leads to. before is nil for a new object.
func (w write) merge(before client.Object, applied *unstructured.Unstructured, force bool, now metav1.Time) (client.Object, error) {
	fields, err := w.fields()
	if err != nil {
		return nil, err
	}
	live, err := w.live(before)
	if err != nil {
		return nil, err
	}
	merged, err := fields.Apply(live, applied, w.manager, force)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(merged)
	if err != nil {
		return nil, err
	}
	after, err := w.typed(&unstructured.Unstructured{Object: content})
	if err != nil {
		return nil, err
	}
	w.setTimes(before, after, now)
	return after, nil
}

// live is the object that a field manager compares with: a copy of the stored object, or an empty one.
func (w write) live(before client.Object) (client.Object, error) {
	empty, err := scheme().New(w.kind)
	if err != nil {
		return nil, err
	}
	out, _ := empty.(client.Object)
	if before != nil {
		out = copyOf(before)
	}
	out.GetObjectKind().SetGroupVersionKind(w.kind)
	return out, nil
}

// setTimes sets the times of the entries of an object: field managers only know the real time. The entry of the writer is of
// now, unless it has the same fields as before.
func (w write) setTimes(before, after client.Object, now metav1.Time) {
	entries := after.GetManagedFields()
	for i := range entries {
		e := &entries[i]
		e.Time = &now
		if before == nil {
			continue
		}
		for _, was := range before.GetManagedFields() {
			isSame := was.Manager == e.Manager && was.Operation == e.Operation && was.Subresource == e.Subresource
			if isSame && (e.Manager != w.manager || apiequality.Semantic.DeepEqual(was.FieldsV1, e.FieldsV1)) {
				e.Time = was.Time
			}
		}
	}
	slices.SortFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Subresource, b.Subresource))
	})
	after.SetManagedFields(entries)
	after.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
}
