// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world is what the fault runs happen in. A world is one namespace with untidy
// workloads, nodes that answer by a script, usage that a test distorts, and a recorder that
// sees everything that happens there. Scenarios say what a user does and when the operator
// has converged. Oracles check the whole record of a run, not only its end.
//
// A run goes like this:
//
//	w, err := cluster.NewWorld(ctx, scenario)   // the namespace, and its recorder
//	err = scenario.Setup(w)                     // the workloads run, nothing sizes them yet
//	                                            // start the operator with w.Config(), usage from w.Metrics()
//	err = scenario.Act(w)                       // the user acts
//	err = w.Converge(ctx, scenario.Done)        // waits until Done says ""
//	err = w.StayQuiet(ctx)                      // waits for more usage: from here on, writes are violations
//	state, err := w.EndState(ctx)               // to be compared with the reference run
//	wrong := w.Violations()
//	err = w.Close(ctx)
package world

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/monitor"
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
	return &Cluster{env: env, nodes: nodes}
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
	scenario  Scenario
	namespace string
	client    client.Client
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
func (c *Cluster) NewWorld(ctx context.Context, scenario Scenario) (*World, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "world-"}}
	if err := c.env.Client.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("creating a namespace: %w", err)
	}
	w := &World{
		scenario: scenario, namespace: namespace.Name, client: c.env.Client, env: c.env,
		config: config(), monitor: monitor.New(),
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	if scenario.Config != nil {
		scenario.Config(&w.config)
	}
	w.node = newNode(w.client, c.nodes)
	w.source = newSource(w)
	w.recorder = newRecorder(w.node, w.monitor)
	w.audit.offset = int64(c.env.Mark())
	if err := w.recorder.watch(w.ctx, c.env.Config, w.namespace); err != nil {
		return nil, errors.Join(err, w.Close(ctx))
	}
	go w.node.run(w.ctx)
	return w, w.Wait(ctx, "the namespace's service account", func(w *World) string {
		return textOf(w.client.Get(w.ctx, w.key("default"), &corev1.ServiceAccount{}))
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
	c.Provision.Monitoring, c.Provision.NetworkPolicy = false, false
	c.Collection.Interval.Duration = time.Second
	// A lost event is repaired by the resync: a run does not wait for it, unless it has to.
	c.ResyncPeriod.Duration = 5 * time.Second
	r := &c.Recommendation
	// The second round of usage is the first with CPU: both resources are decided at once.
	r.MinEvidence.Duration = 500 * time.Millisecond
	r.FullEvidence.Duration, r.ConfidenceUnit.Duration = time.Second, time.Second
	r.CPUHalfLife.Duration, r.RecentHalfLife.Duration = time.Second, time.Second
	r.MemoryWindow.Duration, r.OOMHalfLife.Duration = 4*time.Second, time.Hour
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

// isDone expects the scenario to be done, and the API server to be told of it.
func (w *World) isDone() string { return firstOf(w.scenario.Done(w), w.isTold()) }

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
		if n := len(unexplained(w.recorder.history(), writes, time.Time{})); n != written {
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
	errs = append(errs, w.client.List(ctx, &scalers, client.InNamespace(w.namespace)))
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for i := range scalers.Items {
		errs = append(errs, client.IgnoreNotFound(w.client.Patch(ctx, &scalers.Items[i], release)))
	}
	for _, kind := range []client.Object{&v1beta1.ScaledDeployment{}, &v1beta1.VerticalScaler{}, &appsv1.Deployment{}} {
		errs = append(errs, w.client.DeleteAllOf(ctx, kind, client.InNamespace(w.namespace)))
	}
	errs = append(errs, w.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(w.namespace), client.GracePeriodSeconds(0)))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	errs = append(errs, client.IgnoreNotFound(w.client.Delete(ctx, namespace)))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("deleting world %s: %w", w.namespace, err)
	}
	return nil
}

func (w *World) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

// create creates objects, in order.
func (w *World) create(objects ...client.Object) error {
	for _, object := range objects {
		if err := w.client.Create(w.ctx, object, client.FieldOwner("user")); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// remove deletes an object as kubectl does.
func (w *World) remove(object client.Object) error {
	if err := w.client.Delete(w.ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// patch sends a merge patch, as a user of kubectl patch.
func (w *World) patch(object client.Object, format string, args ...any) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
	if err := w.client.Patch(w.ctx, object, patch, client.FieldOwner("user")); err != nil {
		return fmt.Errorf("patching %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// isGone describes an object that still exists; "" if it does not.
func (w *World) isGone(object client.Object) string {
	err := w.client.Get(w.ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%T %s is still there", object, object.GetName())
}

// podsOf returns the pods of a Deployment that are not being deleted, oldest first by the
// node's count.
func (w *World) podsOf(deployment string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := w.client.List(w.ctx, &list, client.InNamespace(w.namespace), client.MatchingLabels{appLabel: deployment}); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", deployment, err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return w.node.ordinal(&a) - w.node.ordinal(&b) })
	return pods, nil
}

func textOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
