// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// vpaSource wakes the scalers whose Deployments a VerticalPodAutoscaler sizes, or sizes
// no more. No pass is made before it is known which there are.
type vpaSource struct {
	vpas     *inventory.VPAs
	requests func(context.Context, workload.VPA) []reconcile.Request
}

var _ source.SyncingSource = vpaSource{}

// Start implements source.Source.
func (s vpaSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.vpas.Follow(ctx, func(vpa workload.VPA) {
		for _, request := range s.requests(ctx, vpa) {
			queue.Add(request)
		}
	})
	return nil
}

// WaitForSync implements source.SyncingSource.
func (s vpaSource) WaitForSync(ctx context.Context) error { return s.vpas.Wait(ctx) }

// String names the source in the log.
func (s vpaSource) String() string { return "VerticalPodAutoscalers" }

// ofVPA maps a VerticalPodAutoscaler to the scalers that claim what it sizes, as ofHPA
// does.
func (l *lookup) ofVPA(all handler.MapFunc) func(context.Context, workload.VPA) []reconcile.Request {
	return func(ctx context.Context, vpa workload.VPA) []reconcile.Request {
		switch vpa.Target.Kind {
		case "Deployment":
			return requests(l.claimants(ctx, types.NamespacedName{Namespace: vpa.Namespace, Name: vpa.Target.Name}))
		case v1beta1.ScaledDeploymentKind:
			return all(ctx, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: vpa.Namespace}})
		}
		return nil
	}
}
