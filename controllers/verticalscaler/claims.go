// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// claims says what is stored: the Deployments that scalers claim, and their pods.
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
	return len(c.lookup.claimants(context.Background(), deployment)) > 0
}

// AllClaimed implements inventory.Claims.
func (c claims) AllClaimed(ctx context.Context, namespace string) (claimed []types.NamespacedName, err error) {
	var all v1beta1.VerticalScalerList
	if err := c.cached.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing scalers: %w", err)
	}
	for i := range all.Items {
		for _, claim := range claimValues(&all.Items[i]) {
			claimed = append(claimed, claimedBy(claim))
		}
	}
	return claimed, nil
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
			for _, claim := range claimValues(vs) {
				r.Deployments.Release(claimedBy(claim))
				r.Pods.Release(claimedBy(claim))
			}
		}
	}
	scalers, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, ok := before.(*v1beta1.VerticalScaler)
			is, ok2 := after.(*v1beta1.VerticalScaler)
			if ok && ok2 && scaler.RecordedClaim(was) != scaler.RecordedClaim(is) {
				release(was)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			release(obj)
		},
	})
	if err != nil {
		return fmt.Errorf("watching the claims of scalers: %w", err)
	}
	own := claims{lookup: r.lookup, cached: mgr.GetCache(), scalers: scalers}
	r.Deployments.Watch(own)
	r.Pods.Watch(own)
	return nil
}
