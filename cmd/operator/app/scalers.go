// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/verticalscaler/verticalscaler-operator/controllers/newpods"
	"github.com/verticalscaler/verticalscaler-operator/controllers/verticalscaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/presence"
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
	if len(a.scope.Namespaces) == 0 { // Otherwise, it may not watch the policy.
		if reconciler.NewPodsPolicy, err = a.watchNewPodsPolicy(); err != nil {
			return err
		}
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
	watcher, err := a.metadata()
	if err != nil {
		return nil, err
	}
	namespaces, _ := a.scope.readable()
	return &inventory.VPAs{Client: reader, Metadata: watcher, Namespaces: namespaces, Clock: clock.RealClock{}}, nil
}

// watchNewPodsPolicy watches whether the API server sizes new pods.
func (a *assembly) watchNewPodsPolicy() (*presence.Watch, error) {
	api, err := a.metadata()
	if err != nil {
		return nil, err
	}
	policy, err := presence.New(api, a.clock, []schema.GroupVersionResource{
		admissionv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"), admissionv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"),
	}, admission.PolicyName)
	if err == nil {
		err = a.mgr.Add(policy)
	}
	if err != nil {
		return nil, fmt.Errorf("watching the policy for new pods: %w", err)
	}
	return policy, nil
}

// metadata is a client that reads the metadata of objects only.
func (a *assembly) metadata() (metadata.Interface, error) {
	api, err := metadata.NewForConfigAndClient(a.mgr.GetConfig(), a.mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating a client for metadata: %w", err)
	}
	return api, nil
}
