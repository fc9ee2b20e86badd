// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// server is an API server that has at most one ConfigMap, or is unreachable.
type server struct {
	corev1client.ConfigMapInterface

	mu       sync.Mutex
	has      *corev1.ConfigMap
	broken   bool
	watch    *watch.FakeWatcher
	selector string
	failures int
}

func (s *server) ConfigMaps(string) corev1client.ConfigMapInterface { return s }

func (s *server) List(_ context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.selector = o.FieldSelector
	if s.broken {
		s.failures++
		return nil, errors.New("no route to host")
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	if s.has != nil {
		list.Items = append(list.Items, *s.has)
	}
	return list, nil
}

func (s *server) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken || o.SendInitialEvents != nil {
		s.failures++
		return nil, errors.New("no route to host")
	}
	s.watch = watch.NewFake()
	return s.watch, nil
}

// breaks ends the watch and makes requests fail, or lets them succeed again.
func (s *server) breaks(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken = broken; broken && s.watch != nil {
		s.watch.Stop()
		s.watch = nil
	}
}

func (s *server) watcher() *watch.FakeWatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watch
}

func (s *server) failed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures
}

// eventually waits until the condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func TestABrokenWatchKeepsTheLastKnownState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the waits between attempts take no time
		s, api := New(name), &server{broken: true}
		changes := make(chan struct{}, 10)
		must.Succeed(t, s.Watch(t.Context(), api, func() { changes <- struct{}{} }))
		frozen := func() bool { _, is := s.Frozen("a"); return is }
		eventually(t, "two attempts", func() bool { return api.failed() > 1 })
		if !frozen() {
			t.Error("not frozen before the first read")
		}
		api.breaks(false)
		eventually(t, "the ConfigMap is known to be missing", func() bool { return !frozen() })
		<-changes
		if want := "metadata.name=stop"; api.selector != want {
			t.Errorf("listed with %q, not %q", api.selector, want)
		}

		created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "stop", ResourceVersion: "2"}}
		eventually(t, "a watch", func() bool { return api.watcher() != nil })
		api.watcher().Add(created)
		eventually(t, "the freeze begins", frozen)
		<-changes

		before := api.failed()
		api.breaks(true)
		eventually(t, "two more attempts", func() bool { return api.failed() > before+1 })
		if !frozen() {
			t.Error("a broken watch has ended the freeze")
		}
		api.breaks(false) // It was deleted during the outage.
		eventually(t, "the freeze ends", func() bool { return !frozen() })
		<-changes
	})
}

// The switch follows its watch at once, also a watch that had to be opened again: no time of the operator's own passes.
func TestAFreezeActsWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := New(name), &server{}
		changes := make(chan struct{}, 10)
		must.Succeed(t, s.Watch(t.Context(), api, func() { changes <- struct{}{} }))
		frozen := func() bool { _, is := s.Frozen("a"); return is }
		eventually(t, "the ConfigMap is known to be missing", func() bool { return !frozen() })
		for _, version := range []string{"2", "4"} {
			eventually(t, "a watch", func() bool { return api.watcher() != nil })
			began := time.Now()
			created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "stop", ResourceVersion: version}}
			api.watcher().Add(created)
			eventually(t, "the freeze begins", frozen)
			if took := time.Since(began); took > time.Second {
				t.Errorf("the freeze began after %s", took)
			}
			api.watcher().Delete(created)
			eventually(t, "the freeze ends", func() bool { return !frozen() })
			api.breaks(true)
			api.breaks(false)
		}
	})
}
