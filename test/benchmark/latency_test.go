// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package benchmark

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
)

// sizes are the numbers of Deployments to compare. Each Deployment has a scaler.
var sizes = []int{100, 1000, 5000}

// BenchmarkTemplateChangeToWrite measures the time from the API server's answer to a change
// of a Deployment's template until a watcher sees the status that the operator wrote for
// it.
//
// The sizes are measured side by side: each has its own API server and operator, and they
// take turns, so that other load on the machine affects all of them. The result is the
// ratio to the smallest size.
//
//	make test-integration PKG=./test/benchmark ARGS='-bench TemplateChange -benchtime 1500x'
func BenchmarkTemplateChangeToWrite(b *testing.B) {
	ctrl.SetLogger(logr.Discard())
	fixtures := make([]*fixture, len(sizes))
	for i, n := range sizes {
		fixtures[i] = newFixture(b, n)
	}
	took := make([][]time.Duration, len(sizes))
	for range 20 { // warm-up
		for _, w := range fixtures {
			w.change(b)
		}
	}
	b.ResetTimer()
	for range b.N {
		for i, w := range fixtures {
			took[i] = append(took[i], w.change(b))
		}
	}
	b.StopTimer()
	for i, n := range sizes {
		slices.Sort(took[i])
		p50, p99 := quantile(took[i], 0.50), quantile(took[i], 0.99)
		b.ReportMetric(ms(p50), fmt.Sprintf("p50-ms@%d", n))
		b.ReportMetric(ms(p99), fmt.Sprintf("p99-ms@%d", n))
		b.ReportMetric(float64(p50)/float64(quantile(took[0], 0.50)), fmt.Sprintf("p50-ratio@%d", n))
		b.ReportMetric(float64(p99)/float64(quantile(took[0], 0.99)), fmt.Sprintf("p99-ratio@%d", n))
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// fixture is an API server with n Deployments, their scalers, and an operator.
type fixture struct {
	env       *testkit.Env
	namespace []string
	n         int
	version   int
	seen      <-chan watch.Event
	random    *rand.Rand
}

func newFixture(b *testing.B, n int) *fixture {
	b.Helper()
	env, err := testkit.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := env.Stop(); err != nil {
			b.Error(err)
		}
	})
	w := &fixture{env: env, n: n, random: rand.New(rand.NewPCG(1, uint64(n)))}
	for range (n + fleet.PerNamespace - 1) / fleet.PerNamespace {
		w.namespace = append(w.namespace, env.Namespace(b))
	}
	testkit.InParallel(b, n, func(i int) error {
		if err := env.Client.Create(b.Context(), testkit.Deployment(w.namespace[i/fleet.PerNamespace], fleet.Name(i))); err != nil {
			return err
		}
		return env.Client.Create(b.Context(), testkit.Scaler(w.namespace[i/fleet.PerNamespace], fleet.Name(i), fleet.Name(i)))
	})
	env.StartOperator(b, testkit.OperatorConfig(), testkit.NewUsage())
	testkit.Eventually(b, 5*time.Minute, func() string { return w.unclaimed(b.Context()) })

	watching, err := client.NewWithWatch(env.Config, client.Options{Scheme: app.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	watcher, err := watching.Watch(b.Context(), &v1beta1.VerticalScalerList{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(watcher.Stop)
	w.seen = watcher.ResultChan()
	return w
}

func (w *fixture) unclaimed(ctx context.Context) string {
	var scalers v1beta1.VerticalScalerList
	if err := w.env.Client.List(ctx, &scalers); err != nil {
		return err.Error()
	}
	left := 0
	for _, s := range scalers.Items {
		if s.Status.Target == nil {
			left++
		}
	}
	if left > 0 {
		return fmt.Sprintf("%d of %d scalers have not seen their Deployment", left, len(scalers.Items))
	}
	return ""
}

// change changes a Deployment's template, and returns the time until the operator's write
// was seen.
func (w *fixture) change(b *testing.B) time.Duration {
	b.Helper()
	i := w.random.IntN(w.n)
	w.version++
	d := testkit.Deployment(w.namespace[i/fleet.PerNamespace], fleet.Name(i))
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"version":"%d"}}}}}`, w.version)
	if err := w.env.Client.Patch(b.Context(), d, client.RawPatch(types.MergePatchType, patch)); err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	w.waitFor(b, d)
	return time.Since(start)
}

func (w *fixture) waitFor(b *testing.B, d *appsv1.Deployment) {
	b.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		select {
		case e, ok := <-w.seen:
			if !ok {
				b.Fatal(io.ErrUnexpectedEOF)
			}
			s, ok := e.Object.(*v1beta1.VerticalScaler)
			if ok && s.Namespace == d.Namespace && s.Name == d.Name && s.Status.Target != nil && s.Status.Target.Generation >= d.Generation {
				return
			}
		case <-timeout.C:
			b.Fatalf("the operator did not write for Deployment %s/%s", d.Namespace, d.Name)
		}
	}
}
