// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
)

// operator is a running operator on a fleet in memory. All of it is the operator's own, from its caches
// to its controllers; it has collected usage and has nothing left to do.
type operator struct {
	api     *api
	usage   *steadyUsage
	scalers int
	captured
	stop func()
}

// captured is what the operator adds to its manager, to be called directly.
type captured struct {
	reconciler reconcile.Reconciler
	collector  *collect.Collector
}

// capturing is a manager that notes the controller of scalers and the collector.
type capturing struct {
	ctrl.Manager
	captured *captured
}

// Add implements manager.Manager.
func (m capturing) Add(runnable manager.Runnable) error {
	switch r := runnable.(type) {
	case *collect.Collector:
		m.captured.collector = r
	case controller.Controller:
		if m.captured.reconciler == nil { // the controller of ScaledDeployments comes second
			m.captured.reconciler = r
		}
	}
	return m.Manager.Add(runnable)
}

// serveFleet adds the objects of n scalers to the server, and a node. Without pods, the Deployments have
// just been created.
func serveFleet(a *api, n int, hasPods bool) {
	serve(a, 1, func(int) *corev1.Node {
		size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi")}
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", ResourceVersion: "1"}, Status: corev1.NodeStatus{Allocatable: size, Capacity: size}}
	})
	serve(a, n, fleet.Deployment)
	serve(a, n, fleet.ReplicaSet)
	serve(a, n, fleet.Scaler)
	if hasPods {
		serve(a, n*fleet.Pods, fleet.Pod)
	}
}

// settled starts an operator with the scalers that a server has, and returns it when it has nothing left
// to do.
func settled(b testing.TB, a *api, scalers int, hasPods bool) *operator {
	b.Helper()
	ctrl.SetLogger(logr.Discard())
	o := &operator{api: a, scalers: scalers, usage: &steadyUsage{scalers: scalers, start: time.Now().Truncate(time.Second)}}
	c, scope := testkit.OperatorConfig(), app.Scope{}
	mgr, err := app.NewManager(a.config(), c, scope)
	if err != nil {
		b.Fatal(err)
	}
	o.stop = run(b, mgr, func(ctx context.Context) error {
		_, err := app.Setup(ctx, capturing{mgr, &o.captured}, c, app.Options{Source: o.usage}, scope)
		return err
	})
	// The controller starts its watches in the background, and this goroutine reconciles without waiting for it.
	for _, kind := range []client.Object{
		&v1beta1.VerticalScaler{}, &appsv1.Deployment{}, &corev1.LimitRange{}, &corev1.ResourceQuota{}, &autoscalingv2.HorizontalPodAutoscaler{},
	} {
		if _, err := mgr.GetCache().GetInformer(b.Context(), kind); err != nil {
			b.Fatalf("caching %T: %v", kind, err)
		}
	}
	o.settle(b, hasPods)
	return o
}

// run sets a manager up and starts it. It returns when the caches have synced.
func run(b testing.TB, mgr ctrl.Manager, setup func(context.Context) error) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if err := setup(ctx); err != nil {
		cancel()
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(stop)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		b.Fatal("the caches do not sync")
	}
	<-mgr.Elected()
	return stop
}

// settle collects usage and reconciles all scalers until two rounds write nothing. The first minutes of usage
// lead to nothing.
func (o *operator) settle(b testing.TB, hasPods bool) {
	b.Helper()
	const most = 60
	least := 0
	if hasPods {
		least = 6
	}
	for round, quiet := 0, 0; quiet < 2; round++ {
		before, what := o.api.written()
		if round == most {
			b.Fatalf("the operator still writes after %d rounds: %s", round, what)
		}
		o.usage.round.Add(1)
		o.collector.Collect(b.Context())
		for i := range o.scalers {
			o.reconcile(b, i)
		}
		time.Sleep(20 * time.Millisecond) // lets the caches see the writes
		if after, _ := o.api.written(); after == before && round >= least {
			quiet++
		} else {
			quiet = 0
		}
	}
}

// reconcile reconciles a scaler in this goroutine.
func (o *operator) reconcile(b testing.TB, i int) {
	b.Helper()
	if _, err := o.reconciler.Reconcile(b.Context(), reconcile.Request{NamespacedName: fleet.Key(i)}); err != nil {
		b.Fatal(err)
	}
}

// steadyUsage is a source of usage: what all containers of the fleet use leads to about what they
// request. It remembers no samples. Each round is a minute later than the one before.
type steadyUsage struct {
	scalers int
	start   time.Time
	round   atomic.Int64
}

// List implements collect.Source.
func (u *steadyUsage) List(_ context.Context, namespace string, _ time.Time) (samples []usage.Sample, refused []usage.Refused, err error) {
	var n int
	if _, err := fmt.Sscanf(namespace, "team-%d", &n); err != nil {
		return nil, nil, fmt.Errorf("no usage in namespace %s: %w", namespace, err)
	}
	for i := n * fleet.PerNamespace; i < min(u.scalers, (n+1)*fleet.PerNamespace); i++ {
		for j := range fleet.Pods {
			for c := range fleet.Containers {
				samples = append(samples, usage.Sample{
					Namespace: namespace, Pod: fleet.PodName(i, j), Container: fleet.ContainerName(c),
					Time: u.start.Add(time.Duration(u.round.Load()) * time.Minute), Window: 30 * time.Second, CPUMillis: fleet.CPUMillis, MemoryBytes: fleet.MemoryBytes,
				})
			}
		}
	}
	return samples, nil, nil
}
