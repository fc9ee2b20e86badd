// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// claims says what is stored: the Deployments that scalers claim, and their pods. What a new scaler names counts
// as claimed, so that its first reconcile finds it in the cache.
type claims struct {
	lookup *lookup
	// cached lists scalers.
	cached client.Reader
	// scalers is the handler that gets all of them.
	scalers toolscache.ResourceEventHandlerRegistration
}

var _ inventory.Claims = claims{}

// IsClaimed implements inventory.Claims.
func (c claims) IsClaimed(deployment types.NamespacedName) bool {
	return c.lookup.isClaimed(context.Background(), deployment)
}

// AllClaimed implements inventory.Claims.
func (c claims) AllClaimed(ctx context.Context, namespace string) (claimed []types.NamespacedName, err error) {
	var all v1beta1.VerticalScalerList
	if err := c.cached.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing scalers: %w", err)
	}
	for i := range all.Items {
		claimed = append(claimed, storedFor(&all.Items[i])...)
	}
	return claimed, nil
}

// storedFor is the Deployment that is stored for a scaler: the one that it claims, or the one that it will; none
// for a scaler that stands back.
func storedFor(vs *v1beta1.VerticalScaler) (deployments []types.NamespacedName) {
	for _, claim := range append(claimValues(vs), expectedClaims(vs)...) {
		deployments = append(deployments, claimedBy(claim))
	}
	return deployments
}

// HasSynced implements inventory.Claims.
func (c claims) HasSynced() bool { return c.scalers.HasSynced() }

// claimedBy is the Deployment of a well-formed claim.
func claimedBy(claim string) (deployment types.NamespacedName) {
	deployment.Namespace, deployment.Name, _ = strings.Cut(claim, string(types.Separator))
	return deployment
}

// claimWorkloads lets the cache store what scalers claim, and drop it when a claim ends.
func (r *Reconciler) claimWorkloads(ctx context.Context, mgr ctrl.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &v1beta1.VerticalScaler{})
	if err != nil {
		return fmt.Errorf("getting the informer of scalers: %w", err)
	}
	release := func(obj any) {
		if vs, ok := obj.(*v1beta1.VerticalScaler); ok {
			for _, deployment := range storedFor(vs) {
				r.Deployments.Release(deployment)
				r.Pods.Release(deployment)
			}
		}
	}
	scalers, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, ok := before.(*v1beta1.VerticalScaler)
			is, ok2 := after.(*v1beta1.VerticalScaler)
			if ok && ok2 && !slices.Equal(storedFor(was), storedFor(is)) {
				release(was)
			}
		},
		DeleteFunc: func(obj any) { release(inventory.Deleted(obj)) },
	})
	if err != nil {
		return fmt.Errorf("watching the claims of scalers: %w", err)
	}
	own := claims{lookup: r.lookup, cached: mgr.GetCache(), scalers: scalers}
	r.Deployments.Watch(own)
	r.Pods.Watch(own)
	return nil
}
