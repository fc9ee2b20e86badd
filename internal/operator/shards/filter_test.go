// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// source lists some pods and nodes, and watches what a test sends.
type source struct {
	list   runtime.Object
	events *watch.FakeWatcher
}

func (s source) List(metav1.ListOptions) (runtime.Object, error) { return s.list, nil }

func (s source) Watch(metav1.ListOptions) (watch.Interface, error) { return s.events, nil }

func (source) IsWatchListSemanticsUnSupported() bool { return true }

var _ cache.ListerWatcher = source{}

func pod(namespace, name string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// twoNamespaces are one of this replica and one of another.
func twoNamespaces(t *testing.T, v View) (own, foreign string) {
	t.Helper()
	for _, name := range names()["app-000"] {
		if v.Owns(name) {
			own = name
		} else {
			foreign = name
		}
	}
	return own, foreign
}

var half = View{Slot: 1, Slots: []int{0, 1}}

func TestForeignObjectsAreNotListed(t *testing.T) {
	own, foreign := twoNamespaces(t, half)
	list := &corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"},
		Items:    []corev1.Pod{pod(foreign, "a"), pod(own, "b"), pod(foreign, "c"), pod(own, "d")},
	}
	got, err := cache.ToListerWatcherWithContext(half.Filter(source{list: list})).ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.PodList{ListMeta: list.ListMeta, Items: []corev1.Pod{pod(own, "b"), pod(own, "d")}}
	if diff := cmp.Diff(runtime.Object(want), got); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	nodes := &corev1.NodeList{Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "one"}}}}
	got, err = cache.ToListerWatcherWithContext(half.Filter(source{list: nodes})).ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(runtime.Object(nodes), got); diff != "" {
		t.Errorf("cluster-scoped objects (-want +got):\n%s", diff)
	}
}

func TestForeignEventsAreNotWatched(t *testing.T) {
	own, foreign := twoNamespaces(t, half)
	events := watch.NewFake()
	w, err := cache.ToListerWatcherWithContext(half.Filter(source{events: events})).WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := pod(own, "a"), pod(foreign, "b")
	go func() {
		for _, p := range []*corev1.Pod{&theirs, &ours} {
			events.Add(p)
			events.Modify(p)
			events.Delete(p)
		}
		events.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}})
		events.Error(&metav1.Status{Code: 410})
		events.Stop()
	}()
	var got []watch.EventType
	for event := range w.ResultChan() {
		got = append(got, event.Type)
	}
	want := []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A watch that is stopped while it passes an event leaves no goroutine behind: the bubble would not end.
func TestAStoppedWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, _ := twoNamespaces(t, half)
		events := watch.NewFakeWithChanSize(1, false)
		w, err := cache.ToListerWatcherWithContext(half.Filter(source{events: events})).WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ours := pod(own, "a")
		events.Add(&ours)
		synctest.Wait()
		w.Stop()
		w.Stop()
	})
}

func TestTheFilterKeepsWhatTheClientSupports(t *testing.T) {
	unsupported, ok := half.Filter(source{}).(interface{ IsWatchListSemanticsUnSupported() bool })
	if !ok || !unsupported.IsWatchListSemanticsUnSupported() {
		t.Error("the reflector would stream a list from a client that cannot")
	}
}
