// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Others tells a replica that works alone whether others still share the work, such as those from before
// their number was set to 1.
type Others struct {
	leases coordinationclient.LeaseInterface
	clock  clock.PassiveClock
	roster roster
}

// NewOthers reads the leases of the operator's namespace.
func NewOthers(leases coordinationclient.LeaseInterface, c clock.PassiveClock) *Others {
	return &Others{leases: leases, clock: c}
}

// Check is an error while another replica holds a slot other than the first, which the caller holds. The
// holders see that lease, and end.
func (o *Others) Check(ctx context.Context) error {
	asked := o.clock.Now()
	list, err := o.leases.List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		log.FromContext(ctx).Info("Cannot check whether other replicas share the work", "error", err.Error())
		return nil // The Role is from a version without slots.
	}
	if err != nil {
		return fmt.Errorf("listing the leases of other replicas: %w", err)
	}
	o.roster.observe(list.Items, asked, o.clock.Now())
	for slot, s := range o.roster.seats {
		if slot > 0 && o.roster.isHeld(slot) {
			log.FromContext(ctx).Info("Waiting for another replica to release its slot, because leaderElection.replicas is 1", "slot", slot, "holder", s.holder)
			return fmt.Errorf("replica %s still holds slot %d", s.holder, slot)
		}
	}
	return nil
}
