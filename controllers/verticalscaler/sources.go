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

// requests is the queue of the controller.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// named is a source with its name in the log.
type named struct {
	source.Func
	name string
}

func (s named) String() string { return s.name }

// vpaSource triggers a reconcile of the scalers whose Deployments a VerticalPodAutoscaler
// starts or stops to size. The controller starts after the VerticalPodAutoscalers are known.
type vpaSource struct {
	vpas *inventory.VPAs
	of   func(context.Context, workload.VPA) ([]reconcile.Request, error)
}

var _ source.SyncingSource = vpaSource{}

// Start implements source.Source.
func (s vpaSource) Start(ctx context.Context, q requests) error {
	changed := queue.InClass(q, queue.Workload)
	s.vpas.Follow(ctx, func(vpa workload.VPA) {
		queue.LookUp(ctx, func(ctx context.Context) ([]reconcile.Request, error) { return s.of(ctx, vpa) }, changed.Add)
	})
	return nil
}

// WaitForSync implements source.SyncingSource.
func (s vpaSource) WaitForSync(ctx context.Context) error { return s.vpas.Wait(ctx) }

// String names the source in the log.
func (s vpaSource) String() string { return "VerticalPodAutoscalers" }

// podSource triggers a reconcile of the scaler that claims a Deployment when a field of its pods that is
// read changes. After an OOM kill it is urgent.
func podSource(pods Pods, of func(context.Context, types.NamespacedName) ([]reconcile.Request, error)) source.Func {
	return func(ctx context.Context, q requests) error {
		urgent, usual := queue.InClass(q, queue.Urgent), queue.InClass(q, queue.Workload)
		pods.OnChange(func(deployment types.NamespacedName, before, after *workload.Pod) {
			add := usual.Add
			if after != nil && workload.IsKilledSince(before, after) {
				add = urgent.Add
			}
			queue.LookUp(ctx, func(ctx context.Context) ([]reconcile.Request, error) { return of(ctx, deployment) }, add)
		})
		return nil
	}
}

// budgetSource triggers a reconcile of the scalers that the budget lets continue.
func budgetSource(changes *budget.Budget) source.Func {
	return func(ctx context.Context, q requests) error {
		urgent := queue.InClass(q, queue.Urgent)
		go func() {
			for ctx.Err() == nil {
				now := clock.RealClock{}.Now()
				keys, at := changes.Next(now)
				trigger(urgent, keys)
				var due <-chan time.Time // of the next change that the budget lets continue; nil if unknown
				if !at.IsZero() {
					due = clock.RealClock{}.After(at.Sub(now))
				}
				select {
				case <-ctx.Done():
				case <-changes.Changed():
				case <-due:
				}
			}
		}()
		return nil
	}
}

// firstLook is the longest wait for the state of the freeze switch at the start. After that, the
// controller reports that the state is unknown, and changes nothing.
const firstLook = 10 * time.Second

// freezeSource watches the freeze switch and triggers a reconcile of all scalers that do not stand
// back when it changes.
func freezeSource(state *freeze.Switch, api corev1client.ConfigMapsGetter, scalers lookup) source.Func {
	return func(ctx context.Context, q requests) error {
		routine := queue.InClass(q, queue.Routine)
		err := state.Watch(ctx, api, func() {
			queue.LookUp(ctx, func(ctx context.Context) ([]reconcile.Request, error) { return scalers.inNamespace(ctx, "") }, routine.Add)
		})
		if err != nil {
			return err
		}
		select {
		case <-state.Known():
		case <-clock.RealClock{}.After(firstLook):
			log.FromContext(ctx).Info("Cannot read the freeze switch yet: all changes wait", "ConfigMap", state.ConfigMap)
		case <-ctx.Done():
		}
		return nil
	}
}
