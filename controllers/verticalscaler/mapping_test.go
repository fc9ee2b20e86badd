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

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
)

// Events must not be lost in any interleaving, so all interleavings are tested. A small system holds
// the API server's objects, the events that each watch has delivered, and the queue. From every
// state, each possible next step is tried: a step of each user, a delivery of each watch, a reconcile
// of the real Reconciler, and once, a crash. The predicates, the index and the map functions are the
// real ones. There is no resync: an event that only a resync would replace counts as lost.
//
// Several scalers may name one Deployment. The operator's order of them is kept by a
// handler of its own, which may be late, and then any scaler in the queue may be next.
//
// Wherever the system comes to rest, the first scaler of each Deployment must claim it and must
// have seen its latest generation, or its absence. The others must claim nothing, and must report
// why.

// A step is an action of a user.
type step struct {
	name string
	do   func(w *systemState)
}

func TestNoEventIsLostInAnyOrder(t *testing.T) {
	web := createDeployment("web")
	cases := map[string]struct {
		given []step // steps that were taken before; the order of the scalers is late then, and only two learn which one is first
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

		"two scalers of one Deployment, the first one deleted": {
			users: [][]step{{createScaler("a", "web"), deleteScaler("a")}, {createScaler("b", "web")}, {createDeployment("web"), changeDeployment("web")}},
		},
		"two scalers of one Deployment, the first one retargeted": {
			users: [][]step{{createScaler("a", "web"), retarget("a", "api")}, {createScaler("b", "web")}, {createDeployment("web")}},
		},
		"a scaler joins another by retargeting": {
			users: [][]step{{createScaler("a", "api"), retarget("a", "web")}, {createScaler("b", "web")}, {createDeployment("web")}},
		},

		// Scalers of one Deployment take over from each other with any order of the changes, with a late order of the
		// operator, and in any order of reconciles.
		"all but the last of four equally old ones are deleted": {
			given: []step{web, createTwin("a", "web"), createTwin("b", "web"), createTwin("c", "web"), createTwin("d", "web")},
			users: [][]step{{deleteScaler("a")}, {deleteScaler("b")}, {deleteScaler("c")}},
		},
		"equally old ones are created in any order, and the first is deleted": {
			given: []step{web, createTwin("c", "web")},
			users: [][]step{{createTwin("b", "web")}, {createTwin("a", "web"), deleteScaler("a")}},
		},
		"the first leaves and comes back, while the second is deleted": {
			given: []step{web, createScaler("a", "web"), createScaler("b", "web"), createScaler("c", "web")},
			users: [][]step{{retarget("a", "api"), retarget("a", "web")}, {deleteScaler("b")}},
		},
		"the first is deleted and recreated, and is the youngest then": {
			given: []step{web, createScaler("a", "web"), createScaler("b", "web"), createScaler("c", "web")},
			users: [][]step{{deleteScaler("a"), createScaler("a", "web")}, {retarget("b", "api")}},
		},
		"an older one joins and leaves again, while the first is deleted": {
			given: []step{web, createScaler("elder", "api"), createScaler("a", "web"), createScaler("b", "web")},
			users: [][]step{{retarget("elder", "web"), deleteScaler("elder")}, {deleteScaler("a")}},
		},
		"two move on to another Deployment, which has one": {
			given: []step{web, createDeployment("api"), createScaler("a", "web"), createScaler("b", "api"), createScaler("c", "web")},
			users: [][]step{{retarget("a", "api")}, {retarget("c", "api")}},
		},
		"the status of the first and of the second is wiped": {
			given: []step{web, createScaler("a", "web"), createScaler("b", "web"), createScaler("c", "web")},
			users: [][]step{{wipeStatus("a"), deleteScaler("a")}, {wipeStatus("b")}, {changeDeployment("web")}},
		},
		"one that stands back claims the Deployment by force": {
			given: []step{web, createScaler("a", "web"), createScaler("b", "web")},
			users: [][]step{{forge("b", "ns/web")}, {changeDeployment("web"), deleteScaler("a")}},
			crash: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSystemState(t, tc.users, tc.crash)
			if w.late = len(tc.given) > 0; w.late {
				w.reported, w.order = 2, precedence.New(2)
			}
			for _, given := range tc.given {
				given.do(w)
				w.rest()
			}
			states, lost := explore(w)
			if lost != "" {
				t.Error(lost)
			}
			if states < 50 {
				t.Errorf("only %d states were reached: the system does not move", states)
			}
		})
	}
}

// Changes of the Deployment do not trigger scalers behind the first one, and a new one behind all
// others triggers none of them.
func TestOnlyTheFirstScalerIsTriggered(t *testing.T) {
	w := newSystemState(t, nil, false)
	createDeployment("web").do(w)
	for i := range 50 {
		createScaler(fmt.Sprintf("s-%02d", i), "web").do(w)
	}
	w.rest()
	for _, tc := range []struct {
		step step
		want int // reconciles
	}{
		{changeDeployment("web"), 1},
		{createScaler("t", "web"), 1},
		{deleteScaler("s-40"), 1},             // itself
		{deleteScaler("s-05"), 1 + 1},         // and the one that is no longer refused
		{deleteScaler("s-00"), 1 + 2 + 6 + 1}, // and the next first, also for its claim; the ones that name it; one that is no longer refused
		{retarget("s-45", "other"), 2},        // itself, also for its claim
		{deleteDeployment("web"), 1},
	} {
		tc.step.do(w)
		if got := w.rest(); got != tc.want {
			t.Errorf("%s: %d reconciles, want %d", tc.step.name, got, tc.want)
		}
		if lost := w.lost(); lost != "" {
			t.Errorf("%s: %s", tc.step.name, lost)
		}
	}
}

// rest runs all moves of the system, in the first order, and counts the reconciles.
func (w *systemState) rest() (reconciles int) {
	for moves := w.systemMoves(); len(moves) > 0; moves = w.systemMoves() {
		if strings.HasPrefix(moves[0].name, "reconcile") {
			reconciles++
		}
		moves[0].do(w)
	}
	return reconciles
}

// systemState is one state. Objects in it are never changed, only replaced.
type systemState struct {
	t     testing.TB
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

	order    *precedence.Order
	ranked   map[string]*v1beta1.VerticalScaler // those in the order
	reported int                                // the number of scalers that learn which one is first
	late     bool                               // the order of the scalers may be late, and the queue has no order
}

// theNoon is the time in the system, which stands still.
var theNoon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

type watchEvent struct{ before, after client.Object }

func newSystemState(t testing.TB, users [][]step, crash bool) *systemState {
	t.Helper()
	return &systemState{
		written: &ownwrites.Memory{}, reported: precedence.MaxReported, order: precedence.New(precedence.MaxReported), ranked: map[string]*v1beta1.VerticalScaler{},
		t: t, users: users, crash: crash, scalerWatch: scalerPredicate(),
		stored: map[string]client.Object{}, caches: map[string]client.Object{}, watches: map[string][]watchEvent{},
	}
}

// explore visits every state that can be reached, or 500 of them with -short, and returns the first
// one at rest with a loss.
func explore(start *systemState) (states int, lost string) {
	seen := map[string]bool{}
	next := []*systemState{start}
	for len(next) > 0 && (len(seen) < 500 || !testing.Short()) {
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

func (w *systemState) userMoves() (moves []step) {
	for i := range w.users {
		if len(w.users[i]) == 0 {
			continue
		}
		first := w.users[i][0]
		moves = append(moves, step{first.name, func(w *systemState) {
			w.users[i] = w.users[i][1:]
			first.do(w)
		}})
	}
	if w.crash {
		moves = append(moves, step{"crash", (*systemState).restart})
	}
	return moves
}

func (w *systemState) systemMoves() (moves []step) {
	for _, kind := range slices.Sorted(maps.Keys(w.watches)) {
		if len(w.watches[kind]) > 0 {
			moves = append(moves, step{"deliver " + kind, func(w *systemState) { w.deliver(kind) }})
		}
	}
	for i, key := range w.queue {
		if i == 0 || w.late {
			moves = append(moves, step{"reconcile " + key.Name, func(w *systemState) { w.reconcile(i) }})
		}
	}
	return moves
}

// ranking is the watch of the handler that keeps the order of the scalers.
const ranking = "ranking"

// deliver brings the next event of a watch into the cache, and then to the handlers,
// in that order, as informers do.
func (w *systemState) deliver(kind string) {
	e := w.watches[kind][0]
	w.watches[kind] = w.watches[kind][1:]
	if kind == ranking {
		w.rank(e)
		return
	}
	if e.after == nil {
		delete(w.caches, keyOf(e.before))
	} else {
		w.caches[keyOf(e.after)] = e.after
	}
	w.handle(e)
}

func (w *systemState) handle(e watchEvent) {
	subject := e.after
	if subject == nil {
		subject = e.before
	}
	switch subject.(type) {
	case *v1beta1.VerticalScaler:
		if passes(w.scalerWatch, e) {
			w.enqueue(client.ObjectKeyFromObject(subject))
		}
		if w.late {
			w.watches[ranking] = append(w.watches[ranking], e)
		} else {
			w.rank(e)
		}
	case *appsv1.Deployment:
		if passes(deploymentPredicate(), e) {
			w.bring(e, queue.Mapped(lookup{systemClient{w: w}}.ofDeployment))
		}
	}
}

// rank brings an event to the real handler that keeps the order of the scalers.
func (w *systemState) rank(e watchEvent) {
	if vs, ok := e.after.(*v1beta1.VerticalScaler); ok {
		w.ranked[vs.Name] = vs
	} else {
		delete(w.ranked, e.before.GetName())
	}
	w.bring(e, keepOrder(w.order))
}

// bring brings an event to a handler.
func (w *systemState) bring(e watchEvent, h handler.EventHandler) {
	ctx, q := context.Background(), systemQueue{w: w}
	switch {
	case e.before == nil:
		h.Create(ctx, event.CreateEvent{Object: e.after}, q)
	case e.after == nil:
		h.Delete(ctx, event.DeleteEvent{Object: e.before}, q)
	default:
		h.Update(ctx, event.UpdateEvent{ObjectOld: e.before, ObjectNew: e.after}, q)
	}
}

// systemQueue is the queue as a handler sees it.
type systemQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	w *systemState
}

func (q systemQueue) Add(request reconcile.Request) { q.w.enqueue(request.NamespacedName) }

func passes(p predicate.Predicate, e watchEvent) bool {
	switch {
	case e.before == nil:
		return p.Create(event.CreateEvent{Object: e.after})
	case e.after == nil:
		return p.Delete(event.DeleteEvent{Object: e.before})
	}
	return p.Update(event.UpdateEvent{ObjectOld: e.before, ObjectNew: e.after})
}

func (w *systemState) enqueue(key types.NamespacedName) {
	if !slices.Contains(w.queue, key) {
		w.queue = append(w.queue, key)
	}
}

// reconcile runs the real Reconciler once on the cache, for that place of the queue.
func (w *systemState) reconcile(i int) {
	key := w.queue[i]
	w.queue = slices.Delete(w.queue, i, i+1)
	r := &Reconciler{
		Client:       systemClient{w: w},
		Live:         systemClient{w: w},
		Pods:         cached.LivePods{Reader: systemClient{w: w}},
		Histories:    &checkpoint.Store{Client: systemClient{w: w}},
		Params:       recommend.DefaultParams(),
		Clock:        clocktesting.NewFakePassiveClock(theNoon),
		ResyncPeriod: time.Hour,
		order:        w.order,
		written:      w.written,
		Recorder:     &events.FakeRecorder{},
		Usage:        complete{}, NewPodsRefused: notRefused,
	}
	result, err := r.Reconcile(log.IntoContext(context.Background(), logr.Discard()), reconcile.Request{NamespacedName: key})
	if err != nil {
		w.t.Fatalf("after %s: %v", strings.Join(w.trace, ", "), err)
	}
	if result.RequeueAfter == staleCacheRetry {
		w.enqueue(key)
	}
}

// restart is a crash: queued requests and undelivered events are gone, and the new process lists
// everything.
func (w *systemState) restart() {
	w.crash = false
	w.queue, w.written, w.order, w.ranked = nil, &ownwrites.Memory{}, precedence.New(w.reported), map[string]*v1beta1.VerticalScaler{}
	w.watches = map[string][]watchEvent{}
	w.caches = maps.Clone(w.stored)
	for _, key := range slices.Sorted(maps.Keys(w.caches)) {
		w.handle(watchEvent{after: w.caches[key]})
	}
	// The first reconcile waits until all handlers have had the initial list.
	for len(w.watches[ranking]) > 0 {
		w.deliver(ranking)
	}
}

// lost describes the error in a system at rest, if any.
func (w *systemState) lost() string {
	for _, key := range slices.Sorted(maps.Keys(w.stored)) {
		vs, ok := w.stored[key].(*v1beta1.VerticalScaler)
		if !ok {
			continue
		}
		if got, want := vs.Status.ObservedGeneration, vs.Generation; got != want {
			return fmt.Sprintf("scaler %s has observed generation %d of %d", vs.Name, got, want)
		}
		before := w.before(vs)
		if got, want := reportedWinner(vs), w.mustReport(before); got != want {
			return fmt.Sprintf("scaler %s reports %q, not %q: %v come first", vs.Name, got, want, before)
		}
		if len(before) > 0 {
			if claim := scaler.RecordedClaim(vs); claim != "" || vs.Status.Target != nil {
				return fmt.Sprintf("scaler %s, which stands back, claims %q and has seen %+v", vs.Name, claim, vs.Status.Target)
			}
			continue
		}
		if got, want := scaler.RecordedClaim(vs), scaler.Claim(vs); got != want {
			return fmt.Sprintf("scaler %s claims %q, not %q", vs.Name, got, want)
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

// before names the stored scalers that take precedence over this one, in their order.
func (w *systemState) before(vs *v1beta1.VerticalScaler) (names []string) {
	age := func(s *v1beta1.VerticalScaler) string {
		return fmt.Sprintf("%020d %s", s.CreationTimestamp.Unix(), s.Name)
	}
	for _, obj := range w.stored {
		if other, ok := obj.(*v1beta1.VerticalScaler); ok && other.Spec.DeploymentName == vs.Spec.DeploymentName && age(other) < age(vs) {
			names = append(names, age(other))
		}
	}
	slices.Sort(names)
	for i := range names {
		_, names[i], _ = strings.Cut(names[i], " ")
	}
	return names
}

// mustReport is the required report of a scaler behind these.
func (w *systemState) mustReport(before []string) string {
	switch {
	case len(before) == 0:
		return ""
	case len(before) >= w.reported:
		return "too many"
	}
	return before[0]
}

// reportedWinner is the scaler that a status names as the first one; "too many" if it names none,
// and empty if the scaler is the first one.
func reportedWinner(vs *v1beta1.VerticalScaler) string {
	stalled := meta.FindStatusCondition(vs.Status.Conditions, v1beta1.ConditionStalled)
	if stalled == nil || stalled.Reason != v1beta1.ReasonConflict {
		return ""
	}
	if name, ok := strings.CutPrefix(stalled.Message, "VerticalScaler "); ok {
		name, _, _ = strings.Cut(name, ",")
		return name
	}
	return "too many"
}

func (w *systemState) clone() *systemState {
	c := *w
	c.users = slices.Clone(w.users)
	c.stored, c.caches = maps.Clone(w.stored), maps.Clone(w.caches)
	c.watches = map[string][]watchEvent{}
	for kind, events := range w.watches {
		c.watches[kind] = slices.Clone(events)
	}
	c.written = w.written.Clone()
	c.order, c.ranked = precedence.New(w.reported), maps.Clone(w.ranked)
	for _, vs := range c.ranked {
		c.order.Note(vs)
	}
	c.queue, c.trace = slices.Clone(w.queue), slices.Clone(w.trace)
	return &c
}

// key distinguishes states that may have different futures. Of resource versions, it has only
// whether the cache is current.
func (w *systemState) key() string {
	var b strings.Builder
	for _, user := range w.users {
		fmt.Fprintf(&b, "%d;", len(user))
	}
	fmt.Fprintf(&b, "%v;%v|", w.crash, w.queue)
	describe := func(obj client.Object) {
		switch o := obj.(type) {
		case *v1beta1.VerticalScaler:
			fmt.Fprintf(&b, "%s/%s/%d/%s/%s/%d/%v/%v,", o.Name, o.UID, o.Generation, o.Spec.DeploymentName, scaler.RecordedClaim(o), o.Status.ObservedGeneration,
				o.Status.Target, reportedWinner(o))
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

// put stores an object and notifies the watch.
func (w *systemState) put(obj client.Object) {
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

func (w *systemState) remove(key string) {
	kind, _, _ := strings.Cut(key, "/")
	w.watches[kind] = append(w.watches[kind], watchEvent{before: w.stored[key]})
	delete(w.stored, key)
}

func (w *systemState) newMeta(name string) metav1.ObjectMeta {
	w.identity++
	return metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, w.identity)), Generation: 1,
		CreationTimestamp: metav1.Unix(int64(1000+w.identity), 0),
	}
}

func createScaler(name, target string) step {
	return step{"create scaler " + name, func(w *systemState) {
		w.put(&v1beta1.VerticalScaler{ObjectMeta: w.newMeta(name), Spec: v1beta1.VerticalScalerSpec{DeploymentName: target}})
	}}
}

// createTwin creates a scaler that is as old as all others made by it.
func createTwin(name, target string) step {
	return step{"create scaler " + name, func(w *systemState) {
		vs := &v1beta1.VerticalScaler{ObjectMeta: w.newMeta(name), Spec: v1beta1.VerticalScalerSpec{DeploymentName: target}}
		vs.CreationTimestamp = metav1.Unix(500, 0)
		w.put(vs)
	}}
}

func changeScaler(name, what string, change func(*v1beta1.VerticalScaler)) step {
	return step{what + " " + name, func(w *systemState) {
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
	return step{"delete scaler " + name, func(w *systemState) { w.remove("VerticalScaler/" + name) }}
}

func createDeployment(name string) step {
	return step{"create Deployment " + name, func(w *systemState) { w.put(&appsv1.Deployment{ObjectMeta: w.newMeta(name)}) }}
}

func changeDeployment(name string) step {
	return step{"change Deployment " + name, func(w *systemState) {
		d := w.stored["Deployment/"+name].(*appsv1.Deployment).DeepCopy()
		d.Generation++
		w.put(d)
	}}
}

func deleteDeployment(name string) step {
	return step{"delete Deployment " + name, func(w *systemState) { w.remove("Deployment/" + name) }}
}

// systemClient reads from the system's cache and writes to what is stored, rejecting writes based
// on an old version. Any other method panics.
type systemClient struct {
	client.WithWatch
	w *systemState
}

func (c systemClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
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

// List finds nothing: there are no pods, LimitRanges or HPAs in this system.
func (c systemClient) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	scalers, ok := list.(*v1beta1.VerticalScalerList)
	selector := (&client.ListOptions{}).ApplyOptions(options).FieldSelector
	if !ok || selector == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.w.caches)) {
		for _, claim := range claimOf(c.w.caches[key]) {
			if selector.Matches(fields.Set{claimIndex: claim}) {
				scalers.Items = append(scalers.Items, *c.w.caches[key].(*v1beta1.VerticalScaler))
			}
		}
	}
	return nil
}

func (c systemClient) Status() client.SubResourceWriter { return systemStatus{w: c.w} }

type systemStatus struct {
	client.SubResourceWriter
	w *systemState
}

func (s systemStatus) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
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
