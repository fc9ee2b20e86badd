// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// That no event is lost is a statement about interleavings, so it is tested as one.
// A small world holds what the API server stores, what each watch has delivered and
// what the queue holds. From every state all that could happen next is tried: the
// next step of each user, the next delivery of each watch, the next reconcile of the
// real Reconciler, and once, a crash. The predicates, the index and the map
// functions are the real ones. There is no resync: what only the net would catch
// counts as lost.
//
// Wherever the world comes to rest, every scaler must claim its Deployment and must
// have seen its latest generation, or its absence.

// A step is something that a user does.
type step struct {
	name string
	do   func(w *world)
}

func TestNoEventIsLostInAnyOrder(t *testing.T) {
	cases := map[string]struct {
		users [][]step
		crash bool
	}{
		"Deployment created, changed and deleted around a new scaler": {
			users: [][]step{{createScaler("a", "web")}, {createDeployment("web"), changeDeployment("web"), deleteDeployment("web")}},
			crash: true,
		},
		"Deployment deleted and recreated under the same name": {
			users: [][]step{{createScaler("a", "web")}, {createDeployment("web"), deleteDeployment("web"), createDeployment("web"), changeDeployment("web")}},
			crash: true,
		},
		"scaler retargeted while both Deployments change": {
			users: [][]step{
				{createScaler("a", "web"), retarget("a", "api")},
				{createDeployment("web"), changeDeployment("web")},
				{createDeployment("api"), changeDeployment("api")},
			},
		},
		"scaler retargeted there and back": {
			users: [][]step{{createScaler("a", "web"), retarget("a", "api"), retarget("a", "web")}, {createDeployment("web"), changeDeployment("web")}},
			crash: true,
		},
		"scaler deleted and recreated": {
			users: [][]step{{createScaler("a", "web"), deleteScaler("a"), createScaler("a", "web")}, {createDeployment("web"), changeDeployment("web")}},
			crash: true,
		},
		"status wiped": {
			users: [][]step{{createScaler("a", "web"), wipeStatus("a")}, {createDeployment("web"), changeDeployment("web")}},
			crash: true,
		},
		"claim forged, of another Deployment": {
			users: [][]step{{createScaler("a", "web"), forge("a", "ns/other")}, {createDeployment("web"), changeDeployment("web")}},
			crash: true,
		},
		"claim forged, of another namespace": {
			users: [][]step{{createScaler("a", "web"), forge("a", "kube-system/web")}, {createDeployment("web"), changeDeployment("web")}},
			crash: true,
		},
		"claim malformed": {
			users: [][]step{{createScaler("a", "web"), forge("a", "ns/web/../x")}, {createDeployment("web"), changeDeployment("web")}},
			crash: true,
		},
		"two scalers of one Deployment, the first one deleted": {
			users: [][]step{{createScaler("a", "web"), deleteScaler("a")}, {createScaler("b", "web")}, {createDeployment("web"), changeDeployment("web")}},
		},
		"two scalers of one Deployment, the first one retargeted": {
			users: [][]step{{createScaler("a", "web"), retarget("a", "api")}, {createScaler("b", "web")}, {createDeployment("web")}},
		},
		"a scaler joins another by retargeting": {
			users: [][]step{{createScaler("a", "api"), retarget("a", "web")}, {createScaler("b", "web")}, {createDeployment("web")}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, lost := explore(newWorld(t, tc.users, tc.crash))
			if lost != "" {
				t.Error(lost)
			}
			if states < 50 {
				t.Errorf("only %d states were reached: the world does not move", states)
			}
			t.Logf("%d states", states)
		})
	}
}

// The common choice for the scalers' watch loses events. If the world did not
// notice, it would prove nothing.
func TestTheWorldNoticesAnEventThatIsLost(t *testing.T) {
	w := newWorld(t, [][]step{{createScaler("a", "web")}, {createDeployment("web"), changeDeployment("web")}}, false)
	w.scalerWatch = predicate.GenerationChangedPredicate{}
	if _, lost := explore(w); lost == "" {
		t.Error("no event was lost behind a plain generation predicate")
	} else {
		t.Log(lost)
	}
}

// world is one state. Objects in it are never changed, only replaced.
type world struct {
	t     *testing.T
	users [][]step
	crash bool // a crash may still happen

	clock    int // creation order and resource versions
	stored   map[string]client.Object
	watches  map[string][]watchEvent // by kind, not delivered yet
	caches   map[string]client.Object
	queue    []types.NamespacedName
	trace    []string
	identity int
	written  *ownwrites.Memory // the operator's memory of its own writes

	scalerWatch predicate.Predicate
}

// theNoon is the time in the world, which stands still.
var theNoon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

type watchEvent struct{ before, after client.Object }

func newWorld(t *testing.T, users [][]step, crash bool) *world {
	t.Helper()
	scalerWatch, err := scalerPredicate()
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		written: &ownwrites.Memory{},
		t:       t, users: users, crash: crash, scalerWatch: scalerWatch,
		stored: map[string]client.Object{}, caches: map[string]client.Object{}, watches: map[string][]watchEvent{},
	}
}

// explore visits every state that can be reached, and tells of the first one at
// rest in which something was lost.
func explore(start *world) (states int, lost string) {
	seen := map[string]bool{}
	next := []*world{start}
	for len(next) > 0 {
		w := next[len(next)-1]
		next = next[:len(next)-1]
		key := w.key()
		if seen[key] {
			continue
		}
		seen[key] = true
		moves := w.systemMoves()
		if len(moves) == 0 {
			if what := w.lost(); what != "" {
				return len(seen), fmt.Sprintf("%s\nafter: %s", what, strings.Join(w.trace, ", "))
			}
		}
		for _, move := range append(moves, w.userMoves()...) {
			after := w.clone()
			after.trace = append(after.trace, move.name)
			move.do(after)
			next = append(next, after)
		}
	}
	return len(seen), ""
}

func (w *world) userMoves() (moves []step) {
	for i := range w.users {
		if len(w.users[i]) == 0 {
			continue
		}
		first := w.users[i][0]
		moves = append(moves, step{first.name, func(w *world) {
			w.users[i] = w.users[i][1:]
			first.do(w)
		}})
	}
	if w.crash {
		moves = append(moves, step{"crash", (*world).restart})
	}
	return moves
}

func (w *world) systemMoves() (moves []step) {
	for _, kind := range slices.Sorted(maps.Keys(w.watches)) {
		if len(w.watches[kind]) > 0 {
			moves = append(moves, step{"deliver " + kind, func(w *world) { w.deliver(kind) }})
		}
	}
	if len(w.queue) > 0 {
		moves = append(moves, step{"reconcile " + w.queue[0].Name, (*world).reconcile})
	}
	return moves
}

// deliver brings the next event of a watch into the cache, and then to the handlers,
// in that order, as informers do.
func (w *world) deliver(kind string) {
	e := w.watches[kind][0]
	w.watches[kind] = w.watches[kind][1:]
	if e.after == nil {
		delete(w.caches, keyOf(e.before))
	} else {
		w.caches[keyOf(e.after)] = e.after
	}
	w.handle(e)
}

func (w *world) handle(e watchEvent) {
	ctx := context.Background()
	l := w.lookup()
	subject := e.after
	if subject == nil {
		subject = e.before
	}
	switch subject.(type) {
	case *v1beta1.VerticalScaler:
		if passes(w.scalerWatch, e) {
			w.enqueue(client.ObjectKeyFromObject(subject))
		}
		w.handleMapped(e, rivalryPredicate(), func(obj client.Object) []reconcile.Request { return l.ofRival(ctx, obj) })
	case *appsv1.Deployment:
		w.handleMapped(e, deploymentPredicate(), func(obj client.Object) []reconcile.Request { return l.ofDeployment(ctx, obj) })
	}
}

// handleMapped maps the old and the new object, as EnqueueRequestsFromMapFunc does.
func (w *world) handleMapped(e watchEvent, p predicate.Predicate, mapped func(client.Object) []reconcile.Request) {
	if !passes(p, e) {
		return
	}
	for _, obj := range []client.Object{e.before, e.after} {
		if obj == nil {
			continue
		}
		for _, request := range mapped(obj) {
			w.enqueue(request.NamespacedName)
		}
	}
}

func passes(p predicate.Predicate, e watchEvent) bool {
	switch {
	case e.before == nil:
		return p.Create(event.CreateEvent{Object: e.after})
	case e.after == nil:
		return p.Delete(event.DeleteEvent{Object: e.before})
	}
	return p.Update(event.UpdateEvent{ObjectOld: e.before, ObjectNew: e.after})
}

func (w *world) enqueue(key types.NamespacedName) {
	if !slices.Contains(w.queue, key) {
		w.queue = append(w.queue, key)
	}
}

// reconcile runs the real Reconciler once on the cache.
func (w *world) reconcile() {
	key := w.queue[0]
	w.queue = w.queue[1:]
	r := &Reconciler{
		Client:       worldClient{w: w},
		Histories:    &checkpoint.Store{Client: worldClient{w: w}},
		Params:       recommend.DefaultParams(),
		Clock:        clocktesting.NewFakePassiveClock(theNoon),
		ResyncPeriod: time.Hour,
		lookup:       w.lookup(),
		written:      w.written,
	}
	result, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: key})
	if err != nil {
		w.t.Fatalf("after %s: %v", strings.Join(w.trace, ", "), err)
	}
	if result.RequeueAfter == staleCacheRetry {
		w.enqueue(key)
	}
}

// restart is a crash: what was queued or not delivered is gone, and the new process
// lists everything.
func (w *world) restart() {
	w.crash = false
	w.queue, w.written = nil, &ownwrites.Memory{}
	w.watches = map[string][]watchEvent{}
	w.caches = maps.Clone(w.stored)
	for _, key := range slices.Sorted(maps.Keys(w.caches)) {
		w.handle(watchEvent{after: w.caches[key]})
	}
}

func (w *world) lookup() *lookup {
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers())
	for _, obj := range w.caches {
		if vs, ok := obj.(*v1beta1.VerticalScaler); ok {
			if err := indexer.Add(vs); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	return &lookup{indexer: indexer}
}

// lost says what is not as it should be in a world at rest.
func (w *world) lost() string {
	for _, key := range slices.Sorted(maps.Keys(w.stored)) {
		vs, ok := w.stored[key].(*v1beta1.VerticalScaler)
		if !ok {
			continue
		}
		if got, want := scaler.RecordedClaim(vs), scaler.Claim(vs); got != want {
			return fmt.Sprintf("scaler %s claims %q, not %q", vs.Name, got, want)
		}
		if got, want := vs.Status.ObservedGeneration, vs.Generation; got != want {
			return fmt.Sprintf("scaler %s has observed generation %d of %d", vs.Name, got, want)
		}
		if got, want := meta.IsStatusConditionTrue(vs.Status.Conditions, v1beta1.ConditionStalled), w.winner(vs) != vs.Name; got != want {
			return fmt.Sprintf("scaler %s stands back: %v, though %s comes first", vs.Name, got, w.winner(vs))
		}
		d, exists := w.stored["Deployment/"+vs.Spec.DeploymentName].(*appsv1.Deployment)
		switch target := vs.Status.Target; {
		case !exists && target != nil:
			return fmt.Sprintf("scaler %s has not seen that Deployment %s is gone", vs.Name, vs.Spec.DeploymentName)
		case exists && (target == nil || target.UID != d.UID || target.Generation != d.Generation):
			return fmt.Sprintf("scaler %s has seen %+v of Deployment %s, which is at generation %d of %s", vs.Name, target, d.Name, d.Generation, d.UID)
		}
	}
	return ""
}

func (w *world) winner(vs *v1beta1.VerticalScaler) string {
	best := vs
	for _, obj := range w.stored {
		if rival, ok := obj.(*v1beta1.VerticalScaler); ok && rival.Spec.DeploymentName == vs.Spec.DeploymentName && comesBefore(rival, best) {
			best = rival
		}
	}
	return best.Name
}

func (w *world) clone() *world {
	c := *w
	c.users = slices.Clone(w.users)
	c.stored, c.caches = maps.Clone(w.stored), maps.Clone(w.caches)
	c.watches = map[string][]watchEvent{}
	for kind, events := range w.watches {
		c.watches[kind] = slices.Clone(events)
	}
	c.written = w.written.Clone()
	c.queue, c.trace = slices.Clone(w.queue), slices.Clone(w.trace)
	return &c
}

// key tells states apart that may have different futures. Resource versions are
// told by whether the cache has the stored one.
func (w *world) key() string {
	var b strings.Builder
	for _, user := range w.users {
		fmt.Fprintf(&b, "%d;", len(user))
	}
	fmt.Fprintf(&b, "%v;%v|", w.crash, w.queue)
	describe := func(obj client.Object) {
		switch o := obj.(type) {
		case *v1beta1.VerticalScaler:
			fmt.Fprintf(&b, "%s/%s/%d/%s/%s/%d/%v/%v,", o.Name, o.UID, o.Generation, o.Spec.DeploymentName, scaler.RecordedClaim(o), o.Status.ObservedGeneration,
				o.Status.Target, meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionStalled))
		case *appsv1.Deployment:
			fmt.Fprintf(&b, "%s/%s/%d,", o.Name, o.UID, o.Generation)
		default:
			b.WriteString("-,")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.stored)) {
		describe(w.stored[key])
	}
	b.WriteString("|")
	for _, key := range slices.Sorted(maps.Keys(w.caches)) {
		describe(w.caches[key])
		stored := w.stored[key]
		fmt.Fprintf(&b, "%v,", stored != nil && stored.GetResourceVersion() == w.caches[key].GetResourceVersion())
		if vs, ok := w.caches[key].(*v1beta1.VerticalScaler); ok {
			fmt.Fprintf(&b, "%v,", w.written.Clone().IsNewerThan(vs, theNoon))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(w.watches)) {
		b.WriteString("|" + kind)
		for _, e := range w.watches[kind] {
			describe(e.before)
			describe(e.after)
		}
	}
	return b.String()
}

func keyOf(obj client.Object) string {
	switch obj.(type) {
	case *v1beta1.VerticalScaler:
		return "VerticalScaler/" + obj.GetName()
	default:
		return "Deployment/" + obj.GetName()
	}
}

// put stores an object and tells the watch.
func (w *world) put(obj client.Object) {
	w.clock++
	obj.SetResourceVersion(fmt.Sprint(w.clock))
	key := keyOf(obj)
	kind, _, _ := strings.Cut(key, "/")
	var before client.Object
	if old, ok := w.stored[key]; ok {
		before = old
	}
	w.stored[key] = obj
	w.watches[kind] = append(w.watches[kind], watchEvent{before, obj})
}

func (w *world) remove(key string) {
	kind, _, _ := strings.Cut(key, "/")
	w.watches[kind] = append(w.watches[kind], watchEvent{before: w.stored[key]})
	delete(w.stored, key)
}

func (w *world) newMeta(name string) metav1.ObjectMeta {
	w.identity++
	return metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, w.identity)), Generation: 1,
		CreationTimestamp: metav1.Unix(int64(1000+w.identity), 0),
	}
}

func createScaler(name, target string) step {
	return step{"create scaler " + name, func(w *world) {
		w.put(&v1beta1.VerticalScaler{ObjectMeta: w.newMeta(name), Spec: v1beta1.VerticalScalerSpec{DeploymentName: target}})
	}}
}

func changeScaler(name, what string, change func(*v1beta1.VerticalScaler)) step {
	return step{what + " " + name, func(w *world) {
		vs := w.stored["VerticalScaler/"+name].(*v1beta1.VerticalScaler).DeepCopy()
		change(vs)
		w.put(vs)
	}}
}

func retarget(name, target string) step {
	return changeScaler(name, "retarget", func(s *v1beta1.VerticalScaler) {
		s.Spec.DeploymentName = target
		s.Generation++
	})
}

func wipeStatus(name string) step {
	return changeScaler(name, "wipe the status of", func(s *v1beta1.VerticalScaler) { s.Status = v1beta1.VerticalScalerStatus{} })
}

func forge(name, claim string) step {
	return changeScaler(name, "forge the claim of", func(s *v1beta1.VerticalScaler) {
		s.Status.Annotations = map[string]string{v1beta1.ClaimAnnotation: claim}
	})
}

func deleteScaler(name string) step {
	return step{"delete scaler " + name, func(w *world) { w.remove("VerticalScaler/" + name) }}
}

func createDeployment(name string) step {
	return step{"create Deployment " + name, func(w *world) { w.put(&appsv1.Deployment{ObjectMeta: w.newMeta(name)}) }}
}

func changeDeployment(name string) step {
	return step{"change Deployment " + name, func(w *world) {
		d := w.stored["Deployment/"+name].(*appsv1.Deployment).DeepCopy()
		d.Generation++
		w.put(d)
	}}
}

func deleteDeployment(name string) step {
	return step{"delete Deployment " + name, func(w *world) { w.remove("Deployment/" + name) }}
}

// worldClient reads from the world's cache and writes to what is stored, refusing
// what rests on an old version. Whatever else the Reconciler might try panics.
type worldClient struct {
	client.Client
	w *world
}

func (c worldClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch into := obj.(type) {
	case *v1beta1.VerticalScaler:
		if found, ok := c.w.caches["VerticalScaler/"+key.Name].(*v1beta1.VerticalScaler); ok {
			found.DeepCopyInto(into)
			return nil
		}
	case *appsv1.Deployment:
		if found, ok := c.w.caches["Deployment/"+key.Name].(*appsv1.Deployment); ok {
			found.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List finds nothing: there are no pods, LimitRanges or HPAs in this world.
func (worldClient) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (c worldClient) Status() client.SubResourceWriter { return worldStatus{w: c.w} }

type worldStatus struct {
	client.SubResourceWriter
	w *world
}

func (s worldStatus) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	vs := obj.(*v1beta1.VerticalScaler)
	stored, ok := s.w.stored[keyOf(vs)].(*v1beta1.VerticalScaler)
	switch {
	case !ok || stored.UID != vs.UID:
		return apierrors.NewNotFound(schema.GroupResource{}, vs.Name)
	case stored.ResourceVersion != vs.ResourceVersion:
		return apierrors.NewConflict(schema.GroupResource{}, vs.Name, fmt.Errorf("changed meanwhile"))
	}
	updated := stored.DeepCopy()
	updated.Status = *vs.Status.DeepCopy()
	s.w.put(updated)
	vs.ResourceVersion = updated.ResourceVersion
	return nil
}
