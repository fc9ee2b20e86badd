// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// claims says which Deployments are stored: those that a ScaledDeployment names.
type claims struct {
	cached client.Reader
	// owners is the handler that gets all ScaledDeployments.
	owners toolscache.ResourceEventHandlerRegistration
}

var _ inventory.Claims = claims{}

// IsClaimed implements inventory.Claims. A Deployment whose owners cannot be looked up counts as claimed: what is not stored
// would be missing.
func (c claims) IsClaimed(deployment types.NamespacedName) bool {
	owners, err := ownersOf(context.Background(), c.cached, deployment)
	return err != nil || len(owners) > 0
}

// AllClaimed implements inventory.Claims.
func (c claims) AllClaimed(ctx context.Context, namespace string) (claimed []types.NamespacedName, err error) {
	var owners v1beta1.ScaledDeploymentList
	if err := c.cached.List(ctx, &owners, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ScaledDeployments: %w", err)
	}
	for i := range owners.Items {
		claimed = append(claimed, claimOf(&owners.Items[i]))
	}
	return claimed, nil
}

// HasSynced implements inventory.Claims.
func (c claims) HasSynced() bool { return c.owners.HasSynced() }

// claimOf is the Deployment that a ScaledDeployment names.
func claimOf(owner *v1beta1.ScaledDeployment) types.NamespacedName {
	return types.NamespacedName{Namespace: owner.Namespace, Name: deploymentName(owner)}
}

// claimDeployments lets the cache store what ScaledDeployments name, and drop it when that ends.
func (r *Reconciler) claimDeployments(ctx context.Context, mgr ctrl.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &v1beta1.ScaledDeployment{})
	if err != nil {
		return fmt.Errorf("getting the informer of ScaledDeployments: %w", err)
	}
	release := func(obj any) {
		if owner, ok := obj.(*v1beta1.ScaledDeployment); ok {
			r.Deployments.Release(claimOf(owner))
		}
	}
	owners, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, _ any) { release(before) },
		DeleteFunc: func(obj any) { release(inventory.Deleted(obj)) },
	})
	if err != nil {
		return fmt.Errorf("watching what ScaledDeployments name: %w", err)
	}
	r.Deployments.Watch(claims{cached: mgr.GetCache(), owners: owners})
	return nil
}
