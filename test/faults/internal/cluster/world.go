// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster is what the fault runs happen in. A world is one namespace with untidy
// workloads, nodes that answer by a script, usage, and a recorder that
// sees everything that happens there. The scenarios and the oracles are those of package world.
//
// A run goes like this:
//
//	w, err := cluster.NewWorld(ctx, scenario)   // the namespace, and its recorder
//	err = w.SetUp()                             // the workloads run, nothing sizes them yet
//	                                            // start the operator with w.Config(), usage from w.Metrics()
//	err = w.Act()                               // the user acts
//	err = w.Converge(ctx)                       // waits until the scenario is done
//	err = w.StayQuiet(ctx)                      // waits for more usage: from here on, writes are violations
//	state, err := w.EndState(ctx)               // to be compared with the reference run
//	wrong := w.Violations()
//	err = w.Close(ctx)
package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
	"github.com/verticalscaler/verticalscaler-operator/test/world/monitor"
)

const (
	// roundsUntilQuiet is the number of requests for usage without a write that make an
	// operator quiet. The first may have been under way when the scenario converged.
	roundsUntilQuiet = 2
	// quietRounds is how many more requests for usage a quiet operator is watched for.
	quietRounds = 2
	// mebi is 1Mi in bytes.
	mebi = int64(1) << 20
)

// Cluster is a control plane that worlds are created in.
type Cluster struct {
	env   *testkit.Env
	api   client.WithWatch
	nodes *nodes
}

// Open prepares a control plane: it installs config/default and the components for new
// pods and evictions, without the operator's pod, and starts the scripted nodes. It changes
// objects of the whole cluster, so a cluster is opened once at a time.
func Open(t testing.TB, env *testkit.Env) *Cluster {
	t.Helper()
	if err := env.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, component := range []string{"new-pods", "recreate"} {
		for _, object := range env.Rendered(t, filepath.Join(testkit.Root(), "config", component)) {
			if err := grant(t.Context(), env.Client, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	nodes, err := startNodes(env.Client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nodes.stop)
	api, err := client.NewWithWatch(env.Config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return &Cluster{env: env, api: api, nodes: nodes}
}

// grant applies an object of a component. Its rights go to the operator's service account.
func grant(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	if object.GetKind() == "ClusterRoleBinding" {
		subject := map[string]any{"kind": "ServiceAccount", "namespace": testkit.System, "name": testkit.ServiceAccount}
		if err := unstructured.SetNestedSlice(object.Object, []any{subject}, "subjects"); err != nil {
			return fmt.Errorf("granting rights: %w", err)
		}
	}
	config := client.ApplyConfigurationFromUnstructured(object)
	if err := c.Apply(ctx, config, client.FieldOwner("testkit"), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// World is one namespace, from its creation to its deletion.
type World struct {
	scenario  world.Scenario
	namespace string
	user      *world.User
	env       *testkit.Env
	config    operatorconfig.Operator
	node      *node
	source    *source
	recorder  *recorder
	monitor   *monitor.Monitor

	ctx    context.Context //nolint:containedctx // the world's life; scenarios use its client
	cancel context.CancelFunc

	audit auditTail

	mu       sync.Mutex
	quiet    time.Time // since when each write is a violation; zero before
	operator Operator
}

// NewWorld creates an empty namespace and starts to record what happens there.
func (c *Cluster) NewWorld(ctx context.Context, t testing.TB, scenario world.Scenario) (*World, error) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "world-"}}
	if err := c.env.Client.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("creating a namespace: %w", err)
	}
	w := &World{
		scenario: scenario, namespace: namespace.Name, env: c.env, config: config(), monitor: monitor.New(),
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.user = world.NewUser(w.ctx, stopping{t}, c.api, namespace.Name, w)
	if scenario.Config != nil {
		scenario.Config(&w.config)
	}
	w.node = newNode(c.api)
	w.source = newSource(w)
	w.recorder = newRecorder(w.node, w.monitor)
	w.audit.offset = int64(c.env.Mark())
	if err := w.recorder.watch(w.ctx, c.env.Config, w.namespace); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	go w.node.run(w.ctx)
	return w, w.Wait(ctx, "the namespace's service account", func(w *World) string {
		return textOf(c.api.Get(w.ctx, w.user.Key("default"), &corev1.ServiceAccount{}))
	})
}

// config is the configuration of a fault run's operator. Evidence is compressed: a second
// of usage, the shortest that the configuration accepts, is full evidence, and peaks are
// forgotten after four. Leader election is off, since a run has one operator at a time, and
// a killed one would block the next until its lease has run out.
func config() operatorconfig.Operator {
	c := operatorconfig.Default()
	c.Metrics.BindAddress, c.Metrics.Secure = "127.0.0.1:0", false
	c.Health.BindAddress = "0"
	c.LeaderElection.Enabled = false
	// A lost event is repaired by the resync: a run does not wait for it, unless it has to.
	c.ResyncPeriod.Duration = 5 * time.Second
	world.Compress(&c, time.Second)
	c.Budget.ChangesPerMinute, c.Budget.ChangesPerMinutePerNamespace = 100000, 100000
	return c
}

// Namespace is the world's namespace. It is the only one that the operator should watch.
func (w *World) Namespace() string { return w.namespace }

// Config is the configuration of the operator for the world's scenario. Addresses may be
// changed, and leader election may be enabled.
func (w *World) Config() operatorconfig.Operator { return w.config }

// Observe tells the world about the operator of the run, for the oracles that check its
// process. Without it, they are not checked.
func (w *World) Observe(o Operator) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.operator = o
}

// Wait waits until what answers "". It returns an error with the last answer when the
// context ends.
func (w *World) Wait(ctx context.Context, what string, answer func(w *World) string) error {
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for {
		last := answer(w)
		if last == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %s", what, context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// Converge waits until the scenario is done.
func (w *World) Converge(ctx context.Context) error {
	return w.Wait(ctx, "scenario "+w.scenario.Name, (*World).isDone)
}

// isDone expects the scenario to be done.
func (w *World) isDone() (lacks string) {
	if err := w.try(func() { lacks = w.scenario.IsDone(w.user) }); err != nil {
		return err.Error()
	}
	return lacks
}

// stopping ends what a user does instead of the test, which may be in another goroutine.
type stopping struct{ testing.TB }

// stop is what a user ends with.
type stop struct{ error }

// Fatalf implements testing.TB.
func (stopping) Fatalf(format string, args ...any) { panic(stop{fmt.Errorf(format, args...)}) }

// Fatal implements testing.TB.
func (stopping) Fatal(args ...any) { panic(stop{errors.New(fmt.Sprint(args...))}) }

// try lets a user do something.
func (w *World) try(do func()) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			stopped, ok := reason.(stop)
			if !ok {
				panic(reason)
			}
			err = stopped.error
		}
	}()
	do()
	return nil
}

// SetUp creates the scenario's workloads and waits until they run.
func (w *World) SetUp() error { return w.try(func() { w.scenario.Setup(w.user) }) }

// Act does what the scenario's users do.
func (w *World) Act() error { return w.try(func() { w.scenario.Act(w.user) }) }

// EndState reads the state of the world.
func (w *World) EndState(ctx context.Context) (world.State, error) { return w.user.EndState(ctx) }

// Ordinal implements world.Surroundings.
func (w *World) Ordinal(pod *corev1.Pod) int { return w.node.ordinal(pod) }

// Await implements world.Surroundings.
func (w *World) Await(what string, f func() string) {
	if err := w.Wait(w.ctx, what, func(*World) string { return f() }); err != nil {
		w.user.Fatal(err)
	}
}

// AwaitUsage implements world.Surroundings.
func (w *World) AwaitUsage(rounds int) {
	until := w.source.rounds() + rounds
	w.Await("rounds of usage", func() string {
		if n := w.source.rounds(); n < until {
			return fmt.Sprintf("%d rounds of usage, of %d", n, until)
		}
		return ""
	})
}

// StayQuiet waits until the operator has written nothing for some rounds of usage. From then
// on, each write is a violation, so call it once the faults are over. It then waits for as
// many more rounds.
func (w *World) StayQuiet(ctx context.Context) error {
	began, written := w.newRounds(), math.MaxInt
	if err := w.Wait(ctx, "a quiet operator", func(w *World) string {
		writes, err := w.writes()
		if err != nil {
			return err.Error()
		}
		if n := len(world.Unexplained(w.recorder.history(), writes, time.Time{})); n != written {
			began, written = w.newRounds(), n
			return "the operator has just written"
		}
		if n := began(); n < roundsUntilQuiet {
			return fmt.Sprintf("it is quiet for %d rounds of usage", n)
		}
		return w.isDone()
	}); err != nil {
		return err
	}
	w.mu.Lock()
	w.quiet = time.Now()
	w.mu.Unlock()
	more := w.newRounds()
	return w.Wait(ctx, "usage to be read again", func(w *World) string {
		if n := more(); n < quietRounds {
			return fmt.Sprintf("%d rounds of usage, of %d", n, quietRounds)
		}
		return ""
	})
}

// newRounds counts rounds of usage from now on. Without any scaler, nothing reads usage:
// then the time counts in which the operator could have read it.
func (w *World) newRounds() func() int {
	from, since := w.source.rounds(), time.Now()
	return func() int {
		return max(w.source.rounds()-from, int(time.Since(since)/(3*w.config.Collection.Interval.Duration/2)))
	}
}

// Close stops recording and deletes what the world consists of. It does not wait until all
// is gone. Scalers with a finalizer are released, since their operator may be gone.
func (w *World) Close(ctx context.Context) error {
	w.cancel()
	var errs []error
	var scalers v1beta1.VerticalScalerList
	errs = append(errs, w.user.Client.List(ctx, &scalers, client.InNamespace(w.namespace)))
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for i := range scalers.Items {
		errs = append(errs, client.IgnoreNotFound(w.user.Client.Patch(ctx, &scalers.Items[i], release)))
	}
	for _, kind := range []client.Object{&v1beta1.ScaledDeployment{}, &v1beta1.VerticalScaler{}, &appsv1.Deployment{}} {
		errs = append(errs, w.user.Client.DeleteAllOf(ctx, kind, client.InNamespace(w.namespace)))
	}
	errs = append(errs, w.user.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(w.namespace), client.GracePeriodSeconds(0)))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	errs = append(errs, client.IgnoreNotFound(w.user.Client.Delete(ctx, namespace)))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("deleting world %s: %w", w.namespace, err)
	}
	return nil
}

func textOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
