// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Collect makes one round of usage, and waits until the operator has dealt with it. An operator that was stopped makes none.
func (o *Operator) Collect(t testing.TB) {
	t.Helper()
	if !o.running {
		return
	}
	o.collector.Collect(t.Context())
	o.Settle(t)
}

// Settle waits until the operator is idle: its caches have seen the last writes, its queues are empty, and no reconcile is
// under way. It shares its queues' metrics with the other operators of the process, so it waits for them, too.
func (o *Operator) Settle(t testing.TB) {
	t.Helper()
	const looks = 2 // An event that has reached the cache may be on its way to the queue.
	still := 0
	Eventually(t, 2*time.Minute, func() string {
		busy := o.isBusy(t.Context())
		if still++; busy != "" {
			still = 0
		} else if still < looks {
			busy = "the operator may still get an event"
		}
		return busy
	})
}

// isBusy describes the operator's pending work, if any.
func (o *Operator) isBusy(ctx context.Context) string {
	for _, namespace := range o.namespaces {
		for _, lists := range [][2]client.ObjectList{
			{&v1beta1.VerticalScalerList{}, &v1beta1.VerticalScalerList{}},
			{&v1beta1.ScaledDeploymentList{}, &v1beta1.ScaledDeploymentList{}},
			{&v1beta1.NewPodSizesList{}, &v1beta1.NewPodSizesList{}},
		} {
			cached, live := lists[0], lists[1]
			here := client.InNamespace(namespace)
			if err := cmp.Or(o.cache.List(ctx, cached, here), o.live.List(ctx, live, here)); err != nil {
				return err.Error()
			}
			if difference := differs(cached, live); difference != "" {
				return difference
			}
		}
	}
	return queues.busy()
}

// queues has the gauges of all queues of the process.
var queues gauges

// gauges are metrics that all operators of a process share. An operator that stops leaves the items of its queues in them.
type gauges struct {
	mu      sync.Mutex
	running int                // operators
	left    map[string]float64 // by those that have stopped
}

func (g *gauges) began() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running++
}

func (g *gauges) ended() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running--; g.running > 0 {
		return
	}
	g.left = map[string]float64{}
	_ = g.each(func(metric string, items float64) { g.left[metric] = items }) // if they can't be read, the next test says so
}

// busy describes what is in the queues of operators that run, or is reconciled; empty for nothing.
func (g *gauges) busy() (what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.each(func(metric string, items float64) {
		if n := items - g.left[metric]; n > 0 {
			what = fmt.Sprintf("%g in %s", n, metric)
		}
	}); err != nil {
		return err.Error()
	}
	return what
}

// each calls a function with each gauge.
func (g *gauges) each(visit func(metric string, items float64)) error {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if name := family.GetName(); name == "workqueue_depth" || name == "controller_runtime_active_workers" {
			for _, m := range family.GetMetric() {
				visit(fmt.Sprint(name, m.GetLabel()), m.GetGauge().GetValue())
			}
		}
	}
	return nil
}

// differs describes a difference between a cache and the API server.
func differs(cached, live client.ObjectList) string {
	versions := func(list client.ObjectList) map[string]string {
		out := map[string]string{}
		_ = meta.EachListItem(list, func(item runtime.Object) error { // the function returns no error
			if o, ok := item.(client.Object); ok {
				out[fmt.Sprintf("%s (%s)", o.GetName(), o.GetUID())] = o.GetResourceVersion()
			}
			return nil
		})
		return out
	}
	if a, b := versions(cached), versions(live); !maps.Equal(a, b) {
		return fmt.Sprintf("the cache has versions %v of %T, not %v", a, live, b)
	}
	return ""
}
