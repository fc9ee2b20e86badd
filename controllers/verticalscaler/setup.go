// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verticalscaler reconciles VerticalScalers: the un-owned pattern, in which
// the Deployment neither belongs to the scaler nor knows it.
//
// A Deployment's event finds its scalers through the claim that each reconcile records in the
// scaler's status (lookup.go). A reconcile observes, learns, plans, applies one step and writes
// the status once (reconciler.go). The pure packages recommend and plan decide; this package
// does the I/O.
package verticalscaler

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
)

// Name is the name of the controller, and the field manager of everything that it writes.
const Name = ownership.Scalers

// SetupWithManager wires the watches. HorizontalPodAutoscalers must be indexed already, see
// inventory.Index. collected are the scalers whose collected usage leads to another recommendation.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, collected <-chan event.GenericEvent) error {
	r.written = &ownwrites.Memory{}
	if err := indexClaims(ctx, mgr.GetCache()); err != nil {
		return err
	}
	r.order = precedence.New(precedence.MaxReported)
	building := ctrl.NewControllerManagedBy(mgr).Named(Name).WithOptions(queue.Options(r.Workers))
	r.addTriggers(building, mgr.GetCache(), collected)
	if r.Metrics != nil {
		if err := mgr.Add(r.Metrics); err != nil {
			return fmt.Errorf("adding the metrics about scalers: %w", err)
		}
	}
	if err := building.Complete(r); err != nil {
		return fmt.Errorf("building the VerticalScaler controller: %w", err)
	}
	return nil
}
