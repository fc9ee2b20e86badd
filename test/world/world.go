// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world is the world around the operator in tests: a namespace whose controllers, kubelets and usage are
// scripts, and an operator that is reconciled when the test says so. It runs on any client: of a real API server, or of
// a fake one.
//
// Nothing happens by itself. Settle lets controllers, kubelets and the operator work until none has anything to do, and
// Minutes lets time pass, with one round of usage a minute. So a test never waits, and is the same on a busy machine.
// That nothing happens is shown by settling again, and counting no writes.
//
//	w := world.New(t, api, namespace)
//	w.Deploy(deployment)            // pods run
//	w.Uses("web", "app", 500, 300)  // CPU in thousandths, memory in mebibytes
//	w.Create(scaler)
//	w.Minutes(3)
//	w.Sized("web")
package world

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// restless is how many rounds of work in a row are taken for a loop that never ends.
const restless = 40

// soon is the longest delay of a reconcile that Settle does not leave to Minutes: the operator goes on by itself.
const soon = 10 * time.Second

// World is one namespace.
type World struct {
	testing.TB
	Options

	// Namespace is where everything happens.
	Namespace string
	// Client is an administrator's.
	Client client.WithWatch

	// Clock is the time of operator, kubelets and usage. It moves only in Settle, Minutes and Pass.
	Clock *clocktesting.FakeClock
	// Usage is the usage of the pods.
	Usage *Usage
	// Kubelet plays the kubelets.
	Kubelet *Kubelet
	// Controllers plays the controllers of Kubernetes. Without it, they are real.
	Controllers *Controllers
	// Others act in each round of work: other controllers and tools, which the test plays.
	Others []func()
	// Operator is the running process; nil while there is none.
	Operator *Operator
	// Fault decides what happens to each write of the operator; nil for nothing special.
	Fault func(w Write, n int, send func() error) error

	ctx     context.Context //nolint:containedctx // it ends with the test
	mu      sync.Mutex      // guards a world in real time from the process that asks for usage
	config  operatorconfig.Operator
	cache   *cache
	writes  []Write
	numbers map[string]int // of the operator's writes, by kind
	events  []Event

	// api is the API server, if it is in memory.
	api *API
	// views are the states of the API server at the beginning of the last rounds, the newest last.
	views []*view
	// trimmed are objects as they are in the cache.
	trimmed map[client.Object]client.Object
	changes []Change
	// unrequested describes changes by resizes that their patches do not request.
	unrequested []string

	isOurs bool      // the operator writes now
	quiet  time.Time // since when each write is a violation; zero if it never was
}

// Options are the differences of a world from the usual one.
type Options struct {
	// Configure changes the operator's configuration.
	Configure func(*operatorconfig.Operator)
	// ActsAs is the client of the operator, if it is not an administrator.
	ActsAs client.WithWatch
	// StartingAt is the time at the beginning; the real time if it is zero.
	StartingAt time.Time
	// Lag is how many rounds of work the operator's cache is behind the API server, which must be in memory.
	Lag int
	// RealTime waits until f describes nothing that is wrong, and fails the test if that takes too long. It is for a world in
	// real time, whose operator the test starts; nil for the world's own clock and operator.
	RealTime func(f func() string)
}

// New returns a world with an operator in an existing namespace.
func New(t testing.TB, api client.WithWatch, namespace string, options Options) *World {
	t.Helper()
	if options.StartingAt.IsZero() {
		options.StartingAt = time.Now().Truncate(time.Second)
	}
	w := &World{
		TB: t, Options: options, Namespace: namespace, Client: api, ctx: t.Context(),
		Clock: clocktesting.NewFakeClock(options.StartingAt), config: operatorconfig.Default(), numbers: map[string]int{},
		trimmed: map[client.Object]client.Object{},
	}
	if w.api, _ = api.(*API); w.api != nil {
		w.record()
	}
	if w.ActsAs == nil {
		w.ActsAs = api
	}
	// Only tests of the budget wait for it.
	w.config.Budget.ChangesPerMinute, w.config.Budget.ChangesPerMinutePerNamespace = 100000, 100000
	if w.Configure != nil {
		w.Configure(&w.config)
	}
	w.cache = &cache{api: api, namespace: namespace, view: view{objects: map[schema.GroupKind][]client.Object{}}}
	w.cache.forget()
	w.Usage = newUsage(w)
	w.Kubelet = newKubelet(w)
	w.Controllers = &Controllers{world: w}
	if w.RealTime == nil {
		w.Start()
	}
	t.Cleanup(func() {
		for _, violation := range w.monitor() {
			t.Errorf("the monitor: %s", violation)
		}
	})
	return w
}

// Enter moves the world to another namespace, with the same operator. Its earlier changes, writes and events are forgotten.
func (w *World) Enter(namespace string) {
	w.Namespace, w.cache.namespace = namespace, namespace
	w.changes, w.writes, w.events = nil, nil, nil
	clear(w.trimmed)
	w.cache.forget()
}

// Start starts the operator.
func (w *World) Start() {
	w.Helper()
	w.Operator = newOperator(w)
}

// Stop stops the operator. State that it has not written is lost.
func (w *World) Stop() { w.Operator = nil }

// Restart stops the operator and starts another process.
func (w *World) Restart() {
	w.Helper()
	w.Stop()
	w.Start()
	w.Settle()
}

// Settle lets controllers, kubelets and the operator work until none has anything to do. The clock moves only if the
// operator asks to be called again within seconds.
func (w *World) Settle() {
	w.Helper()
	w.cache.forget() // the test may have written
	w.settle()
}

func (w *World) settle() {
	w.Helper()
	w.settleUntil(func() bool { return false })
}

// settleUntil settles, or stops after a round when something is so. It reports whether it is.
func (w *World) settleUntil(is func() bool) bool {
	w.Helper()
	before, was := w.versions(), map[types.UID]string{}
	quiet := 0
	for range restless {
		if is() {
			return true
		}
		process := w.Operator
		w.work()
		was = before
		if before = w.versions(); !maps.Equal(was, before) || w.Operator != process {
			quiet = 0
			continue // something has changed, or the process was killed
		}
		if quiet++; quiet <= w.Lag {
			continue // The operator has not seen yet what has changed.
		}
		again := time.Duration(0)
		if w.Operator != nil {
			again = w.Operator.again
		}
		if again == 0 || again > soon {
			return is()
		}
		w.Clock.Step(again)
	}
	maps.DeleteFunc(before, func(uid types.UID, version string) bool { return was[uid] == version })
	w.Fatalf("nobody comes to rest; these change all the time: %v; the last writes of the operator are %v, and its last errors %v",
		slices.Collect(maps.Values(before)), last(w.writes), last(w.Operator.Errors))
	return false
}

// work is one round of everybody's work.
func (w *World) work() {
	w.Helper()
	if w.Controllers != nil {
		must.Succeed(w, w.Controllers.work(w.ctx))
	}
	must.Succeed(w, w.Kubelet.work(w.ctx))
	for _, act := range w.Others {
		act()
		w.cache.forget()
	}
	if w.Operator == nil {
		return
	}
	w.Operator.reconcile(w.ctx)
	if w.Operator.killed {
		w.Start()
	}
}

// last is the end of a list.
func last[T any](list []T) []T { return list[max(0, len(list)-10):] }

// Minutes lets minutes pass, with one round of usage in each.
func (w *World) Minutes(n int) {
	w.Helper()
	w.Settle()
	for range n {
		w.beginMinute()
		w.settle()
	}
}

// beginMinute lets a minute pass, and collects usage.
func (w *World) beginMinute() {
	w.Clock.Step(time.Minute)
	if w.Operator != nil {
		w.Operator.collect(w.ctx)
	}
}

// Pass lets time pass without any usage, and everybody work then.
func (w *World) Pass(d time.Duration) {
	w.Helper()
	w.Clock.Step(d)
	w.Settle()
}

// patience is how many minutes of the world's clock pass at most until something must be so.
const patience = 180

// Until lets minutes pass until f describes nothing that is wrong. Unlike Await, it only asks once the world has settled.
func (w *World) Until(f func() string) {
	w.Helper()
	if w.RealTime != nil {
		w.RealTime(f)
		return
	}
	w.Settle()
	for range patience {
		if f() == "" {
			return
		}
		w.Minutes(1)
	}
	if wrong := f(); wrong != "" {
		w.Fatalf("after %d minutes: %s", patience, wrong)
	}
}

// Await lets everybody work, and minutes pass, only until f describes nothing that lacks: others may be in the middle of
// something then.
func (w *World) Await(what string, f func() string) {
	w.Helper()
	if w.RealTime != nil {
		w.RealTime(func() string {
			if wrong := f(); wrong != "" {
				return "awaiting " + what + ": " + wrong
			}
			return ""
		})
		return
	}
	w.cache.forget()
	wrong := ""
	is := func() bool { wrong = f(); return wrong == "" }
	for range patience {
		if w.settleUntil(is) {
			return
		}
		w.beginMinute()
	}
	w.Fatalf("after %d minutes, awaiting %s: %s", patience, what, wrong)
}

// Kill lets a container run out of memory. It restarts at once.
func (w *World) Kill(pod *corev1.Pod, container string) {
	w.Helper()
	current := &corev1.Pod{}
	must.Succeed(w, w.Client.Get(w.ctx, client.ObjectKeyFromObject(pod), current))
	OOMKill(current, container, w.Kubelet.now(current))
	must.Succeed(w, w.wrote(current, w.Client.Status().Update(w.ctx, current, client.FieldOwner("kubelet"))))
}

// Writes are the operator's writes so far, in order. Dry runs and events are not among them.
func (w *World) Writes() []Write { return w.writes }

// versions are the versions of the objects of the namespace, by UID.
func (w *World) versions() map[types.UID]string {
	w.Helper()
	if w.api != nil {
		return map[types.UID]string{"": fmt.Sprint(w.api.revision)}
	}
	versions := map[types.UID]string{}
	for _, list := range []client.ObjectList{
		&v1beta1.VerticalScalerList{}, &v1beta1.ScaledDeploymentList{}, &v1beta1.VerticalScalerCheckpointList{}, &v1beta1.NewPodSizesList{},
		&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{},
	} {
		must.Succeed(w, w.cache.List(w.ctx, list, client.InNamespace(w.Namespace)))
		for _, o := range itemsOf(list) {
			versions[o.GetUID()] = fmt.Sprintf("%T %s %s", o, o.GetName(), o.GetResourceVersion())
		}
	}
	return versions
}

// wrote notes a write of a controller or a kubelet to an object, and returns its error.
func (w *World) wrote(o client.Object, err error) error {
	w.cache.forgetKind(o)
	return err
}

// allPods lists the pods in the namespace. They must not be modified.
func (w *World) allPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := w.cache.List(ctx, &list, client.InNamespace(w.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list.Items, nil
}
