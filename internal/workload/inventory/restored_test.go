// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// restorable is an API server whose etcd may be restored from a backup.
type restorable struct {
	client.WithWatch

	mu      sync.Mutex
	version int
	stored  []appsv1.Deployment
	watches chan *watch.FakeWatcher
}

func (r *restorable) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	deployments, _ := list.(*appsv1.DeploymentList)
	deployments.ResourceVersion = strconv.Itoa(r.version)
	for _, d := range r.stored {
		deployments.Items = append(deployments.Items, *d.DeepCopy())
	}
	return nil
}

func (r *restorable) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	w := watch.NewFake()
	r.watches <- w
	return w, nil
}

// IsWatchListSemanticsUnSupported makes informers list.
func (*restorable) IsWatchListSemanticsUnSupported() bool { return true }

// An administrator restores etcd from a backup: resource versions begin again at lower ones, and no event tells what is
// different. The next list replaces all that was known, and events after it count.
func TestTheCacheFollowsARestoredServer(t *testing.T) {
	at := func(name string, version int, replicas int32) appsv1.Deployment {
		d := webDeployment()
		d.Name, d.UID, d.ResourceVersion = name, types.UID(name), strconv.Itoa(version)
		d.Spec.Replicas, d.Status.Replicas = &replicas, replicas
		return *d
	}
	api := &restorable{version: 2000, stored: []appsv1.Deployment{at("web", 2000, 9), at("newer", 1900, 1)}, watches: make(chan *watch.FakeWatcher, 1)}
	f := NewFleet(api)
	changed := make(chan string, 100)
	f.OnChange(func(key types.NamespacedName) { changed <- key.Name })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Start(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if err := f.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	before := <-api.watches
	api.mu.Lock()
	api.version, api.stored = 1000, []appsv1.Deployment{at("web", 900, 3), at("deleted", 800, 1)}
	api.mu.Unlock()
	gone := apierrors.NewResourceExpired("the version is in the future").Status()
	before.Error(&gone)
	names := map[string]bool{}
	for len(names) < 3 {
		names[<-changed] = true
	}
	next := at("web", 1001, 4)
	(<-api.watches).Modify(&next)
	if name := <-changed; name != "web" {
		t.Errorf("%s has changed", name)
	}
	got := map[string]int32{}
	for _, d := range f.All(metav1.NamespaceAll) {
		got[d.Name] = d.Replicas
	}
	if diff := cmp.Diff(map[string]int32{"web": 4, "deleted": 1}, got); diff != "" {
		t.Errorf("replicas after the restore and an event (-API server +cache):\n%s", diff)
	}
}
