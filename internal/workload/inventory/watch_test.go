// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// server is an API server with ReplicaSets, pods and Deployments, in a bubble of synctest. Tests send the events.
type server struct {
	client.WithWatch // other methods panic

	t       *testing.T
	version int
	objects map[string]client.Object // by kind and name

	mu      sync.Mutex // All kinds are listed at once.
	watches map[string]*watch.RaceFreeFakeWatcher
}

func newServer(t *testing.T) *server {
	t.Helper()
	return &server{t: t, version: 1000, objects: map[string]client.Object{}, watches: map[string]*watch.RaceFreeFakeWatcher{}}
}

// start runs the pods and the Deployments until the test ends.
func (s *server) start() *Cache {
	s.t.Helper()
	c := Over(nil, s)
	go func() { _ = c.Deployments.Start(s.t.Context()) }()
	go func() { _ = c.Pods.Start(s.t.Context()) }()
	synctest.Wait()
	if c.Deployments.WaitForSync(s.t.Context()) != nil || c.Pods.WaitForSync(s.t.Context()) != nil {
		s.t.Fatal("the cache has not synced")
	}
	return c
}

func kindOf(list client.ObjectList) string {
	switch list.(type) {
	case *corev1.PodList:
		return "Pod"
	case *appsv1.DeploymentList:
		return "Deployment"
	}
	return "ReplicaSet"
}

// List implements client.WithWatch. As a real API server, it refuses a version that it has not reached.
func (s *server) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	if since, _ := strconv.Atoi(o.Raw.ResourceVersion); since > s.version {
		err := apierrors.NewTimeoutError("Too large resource version", 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return err
	}
	var found []runtime.Object
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, kindOf(list)) {
			found = append(found, s.objects[key].DeepCopyObject())
		}
	}
	list.SetResourceVersion(strconv.Itoa(s.version))
	return meta.SetList(list, found)
}

// Watch implements client.WithWatch.
func (s *server) Watch(_ context.Context, list client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[kindOf(list)] = watch.NewRaceFreeFake()
	return s.watches[kindOf(list)], nil
}

// IsWatchListSemanticsUnSupported implements the interface that the reflector checks.
func (*server) IsWatchListSemanticsUnSupported() bool { return true }

// put creates or changes an object, and returns its event.
func (s *server) put(kind string, o client.Object) watch.Event {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	_, isKnown := s.objects[kind+o.GetName()]
	s.objects[kind+o.GetName()] = o
	copied := o.DeepCopyObject()
	if isKnown {
		return watch.Event{Type: watch.Modified, Object: copied}
	}
	return watch.Event{Type: watch.Added, Object: copied}
}

// expire ends a watch, so that all objects are listed again.
func (s *server) expire(kind string) {
	gone := apierrors.NewResourceExpired("the watch is too old").Status()
	s.watches[kind].Action(watch.Error, &gone)
	synctest.Wait()
	time.Sleep(time.Minute) // by the bubble's clock: longer than the reflector waits
	synctest.Wait()
}

// metadataOf is the watched metadata of a ReplicaSet.
func metadataOf(s *appsv1.ReplicaSet) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: s.ObjectMeta}
}

// sized is a pod of a ReplicaSet with a container of that name, which stands for all that is read of it.
func sized(name, set, container string) *corev1.Pod {
	p := pod(name, ownedBySet(set))
	p.Spec.Containers = []corev1.Container{{Name: container}}
	return p
}

// describe lists pods as name/container, with a star for the latest template.
func describe(t *testing.T, c *Cache, d *appsv1.Deployment) (out []string) {
	t.Helper()
	pods, err := c.Pods.Of(t.Context(), d)
	must.Succeed(t, err)
	for _, p := range pods {
		out = append(out, p.Name+"/"+p.Containers[0].Name+map[bool]string{true: "*"}[p.Current])
	}
	return out
}

// After etcd is restored from a backup, resource versions are lower, and objects that came later do not exist.
func TestARestoredBackupReplacesWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		web := webDeployment()
		s.put("Deployment", web.DeepCopy())
		s.put("ReplicaSet", metadataOf(set("web-2", 2, ownedBy(web))))
		s.put("Pod", sized("a", "web-2", "new"))
		s.put("Pod", sized("b", "web-2", "new"))
		c := s.start()
		var reported []string
		c.Pods.OnChange(func(_ types.NamespacedName, before, after *workload.Pod) {
			reported = append(reported, fmt.Sprint(before != nil, after != nil))
		})
		assert.Equal(t, "before", []string{"a/new*", "b/new*"}, describe(t, c, web))

		s.version, s.objects = 10, map[string]client.Object{}
		restored := web.DeepCopy()
		restored.Spec.MinReadySeconds = 7
		s.put("Deployment", restored)
		s.put("ReplicaSet", metadataOf(set("web-1", 1, ownedBy(web))))
		s.put("Pod", sized("a", "web-1", "old"))
		s.put("Pod", sized("c", "web-1", "old"))
		for _, kind := range []string{"ReplicaSet", "Pod", "Deployment"} {
			s.expire(kind)
		}
		assert.Equal(t, "after", []string{"a/old*", "c/old*"}, describe(t, c, web))
		var d appsv1.Deployment
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, &d); err != nil || d.Spec.MinReadySeconds != 7 {
			t.Errorf("the Deployment is %+v, %v", d.Spec, err)
		}
		if len(reported) == 0 {
			t.Error("no change was reported")
		}
	})
}

// The watches of ReplicaSets and pods do not wait for each other. In any order of events and lists, a reader that is
// triggered by each reported change has finally seen the pods of the Deployment.
func TestAReaderLearnsOfChangesInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(200) {
			w := newOrder(t, seed)
			for range 40 {
				w.act()
			}
			w.drain()
			if diff := cmp.Diff(w.truth(), w.lastRead); diff != "" {
				t.Fatalf("seed %d: the reader missed a change (-there +seen):\n%s", seed, diff)
			}
		}
	})
}

// order is a server whose events are delivered in a random order, and a reader.
type order struct {
	*rand.Rand
	*server
	cache     *Cache
	events    map[string][]watch.Event
	triggered bool
	lastRead  []string
}

func newOrder(t *testing.T, seed uint64) *order {
	t.Helper()
	w := &order{Rand: rand.New(rand.NewPCG(seed, 64)), server: newServer(t), events: map[string][]watch.Event{}}
	w.cache = w.start()
	w.cache.Pods.OnChange(func(d types.NamespacedName, _, _ *workload.Pod) { w.triggered = w.triggered || d.Name == "web" })
	return w
}

func (w *order) act() {
	name := "web-" + strconv.Itoa(w.IntN(3))
	switch w.IntN(8) {
	case 0:
		owner := ownedBy(webDeployment())
		if w.IntN(4) == 0 {
			owner = nil // It is released, or not adopted yet.
		}
		w.queue("ReplicaSet", w.put("ReplicaSet", metadataOf(set(name, w.IntN(100), owner))))
	case 1, 2:
		w.queue("Pod", w.put("Pod", sized("pod-"+strconv.Itoa(w.IntN(4)), name, fmt.Sprint("at-", w.version))))
	case 3:
		kind := w.kind()
		for key, o := range w.objects {
			if strings.HasPrefix(key, kind) {
				delete(w.objects, key)
				w.version++
				o.SetResourceVersion(strconv.Itoa(w.version))
				w.queue(kind, watch.Event{Type: watch.Deleted, Object: o})
				break
			}
		}
	case 4, 5, 6:
		w.deliver(w.kind())
	case 7:
		if kind := w.kind(); w.IntN(4) == 0 {
			w.events[kind] = nil // The list has all that was not delivered.
			w.expire(kind)
		}
	}
	w.read()
}

func (w *order) kind() string { return []string{"ReplicaSet", "Pod"}[w.IntN(2)] }

func (w *order) queue(kind string, e watch.Event) { w.events[kind] = append(w.events[kind], e) }

func (w *order) deliver(kind string) {
	if events := w.events[kind]; len(events) > 0 {
		w.watches[kind].Action(events[0].Type, events[0].Object)
		w.events[kind] = events[1:]
		synctest.Wait()
	}
}

func (w *order) read() {
	if w.triggered {
		w.triggered = false
		w.lastRead = describe(w.t, w.cache, webDeployment())
	}
}

func (w *order) drain() {
	for len(w.events["ReplicaSet"])+len(w.events["Pod"]) > 0 {
		w.deliver(w.kind())
		w.read()
	}
}

// truth are the pods of the Deployment on the server.
func (w *order) truth() (out []string) {
	var sets []metav1.PartialObjectMetadata
	var pods []corev1.Pod
	for _, o := range w.objects {
		switch o := o.(type) {
		case *metav1.PartialObjectMetadata:
			sets = append(sets, *o)
		case *corev1.Pod:
			pods = append(pods, *o)
		}
	}
	for _, p := range PodsAmong(webDeployment(), sets, pods) {
		out = append(out, p.Name+"/"+p.Containers[0].Name+map[bool]string{true: "*"}[p.Current])
	}
	return out
}

// A handler gets events of a Deployment, and not the objects known when it is added.
func TestChangesOfDeploymentsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		named := func(name string, owner types.UID) *appsv1.Deployment {
			d := richDeployment(1)
			d.Name, d.UID = name, types.UID(name+"-uid")
			if owner != "" {
				controlledBy(d, "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", owner)
			}
			return d
		}
		s.put("Deployment", named("web", "owner-1"))
		c := s.start()
		informer, err := c.GetInformer(t.Context(), &appsv1.Deployment{})
		must.Succeed(t, err)
		var reported, fleet []string
		nameOf := func(object any) string {
			d := object.(*appsv1.Deployment)
			return d.Name + " of " + append(controllerUID(d), "")[0]
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { reported = append(reported, "new: "+nameOf(object)) },
			UpdateFunc: func(before, object any) { reported = append(reported, nameOf(before)+" is "+nameOf(object)) },
			DeleteFunc: func(object any) { reported = append(reported, "gone: "+nameOf(object)) },
		}); err != nil {
			t.Fatal(err)
		}
		c.Deployments.OnChange(func(key types.NamespacedName) { fleet = append(fleet, key.Name) })
		is := func(what string, wantReported, wantFleet []string) {
			t.Helper()
			synctest.Wait()
			if !reflect.DeepEqual(reported, wantReported) || !reflect.DeepEqual(fleet, wantFleet) {
				t.Errorf("%s: reported %q and %q, want %q and %q", what, reported, fleet, wantReported, wantFleet)
			}
			reported, fleet = nil, nil
		}
		send := func(d *appsv1.Deployment) {
			e := s.put("Deployment", d)
			s.watches["Deployment"].Action(e.Type, e.Object)
		}
		is("what is known", nil, nil)
		send(named("api", ""))
		is("created", []string{"new: api of "}, []string{"api"})
		scaled := named("api", "")
		scaled.Status.ReadyReplicas = 2
		send(scaled)
		is("a status that no policy sees", []string{"api of  is api of "}, nil)
		send(named("web", ""))
		is("orphaned", []string{"web of owner-1 is web of "}, []string{"web"})
		send(named("api", "owner-1"))
		is("adopted", []string{"api of  is api of owner-1"}, []string{"api"})
		owner := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", UID: "owner-1"}}
		found, err := DeploymentsOf(t.Context(), c, owner)
		if err != nil || len(found) != 1 || found[0].Name != "api" {
			t.Errorf("the owner's Deployments are %v, %v", found, err)
		}
		delete(s.objects, "Deploymentapi")
		s.expire("Deployment")
		is("deleted in a gap of the watch", []string{"gone: api of owner-1"}, []string{"api"})
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "api"}, &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
			t.Errorf("a deleted Deployment: %v", err)
		}
		if err := c.List(t.Context(), &appsv1.DeploymentList{}); err == nil {
			t.Error("all Deployments are listed")
		}
	})
}
