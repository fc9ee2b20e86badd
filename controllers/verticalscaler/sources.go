// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// vpaSource triggers a reconcile of the scalers whose Deployments a VerticalPodAutoscaler
// starts or stops to size. The controller starts after the VerticalPodAutoscalers are known.
type vpaSource struct {
	vpas  *inventory.VPAs
	of    func(context.Context, workload.VPA) ([]reconcile.Request, error)
	clock clock.Clock
}

var _ source.SyncingSource = vpaSource{}

// Start implements source.Source.
func (s vpaSource) Start(ctx context.Context, requests workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.vpas.Follow(ctx, func(vpa workload.VPA) {
		queue.LookUp(ctx, s.clock, func(ctx context.Context) ([]reconcile.Request, error) { return s.of(ctx, vpa) }, requests.Add)
	})
	return nil
}

// WaitForSync implements source.SyncingSource.
func (s vpaSource) WaitForSync(ctx context.Context) error { return s.vpas.Wait(ctx) }

// String names the source in the log.
func (s vpaSource) String() string { return "VerticalPodAutoscalers" }

// podSource triggers a reconcile of the scaler that claims a Deployment when something changes that is read
// of the Deployment's pods. After an OOM kill it is urgent.
type podSource struct {
	pods  interface{ OnChange(inventory.PodHandler) }
	of    func(context.Context, types.NamespacedName) ([]reconcile.Request, error)
	clock clock.Clock
}

// Start implements source.Source.
func (s podSource) Start(ctx context.Context, requests workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	urgent, usual := queue.InClass(requests, queue.Urgent), queue.InClass(requests, queue.Workload)
	s.pods.OnChange(func(deployment types.NamespacedName, before, after *workload.Pod) {
		add := usual.Add
		if after != nil && workload.IsKilledSince(before, after) {
			add = urgent.Add
		}
		queue.LookUp(ctx, s.clock, func(ctx context.Context) ([]reconcile.Request, error) { return s.of(ctx, deployment) }, add)
	})
	return nil
}

// String names the source in the log.
func (s podSource) String() string { return "Pods" }

// budgetSource triggers a reconcile of the scalers that the budget lets continue.
type budgetSource struct {
	budget *budget.Budget
	clock  clock.WithTicker
}

// Start implements source.Source.
func (t *budgetSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		for ctx.Err() == nil {
			keys, at := t.budget.Next(t.clock.Now())
			for _, key := range keys {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
			t.wait(ctx, at)
		}
	}()
	return nil
}

// wait returns when the budget changes, at that time unless it is zero, or when the context
// ends.
func (t *budgetSource) wait(ctx context.Context, at time.Time) {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := t.clock.NewTimer(at.Sub(t.clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-t.budget.Changed():
	case <-due:
	}
}

// freezeSource watches the freeze switch and triggers a reconcile of all scalers that do not stand
// back when it changes.
type freezeSource struct {
	freeze  *freeze.Switch
	api     corev1client.ConfigMapsGetter
	scalers lookup
	clock   clock.WithTicker
}

// firstLook is how long the controller waits for the state of the switch before it starts.
// After that, it reports that the state is unknown, and changes nothing.
const firstLook = 10 * time.Second

// Start implements source.Source.
func (t *freezeSource) Start(ctx context.Context, requests workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return t.freeze.Watch(ctx, t.api, func() {
		queue.LookUp(ctx, t.clock, func(ctx context.Context) ([]reconcile.Request, error) { return t.scalers.inNamespace(ctx, "") }, requests.Add)
	})
}

// WaitForSync implements source.SyncingSource.
func (t *freezeSource) WaitForSync(ctx context.Context) error {
	timer := t.clock.NewTimer(firstLook)
	defer timer.Stop()
	select {
	case <-t.freeze.Known():
	case <-timer.C():
		log.FromContext(ctx).Info("Cannot read the freeze switch yet: all changes wait", "ConfigMap", t.freeze.ConfigMap)
	case <-ctx.Done():
	}
	return nil
}
