// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// claimIndex indexes scalers by the claim in their status, for the reverse lookup.
const claimIndex = "status.claim"

// indexClaims adds the index to the scalers' informer. A claim of another namespace is ignored.
func indexClaims(ctx context.Context, fields client.FieldIndexer) error {
	if err := fields.IndexField(ctx, &v1beta1.VerticalScaler{}, claimIndex, claimOf); err != nil {
		return fmt.Errorf("indexing scalers by %s: %w", claimIndex, err)
	}
	return nil
}

func claimOf(o client.Object) []string {
	if vs, ok := o.(*v1beta1.VerticalScaler); ok && scaler.IsOwnClaim(vs, scaler.RecordedClaim(vs)) {
		return []string{scaler.RecordedClaim(vs)}
	}
	return nil
}

// lookup finds the scalers that an object concerns in the cache. It copies no scaler.
type lookup struct{ client.Reader }

// claimants are the scalers whose status claims the Deployment. At rest, only the scaler that sizes
// it does.
func (l lookup) claimants(ctx context.Context, deployment types.NamespacedName) ([]reconcile.Request, error) {
	return l.requests(ctx, func(*v1beta1.VerticalScaler) bool { return true },
		client.InNamespace(deployment.Namespace), client.MatchingFields{claimIndex: deployment.String()})
}

func (l lookup) requests(ctx context.Context, wanted func(*v1beta1.VerticalScaler) bool, options ...client.ListOption) (requests []reconcile.Request, err error) {
	var scalers v1beta1.VerticalScalerList
	if err := l.List(ctx, &scalers, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing scalers: %w", err)
	}
	for i := range scalers.Items {
		if wanted(&scalers.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&scalers.Items[i])})
		}
	}
	return requests, nil
}

// ofDeployment maps a Deployment to the scalers that claim it.
func (l lookup) ofDeployment(ctx context.Context, deployment client.Object) ([]reconcile.Request, error) {
	return l.claimants(ctx, client.ObjectKeyFromObject(deployment))
}

// ofHPA maps an HPA to the scalers of its target.
func (l lookup) ofHPA(ctx context.Context, obj client.Object) ([]reconcile.Request, error) {
	hpa, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok {
		return nil, nil
	}
	return l.ofTarget(ctx, hpa.Namespace, hpa.Spec.ScaleTargetRef)
}

// ofVPA maps a VerticalPodAutoscaler to the scalers of its target.
func (l lookup) ofVPA(ctx context.Context, vpa workload.VPA) ([]reconcile.Request, error) {
	return l.ofTarget(ctx, vpa.Namespace, vpa.Target)
}

// ofTarget are the scalers that claim the Deployment that another autoscaler changes. A ScaledDeployment does not name its
// Deployment, and is mapped to all scalers of the namespace.
func (l lookup) ofTarget(ctx context.Context, namespace string, target autoscalingv2.CrossVersionObjectReference) ([]reconcile.Request, error) {
	switch target.Kind {
	case "Deployment":
		return l.claimants(ctx, types.NamespacedName{Namespace: namespace, Name: target.Name})
	case v1beta1.ScaledDeploymentKind:
		return l.inNamespace(ctx, namespace)
	}
	return nil, nil
}

// ofNamespace maps an object to the scalers of its namespace, except those that stand back.
func (l lookup) ofNamespace(ctx context.Context, obj client.Object) ([]reconcile.Request, error) {
	return l.inNamespace(ctx, obj.GetNamespace())
}

// inNamespace lists the scalers of a namespace, or of all if it is empty. A scaler without a claim and without values to
// restore is left out: changes around its Deployment do not concern it. The first reconcile of a new scaler records its
// claim, and a second one follows.
func (l lookup) inNamespace(ctx context.Context, namespace string) ([]reconcile.Request, error) {
	return l.requests(ctx, func(vs *v1beta1.VerticalScaler) bool {
		return scaler.RecordedClaim(vs) != "" || vs.Status.OriginalResources != nil || len(vs.Finalizers) > 0
	}, client.InNamespace(namespace))
}

// ofQuota maps a ResourceQuota to the scalers of its namespace that may wait for one.
func (l lookup) ofQuota(mayWait func(types.NamespacedName) bool) func(context.Context, client.Object) ([]reconcile.Request, error) {
	return func(ctx context.Context, quota client.Object) ([]reconcile.Request, error) {
		found, err := l.ofNamespace(ctx, quota)
		return slices.DeleteFunc(found, func(request reconcile.Request) bool { return !mayWait(request.NamespacedName) }), err
	}
}
