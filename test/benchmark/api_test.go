// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package benchmark measures the running operator: against an API server in memory, beside stock
// controllers, and against real API servers.
package benchmark

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
)

// api is an API server in memory: enough of one for the operator's caches and writes. It answers in
// the process of its clients, without a connection, so that what a client costs is not lost in what a
// server costs. It streams objects that are made while they are read, and keeps only those that were
// written: its own memory does not count.
type api struct {
	tb     testing.TB
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	mapper *meta.DefaultRESTMapper

	mu      sync.Mutex
	version int
	sources map[schema.GroupVersionResource][]source
	stored  map[string][]byte // written objects as JSON, by resource and key
	sent    map[string]int    // requests for objects, other than watches, by method and resource
	streams map[*stream]bool
}

// source makes n objects of one resource, sorted by namespace. Object i is always the same.
type source struct {
	n    int
	make func(i int) client.Object
}

// in are the objects of a namespace: first and those up to end. The empty namespace has all.
func (s source) in(namespace string) (first, end int) {
	if namespace == "" {
		return 0, s.n
	}
	from := func(after string) int {
		return sort.Search(s.n, func(i int) bool { return s.make(i).GetNamespace() >= after })
	}
	return from(namespace), from(namespace + "\x00")
}

func newAPI(tb testing.TB) *api {
	tb.Helper()
	scheme := app.Scheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		tb.Fatal(err)
	}
	a := &api{
		tb: tb, scheme: scheme, codecs: serializer.NewCodecFactory(scheme), mapper: meta.NewDefaultRESTMapper(scheme.PreferredVersionAllGroups()),
		sources: map[schema.GroupVersionResource][]source{}, stored: map[string][]byte{}, sent: map[string]int{}, streams: map[*stream]bool{},
		version: 1000,
	}
	for kind := range scheme.AllKnownTypes() {
		a.mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return a
}

// config is the configuration of a client of this server.
func (a *api) config() *rest.Config {
	return &rest.Config{Host: "http://memory", Transport: a, QPS: -1}
}

// serve adds n objects. Clients that watch the resource already are told of them.
func serve[T client.Object](a *api, n int, make1 func(i int) T) {
	a.tb.Helper()
	resource := a.resourceOf(make1(0))
	added := source{n, func(i int) client.Object { return make1(i) }}
	a.mu.Lock()
	a.sources[resource] = append(a.sources[resource], added)
	streams := a.streamsOf(resource)
	a.mu.Unlock()
	for i := range n {
		for _, s := range streams {
			s.send(watch.Added, make1(i))
		}
	}
}

// tell tells all clients that watch the resource of a changed object, without keeping it.
func (a *api) tell(object client.Object) {
	resource := a.resourceOf(object)
	a.mu.Lock()
	a.version++
	object.SetResourceVersion(strconv.Itoa(a.version))
	streams := a.streamsOf(resource)
	a.mu.Unlock()
	for _, s := range streams {
		s.send(watch.Modified, object)
	}
}

// size is the number of bytes of what was written.
func (a *api) size() (bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	const perEntry = 200 // the key, and the entry of the map
	for _, object := range a.stored {
		bytes += len(object) + perEntry
	}
	return bytes
}

// written is the number of writes, except of events, and what they were.
func (a *api) written() (n int, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, count := range a.sent {
		if !strings.HasPrefix(name, http.MethodGet) && !strings.HasSuffix(name, " events") {
			n += count
			what += fmt.Sprintf("%d × %s; ", count, name)
		}
	}
	return n, what
}

func (a *api) resourceOf(object client.Object) schema.GroupVersionResource {
	kinds, _, err := a.scheme.ObjectKinds(object)
	if err != nil {
		a.tb.Fatal(err)
	}
	mapping, err := a.mapper.RESTMapping(kinds[0].GroupKind(), kinds[0].Version)
	if err != nil {
		a.tb.Fatal(err)
	}
	return mapping.Resource
}

func (a *api) streamsOf(resource schema.GroupVersionResource) (out []*stream) {
	for s := range a.streams {
		if s.resource == resource {
			out = append(out, s)
		}
	}
	return out
}

// path is what a request is about.
type path struct {
	resource         schema.GroupVersionResource
	namespace, name  string
	subresource      string
	isGroup, isKnown bool // a request for the kinds of a group, for a known resource
}

func (a *api) parse(url string) (p path) {
	words := strings.Split(strings.Trim(url, "/"), "/")
	switch {
	case words[0] == "api" && len(words) > 1:
		p.resource.Version, words = words[1], words[2:]
	case words[0] == "apis" && len(words) > 2:
		p.resource.Group, p.resource.Version, words = words[1], words[2], words[3:]
	default:
		return p
	}
	if len(words) == 0 {
		p.isGroup = true
		return p
	}
	if words[0] == "namespaces" && len(words) > 2 {
		p.namespace, words = words[1], words[2:]
	}
	words = append(words, "", "")
	p.resource.Resource, p.name, p.subresource = words[0], words[1], words[2]
	_, err := a.mapper.KindFor(p.resource)
	p.isKnown = err == nil
	return p
}

func (p path) key() string { return p.resource.Resource + " " + p.namespace + "/" + p.name }

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(request *http.Request) (*http.Response, error) {
	p, query := a.parse(request.URL.Path), request.URL.Query()
	switch {
	case request.Method == http.MethodGet && (p.isGroup || !p.isKnown && p.resource.Resource == ""):
		return answer(request, http.StatusOK, a.discovery(p)), nil
	case !p.isKnown:
		return a.refuse(request, apierrors.NewNotFound(p.resource.GroupResource(), p.name)), nil
	case query.Get("watch") != "":
		return a.watch(request, p)
	}
	a.count(request.Method, p)
	switch {
	case request.Method == http.MethodGet && p.name == "":
		return a.list(request, p), nil
	case request.Method == http.MethodGet:
		return a.get(request, p), nil
	}
	return a.write(request, p), nil
}

// count counts a request.
func (a *api) count(method string, p path) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent[method+" "+strings.TrimSuffix(p.resource.Resource+"/"+p.subresource, "/")]++
}

// requests is the number of requests for objects so far, other than watches, by method and resource.
func (a *api) requests() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.sent)
}

// discovery answers which groups, or which kinds of a group, there are.
func (a *api) discovery(p path) any {
	if p.isGroup {
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: p.resource.GroupVersion().String()}
		for kind := range a.scheme.KnownTypes(p.resource.GroupVersion()) {
			plural, singular := meta.UnsafeGuessKindToResource(p.resource.GroupVersion().WithKind(kind))
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: plural.Resource, SingularName: singular.Resource, Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}})
		}
		return list
	}
	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, version := range a.scheme.PreferredVersionAllGroups() {
		v := metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: version.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return groups
}

// list answers the objects that the selectors choose, without what was written.
func (a *api) list(request *http.Request, p path) *http.Response {
	kind, err := a.mapper.KindFor(p.resource)
	if err != nil {
		return a.refuse(request, apierrors.NewInternalError(err))
	}
	a.mu.Lock()
	sources, version := slices.Clone(a.sources[p.resource]), strconv.Itoa(a.version)
	a.mu.Unlock()
	s := &stream{isMetadata: wantsMetadata(request)}
	if s.isMetadata {
		kind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	}
	selector, err := labels.Parse(request.URL.Query().Get("labelSelector"))
	if err != nil {
		return a.refuse(request, apierrors.NewBadRequest(err.Error()))
	}
	name, byName := strings.CutPrefix(request.URL.Query().Get("fieldSelector"), "metadata.name=")
	items := []runtime.Object{}
	for _, from := range sources {
		first, end := from.in(p.namespace)
		for i := first; i < end; i++ {
			if object := from.make(i); selector.Matches(labels.Set(object.GetLabels())) && (!byName || object.GetName() == name) {
				items = append(items, s.shown(object))
			}
		}
	}
	return answer(request, http.StatusOK, map[string]any{
		"kind": kind.Kind + "List", "apiVersion": kind.GroupVersion().String(), "metadata": map[string]any{"resourceVersion": version}, "items": items,
	})
}

func wantsMetadata(request *http.Request) bool {
	return strings.Contains(request.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// get answers an object that was written.
func (a *api) get(request *http.Request, p path) *http.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	if object, ok := a.stored[p.key()]; ok {
		return answer(request, http.StatusOK, json.RawMessage(object))
	}
	return a.refuse(request, apierrors.NewNotFound(p.resource.GroupResource(), p.name))
}

// write keeps an object, or its status, as it is sent.
func (a *api) write(request *http.Request, p path) *http.Response {
	a.mu.Lock()
	a.version++
	version := a.version
	a.mu.Unlock()
	if request.Method != http.MethodPut && request.Method != http.MethodPost {
		return a.refuse(request, apierrors.NewMethodNotSupported(p.resource.GroupResource(), request.Method))
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return a.refuse(request, apierrors.NewBadRequest(err.Error()))
	}
	decoded, _, err := a.codecs.UniversalDeserializer().Decode(body, nil, nil)
	object, ok := decoded.(client.Object)
	if err != nil || !ok {
		return a.refuse(request, apierrors.NewBadRequest(fmt.Sprintf("%T: %v", decoded, err)))
	}
	object.SetResourceVersion(strconv.Itoa(version))
	p.name = object.GetName()
	encoded, err := json.Marshal(object)
	if err != nil {
		return a.refuse(request, apierrors.NewInternalError(err))
	}
	a.mu.Lock()
	if p.resource.Resource != "events" {
		a.stored[p.key()] = slices.Clip(encoded)
	}
	streams := a.streamsOf(p.resource)
	a.mu.Unlock()
	for _, s := range streams {
		s.send(watch.Modified, object)
	}
	return answer(request, http.StatusOK, json.RawMessage(encoded))
}

func (a *api) refuse(request *http.Request, err *apierrors.StatusError) *http.Response {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return answer(request, int(err.ErrStatus.Code), err.ErrStatus)
}

func answer(request *http.Request, code int, object any) *http.Response {
	body, err := json.Marshal(object)
	if err != nil {
		panic(err) // a mistake in this file
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}
}

// stream is the watch of one client.
type stream struct {
	api        *api
	resource   schema.GroupVersionResource
	isMetadata bool            // only the metadata of objects is wanted
	ctx        context.Context //nolint:containedctx // the watch is the request
	events     chan []byte
	encode     func(watch.Event) []byte
}

// watch streams the changes, and before that all objects and a bookmark if the client asks for them.
func (a *api) watch(request *http.Request, p path) (*http.Response, error) {
	accepted, _, _ := strings.Cut(request.Header.Get("Accept"), ",")
	mediaType, _, _ := strings.Cut(accepted, ";")
	info, ok := runtime.SerializerInfoForMediaType(a.codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, fmt.Errorf("no serializer for %q", accepted)
	}
	s := &stream{
		api: a, resource: p.resource, isMetadata: wantsMetadata(request),
		ctx: request.Context(), events: make(chan []byte, 1<<16),
	}
	version := p.resource.GroupVersion()
	if s.isMetadata {
		version = metav1.SchemeGroupVersion
	}
	s.encode = func(event watch.Event) []byte {
		var out bytes.Buffer
		frames := info.StreamSerializer.Framer.NewFrameWriter(&out)
		inner := a.codecs.EncoderForVersion(info.Serializer, version)
		outer := streaming.NewEncoder(frames, a.codecs.EncoderForVersion(info.StreamSerializer.Serializer, metav1.Unversioned))
		if err := restwatch.NewEncoder(outer, inner).Encode(&event); err != nil {
			panic(fmt.Sprintf("encoding a %T: %v", event.Object, err)) // a mistake in this file
		}
		return out.Bytes()
	}
	a.mu.Lock()
	var sources []source
	isList := request.URL.Query().Get("sendInitialEvents") == "true"
	if isList {
		sources = slices.Clone(a.sources[p.resource])
	}
	bookmark := strconv.Itoa(a.version)
	a.streams[s] = true
	a.mu.Unlock()
	reader, writer := io.Pipe()
	context.AfterFunc(s.ctx, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.streams, s)
		_ = writer.CloseWithError(s.ctx.Err())
	})
	go func() {
		if !isList || s.sendInitial(writer, sources, p, bookmark) {
			s.follow(writer)
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {mediaType}}, Body: reader, Request: request}, nil
}

// sendInitial sends the objects that there are, and the bookmark that ends them. It returns false if the client
// has left.
func (s *stream) sendInitial(to io.Writer, sources []source, p path, version string) bool {
	for _, from := range sources {
		for i := range from.n {
			if _, err := to.Write(s.encode(watch.Event{Type: watch.Added, Object: s.shown(from.make(i))})); err != nil {
				return false
			}
		}
	}
	kind, err := s.api.mapper.KindFor(p.resource)
	if err != nil {
		return false
	}
	made, err := s.api.scheme.New(kind)
	mark, ok := made.(client.Object)
	if err != nil || !ok {
		return false
	}
	mark.SetResourceVersion(version)
	mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	_, err = to.Write(s.encode(watch.Event{Type: watch.Bookmark, Object: s.shown(mark)}))
	return err == nil
}

// follow sends the changes until the client leaves.
func (s *stream) follow(to io.Writer) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case event := <-s.events:
			if _, err := to.Write(event); err != nil {
				return
			}
		}
	}
}

// shown is what the client wants of an object.
func (s *stream) shown(object client.Object) runtime.Object {
	if !s.isMetadata {
		return object
	}
	out := meta.AsPartialObjectMetadata(object)
	out.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}
	return out
}

func (s *stream) send(kind watch.EventType, object client.Object) {
	select {
	case s.events <- s.encode(watch.Event{Type: kind, Object: s.shown(object)}):
	case <-s.ctx.Done():
	}
}
