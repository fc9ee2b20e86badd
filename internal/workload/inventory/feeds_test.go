// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The watches of ReplicaSets and of pods do not wait for each other, and a ReplicaSet may have any name. In whatever
// order their events, their lists and claims arrive, a reader that is triggered by each change that it is told of
// must have seen the pods of the Deployment at last.
func TestAReplicaSetMayArriveAfterItsPods(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(3_000) {
		w := newPodWorld(rand.New(rand.NewPCG(seed, 47)))
		for range 60 {
			w.act()
		}
		w.rest()
		maps.Copy(seen, w.seen)
		if !w.claimed[web] {
			if n := w.pods.Stored() + w.pods.sets.len() + len(w.pods.adopted) + len(w.pods.pods.groups) + len(w.pods.sets.groups); n > 0 {
				t.Fatalf("seed %d: what is stored is not claimed: %v, %v, %v\n%s", seed, w.pods.pods.groups, w.pods.sets.groups, w.pods.adopted, w.story())
			}
			continue
		}
		if diff := cmp.Diff(w.truth(), w.lastRead); diff != "" {
			t.Fatalf("seed %d: the reader was not told (-there +seen):\n%s%s", seed, diff, w.story())
		}
		if diff := cmp.Diff(w.truth(), w.stored()); diff != "" {
			t.Fatalf("seed %d: stored (-there +stored):\n%s%s", seed, diff, w.story())
		}
		if len(w.pods.sets.certain)+len(w.pods.pods.certain) > 0 {
			t.Fatalf("seed %d: a list that has ended left something", seed)
		}
	}
	for _, what := range []string{"a pod before its ReplicaSet", "an adopted ReplicaSet", "an event during a live list", "a list"} {
		if seen[what] == 0 {
			t.Errorf("%q never happened", what)
		}
	}
}

// podWorld is an API server with ReplicaSets and pods, and its two watches.
type podWorld struct {
	*rand.Rand
	telling
	client.WithWatch // what is not implemented panics

	claimed    claimedNow
	pods       *Pods
	sets       *stream
	podEvents  *stream
	now        int
	unreleased bool
	triggered  bool
	lastRead   []string
	seen       map[string]int
}

// stream is a watch of one kind: its objects, events that are not delivered, and the list that is under way.
type stream struct {
	kind     string
	store    toolscache.TransformingStore
	begin    func(context.Context)
	server   map[string]client.Object
	events   []podEvent
	isListed bool
	listedAt int
	unlisted []client.Object
	listing  []any
}

type podEvent struct {
	object  client.Object
	deleted bool
}

type claimedNow map[types.NamespacedName]bool

func (c claimedNow) IsClaimed(d types.NamespacedName) bool { return c[d] }

func (c claimedNow) AllClaimed(context.Context, string) ([]types.NamespacedName, error) {
	return slices.Collect(maps.Keys(c)), nil
}

func (claimedNow) HasSynced() bool { return true }

func newPodWorld(r *rand.Rand) *podWorld {
	w := &podWorld{Rand: r, claimed: claimedNow{}, seen: map[string]int{}}
	w.pods = NewPods(w)
	w.pods.Watch(w.claimed)
	w.pods.OnChange(func(d types.NamespacedName, _, _ *workload.Pod) {
		w.triggered = w.triggered || w.claimed[d]
	})
	sets, pods := w.pods.feeds("")
	w.sets = &stream{kind: "ReplicaSet", store: sets, begin: sets.begin, server: map[string]client.Object{}}
	w.podEvents = &stream{kind: "pod", store: pods, begin: pods.begin, server: map[string]client.Object{}}
	for _, s := range w.streams() {
		w.begin(s)
		w.end(s)
	}
	return w
}

func (w *podWorld) streams() []*stream { return []*stream{w.sets, w.podEvents} }

func (w *podWorld) anyStream() *stream { return w.streams()[w.IntN(2)] }

// act does one of the things that may happen next.
func (w *podWorld) act() {
	switch w.IntN(14) {
	case 0, 1:
		w.writeSet()
	case 2, 3, 4:
		w.writePod()
	case 5:
		s := w.anyStream()
		if names := slices.Sorted(maps.Keys(s.server)); len(names) > 0 {
			w.remove(s, names[w.IntN(len(names))])
		}
	case 6, 7, 8:
		w.deliver(w.anyStream())
	case 9:
		w.claim(!w.claimed[web])
	case 10:
		w.release()
	case 11:
		if s := w.anyStream(); s.isListed {
			w.arrive(s)
		} else {
			w.begin(s)
		}
	case 12:
		w.end(w.anyStream())
	case 13:
		w.read(w.IntN(3) > 0)
	}
}

// rest lets all that is under way end, and the reader answer each trigger.
func (w *podWorld) rest() {
	for _, s := range w.streams() {
		w.end(s)
	}
	for len(w.sets.events)+len(w.podEvents.events) > 0 || w.unreleased || w.triggered && w.claimed[web] {
		w.deliver(w.anyStream())
		w.release()
		if w.triggered && w.claimed[web] && w.IntN(2) == 0 {
			w.read(true)
		}
	}
}

// setNames are the names of ReplicaSets. Of the last ones, the name does not tell the Deployment.
var setNames = []string{"web-1", "web-2", "orphan", "api-3"}

func (w *podWorld) writeSet() {
	name := setNames[w.IntN(len(setNames))]
	var owner *metav1.OwnerReference
	if w.IntN(3) > 0 {
		owner = ownedBy(webDeployment())
		if name == "orphan" {
			w.seen["an adopted ReplicaSet"] = 1
		}
	}
	full := set(name, w.now+1, owner) // a rollback makes an old one the newest
	w.write(w.sets, &metav1.PartialObjectMetadata{ObjectMeta: full.ObjectMeta})
}

func (w *podWorld) writePod() {
	owner := setNames[w.IntN(len(setNames))]
	p := pod("pod-"+strconv.Itoa(w.IntN(4)), ownedBySet(owner))
	p.Spec.Containers = []corev1.Container{{Name: fmt.Sprint("resized at ", w.now)}} // something that is read
	w.write(w.podEvents, p)
}

// write creates or changes an object. One that was deleted gets another UID, and so do pods of a new ReplicaSet.
func (w *podWorld) write(s *stream, object client.Object) {
	w.now++
	if before := s.server[object.GetName()]; before != nil {
		object.SetUID(before.GetUID())
		if s == w.podEvents {
			object.SetOwnerReferences(before.GetOwnerReferences())
		}
	} else {
		object.SetUID(types.UID(fmt.Sprintf("%s-%d", object.GetName(), w.now)))
	}
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == "ReplicaSet" && s.server[object.GetName()] == nil {
		of := w.sets.server[owner.Name]
		if of == nil {
			w.now--
			return // Only a ReplicaSet creates its pods.
		}
		owner.UID = of.GetUID()
		object.SetOwnerReferences([]metav1.OwnerReference{*owner})
		if slices.ContainsFunc(w.sets.events, func(e podEvent) bool { return e.object.GetUID() == of.GetUID() }) {
			w.seen["a pod before its ReplicaSet"] = 1
		}
	}
	object.SetResourceVersion(strconv.Itoa(1000 + w.now))
	w.tell("write %s %s %s of %v", s.kind, object.GetName(), object.GetResourceVersion(), object.GetOwnerReferences())
	s.server[object.GetName()] = object
	s.events = append(s.events, podEvent{object: copyOf(object)})
}

func (w *podWorld) remove(s *stream, name string) {
	w.now++
	last := copyOf(s.server[name])
	last.SetResourceVersion(strconv.Itoa(1000 + w.now))
	w.tell("delete %s %s", s.kind, name)
	delete(s.server, name)
	s.events = append(s.events, podEvent{last, true})
}

func (w *podWorld) deliver(s *stream) {
	if len(s.events) == 0 || s.isListed {
		return // The list that is under way has all that was not delivered.
	}
	e := s.events[0]
	s.events = s.events[1:]
	w.tell("deliver %s %s %s, deleted: %t", s.kind, e.object.GetName(), e.object.GetResourceVersion(), e.deleted)
	if e.deleted {
		w.must(s.store.Delete(e.object))
	} else {
		w.must(s.store.Update(e.object))
	}
}

func (w *podWorld) claim(is bool) {
	w.tell("claimed: %t", is)
	if is {
		w.claimed[web], w.triggered = true, true // A new claim triggers a reconcile.
	} else {
		delete(w.claimed, web)
		w.unreleased, w.triggered = true, false
	}
}

func (w *podWorld) release() {
	if w.unreleased {
		w.tell("release")
		w.unreleased = false
		w.pods.Release(web)
	}
}

// begin, arrive and end list all objects of one kind, one after the other.
func (w *podWorld) begin(s *stream) {
	w.tell("begin a list of each %s at %d", s.kind, w.now)
	s.begin(context.Background())
	s.isListed, s.listedAt, s.listing, s.unlisted, s.events = true, w.now, nil, nil, nil
	for _, name := range slices.Sorted(maps.Keys(s.server)) {
		s.unlisted = append(s.unlisted, copyOf(s.server[name]))
	}
}

func (w *podWorld) arrive(s *stream) {
	if len(s.unlisted) == 0 {
		return
	}
	w.tell("list %s %s", s.kind, s.unlisted[0].GetName())
	shrunk, err := s.store.Transformer()(s.unlisted[0])
	w.must(err)
	s.listing, s.unlisted = append(s.listing, shrunk), s.unlisted[1:]
}

func (w *podWorld) end(s *stream) {
	if !s.isListed {
		return
	}
	for len(s.unlisted) > 0 {
		w.arrive(s)
	}
	w.tell("end the list of each %s", s.kind)
	w.seen["a list"] = 1
	w.must(s.store.Replace(s.listing, strconv.Itoa(1000+s.listedAt)))
	s.isListed = false
}

// read reads as a reconcile does, or as the collector, which looks and is not triggered.
func (w *podWorld) read(reconciles bool) {
	if reconciles && !w.claimed[web] {
		return
	}
	if reconciles {
		w.triggered = false
	}
	w.tell("read, reconciles: %t", reconciles)
	got := w.stored()
	w.tell("read %v", got)
	if reconciles {
		w.lastRead = got
	}
}

func (w *podWorld) stored() (out []string) {
	found, err := w.pods.Of(context.Background(), webDeployment())
	w.must(err)
	for _, p := range found {
		out = append(out, fmt.Sprint(p.Name, " ", p.Containers[0].Name, " ", p.Current))
	}
	slices.Sort(out)
	return out
}

// truth are the pods of the Deployment.
func (w *podWorld) truth() (out []string) {
	var sets []*setRecord
	own := map[types.UID]bool{}
	for _, name := range slices.Sorted(maps.Keys(w.sets.server)) {
		if s, ok := w.sets.server[name].(*metav1.PartialObjectMetadata); ok && deploymentOfSet(s) == web {
			sets, own[s.UID] = append(sets, newSetRecord(s)), true
		}
	}
	for _, object := range w.podEvents.server {
		if p, ok := object.(*corev1.Pod); ok && own[replicaSetOf(p).UID] {
			out = append(out, fmt.Sprint(p.Name, " ", p.Spec.Containers[0].Name, " ", replicaSetOf(p).UID == newestOf(sets, "web")))
		}
	}
	slices.Sort(out)
	return out
}

// List implements client.WithWatch. Events arrive before the answer does.
func (w *podWorld) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	w.tell("live list of %T at %d", list, w.now)
	switch list := list.(type) {
	case *metav1.PartialObjectMetadataList:
		for _, name := range slices.Sorted(maps.Keys(w.sets.server)) {
			list.Items = append(list.Items, *copyOf(w.sets.server[name]).(*metav1.PartialObjectMetadata))
		}
	case *corev1.PodList:
		for _, name := range slices.Sorted(maps.Keys(w.podEvents.server)) {
			list.Items = append(list.Items, *copyOf(w.podEvents.server[name]).(*corev1.Pod))
		}
	}
	list.SetResourceVersion(strconv.Itoa(1000 + w.now))
	for range w.IntN(4) {
		switch w.IntN(4) {
		case 0:
			w.writePod()
		case 1:
			w.writeSet()
		default:
			w.deliver(w.anyStream())
			w.seen["an event during a live list"] = 1
		}
	}
	return nil
}

func (*podWorld) must(err error) {
	if err != nil {
		panic(err)
	}
}

func copyOf(o client.Object) client.Object {
	copied, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		panic(fmt.Sprintf("a copy of %T is none", o))
	}
	return copied
}

// A ScaledDeployment is told of a Deployment that it loses, and nothing is left of a Deployment that is gone, also if
// that happened while no watch was open.
func TestNothingIsLeftOfADeployment(t *testing.T) {
	owned := func(name, version string, owner types.UID) *appsv1.Deployment {
		d := in("shop", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-1"), ResourceVersion: version}})
		if owner == "" {
			return d
		}
		return controlledBy(d, "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", owner)
	}
	recreated := owned("web", "20", "owner-1")
	recreated.UID = "web-2"
	listed := func(objects ...any) func(*testing.T, toolscache.TransformingStore) {
		return func(t *testing.T, store toolscache.TransformingStore) {
			t.Helper()
			if err := store.Replace(objects, "20"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		happens func(*testing.T, toolscache.TransformingStore)
		told    []string
		stored  int
	}{
		"deleted": {
			happens: func(t *testing.T, store toolscache.TransformingStore) {
				t.Helper()
				if err := store.Delete(owned("web", "20", "owner-1")); err != nil {
					t.Fatal(err)
				}
			},
			told: []string{"gone: web of owner-1"},
		},
		"orphaned": {
			happens: func(t *testing.T, store toolscache.TransformingStore) {
				t.Helper()
				if err := store.Update(owned("web", "20", "")); err != nil {
					t.Fatal(err)
				}
			},
			told: []string{"gone: web of owner-1"},
		},
		"deleted in a gap of the watch":  {happens: listed(), told: []string{"gone: web of owner-1"}},
		"orphaned in a gap of the watch": {happens: listed(owned("web", "20", "")), told: []string{"gone: web of owner-1", "new: web of "}},
		"created again in a gap":         {happens: listed(recreated), told: []string{"gone: web of owner-1", "new: web of owner-1"}, stored: 1},
		"another one is created and deleted while it is listed": {
			happens: func(t *testing.T, store toolscache.TransformingStore) {
				t.Helper()
				if _, err := store.Transformer()(owned("api", "19", "owner-2")); err != nil {
					t.Fatal(err)
				}
				listed(owned("web", "10", "owner-1"))(t, store)
			},
			stored: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeployments(nil)
			d.Watch(claimedNow{})
			store := d.feed("")
			if err := store.Replace([]any{owned("web", "10", "owner-1")}, "10"); err != nil {
				t.Fatal(err)
			}
			var told []string
			nameOf := func(object any) string {
				d, ok := object.(*appsv1.Deployment)
				if !ok {
					t.Fatalf("told of a %T", object)
				}
				return d.Name + " of " + append(controllerUID(d), "")[0]
			}
			if _, err := (deploymentInformer{d}).AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(object any) { told = append(told, "new: "+nameOf(object)) },
				UpdateFunc: func(_, object any) { told = append(told, "changed: "+nameOf(object)) },
				DeleteFunc: func(object any) { told = append(told, "gone: "+nameOf(object)) },
			}); err != nil {
				t.Fatal(err)
			}
			store.begin(t.Context())
			tc.happens(t, store)
			if diff := cmp.Diff(tc.told, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if got := []int{d.Stored(), len(d.objects.groups), len(d.owner), len(d.owned)}; !slices.Equal(got, []int{tc.stored, tc.stored, tc.stored, tc.stored}) {
				t.Errorf("%v Deployments, groups, owned ones and owners are stored, want %d", got, tc.stored)
			}
		})
	}
}
