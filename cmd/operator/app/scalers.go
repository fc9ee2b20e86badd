// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/verticalscaler/verticalscaler-operator/controllers/newpods"
	"github.com/verticalscaler/verticalscaler-operator/controllers/verticalscaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/pressure"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// addScalers adds the VerticalScaler controller and the backfill of its histories.
func (a *assembly) addScalers(ctx context.Context) error {
	usage, err := a.addBackfill()
	if err != nil {
		return err
	}
	nodes, err := a.watchNodes(ctx)
	if err != nil {
		return err
	}
	vpas, err := a.watchVPAs()
	if err != nil {
		return err
	}
	sizes := &newpods.Reconciler{Client: a.mgr.GetClient(), Clock: a.clock, Workers: a.config.Workers.VerticalScalers, Wake: a.triggers}
	reconciler := &verticalscaler.Reconciler{
		Client:         a.mgr.GetClient(),
		Live:           a.mgr.GetAPIReader(),
		Recorder:       a.mgr.GetEventRecorder(verticalscaler.Name),
		Clock:          a.clock,
		Pods:           a.cached.Pods,
		Histories:      a.histories,
		Usage:          usage,
		Params:         a.config.Params(),
		Budget:         a.changes,
		Freeze:         a.freeze,
		FreezeAPI:      a.freezeAPI,
		Pressure:       a.pressureOf(nodes),
		Fallback:       a.scope.fallback(),
		Ceilings:       a.config.Ceilings.Plan(),
		VPAs:           vpas,
		Metrics:        &metrics.Scalers{Detail: a.config.Metrics.Scalers},
		Policies:       a.mgr.GetCache(),
		Release:        a.release(),
		Access:         scaler.ClusterAccess{Namespaces: a.scope.Namespaces, NodesForbidden: a.scope.missing(Nodes, metav1.NamespaceAll) != ""},
		NewPodsRefused: sizes.Refused,
		ResyncPeriod:   a.config.ResyncPeriod.Duration,
		Workers:        a.config.Workers.VerticalScalers,
	}
	if nodes != nil {
		reconciler.Nodes = nodes
	}
	if err := reconciler.SetupWithManager(ctx, a.mgr, a.triggers); err != nil {
		return err
	}
	return sizes.SetupWithManager(a.mgr)
}

// watchNodes reads nodes; nil without the right to read them.
func (a *assembly) watchNodes(ctx context.Context) (*inventory.Nodes, error) {
	if !a.scope.servesCluster(Nodes) {
		return nil, nil
	}
	return inventory.WatchNodes(ctx, a.mgr.GetCache(), a.cached.Pods)
}

// pressureOf finds nodes that have used up their CPU; nil if nodes or their usage are not read.
func (a *assembly) pressureOf(nodes *inventory.Nodes) *pressure.Nodes {
	source, ok := a.source.(pressure.Source)
	if !ok || nodes == nil {
		return nil
	}
	return &pressure.Nodes{Source: source, Allocatable: nodes.CPUOf, Clock: a.clock}
}

// watchVPAs reads the VerticalPodAutoscalers of the watched namespaces.
func (a *assembly) watchVPAs() (*inventory.VPAs, error) {
	reader, err := dynamic.NewForConfigAndClient(a.mgr.GetConfig(), a.mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating a client for VerticalPodAutoscalers: %w", err)
	}
	watcher, err := metadata.NewForConfigAndClient(a.mgr.GetConfig(), a.mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating a client for the metadata of VerticalPodAutoscalers: %w", err)
	}
	namespaces, _ := a.scope.readable()
	return &inventory.VPAs{Client: reader, Metadata: watcher, Namespaces: namespaces, Clock: clock.RealClock{}}, nil
}
