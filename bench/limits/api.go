// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/bench/cluster"
	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/podmetrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// api is an API server with the objects in memory. It has what the operator asks for: lists with limits and streamed ones,
// watches, metadata, protobuf for the kinds of Kubernetes, preconditions, conflicts and generations. It grants all rights, and
// has no admission, no validation, no defaults, and no server-side apply.
type api struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	usage  podmetrics.Handler
	// wrote is told of each write, before it is answered. object is nil if it was refused.
	wrote func(write)

	mu        sync.Mutex
	delay     time.Duration // of writes, on average
	version   int64
	resources map[string]*collection // by group and name, as in "apps/deployments"
	counts    map[string]int         // of requests: "update verticalscalers/status", "list pods"
}

// write is a write request.
type write struct {
	kind      string // as in api.counts
	key       types.NamespacedName
	object    client.Object
	received  time.Time
	completed time.Time
}

// collection is all objects of a kind.
type collection struct {
	kind         schema.GroupVersionKind
	name         string
	isNamespaced bool

	objects  map[types.NamespacedName]client.Object // not modified
	sorted   []types.NamespacedName                 // their keys; nil if not known
	recent   []event                                // the last ones
	missing  int64                                  // the version of the newest event that is not in recent
	watchers map[*watcher]bool
}

// mostRecent is how many events of a kind a watch can go back to.
const mostRecent = 20_000

type event struct {
	what    watch.EventType
	object  client.Object
	version int64
}

func newAPI(usage podmetrics.Handler, wrote func(write)) *api {
	a := &api{scheme: app.Scheme(), usage: usage, wrote: wrote, resources: map[string]*collection{}, counts: map[string]int{}}
	metav1.AddToGroupVersion(a.scheme, schema.GroupVersion{Version: "v1"})
	a.codecs = serializer.NewCodecFactory(a.scheme)
	for _, r := range []struct {
		group   schema.GroupVersion
		kind    string
		cluster bool
	}{
		{corev1.SchemeGroupVersion, "Pod", false},
		{corev1.SchemeGroupVersion, "Namespace", true},
		{corev1.SchemeGroupVersion, "Node", true},
		{corev1.SchemeGroupVersion, "LimitRange", false},
		{corev1.SchemeGroupVersion, "ResourceQuota", false},
		{corev1.SchemeGroupVersion, "ConfigMap", false},
		{appsv1.SchemeGroupVersion, "Deployment", false},
		{appsv1.SchemeGroupVersion, "ReplicaSet", false},
		{autoscalingv2.SchemeGroupVersion, "HorizontalPodAutoscaler", false},
		{coordinationv1.SchemeGroupVersion, "Lease", false},
		{eventsv1.SchemeGroupVersion, "Event", false},
		{admissionv1.SchemeGroupVersion, "MutatingAdmissionPolicy", true},
		{admissionv1.SchemeGroupVersion, "MutatingAdmissionPolicyBinding", true},
		{v1beta1.GroupVersion, "VerticalScaler", false},
		{v1beta1.GroupVersion, "VerticalScalerCheckpoint", false},
		{v1beta1.GroupVersion, "ScaledDeployment", false},
		{v1beta1.GroupVersion, "ScalingPolicy", false},
		{v1beta1.GroupVersion, "ClusterScalingPolicy", true},
		{v1beta1.GroupVersion, "NewPodSizes", false},
	} {
		gvr, _ := meta.UnsafeGuessKindToResource(r.group.WithKind(r.kind))
		if r.kind == "NewPodSizes" {
			gvr.Resource = "newpodsizes"
		}
		a.resources[gvr.Group+"/"+gvr.Resource] = &collection{
			kind: r.group.WithKind(r.kind), name: gvr.Resource, isNamespaced: !r.cluster,
			objects: map[types.NamespacedName]client.Object{}, watchers: map[*watcher]bool{},
		}
	}
	return a
}

// request is a request for a resource.
type request struct {
	*http.Request
	*collection

	info *apirequest.RequestInfo
	key  types.NamespacedName // of the object; its namespace is that of a list or a watch
}

// requests tells what requests are about.
var requests = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	received := time.Now()
	if strings.HasPrefix(r.URL.Path, podmetrics.Path) {
		a.count("list podmetrics")
		a.usage.ServeHTTP(w, r)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
		a.answer(w, r, http.StatusCreated, &authorized)
		return
	}
	info, err := requests.NewRequestInfo(r)
	if err != nil {
		a.refuse(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	req := request{r, a.resources[info.APIGroup+"/"+info.Resource], info, types.NamespacedName{Namespace: info.Namespace, Name: info.Name}}
	if req.collection == nil {
		a.discover(w, r)
		return
	}
	if !req.isNamespaced {
		req.key.Namespace = ""
	}
	if r.Method == http.MethodGet {
		a.read(w, req)
		return
	}
	a.mu.Lock()
	delay := a.delay
	a.mu.Unlock()
	if delay > 0 && cluster.Pause(r.Context(), delay/10+rand.N(delay*9/5)) != nil {
		return // the client has left
	}
	did := write{received: received, key: req.key, kind: info.Verb + " " + path.Join(req.name, info.Subresource)}
	object, err := a.write(req)
	if err != nil {
		a.count("refused: " + did.kind + ": " + string(apierrors.ReasonForError(err)))
		a.wrote(did)
		a.refuse(w, r, err)
		return
	}
	a.count(did.kind)
	did.object, did.key.Name, did.completed = object, object.GetName(), time.Now()
	a.wrote(did)
	status := http.StatusOK
	if info.Verb == "create" {
		status = http.StatusCreated
	}
	a.answer(w, r, status, object)
}

func (a *api) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what]++
}

// discover answers what the server has.
func (a *api) discover(w http.ResponseWriter, r *http.Request) {
	var answer any
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(words) == 1 && words[0] == "api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case len(words) == 1 && words[0] == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		seen := map[string]bool{"": true}
		for _, kind := range a.resources {
			if group := kind.kind.GroupVersion(); !seen[group.Group] {
				seen[group.Group] = true
				version := metav1.GroupVersionForDiscovery{GroupVersion: group.String(), Version: group.Version}
				list.Groups = append(list.Groups, metav1.APIGroup{Name: group.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
			}
		}
		answer = list
	case words[0] == "api" || words[0] == "apis" && len(words) == 3:
		group := strings.Join(words[1:], "/")
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group}
		for _, kind := range a.resources {
			if kind.kind.GroupVersion().String() == group {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind.name, Kind: kind.kind.Kind, Namespaced: kind.isNamespaced, Verbs: metav1.Verbs{"list", "watch"}})
			}
		}
		if len(list.APIResources) > 0 {
			answer = list
		}
	}
	if answer == nil {
		a.refuse(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, "", "no such API", 0, true))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // fails only if the client has left
}

// read answers a request that changes nothing.
func (a *api) read(w http.ResponseWriter, r request) {
	a.count(r.info.Verb + " " + r.name)
	if r.info.Verb == "get" {
		a.mu.Lock()
		object, ok := r.objects[r.key]
		a.mu.Unlock()
		if !ok {
			a.refuse(w, r.Request, apierrors.NewNotFound(r.groupResource(), r.key.Name))
			return
		}
		a.answer(w, r.Request, http.StatusOK, object)
		return
	}
	selects, err := r.selector()
	switch {
	case err != nil:
		a.refuse(w, r.Request, apierrors.NewBadRequest(err.Error()))
	case r.info.Verb == "watch":
		a.watch(w, r, selects)
	default:
		a.list(w, r, selects)
	}
}

func (r *collection) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.kind.Group, Resource: r.name}
}

// selector tells which objects a list or a watch is about.
func (r request) selector() (func(client.Object) bool, error) {
	query := r.URL.Query()
	byLabels, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	byFields, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	for _, requirement := range byFields.Requirements() {
		if requirement.Field != metav1.ObjectNameField {
			return nil, fmt.Errorf("objects cannot be selected by %s", requirement.Field)
		}
	}
	return func(o client.Object) bool {
		return (r.key.Namespace == "" || o.GetNamespace() == r.key.Namespace) && byLabels.Matches(labels.Set(o.GetLabels())) &&
			byFields.Matches(fields.Set{metav1.ObjectNameField: o.GetName()})
	}, nil
}

// keys are the keys of the objects of a namespace, or of all, sorted. The lock is taken.
func (r *collection) keys(namespace string) []types.NamespacedName {
	if r.sorted == nil {
		for key := range r.objects {
			r.sorted = append(r.sorted, key)
		}
		slices.SortFunc(r.sorted, func(a, b types.NamespacedName) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	if namespace == "" {
		return r.sorted
	}
	is := func(key types.NamespacedName, namespace string) int { return cmp.Compare(key.Namespace, namespace) }
	from, _ := slices.BinarySearchFunc(r.sorted, namespace, is)
	to, _ := slices.BinarySearchFunc(r.sorted, namespace+"\x00", is) // the next one
	return r.sorted[from:to]
}

func (a *api) list(w http.ResponseWriter, r request, selects func(client.Object) bool) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit")) // 0 is none
	after := r.URL.Query().Get("continue")
	var found []runtime.Object
	var end metav1.ListMeta
	a.mu.Lock()
	keys := r.keys(r.key.Namespace)
	for i, key := range keys {
		object := r.objects[key]
		if after != "" && key.String() <= after || !selects(object) {
			continue
		}
		if limit > 0 && len(found) == limit {
			left := int64(len(keys) - i)
			end.Continue, end.RemainingItemCount = client.ObjectKeyFromObject(found[limit-1].(client.Object)).String(), &left
			break
		}
		found = append(found, object)
	}
	end.ResourceVersion = strconv.FormatInt(a.version, 10)
	a.mu.Unlock()

	if wantsMetadata(r.Request) {
		list := &metav1.PartialObjectMetadataList{ListMeta: end}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		for _, object := range found {
			list.Items = append(list.Items, *metadataOf(object.(client.Object)))
		}
		a.encode(w, r.Request, http.StatusOK, list)
		return
	}
	list, err := a.scheme.New(r.kind.GroupVersion().WithKind(r.kind.Kind + "List"))
	if err == nil {
		err = meta.SetList(list, found)
	}
	if err != nil {
		a.refuse(w, r.Request, err)
		return
	}
	list.GetObjectKind().SetGroupVersionKind(r.kind.GroupVersion().WithKind(r.kind.Kind + "List"))
	accessor, _ := meta.ListAccessor(list) // It has been filled.
	accessor.SetResourceVersion(end.ResourceVersion)
	accessor.SetContinue(end.Continue)
	accessor.SetRemainingItemCount(end.RemainingItemCount)
	a.encode(w, r.Request, http.StatusOK, list)
}

func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func metadataOf(object client.Object) *metav1.PartialObjectMetadata {
	out := meta.AsPartialObjectMetadata(object)
	out.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return out
}

// serializer is the format of the answer: protobuf if the client accepts it and the kind has it, else JSON.
func (a *api) serializer(r *http.Request, object runtime.Object) runtime.SerializerInfo {
	mediaType := runtime.ContentTypeJSON
	if _, ok := object.(interface{ Marshal() ([]byte, error) }); ok && strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		mediaType = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(a.codecs.SupportedMediaTypes(), mediaType)
	return info
}

// answer sends an object, or its metadata.
func (a *api) answer(w http.ResponseWriter, r *http.Request, status int, object client.Object) {
	if wantsMetadata(r) {
		object = metadataOf(object)
	}
	a.encode(w, r, status, object)
}

func (a *api) encode(w http.ResponseWriter, r *http.Request, status int, object runtime.Object) {
	info := a.serializer(r, object)
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(status)
	_ = info.Serializer.Encode(object, w) // fails only if the client has left
}

func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refusal apierrors.APIStatus
	if !errors.As(err, &refusal) {
		refusal = apierrors.NewInternalError(err)
	}
	status := refusal.Status()
	status.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("Status"))
	a.encode(w, r, int(status.Code), &status)
}

// watcher is a watch. It never lags so far that events are lost.
type watcher struct {
	selects func(client.Object) bool
	mu      sync.Mutex
	waiting []event
	more    chan struct{} // has one element while something is waiting
}

func (w *watcher) send(e event) {
	if !w.selects(e.object) {
		return
	}
	w.mu.Lock()
	w.waiting = append(w.waiting, e)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// follow begins a watch. gone is true if the version is too old.
func (a *api) follow(r request, selects func(client.Object) bool) (watching *watcher, gone bool) {
	watching = &watcher{selects: selects, more: make(chan struct{}, 1)}
	from, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64) // 0 is any
	streams := r.URL.Query().Get("sendInitialEvents") == "true"
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case from == 0 || streams:
		for _, key := range r.keys(r.key.Namespace) {
			watching.send(event{what: watch.Added, object: r.objects[key]})
		}
	case from < r.missing:
		return nil, true
	default:
		for _, e := range r.recent {
			if e.version > from {
				watching.send(e)
			}
		}
	}
	if streams {
		mark, _ := a.scheme.New(r.kind) // It is registered.
		bookmark := mark.(client.Object)
		bookmark.GetObjectKind().SetGroupVersionKind(r.kind)
		bookmark.SetResourceVersion(strconv.FormatInt(a.version, 10))
		bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		watching.selects = func(client.Object) bool { return true }
		watching.send(event{what: watch.Bookmark, object: bookmark})
		watching.selects = selects
	}
	r.watchers[watching] = true
	return watching, false
}

func (a *api) watch(w http.ResponseWriter, r request, selects func(client.Object) bool) {
	watching, gone := a.follow(r, selects)
	if gone {
		a.refuse(w, r.Request, apierrors.NewResourceExpired("the version is too old"))
		return
	}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(r.watchers, watching)
	}()
	example, _ := a.scheme.New(r.kind) // It is registered.
	if wantsMetadata(r.Request) {
		example = &metav1.PartialObjectMetadata{}
	}
	info := a.serializer(r.Request, example)
	mediaType := info.MediaType
	if mediaType == runtime.ContentTypeProtobuf {
		mediaType += ";stream=watch"
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(http.StatusOK)
	flush := func() { _ = http.NewResponseController(w).Flush() } // fails only if the client has left
	flush()
	frames := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(w), info.StreamSerializer.Serializer)
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	end := time.After(time.Duration(cmp.Or(seconds, 1800)) * time.Second)
	for {
		select {
		case <-watching.more:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
		watching.mu.Lock()
		waiting := watching.waiting
		watching.waiting = nil
		watching.mu.Unlock()
		for _, e := range waiting {
			if wantsMetadata(r.Request) {
				e.object = metadataOf(e.object)
			}
			raw, err := runtime.Encode(info.Serializer, e.object)
			if err == nil {
				err = frames.Encode(&metav1.WatchEvent{Type: string(e.what), Object: runtime.RawExtension{Raw: raw}})
			}
			if err != nil {
				return // The client has left.
			}
		}
		flush()
	}
}

// write carries out a write.
func (a *api) write(r request) (client.Object, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	decoded := func() (client.Object, error) {
		object, _, err := a.codecs.UniversalDeserializer().Decode(body, &r.kind, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return object.(client.Object), nil
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut:
		object, err := decoded()
		if err != nil {
			return nil, err
		}
		if r.Method == http.MethodPost {
			object.SetNamespace(r.key.Namespace)
			return a.create(r.collection, object)
		}
		return a.update(r.collection, r.key, r.info.Subresource, func(client.Object) (client.Object, error) { return object, nil })
	case http.MethodPatch:
		patch := patchers[types.PatchType(r.Header.Get("Content-Type"))]
		if patch == nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, r.Method, r.groupResource(), r.key.Name, r.Header.Get("Content-Type"), 0, true)
		}
		return a.update(r.collection, r.key, r.info.Subresource, func(stored client.Object) (client.Object, error) {
			text, err := json.Marshal(stored)
			if err != nil {
				return nil, err
			}
			if body, err = patch(text, body, stored); err != nil {
				return nil, err
			}
			return decoded()
		})
	case http.MethodDelete:
		a.mu.Lock()
		defer a.mu.Unlock()
		stored, ok := r.objects[r.key]
		if !ok {
			return nil, apierrors.NewNotFound(r.groupResource(), r.key.Name)
		}
		deleted := copied(stored)
		a.store(r.collection, watch.Deleted, deleted)
		return deleted, nil
	}
	return nil, apierrors.NewMethodNotSupported(r.groupResource(), r.Method)
}

var patchers = map[types.PatchType]func(stored, patch []byte, object client.Object) ([]byte, error){
	types.StrategicMergePatchType: func(stored, patch []byte, object client.Object) ([]byte, error) {
		return strategicpatch.StrategicMergePatch(stored, patch, object)
	},
	types.MergePatchType: func(stored, patch []byte, _ client.Object) ([]byte, error) {
		return jsonpatch.MergePatch(stored, patch)
	},
}

// create stores a new object, as it is.
func (a *api) create(r *collection, object client.Object) (client.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := r.objects[client.ObjectKeyFromObject(object)]; ok {
		return nil, apierrors.NewAlreadyExists(r.groupResource(), object.GetName())
	}
	object.GetObjectKind().SetGroupVersionKind(r.kind)
	object.SetUID(uuid.NewUUID())
	object.SetGeneration(1)
	object.SetCreationTimestamp(metav1.Now())
	a.store(r, watch.Added, object)
	return object, nil
}

// update replaces an object, or the part of it that the subresource is about.
func (a *api) update(r *collection, key types.NamespacedName, subresource string, wanted func(client.Object) (client.Object, error)) (client.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stored, ok := r.objects[key]
	if !ok {
		return nil, apierrors.NewNotFound(r.groupResource(), key.Name)
	}
	object, err := wanted(stored)
	if err != nil {
		return nil, err
	}
	if version := object.GetResourceVersion(); version != "" && version != stored.GetResourceVersion() {
		return nil, apierrors.NewConflict(r.groupResource(), key.Name, errors.New("the object has been modified"))
	}
	if uid := object.GetUID(); uid != "" && uid != stored.GetUID() {
		return nil, apierrors.NewConflict(r.groupResource(), key.Name, errors.New("the UID in the precondition is another one"))
	}
	before := reflect.ValueOf(stored).Elem()
	if subresource == "status" {
		changed := copied(stored)
		reflect.ValueOf(changed).Elem().FieldByName("Status").Set(reflect.ValueOf(object).Elem().FieldByName("Status"))
		changed.SetManagedFields(append(slices.Clip(stored.GetManagedFields()[:min(1, len(stored.GetManagedFields()))]), managedBy("verticalscaler-operator", changed, "status")))
		object = changed
	} else {
		object.SetUID(stored.GetUID())
		object.SetCreationTimestamp(stored.GetCreationTimestamp())
		object.SetManagedFields(stored.GetManagedFields())
		if subresource == workload.ResizeSubresource {
			isResize := func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == subresource }
			entry := managedBy("verticalscaler", object, "spec")
			entry.Subresource = subresource
			object.SetManagedFields(append(slices.DeleteFunc(slices.Clone(stored.GetManagedFields()), isResize), entry))
		}
		object.SetGeneration(stored.GetGeneration())
		after := reflect.ValueOf(object).Elem()
		if status := after.FieldByName("Status"); status.IsValid() {
			status.Set(before.FieldByName("Status"))
		}
		if spec := after.FieldByName("Spec"); spec.IsValid() && !equality.Semantic.DeepEqual(spec.Interface(), before.FieldByName("Spec").Interface()) {
			object.SetGeneration(stored.GetGeneration() + 1)
		}
	}
	object.GetObjectKind().SetGroupVersionKind(r.kind)
	a.store(r, watch.Modified, object)
	return object, nil
}

// change changes an object without a request.
func (a *api) change(r string, key types.NamespacedName, do func(client.Object)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	stored, ok := a.resources[r].objects[key]
	if !ok {
		return fmt.Errorf("there is no %s %s", r, key)
	}
	object := stored.DeepCopyObject().(client.Object)
	do(object)
	a.store(a.resources[r], watch.Modified, object)
	return nil
}

// store stores a version of an object, and tells those who watch. The lock is taken.
func (a *api) store(r *collection, what watch.EventType, object client.Object) {
	a.version++
	object.SetResourceVersion(strconv.FormatInt(a.version, 10))
	key := client.ObjectKeyFromObject(object)
	switch what {
	case watch.Added:
		r.objects[key], r.sorted = object, nil
	case watch.Deleted:
		delete(r.objects, key)
		r.sorted = nil
	default:
		r.objects[key] = object
	}
	e := event{what, object, a.version}
	if r.recent = append(r.recent, e); len(r.recent) > 2*mostRecent {
		r.missing = r.recent[mostRecent-1].version
		r.recent = slices.Clone(r.recent[mostRecent:])
	}
	for watching := range r.watchers {
		watching.send(e)
	}
}

// copied is a copy that shares what it points to.
func copied(object client.Object) client.Object {
	out := reflect.New(reflect.TypeOf(object).Elem())
	out.Elem().Set(reflect.ValueOf(object).Elem())
	return out.Interface().(client.Object)
}
