// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package newpods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// fixture is a cluster without its other programs. It counts the writes of NewPodSizes.
type fixture struct {
	*Reconciler
	t      *testing.T
	clock  *testingclock.FakePassiveClock
	writes int
	fails  error // the error of the next writes
	most   int   // number of writes that succeed; 0 means all
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, v1beta1.AddToScheme(scheme))
	f := &fixture{t: t, clock: testingclock.NewFakePassiveClock(noon)}
	count := func() error {
		f.writes++
		if f.most > 0 && f.writes > f.most {
			return errors.New("the API server is away")
		}
		return f.fails
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.Update(ctx, o, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := count(); err != nil {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
	}).Build()
	f.Reconciler = &Reconciler{Client: c, Clock: f.clock}
	return f
}

// reconcile reconciles the namespace shop, a pause after the last time.
func (f *fixture) reconcile() reconcile.Result {
	f.t.Helper()
	f.clock.SetTime(f.clock.Now().Add(pause))
	return f.reconcileNow()
}

func (f *fixture) reconcileNow() reconcile.Result {
	f.t.Helper()
	result, err := f.Reconcile(f.t.Context(), request("shop"))
	must.Succeed(f.t, err)
	return result
}

// sizes are the lines of the NewPodSizes in the namespace shop, by name of the object.
func (f *fixture) sizes() map[string]string {
	f.t.Helper()
	var all v1beta1.NewPodSizesList
	must.Succeed(f.t, f.Client.List(f.t.Context(), &all, client.InNamespace("shop")))
	out := map[string]string{}
	for _, o := range all.Items {
		out[o.Name] = o.Spec.Deployments
	}
	return out
}

func (f *fixture) wants(when string, want map[string]string, writes int) {
	f.t.Helper()
	assert.Equal(f.t, when+": sizes", want, f.sizes())
	if f.writes != writes {
		f.t.Errorf("%s: %d writes, want %d", when, f.writes, writes)
	}
	f.writes = 0
}

func (f *fixture) edit(name string, change func(*v1beta1.VerticalScaler)) {
	f.t.Helper()
	var s v1beta1.VerticalScaler
	must.Succeed(f.t, f.Client.Get(f.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &s))
	change(&s)
	must.Succeed(f.t, f.Client.Update(f.t.Context(), &s))
	f.writes = 0
}

// scalerOf is a scaler with that name and Deployment that gives new pods so much CPU.
func scalerOf(name, cpu string) *v1beta1.VerticalScaler {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: name, Scaling: v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: "Initial"}}},
		Status: v1beta1.VerticalScalerStatus{
			ObservedGeneration: 1,
			Annotations:        map[string]string{v1beta1.ClaimAnnotation: "shop/" + name},
			NewPods: &v1beta1.NewPods{Containers: []v1beta1.NewPodContainer{
				{ContainerName: "app", Requests: v1beta1.Amounts{CPU: new(resource.MustParse(cpu))}},
			}},
		},
	}
}

func TestSizesFollowTheScalers(t *testing.T) {
	other := scalerOf("web", "9")
	other.Namespace = "lab"
	other.Status.Annotations[v1beta1.ClaimAnnotation] = "lab/web"
	waiting := scalerOf("waiting", "1")
	waiting.Status.NewPods = nil
	f := newFixture(t, scalerOf("web", "1"), scalerOf("api", "2"), other, waiting)
	f.reconcile()
	f.wants("at first", map[string]string{"verticalscaler": "\napi/5 app,2,,,\nweb/5 app,1,,,\n"}, 1)
	f.reconcile()
	f.wants("when nothing changes", map[string]string{"verticalscaler": "\napi/5 app,2,,,\nweb/5 app,1,,,\n"}, 0)

	f.edit("web", func(s *v1beta1.VerticalScaler) {
		s.Status.NewPods.Containers[0].Requests.CPU = new(resource.MustParse("1500m"))
	})
	f.reconcile()
	f.wants("another size", map[string]string{"verticalscaler": "\napi/5 app,2,,,\nweb/5 app,1500m,,,\n"}, 1)

	// The status is about the Deployment that the scaler named before.
	f.edit("web", func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "store" })
	f.reconcile()
	f.wants("another Deployment", map[string]string{"verticalscaler": "\napi/5 app,2,,,\n"}, 1)

	for _, name := range []string{"web", "api"} {
		must.Succeed(t, f.Client.Delete(t.Context(), &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}))
	}
	f.writes = 0
	f.reconcile()
	f.wants("no scaler", map[string]string{}, 1)
	f.reconcile() // by the event of the deletion
	if at, isKept := f.written.Load("shop"); isKept {
		t.Errorf("of a namespace without sizes, this is kept: %v", at)
	}
}

// With no operator to delete it, the garbage collector does, once the scalers are gone.
func TestSizesBelongToTheirScalers(t *testing.T) {
	f := newFixture(t)
	owners := func() (names []string) {
		var o v1beta1.NewPodSizes
		must.Succeed(t, f.Client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "verticalscaler"}, &o))
		for _, owner := range o.OwnerReferences {
			if owner.Kind != "VerticalScaler" || owner.UID != types.UID("uid-"+owner.Name) || owner.Controller != nil || owner.BlockOwnerDeletion != nil {
				t.Errorf("owned by %+v", owner)
			}
			names = append(names, owner.Name)
		}
		return names
	}
	var all []*v1beta1.VerticalScaler
	for _, name := range strings.Split("jihgfedcba", "") {
		s := scalerOf(name, "1")
		s.UID = types.UID("uid-" + name)
		all = append(all, s)
		must.Succeed(t, f.Client.Create(t.Context(), s))
	}
	f.reconcile()
	assert.Equal(t, "owners", strings.Split("abcdefgh", ""), owners())
	must.Succeed(t, f.Client.Delete(t.Context(), all[8]))
	f.reconcile()
	assert.Equal(t, "owners once b is deleted", strings.Split("acdefghi", ""), owners())
	f.writes = 0
	f.reconcile()
	if f.writes != 0 {
		t.Errorf("%d writes when nothing changes", f.writes)
	}
}

// Changes by another client are corrected. An object of another client stays.
func TestChangedSizesAreWrittenAgain(t *testing.T) {
	right := map[string]string{"verticalscaler": "\nweb/5 app,1,,,\n", "theirs": "\nweb/5 app,8,,,\n"}
	owners := []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScaler", Name: "web"}}
	object := func(name, text string, labels map[string]string) *v1beta1.NewPodSizes {
		return &v1beta1.NewPodSizes{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels, OwnerReferences: owners},
			Spec:       v1beta1.NewPodSizesSpec{Deployments: text},
		}
	}
	for name, found := range map[string]*v1beta1.NewPodSizes{
		"another text":  object("verticalscaler", "\nweb/5 app,7,,,\n", Labels()),
		"without label": object("verticalscaler", "\nweb/5 app,1,,,\n", nil),
		"another name":  object("verticalscaler-2", "\nweb/5 app,7,,,\n", Labels()),
		"none of both":  object("verticalscaler-2", "\nweb/5 app,7,,,\n", nil),
	} {
		right := map[string]string{found.Name: right["verticalscaler"], "theirs": right["theirs"]}
		f := newFixture(t, scalerOf("web", "1"), found, object("theirs", right["theirs"], map[string]string{"mine": "yes"}))
		f.reconcile()
		f.wants(name, right, 1)
		f.reconcile()
		f.wants(name+", once it is right", right, 0)
		must.Succeed(t, f.Client.Delete(t.Context(), scalerOf("web", "1")))
		f.reconcile()
		if _, isLeft := f.sizes()[found.Name]; isLeft {
			t.Errorf("%s: the object stays without its scaler", name)
		}
	}
}

// Many changes at once become one write in five seconds, and the last one is not lost.
func TestWritesAreGathered(t *testing.T) {
	f := newFixture(t, scalerOf("web", "1"))
	f.reconcile()
	f.wants("at first", map[string]string{"verticalscaler": "\nweb/5 app,1,,,\n"}, 1)
	var result reconcile.Result
	for i := range 4 {
		f.edit("web", func(s *v1beta1.VerticalScaler) {
			s.Status.NewPods.Containers[0].Requests.CPU = new(resource.MustParse(fmt.Sprint(i + 2)))
		})
		f.clock.SetTime(f.clock.Now().Add(time.Second))
		result = f.reconcileNow()
	}
	f.wants("within the pause", map[string]string{"verticalscaler": "\nweb/5 app,1,,,\n"}, 0)
	if result.RequeueAfter != pause-4*time.Second {
		t.Errorf("again in %s", result.RequeueAfter)
	}
	f.clock.SetTime(f.clock.Now().Add(result.RequeueAfter))
	f.reconcileNow()
	f.wants("after it", map[string]string{"verticalscaler": "\nweb/5 app,5,,,\n"}, 1)
}

// A namespace that is too large for one object has several. A line stays, or is written elsewhere before it is removed, so
// that every Deployment has its size after any write.
func TestALargeNamespaceHasSeveralObjects(t *testing.T) {
	f := newFixture(t, scalerOf("a", "1"), scalerOf("b", "2"), scalerOf("d", "4"), scalerOf("e", "5"))
	f.Longest = 29 // two lines
	f.reconcile()
	f.wants("at first", map[string]string{"verticalscaler": "\na/5 app,1,,,\nb/5 app,2,,,\n", "verticalscaler-2": "\nd/5 app,4,,,\ne/5 app,5,,,\n"}, 2)

	// always makes one write after the other, and looks at the Deployments after each.
	always := func(names ...string) {
		t.Helper()
		for range 4 {
			f.clock.SetTime(f.clock.Now().Add(pause))
			f.writes, f.most = 0, 1
			_, _ = f.Reconcile(t.Context(), request("shop"))
			all := strings.Join(slices.Collect(maps.Values(f.sizes())), "")
			for _, name := range names {
				if !strings.Contains(all, "\n"+name+"/5 app,") {
					t.Errorf("Deployment %s has lost its size: %q", name, all)
				}
			}
		}
		f.most = 0
	}
	must.Succeed(t, f.Client.Create(t.Context(), scalerOf("c", "3")))
	always("a", "b", "d", "e")
	f.writes = 0
	f.wants("with one more", map[string]string{
		"verticalscaler": "\na/5 app,1,,,\nb/5 app,2,,,\n", "verticalscaler-2": "\nd/5 app,4,,,\ne/5 app,5,,,\n", "verticalscaler-3": "\nc/5 app,3,,,\n",
	}, 0)
	f.edit("a", func(s *v1beta1.VerticalScaler) {
		s.Status.NewPods.Containers[0].Requests.CPU = new(resource.MustParse("1001m"))
	})
	always("a", "b", "c", "d", "e")
	f.writes = 0
	f.wants("with a longer line", map[string]string{
		"verticalscaler": "\na/5 app,1001m,,,\n", "verticalscaler-2": "\nd/5 app,4,,,\ne/5 app,5,,,\n", "verticalscaler-3": "\nb/5 app,2,,,\nc/5 app,3,,,\n",
	}, 0)
	for _, name := range []string{"a", "d"} {
		must.Succeed(t, f.Client.Delete(t.Context(), &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}))
	}
	always("b", "c", "e")
	f.writes = 0
	f.wants("with fewer", map[string]string{"verticalscaler-2": "\ne/5 app,5,,,\n", "verticalscaler-3": "\nb/5 app,2,,,\nc/5 app,3,,,\n"}, 0)
}

// A line moves to an object that loses another one. The second write fails.
func TestALineThatMovesSurvivesAFault(t *testing.T) {
	f := newFixture(t, scalerOf("a", "1"), scalerOf("b", "2"), scalerOf("d", "4"), scalerOf("e", "5"))
	f.Longest = 29 // two lines
	f.reconcile()
	f.edit("a", func(s *v1beta1.VerticalScaler) {
		s.Status.NewPods.Containers[0].Requests.CPU = new(resource.MustParse("1001m"))
	})
	must.Succeed(t, f.Client.Delete(t.Context(), scalerOf("e", "5")))
	for _, most := range []int{1, 0} {
		f.clock.SetTime(f.clock.Now().Add(pause))
		f.writes, f.most = 0, most
		_, _ = f.Reconcile(t.Context(), request("shop"))
		if got := slices.Sorted(maps.Keys(f.lines())); !slices.Contains(got, "b") || most == 0 && !slices.Equal(got, []string{"a", "b", "d"}) {
			t.Errorf("after at most %d writes, Deployments %q have a size: %q", most, got, f.sizes())
		}
	}
}

// No write takes away the line of a Deployment that has one, although several change at once, and any write may fail.
func TestNoWriteTakesALineAway(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for i := range seeds {
		seed := uint64(i)
		random := rand.New(rand.NewPCG(seed, 5))
		f := newFixture(t)
		f.Longest = 60 + random.IntN(60)
		scalers := sets.New[string]()
		for round := range 12 {
			kept := f.lines()
			maps.DeleteFunc(kept, func(name, _ string) bool { return !scalers.Has(name) }) // still to be removed
			for range 1 + random.IntN(4) {
				name := fmt.Sprintf("web-%d", random.IntN(12))
				s := scalerOf(name, fmt.Sprint(1+random.IntN(2000), "m"))
				switch {
				case !scalers.Has(name):
					must.Succeed(t, f.Client.Create(t.Context(), s))
					scalers.Insert(name)
				case random.IntN(3) == 0:
					must.Succeed(t, f.Client.Delete(t.Context(), s))
					scalers.Delete(name)
					delete(kept, name)
				default:
					f.edit(name, func(stored *v1beta1.VerticalScaler) {
						stored.Status.NewPods.Containers[0].ContainerName = strings.Repeat("x", 1+random.IntN(12))
					})
				}
			}
			for range 3 { // Each attempt ends at any write.
				f.writes, f.most = 0, 1+random.IntN(3)
				f.clock.SetTime(f.clock.Now().Add(pause))
				_, _ = f.Reconcile(t.Context(), request("shop"))
				now := f.lines()
				for name := range kept {
					if now[name] == "" {
						t.Fatalf("seed %d, round %d: the line of %s is gone: %q", seed, round, name, f.sizes())
					}
				}
			}
			f.most = 0
		}
	}
}

// lines are the lines of all objects, by Deployment.
func (f *fixture) lines() map[string]string {
	out := map[string]string{}
	for _, text := range f.sizes() {
		for line := range strings.Lines(text) {
			if name := admission.DeploymentOf(line); name != "" {
				out[name] = line
			}
		}
	}
	return out
}

func TestWhatTheAPIServerRefuses(t *testing.T) {
	sizes := schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "newpodsizes"}
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"an old cache":      {apierrors.NewConflict(sizes, "verticalscaler", errors.New("changed")), 50 * time.Millisecond},
		"a missing right":   {apierrors.NewForbidden(sizes, "verticalscaler", errors.New("no right")), rejectedRetry},
		"a deleted one":     {apierrors.NewNotFound(sizes, "verticalscaler"), 50 * time.Millisecond},
		"one that is there": {apierrors.NewAlreadyExists(sizes, "verticalscaler"), 50 * time.Millisecond},
	} {
		f := newFixture(t, scalerOf("web", "1"), &v1beta1.NewPodSizes{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "verticalscaler", Labels: Labels()}, Spec: v1beta1.NewPodSizesSpec{Deployments: "\nold/5 app,1,,,\n"},
		})
		f.fails = tc.err
		if result := f.reconcile(); result.RequeueAfter != tc.want {
			t.Errorf("%s: again in %s, want %s", name, result.RequeueAfter, tc.want)
		}
	}
}

// Scalers report that their sizes cannot be written, until they can.
func TestScalersLearnOfARefusal(t *testing.T) {
	f := newFixture(t, scalerOf("web", "1"))
	woken := make(chan event.GenericEvent, 10)
	f.Wake = woken
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "newpodsizes"}, "verticalscaler", errors.New("no right"))
	for _, step := range []struct {
		when   string
		fails  error
		reason string
		wakes  int
	}{
		{"refused", refusal, v1beta1.ReasonRejected, 1},
		{"refused again", refusal, v1beta1.ReasonRejected, 0},
		{"an old cache", apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("old")), v1beta1.ReasonRejected, 0},
		{"accepted", nil, "", 1},
		{"written", nil, "", 0},
	} {
		f.fails = step.fails
		f.reconcile()
		if got := f.Refused("shop"); got.Reason != step.reason || (got.Reason != "") != strings.Contains(got.Message, "no right") {
			t.Errorf("%s: %+v, want %q", step.when, got, step.reason)
		}
		for range step.wakes {
			select {
			case e := <-woken:
				if e.Object.GetName() != "web" {
					t.Errorf("%s: %s is woken", step.when, e.Object.GetName())
				}
			default:
				t.Errorf("%s: nobody is woken", step.when)
			}
		}
		if len(woken) > 0 {
			t.Errorf("%s: %d more are woken", step.when, len(woken))
		}
	}
	if got := f.Refused("other"); got.Reason != "" {
		t.Errorf("another namespace: %+v", got)
	}

	// The size of a scaler without sizes cannot be removed.
	f.edit("web", func(s *v1beta1.VerticalScaler) { s.Status.NewPods = nil })
	f.fails = refusal
	f.reconcile()
	if got := f.Refused("shop"); got.Reason != v1beta1.ReasonRejected || len(woken) != 1 {
		t.Errorf("not removed: %+v, and %d are woken", got, len(woken))
	}
}

// Exactly the changes of lines trigger a namespace.
func TestWhichChangesMatter(t *testing.T) {
	p := sizesPredicate()
	plain := scalerOf("web", "1")
	plain.Status.NewPods = nil
	for name, tc := range map[string]struct {
		before, after *v1beta1.VerticalScaler
		want          bool
	}{
		"another size":        {scalerOf("web", "1"), scalerOf("web", "2"), true},
		"the first size":      {plain, scalerOf("web", "1"), true},
		"no size anymore":     {scalerOf("web", "1"), plain, true},
		"another recommend":   {scalerOf("web", "1"), with(scalerOf("web", "1"), func(s *v1beta1.VerticalScaler) { s.Status.ObservedGeneration = 7 }), false},
		"another Deployment":  {scalerOf("web", "1"), with(scalerOf("web", "1"), func(s *v1beta1.VerticalScaler) { s.Spec.DeploymentName = "b" }), true},
		"deleted, not gone":   {scalerOf("web", "1"), with(scalerOf("web", "1"), func(s *v1beta1.VerticalScaler) { s.DeletionTimestamp = &metav1.Time{Time: noon} }), true},
		"no size, and edited": {plain, with(plain.DeepCopy(), func(s *v1beta1.VerticalScaler) { s.Generation = 9 }), false},
	} {
		if got := p.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if !p.Delete(event.DeleteEvent{Object: scalerOf("web", "1")}) || !p.Create(event.CreateEvent{Object: scalerOf("web", "1")}) || p.Create(event.CreateEvent{Object: plain}) {
		t.Error("creations and deletions")
	}
}

func with(s *v1beta1.VerticalScaler, change func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
	change(s)
	return s
}
