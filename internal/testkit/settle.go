// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	return queued()
}

// queued describes the requests in the queues of the process or in progress, if any.
func queued() string {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return err.Error()
	}
	for _, family := range families {
		name := family.GetName()
		if name != "workqueue_depth" && name != "controller_runtime_active_workers" {
			continue
		}
		for _, m := range family.GetMetric() {
			if n := m.GetGauge().GetValue(); n > 0 {
				return fmt.Sprintf("%s is %g: %s", name, n, m)
			}
		}
	}
	return ""
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
