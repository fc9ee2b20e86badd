// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// claimIndex indexes scalers by the claim in their status, for the reverse lookup.
const claimIndex = "status.claim"

// lookup finds the scalers of a Deployment in the cache.
//
// It returns keys. The indexed List of the cache copies every object that it finds, which
// costs twenty times as much per event, and more with every scaler of the Deployment.
type lookup struct {
	// indexer is the store of the scalers' informer; nil if the cache watches several namespaces
	// and has one store for each.
	indexer toolscache.Indexer
	// reader is used if there is no indexer.
	reader client.Reader
}

// newLookup adds the index to the scalers' informer.
func newLookup(ctx context.Context, c cache.Cache) (*lookup, error) {
	informer, err := c.GetInformer(ctx, &v1beta1.VerticalScaler{})
	if err != nil {
		return nil, fmt.Errorf("getting the informer of scalers: %w", err)
	}
	if shared, ok := informer.(toolscache.SharedIndexInformer); ok {
		if err := shared.AddIndexers(indexers()); err != nil {
			return nil, fmt.Errorf("indexing scalers: %w", err)
		}
		return &lookup{indexer: shared.GetIndexer()}, nil
	}
	err = c.IndexField(ctx, &v1beta1.VerticalScaler{}, claimIndex, func(obj client.Object) []string {
		if vs, ok := obj.(*v1beta1.VerticalScaler); ok {
			return claimValues(vs)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("indexing scalers by %s: %w", claimIndex, err)
	}
	return &lookup{reader: c}, nil
}

func indexers() toolscache.Indexers {
	return toolscache.Indexers{claimIndex: func(obj any) ([]string, error) {
		vs, ok := obj.(*v1beta1.VerticalScaler)
		if !ok {
			return nil, fmt.Errorf("indexing a %T as a scaler", obj)
		}
		return claimValues(vs), nil
	}}
}

func claimValues(s *v1beta1.VerticalScaler) []string {
	if claim := scaler.RecordedClaim(s); scaler.IsOwnClaim(s, claim) {
		return []string{claim}
	}
	return nil
}

// claimants are the scalers whose status claims the Deployment. At rest, that is the one that
// sizes it.
func (l *lookup) claimants(ctx context.Context, deployment types.NamespacedName) ([]reconcile.Request, error) {
	if l.indexer != nil {
		found, err := l.indexer.IndexKeys(claimIndex, deployment.String())
		if err != nil {
			return nil, err
		}
		requests := make([]reconcile.Request, len(found))
		for i, key := range found {
			// The informer's keys are namespace/name. Cutting shares the string.
			requests[i].Namespace, requests[i].Name, _ = strings.Cut(key, string(types.Separator))
		}
		return requests, nil
	}
	var scalers v1beta1.VerticalScalerList
	if err := l.reader.List(ctx, &scalers, client.InNamespace(deployment.Namespace),
		client.MatchingFields{claimIndex: deployment.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	requests := make([]reconcile.Request, len(scalers.Items))
	for i := range scalers.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&scalers.Items[i])
	}
	sort.Slice(requests, func(i, j int) bool { return requests[i].String() < requests[j].String() })
	return requests, nil
}

// A find maps an object to scalers.
type find = func(context.Context, client.Object) ([]reconcile.Request, error)

// ofDeployment maps a Deployment to the scalers that claim it.
func (l *lookup) ofDeployment(ctx context.Context, deployment client.Object) ([]reconcile.Request, error) {
	return l.claimants(ctx, client.ObjectKeyFromObject(deployment))
}

// ofHPA maps an HPA to the scalers of what it scales.
func (l *lookup) ofHPA(all find) find {
	return func(ctx context.Context, obj client.Object) ([]reconcile.Request, error) {
		hpa, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok {
			return nil, nil
		}
		return l.ofTarget(ctx, all, hpa.Namespace, hpa.Spec.ScaleTargetRef)
	}
}

// ofTarget are the scalers that claim the Deployment that another autoscaler changes. A ScaledDeployment does not name its
// Deployment, and is mapped to all scalers of the namespace.
func (l *lookup) ofTarget(ctx context.Context, all find, namespace string, target autoscalingv2.CrossVersionObjectReference) ([]reconcile.Request, error) {
	switch target.Kind {
	case "Deployment":
		return l.claimants(ctx, types.NamespacedName{Namespace: namespace, Name: target.Name})
	case v1beta1.ScaledDeploymentKind:
		return all(ctx, inNamespace(namespace))
	}
	return nil, nil
}

// ofNamespace maps an object to the scalers of its namespace, or of all namespaces if it has none, except those that stand
// back.
func ofNamespace(reader client.Reader) find {
	return func(ctx context.Context, obj client.Object) (requests []reconcile.Request, err error) {
		var scalers v1beta1.VerticalScalerList
		if err := reader.List(ctx, &scalers, client.InNamespace(obj.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing scalers: %w", err)
		}
		for i := range scalers.Items {
			if !holdsNothing(&scalers.Items[i]) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&scalers.Items[i])})
			}
		}
		return requests, nil
	}
}

// inNamespace is an object of a namespace, for ofNamespace.
func inNamespace(name string) client.Object {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name}}
}

// holdsNothing reports whether the scaler claims no Deployment and has nothing to restore, so that what surrounds its
// Deployment does not concern it. A new scaler gets its claim from its first reconcile, and then another one.
func holdsNothing(vs *v1beta1.VerticalScaler) bool {
	return scaler.RecordedClaim(vs) == "" && vs.Status.OriginalResources == nil && len(vs.Finalizers) == 0
}

// ofQuota maps a ResourceQuota to the scalers of its namespace that may wait for one.
func ofQuota(all find, mayWait func(types.NamespacedName) bool) find {
	return func(ctx context.Context, quota client.Object) ([]reconcile.Request, error) {
		found, err := all(ctx, quota)
		return slices.DeleteFunc(found, func(request reconcile.Request) bool { return !mayWait(request.NamespacedName) }), err
	}
}

// ofVPA maps a VerticalPodAutoscaler to the scalers of what it sizes.
func (l *lookup) ofVPA(all find) func(context.Context, workload.VPA) ([]reconcile.Request, error) {
	return func(ctx context.Context, vpa workload.VPA) ([]reconcile.Request, error) {
		return l.ofTarget(ctx, all, vpa.Namespace, vpa.Target)
	}
}
