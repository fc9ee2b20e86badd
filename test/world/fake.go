// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
)

// API is an API server in memory. The zero value is not ready for use: see NewAPI.
type API struct {
	client.WithWatch // nil: the methods that are not implemented are not called
	view

	mu  sync.Mutex
	now func() metav1.Time
	// observe, if set, is called for each change in order. before is nil for a new object.
	observe func(kind watch.EventType, before, o client.Object)
	created int
}

// NewAPI returns an API server in memory with these objects. Its clock is the clock of the world on it.
//
// As on a real one, an object has a UID, a generation, a deletion timestamp and finalizers, and status is a subresource. A
// write without a change changes nothing, resource versions order all writes, and a write of an old version is a conflict.
// Preconditions, dry runs, server-side apply, field managers of Deployments and of resizes, evictions under a
// PodDisruptionBudget, and pods that terminate for a while work. New pods get their sizes if the policy and the binding of
// package admission exist. LimitRanges set defaults, and bound pods.
//
// It differs from a real one:
//   - There are no defaults and no validation, but those of resources of pods. There are no rights, quotas or webhooks.
//   - Nothing can be watched.
//   - The field managers of other objects are not recorded, unless the object is applied.
//   - Dependents are not orphaned.
//   - Fields are selected by metadata.name, and by the indexes of the operator's cache.
//   - A kind that is not registered has no objects.
func NewAPI(objects ...client.Object) *API {
	a := &API{view: view{objects: map[schema.GroupKind][]client.Object{}}}
	for _, o := range objects {
		if err := a.Create(context.Background(), o.DeepCopyObject().(client.Object)); err != nil {
			panic(err)
		}
	}
	return a
}

var scheme = sync.OnceValue(app.Scheme)

// view is the objects at one moment, by kind and in the order of their keys. They are never modified, only replaced.
type view struct {
	revision int64
	objects  map[schema.GroupKind][]client.Object
}

// snapshot returns what is stored now.
func (a *API) snapshot() *view {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &view{revision: a.revision, objects: map[schema.GroupKind][]client.Object{}}
	for kind, objects := range a.objects {
		out.objects[kind] = slices.Clone(objects)
	}
	return out
}

// find is the place of an object among those of its kind, and whether it exists.
func (v *view) find(kind schema.GroupVersionKind, key types.NamespacedName) (place int, found bool) {
	return slices.BinarySearchFunc(v.objects[kind.GroupKind()], key, func(o client.Object, key types.NamespacedName) int {
		return cmp.Or(cmp.Compare(o.GetNamespace(), key.Namespace), cmp.Compare(o.GetName(), key.Name))
	})
}

// get returns an object; nil if it does not exist.
func (v *view) get(kind schema.GroupVersionKind, key types.NamespacedName) client.Object {
	if i, found := v.find(kind, key); found {
		return v.objects[kind.GroupKind()][i]
	}
	return nil
}

func kindOf(o runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(o, scheme())
}

func resourceFor(kind schema.GroupVersionKind) schema.GroupResource {
	if kind.Kind == "NewPodSizes" { // the plural of a plural
		return schema.GroupResource{Group: kind.Group, Resource: "newpodsizes"}
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}

// copyOf copies an object, with its type.
func copyOf[T client.Object](o T) T {
	return o.DeepCopyObject().(T)
}

// decode writes a stored object into another one, which may be of a general type.
func decode(stored, into client.Object, shared bool) error {
	switch into := into.(type) {
	case *metav1.PartialObjectMetadata:
		o, err := meta.Accessor(copyOf(stored))
		if err != nil {
			return err
		}
		into.ObjectMeta = *meta.AsPartialObjectMetadata(o).ObjectMeta.DeepCopy()
	case *unstructured.Unstructured:
		kind := into.GroupVersionKind()
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
		if err != nil {
			return err
		}
		into.Object = content
		into.SetGroupVersionKind(kind)
	default:
		if !shared {
			stored = copyOf(stored)
		}
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(stored).Elem())
	}
	return nil
}

// Get implements client.Reader.
func (v *view) Get(_ context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	kind, err := kindOf(into)
	if err != nil {
		return err
	}
	stored := v.get(kind, key)
	if stored == nil {
		return apierrors.NewNotFound(resourceFor(kind), key.Name)
	}
	return decode(stored, into, ptr.Deref((&client.GetOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy, false))
}

// List implements client.Reader.
func (v *view) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	kind, err := kindOf(into)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	how := (&client.ListOptions{}).ApplyOptions(options)
	var found []runtime.Object
	for _, o := range v.objects[kind.GroupKind()] {
		if isSelected, err := selects(how, o); err != nil {
			return err
		} else if !isSelected {
			continue
		}
		item := itemFor(into, kind, o)
		if err := decode(o, item, ptr.Deref(how.UnsafeDisableDeepCopy, false)); err != nil {
			return err
		}
		found = append(found, item)
	}
	into.SetResourceVersion(strconv.FormatInt(v.revision, 10))
	return meta.SetList(into, found)
}

// itemFor is an empty item of a list.
func itemFor(list client.ObjectList, kind schema.GroupVersionKind, stored client.Object) (item client.Object) {
	switch list.(type) {
	case *metav1.PartialObjectMetadataList:
		item = &metav1.PartialObjectMetadata{}
	case *unstructured.UnstructuredList:
		item = &unstructured.Unstructured{}
	default:
		item, _ = reflect.New(reflect.TypeOf(stored).Elem()).Interface().(client.Object)
		return item
	}
	item.GetObjectKind().SetGroupVersionKind(kind)
	return item
}

// selects reports whether a list has an object.
func selects(how *client.ListOptions, o client.Object) (bool, error) {
	if how.Namespace != "" && o.GetNamespace() != how.Namespace || how.LabelSelector != nil && !how.LabelSelector.Matches(labels.Set(o.GetLabels())) {
		return false, nil
	}
	if how.FieldSelector == nil {
		return true, nil
	}
	for _, r := range how.FieldSelector.Requirements() {
		values := []string{o.GetName()}
		if r.Field != metav1.ObjectNameField {
			index, ok := indexes[fieldIndex{reflect.TypeOf(o), r.Field}]
			if !ok {
				return false, apierrors.NewBadRequest("field label not supported: " + r.Field)
			}
			values = index(o)
		}
		if !slices.Contains(values, r.Value) {
			return false, nil
		}
	}
	return true, nil
}

// write is a request that changes an object.
type write struct {
	kind        schema.GroupVersionKind
	subresource string
	manager     string
	dryRun      bool
}

func writeOf(o runtime.Object, subresource, manager string, dryRun []string) (write, error) {
	kind, err := kindOf(o)
	return write{kind: kind, subresource: subresource, manager: manager, dryRun: len(dryRun) > 0}, err
}

func (w write) resource() schema.GroupResource { return resourceFor(w.kind) }

func (w write) conflict(name, why string) error {
	return apierrors.NewConflict(w.resource(), name, errors.New(why))
}

// Get implements client.Reader.
func (a *API) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view.Get(ctx, key, into, options...)
}

// List implements client.Reader.
func (a *API) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.view.List(ctx, into, options...)
}

// Create implements client.Writer.
func (a *API) Create(_ context.Context, o client.Object, options ...client.CreateOption) error {
	how := (&client.CreateOptions{}).ApplyOptions(options)
	w, err := writeOf(o, "", how.FieldManager, how.DryRun)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	typed, err := w.typed(o)
	if err != nil {
		return err
	}
	stored, err := a.create(w, typed)
	if err != nil {
		return err
	}
	return decode(stored, o, false)
}

// typed is a copy of an object as the API server would decode it.
func (w write) typed(o client.Object) (client.Object, error) {
	made, err := scheme().New(w.kind)
	if err != nil {
		return nil, err
	}
	out, _ := made.(client.Object)
	switch u, isUntyped := o.(*unstructured.Unstructured); {
	case isUntyped:
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
	case w.kind.Group == v1beta1.GroupVersion.Group: // These are what the operator writes.
		err = recode(o, out)
	default:
		out = copyOf(o)
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if ranges, ok := out.(*corev1.LimitRange); ok {
		completeLimitRange(ranges)
	}
	return out, err
}

func recode(from, into any) error {
	content, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func (a *API) create(w write, o client.Object) (client.Object, error) {
	switch key := client.ObjectKeyFromObject(o); {
	case o.GetResourceVersion() != "":
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	case a.get(w.kind, key) != nil:
		return nil, apierrors.NewAlreadyExists(w.resource(), key.Name)
	}
	a.created++
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", a.created)))
	}
	o.SetGeneration(1)
	o.SetCreationTimestamp(a.time())
	o.SetDeletionTimestamp(nil)
	if hasStatus(o) {
		fieldOf(o, "Status").SetZero()
	}
	if pod, ok := o.(*corev1.Pod); ok {
		if err := a.admit(pod); err != nil {
			return nil, err
		}
	}
	if err := w.track(nil, o, a.time()); err != nil {
		return nil, err
	}
	return a.store(w, watch.Added, o), nil
}

func (a *API) time() metav1.Time {
	if a.now == nil {
		return metav1.Time{}
	}
	return a.now().Rfc3339Copy()
}

// store stores an object as it is from now on.
func (a *API) store(w write, event watch.EventType, o client.Object) client.Object {
	if w.dryRun {
		return o
	}
	a.revision++
	o.SetResourceVersion(strconv.FormatInt(a.revision, 10))
	kind, before := w.kind.GroupKind(), a.get(w.kind, client.ObjectKeyFromObject(o))
	i, _ := a.find(w.kind, client.ObjectKeyFromObject(o))
	switch {
	case event == watch.Deleted:
		a.objects[kind] = slices.Delete(a.objects[kind], i, i+1)
	case before != nil:
		a.objects[kind][i] = o
	default:
		a.objects[kind] = slices.Insert(a.objects[kind], i, o)
	}
	if a.observe != nil {
		a.observe(event, before, o)
	}
	return o
}

func fieldOf(o any, name string) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName(name) }

// hasStatus reports whether a kind has its status in a subresource.
func hasStatus(o client.Object) bool { return fieldOf(o, "Status").IsValid() }

// current is the stored object that a write is about.
func (a *API) current(w write, o client.Object) (client.Object, error) {
	before := a.get(w.kind, client.ObjectKeyFromObject(o))
	if before == nil {
		return nil, apierrors.NewNotFound(w.resource(), o.GetName())
	}
	return before, nil
}

// update replaces an object. after is as the client wants it.
func (a *API) update(w write, before, after client.Object) (client.Object, error) {
	if uid := after.GetUID(); uid != "" && uid != before.GetUID() {
		return nil, w.conflict(after.GetName(), "the UID in the precondition differs")
	}
	if version := after.GetResourceVersion(); version != "" && version != before.GetResourceVersion() {
		return nil, w.conflict(after.GetName(), "the object has been modified; please apply your changes to the latest version and try again")
	}
	if w.subresource == "status" {
		return a.updateStatus(w, before, after)
	}
	if hasStatus(after) {
		fieldOf(after, "Status").Set(fieldOf(before, "Status"))
	}
	after.SetUID(before.GetUID())
	after.SetResourceVersion(before.GetResourceVersion())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	after.SetDeletionTimestamp(before.GetDeletionTimestamp())
	after.SetGeneration(before.GetGeneration())
	if spec := fieldOf(after, "Spec"); spec.IsValid() && !apiequality.Semantic.DeepEqual(spec.Interface(), fieldOf(before, "Spec").Interface()) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	if err := w.track(before, after, a.time()); err != nil {
		return nil, err
	}
	if apiequality.Semantic.DeepEqual(before, after) {
		return before, nil
	}
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 && !isTerminating(after) {
		return a.store(w, watch.Deleted, after), nil
	}
	return a.store(w, watch.Modified, after), nil
}

// updateStatus replaces the status of an object.
func (a *API) updateStatus(w write, before, status client.Object) (client.Object, error) {
	if apiequality.Semantic.DeepEqual(fieldOf(before, "Status").Interface(), fieldOf(status, "Status").Interface()) {
		return before, nil
	}
	after := copyOf(before)
	fieldOf(after, "Status").Set(fieldOf(status, "Status"))
	return a.store(w, watch.Modified, after), nil
}

// Update implements client.Writer.
func (a *API) Update(_ context.Context, o client.Object, options ...client.UpdateOption) error {
	how := (&client.UpdateOptions{}).ApplyOptions(options)
	return a.updateWith(o, "", how.FieldManager, how.DryRun)
}

func (a *API) updateWith(o client.Object, subresource, manager string, dryRun []string) error {
	return a.change(o, subresource, manager, dryRun, func(w write, _ client.Object) (client.Object, error) { return w.typed(o) })
}

// change changes a stored object, and writes the result into the client's.
func (a *API) change(o client.Object, subresource, manager string, dryRun []string, next func(w write, before client.Object) (client.Object, error)) error {
	w, err := writeOf(o, subresource, manager, dryRun)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before, err := a.current(w, o)
	if err != nil {
		return err
	}
	after, err := next(w, before)
	if err != nil {
		return err
	}
	stored, err := a.update(w, before, after)
	if err != nil {
		return err
	}
	return decode(stored, o, false)
}

// Patch implements client.Writer.
func (a *API) Patch(_ context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	how := (&client.PatchOptions{}).ApplyOptions(options)
	return a.patchWith(o, patch, "", how.FieldManager, how.DryRun)
}

func (a *API) patchWith(o client.Object, patch client.Patch, subresource, manager string, dryRun []string) error {
	content, err := patch.Data(o)
	if err != nil {
		return err
	}
	return a.change(o, subresource, manager, dryRun, func(_ write, before client.Object) (client.Object, error) {
		after, err := patched(before, patch.Type(), content)
		if err == nil && subresource == "resize" {
			err = a.admitResize(before, after)
		}
		return after, err
	})
}

// patched is an object with a patch.
func patched(before client.Object, how types.PatchType, patch []byte) (client.Object, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	after := reflect.New(reflect.TypeOf(before).Elem())
	var is []byte
	switch how {
	case types.MergePatchType:
		is, err = jsonpatch.MergePatch(was, patch)
	case types.StrategicMergePatchType:
		is, err = strategicpatch.StrategicMergePatch(was, patch, after.Interface())
	default:
		return nil, fmt.Errorf("%s is not supported", how)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	out, _ := after.Interface().(client.Object)
	return out, json.Unmarshal(is, out)
}

// Apply implements client.Writer.
func (a *API) Apply(_ context.Context, document runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	how := (&client.ApplyOptions{}).ApplyOptions(options)
	applied := &unstructured.Unstructured{}
	if err := recode(document, applied); err != nil {
		return err
	}
	w, err := writeOf(applied, "", how.FieldManager, how.DryRun)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.get(w.kind, client.ObjectKeyFromObject(applied))
	stored, err := a.apply(w, before, applied, ptr.Deref(how.Force, false))
	if err != nil {
		return err
	}
	if into, ok := document.(interface{ SetUnstructuredContent(content map[string]any) }); ok {
		answer := &unstructured.Unstructured{}
		answer.SetGroupVersionKind(w.kind)
		if err := decode(stored, answer, false); err != nil {
			return err
		}
		into.SetUnstructuredContent(answer.Object)
		return nil
	}
	return recode(stored, document)
}

func (a *API) apply(w write, before client.Object, applied *unstructured.Unstructured, force bool) (client.Object, error) {
	if before == nil && (applied.GetUID() != "" || applied.GetResourceVersion() != "") {
		return nil, w.conflict(applied.GetName(), "the object does not exist")
	}
	after, err := w.merge(before, applied, force, a.time())
	if err != nil {
		return nil, err
	}
	w.manager = "" // The fields of the document are tracked.
	if before == nil {
		return a.create(w, after)
	}
	return a.update(w, before, after)
}

// Delete implements client.Writer.
func (a *API) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	how := (&client.DeleteOptions{}).ApplyOptions(options)
	w, err := writeOf(o, "", "", how.DryRun)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.remove(w, o, how.AsDeleteOptions())
}

// remove starts or ends the deletion of an object.
func (a *API) remove(w write, o client.Object, how *metav1.DeleteOptions) error {
	before, err := a.current(w, o)
	if err != nil {
		return err
	}
	if p := how.Preconditions; p != nil {
		if p.UID != nil && *p.UID != before.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != before.GetResourceVersion() {
			return w.conflict(o.GetName(), "the UID or the ResourceVersion in the precondition differs")
		}
	}
	after := copyOf(before)
	if after.GetDeletionTimestamp() == nil {
		if ptr.Deref(how.PropagationPolicy, "") == metav1.DeletePropagationForeground {
			after.SetFinalizers(append(after.GetFinalizers(), metav1.FinalizerDeleteDependents))
		}
	}
	grace := terminationOf(after, how.GracePeriodSeconds)
	after.SetDeletionGracePeriodSeconds(ptr.To(int64(grace.Seconds())))
	if len(after.GetFinalizers()) == 0 && grace == 0 {
		a.store(w, watch.Deleted, after)
		return nil
	}
	if after.GetDeletionTimestamp() == nil {
		after.SetDeletionTimestamp(ptr.To(metav1.NewTime(a.time().Add(grace))))
		after.SetGeneration(after.GetGeneration() + 1)
	}
	if !apiequality.Semantic.DeepEqual(before, after) {
		a.store(w, watch.Modified, after)
	}
	return nil
}

// Scheme implements client.Client.
func (a *API) Scheme() *runtime.Scheme { return scheme() }

// Status implements client.StatusClient.
func (a *API) Status() client.SubResourceWriter { return a.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (a *API) SubResource(name string) client.SubResourceClient { return part{api: a, name: name} }

// part is a subresource.
type part struct {
	client.SubResourceClient // nil: the methods that are not implemented are not called

	api  *API
	name string
}

// Create implements client.SubResourceWriter.
func (p part) Create(_ context.Context, o, body client.Object, options ...client.SubResourceCreateOption) error {
	how := (&client.SubResourceCreateOptions{}).ApplyOptions(options)
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("%T has no %s", o, p.name)
	}
	w, err := writeOf(pod, p.name, how.FieldManager, how.DryRun)
	if err != nil {
		return err
	}
	p.api.mu.Lock()
	defer p.api.mu.Unlock()
	return p.api.createPart(w, pod, body)
}

// Update implements client.SubResourceWriter.
func (p part) Update(_ context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	how := (&client.SubResourceUpdateOptions{}).ApplyOptions(options)
	return p.api.updateWith(o, p.name, how.FieldManager, how.DryRun)
}

// Patch implements client.SubResourceWriter.
func (p part) Patch(_ context.Context, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	how := (&client.SubResourcePatchOptions{}).ApplyOptions(options)
	return p.api.patchWith(o, patch, p.name, how.FieldManager, how.DryRun)
}
