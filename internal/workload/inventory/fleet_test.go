// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// newFleetStore is what the watch of a namespace fills, and the keys of which it tells.
func newFleetStore(namespace string) (*fleetStore, *[]string) {
	told := &[]string{}
	f := NewFleet(nil, namespace)
	f.OnChange(func(key types.NamespacedName) { *told = append(*told, key.String()) })
	return &fleetStore{fleet: f, namespace: namespace, synced: f.lists.one()}, told
}

func TestWhatAFleetKnowsOfADeployment(t *testing.T) {
	d := richDeployment(2)
	d.Labels = map[string]string{"app": "web"}
	d.Annotations = map[string]string{v1beta1.ExcludeAnnotation: "ask team web"}
	controlledBy(d, v1beta1.GroupVersion.Group+"/v2", v1beta1.ScaledDeploymentKind, "owner")
	requests := map[string]quantity.Amounts{}
	for _, c := range d.Spec.Template.Spec.Containers {
		requests[c.Name] = quantity.Amounts{CPUMillis: c.Resources.Requests.Cpu().MilliValue(), MemoryBytes: c.Resources.Requests.Memory().Value()}
	}
	want := &fleet.Deployment{Namespace: "shop", Name: "web", Labels: d.Labels, Excluded: true, IsOwned: true, Replicas: 3, Requests: requests}
	if diff := cmp.Diff(want, ReadForFleet(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	bare := ReadForFleet(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bare"}})
	if diff := cmp.Diff(&fleet.Deployment{Namespace: "shop", Name: "bare", Replicas: 1, Requests: map[string]quantity.Amounts{}}, bare); diff != "" {
		t.Errorf("a bare Deployment (-want +got):\n%s", diff)
	}
	stopped := richDeployment(1)
	stopped.Spec.Replicas = ptr.To(int32(0))
	if got := ReadForFleet(stopped); got.Replicas != 0 || got.IsOwned || got.Excluded {
		t.Errorf("a stopped Deployment: %+v", got)
	}
}

func TestChangesThatAFleetTells(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*appsv1.Deployment)
		want   bool
	}{
		"nothing":                   {func(*appsv1.Deployment) {}, false},
		"the status":                {func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} }, false},
		"the resource version":      {func(d *appsv1.Deployment) { d.ResourceVersion, d.Generation = "9", 8 }, false},
		"the image":                 {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/app:2" }, false},
		"another annotation":        {func(d *appsv1.Deployment) { d.Annotations["x"] = "y" }, false},
		"labels of the pods":        {func(d *appsv1.Deployment) { d.Spec.Template.Labels["x"] = "y" }, false},
		"an annotation that is off": {func(d *appsv1.Deployment) { d.Annotations[v1beta1.ExcludeAnnotation] = "false" }, false},
		"an owner that does not control": {func(d *appsv1.Deployment) {
			d.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScaledDeploymentKind, Name: "web", UID: "a"}}
		}, false},
		"a label":              {func(d *appsv1.Deployment) { d.Labels["x"] = "y" }, true},
		"the value of a label": {func(d *appsv1.Deployment) { d.Labels["app.kubernetes.io/name"] = "other" }, true},
		"no labels":            {func(d *appsv1.Deployment) { d.Labels = nil }, true},
		"an exclusion":         {func(d *appsv1.Deployment) { d.Annotations[v1beta1.ExcludeAnnotation] = "" }, true},
		"the replicas":         {func(d *appsv1.Deployment) { d.Spec.Replicas = nil }, true},
		"a request": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[1].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("777m")
		}, true},
		"a container": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[:1] }, true},
		"a controller": {func(d *appsv1.Deployment) {
			controlledBy(d, v1beta1.GroupVersion.String(), v1beta1.ScaledDeploymentKind, "a")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			store, told := newFleetStore("shop")
			if err := store.Add(richDeployment(2)); err != nil || len(*told) != 1 {
				t.Fatalf("told of %v: %v", *told, err)
			}
			changed := richDeployment(2)
			tc.change(changed)
			for range 2 { // The second time, nothing is new.
				if err := store.Update(changed.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(*told) == 2; got != tc.want || len(*told) > 2 {
				t.Errorf("told of %v, want a change: %t", *told, tc.want)
			}
			if diff := cmp.Diff(ReadForFleet(changed), store.fleet.Get(web)); diff != "" {
				t.Errorf("(-there +known):\n%s", diff)
			}
		})
	}
}

// A watch that was interrupted lists again: it finds what was deleted in the meantime, and tells only of what differs.
func TestAFleetFindsWhatWasDeletedWhileItDidNotWatch(t *testing.T) {
	store, told := newFleetStore("shop")
	named := func(names ...string) (all []any) {
		for _, name := range names {
			d := richDeployment(1)
			d.Name = name
			all = append(all, d)
		}
		return all
	}
	if store.fleet.lists.hasSynced() {
		t.Error("synced before the first list")
	}
	replace := func(want []string, listed []any) {
		t.Helper()
		*told = nil
		if err := store.Replace(listed, "1"); err != nil {
			t.Fatal(err)
		}
		slices.Sort(*told)
		if diff := cmp.Diff(want, *told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	}
	replace([]string{"shop/api", "shop/web"}, named("web", "api"))
	if !store.fleet.lists.hasSynced() {
		t.Error("not synced after the first list")
	}
	replace(nil, named("api", "web"))
	replace([]string{"shop/db", "shop/web"}, named("api", "db"))
	if store.fleet.Get(web) != nil || len(store.fleet.All("shop")) != 2 || len(store.fleet.All("")) != 2 || len(store.fleet.All("bank")) != 0 {
		t.Errorf("known: %v", store.fleet.All(""))
	}
	replace([]string{"shop/api", "shop/db"}, nil)
	if len(store.fleet.deployments) != 0 {
		t.Errorf("left: %v", store.fleet.deployments)
	}
	// What is deleted twice, or was never known, is no change.
	*told = nil
	if err := store.Delete(richDeployment(1)); err != nil || len(*told) != 0 {
		t.Errorf("told of %v: %v", *told, err)
	}
	for name, err := range map[string]error{"Add": store.Add(&corev1.Pod{}), "Delete": store.Delete(&corev1.Pod{}), "Replace": store.Replace([]any{&corev1.Pod{}}, "1"), "Resync": store.Resync()} {
		if (err == nil) != (name == "Resync") {
			t.Errorf("%s of a pod: %v", name, err)
		}
	}
}

// In whatever order events and lists of two namespaces arrive, a reader that looks at each Deployment that it is told
// of knows the truth at last. It is told of nothing that is as it was.
func TestAFleetTellsOfAllThatChanges(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(2000) {
		w := newFleetWorld(rand.New(rand.NewPCG(seed, 17)), seen)
		for range 60 {
			w.act()
		}
		for _, namespace := range w.namespaces {
			w.end(namespace)
			for len(w.events[namespace]) > 0 {
				w.deliver(namespace)
			}
		}
		truth := map[string]*fleet.Deployment{}
		for key, d := range w.server {
			truth[key] = ReadForFleet(d)
		}
		if diff := cmp.Diff(truth, w.known); diff != "" {
			t.Fatalf("seed %d: the reader was not told (-there +known):\n%s%s", seed, diff, w.story())
		}
		if w.needless != "" {
			t.Fatalf("seed %d: told of %s, which is as it was\n%s", seed, w.needless, w.story())
		}
	}
	for _, what := range []string{"list", "deleted while it did not watch", "created again", "status only", "delivered"} {
		if seen[what] < 100 {
			t.Errorf("%q happened %d times only", what, seen[what])
		}
	}
}

// fleetWorld is an API server with Deployments of two namespaces, its watches, and a reader.
type fleetWorld struct {
	*rand.Rand
	telling

	seen       map[string]int
	namespaces []string
	stores     map[string]*fleetStore
	server     map[string]*appsv1.Deployment
	events     map[string][]fleetEvent // by namespace
	listing    map[string][]any        // the list that is under way

	known    map[string]*fleet.Deployment
	needless string
}

type fleetEvent struct {
	deployment *appsv1.Deployment
	deleted    bool
}

func newFleetWorld(r *rand.Rand, seen map[string]int) *fleetWorld {
	w := &fleetWorld{
		Rand: r, seen: seen, namespaces: []string{"shop", "bank"}, stores: map[string]*fleetStore{}, server: map[string]*appsv1.Deployment{},
		events: map[string][]fleetEvent{}, listing: map[string][]any{}, known: map[string]*fleet.Deployment{},
	}
	f := NewFleet(nil, w.namespaces...)
	f.OnChange(func(key types.NamespacedName) {
		w.tell("  told of %s", key)
		now := f.Get(key)
		if cmp.Equal(now, w.known[key.String()]) {
			w.needless = key.String()
		}
		if now == nil {
			delete(w.known, key.String())
		} else {
			w.known[key.String()] = now
		}
	})
	for _, namespace := range w.namespaces {
		w.stores[namespace] = &fleetStore{fleet: f, namespace: namespace, synced: f.lists.one()}
		w.begin(namespace)
		w.end(namespace)
	}
	return w
}

func (w *fleetWorld) act() {
	namespace := w.namespaces[w.IntN(2)]
	switch w.IntN(8) {
	case 0, 1, 2:
		w.write(namespace, fmt.Sprint("web-", w.IntN(3)))
	case 3:
		w.remove(namespace, fmt.Sprint("web-", w.IntN(3)))
	case 4, 5:
		w.deliver(namespace)
	case 6:
		w.begin(namespace)
	case 7:
		w.end(namespace)
	}
}

func (w *fleetWorld) write(namespace, name string) {
	key := namespace + "/" + name
	d := richDeployment(1 + w.IntN(2))
	d.Namespace, d.Name, d.Spec.Replicas = namespace, name, ptr.To(int32(w.IntN(2)))
	if w.IntN(3) == 0 {
		d.Annotations[v1beta1.ExcludeAnnotation] = []string{"true", "false", ""}[w.IntN(3)]
	}
	d.Labels["version"] = fmt.Sprint(w.IntN(2))
	switch last := w.server[key]; {
	case last == nil && w.known[key] != nil:
		w.seen["created again"]++
	case last != nil && w.IntN(3) == 0:
		w.seen["status only"]++
		d = last.DeepCopy()
		d.Status.Replicas++
	}
	w.tell("write %s", key)
	w.server[key] = d
	w.events[namespace] = append(w.events[namespace], fleetEvent{deployment: d})
}

func (w *fleetWorld) remove(namespace, name string) {
	key := namespace + "/" + name
	if w.server[key] == nil {
		return
	}
	w.tell("delete %s", key)
	w.events[namespace] = append(w.events[namespace], fleetEvent{w.server[key], true})
	delete(w.server, key)
}

// begin lists a namespace. Its watch begins at the same version, when the list has ended.
func (w *fleetWorld) begin(namespace string) {
	if w.listing[namespace] != nil {
		return
	}
	w.tell("begin a list of %s", namespace)
	w.seen["list"]++
	w.events[namespace], w.listing[namespace] = nil, []any{}
	for _, key := range slices.Sorted(maps.Keys(w.server)) {
		if d := w.server[key]; d.Namespace == namespace {
			shrunk, err := w.stores[namespace].Transformer()(d.DeepCopy())
			if err != nil {
				panic(err)
			}
			w.listing[namespace] = append(w.listing[namespace], shrunk)
		}
	}
	for key, d := range w.known {
		if d.Namespace == namespace && w.server[key] == nil {
			w.seen["deleted while it did not watch"]++
		}
	}
}

func (w *fleetWorld) end(namespace string) {
	if w.listing[namespace] == nil {
		return
	}
	w.tell("end the list of %s", namespace)
	if err := w.stores[namespace].Replace(w.listing[namespace], "1"); err != nil {
		panic(err)
	}
	w.listing[namespace] = nil
}

func (w *fleetWorld) deliver(namespace string) {
	if w.listing[namespace] != nil || len(w.events[namespace]) == 0 {
		return
	}
	e := w.events[namespace][0]
	w.events[namespace] = w.events[namespace][1:]
	w.tell("deliver %s, deleted: %t", e.deployment.Name, e.deleted)
	w.seen["delivered"]++
	deliver := w.stores[namespace].Update
	if e.deleted {
		deliver = w.stores[namespace].Delete
	}
	if err := deliver(e.deployment.DeepCopy()); err != nil {
		panic(err)
	}
}

// plainAPI cannot stream a list.
type plainAPI struct{ client.WithWatch }

func (plainAPI) IsWatchListSemanticsUnSupported() bool { return true }

// The watch is a real one: a Fleet of two namespaces does not know the Deployments of others.
func TestAFleetWatchesItsNamespaces(t *testing.T) {
	in := func(namespace, name string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	api := apiOf(t, interceptor.Funcs{}, in("shop", "web"), in("bank", "ledger"), in("other", "hidden"))
	f := NewFleet(plainAPI{api}, "shop", "bank")
	var mu sync.Mutex
	told := map[string]bool{}
	news := make(chan struct{}, 100)
	f.OnChange(func(key types.NamespacedName) {
		mu.Lock()
		told[key.String()] = true
		mu.Unlock()
		news <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	if err := f.WaitForSync(canceled(ctx)); err == nil {
		t.Error("synced before the start")
	}
	go func() { ended <- f.Start(ctx) }()
	if err := f.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	if f.Get(types.NamespacedName{Namespace: "shop", Name: "web"}) == nil || len(f.All("")) != 2 || f.Get(types.NamespacedName{Namespace: "other", Name: "hidden"}) != nil {
		t.Errorf("known: %v", f.All(""))
	}
	if err := api.Create(ctx, in("bank", "later")); err != nil {
		t.Fatal(err)
	}
	if err := api.Create(ctx, in("other", "later")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-news
	}
	mu.Lock()
	if diff := cmp.Diff([]string{"bank/later", "bank/ledger", "shop/web"}, slices.Sorted(maps.Keys(told))); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// canceled is a context that has ended.
func canceled(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx
}
