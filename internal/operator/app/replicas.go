// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/provision"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/shards"
)

// PodNameEnv is the environment variable with the name of the operator's pod. A container that starts again
// in the same pod gets its slot back at once.
const PodNameEnv = "POD_NAME"

var (
	replicasConfigured = metrics.NewGauge(metrics.Metric{
		Name:      "verticalscaler_replicas_configured",
		Help:      "How many replicas share the work at most: leaderElection.replicas of the configuration.",
		Stability: metrics.Alpha,
	}).WithLabelValues()
	replicasSharing = metrics.NewGauge(metrics.Metric{
		Name:      "verticalscaler_replicas_sharing",
		Help:      "How many replicas share the work, as this one sees it: 1 if it does all the work, 0 while it waits.",
		Stability: metrics.Alpha,
	})
	replicaSlot = metrics.NewGauge(metrics.Metric{
		Name:      "verticalscaler_replica_slot",
		Help:      "The slot of this replica, from 0; -1 while it waits.",
		Stability: metrics.Alpha,
	})
)

// recordView shows the view in the metrics.
func recordView(view shards.View) {
	slot := view.Slot
	if view.IsStandby() {
		slot = -1
	}
	replicaSlot.WithLabelValues().Set(float64(slot))
	replicasSharing.WithLabelValues().Set(float64(len(view.Slots)))
}

// whileWorking shows the view in the metrics once the manager works: at once, or when it has got the leader's lease.
func whileWorking(view shards.View) manager.Runnable {
	return manager.RunnableFunc(func(context.Context) error {
		recordView(view)
		return nil
	})
}

// join lets this process share the work with other replicas, if it is configured to; otherwise, member is nil.
// The context ends when the process may no longer work. leave ends the sharing, after the work has ended, and
// returns why the process may no longer work.
func join(ctx context.Context, restConfig *rest.Config, c config.Operator) (working context.Context, member *shards.Member, leave func() error, err error) {
	replicasConfigured.Set(float64(c.LeaderElection.Replicas))
	if !c.LeaderElection.SharesWork() {
		return ctx, nil, func() error { return nil }, nil
	}
	leases, err := leaseClient(restConfig, c)
	if err != nil {
		return nil, nil, nil, err
	}
	identity, err := identity(os.Getenv)
	if err != nil {
		return nil, nil, nil, err
	}
	member = shards.New(shards.Options{
		Leases: leases, Replicas: c.LeaderElection.Replicas, Identity: identity, Labels: leaseLabels(c.Version), Clock: clock.RealClock{},
	})
	working, stopWork := context.WithCancel(ctx)
	sharing, stopSharing := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		defer stopWork()
		ended <- member.Run(sharing)
	}()
	return working, member, func() error {
		stopSharing()
		return <-ended
	}, nil
}

// identity is the identity of this process in its lease.
func identity(getenv func(string) string) (string, error) {
	if pod := getenv(PodNameEnv); pod != "" {
		return pod, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("reading the host's name for the lease: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// leaseClient reads and writes the leases of replicas.
func leaseClient(restConfig *rest.Config, c config.Operator) (coordinationclient.LeaseInterface, error) {
	namespace, err := leaseNamespace(c)
	if err != nil {
		return nil, err
	}
	restConfig = rest.AddUserAgent(rest.CopyConfig(restConfig), "leader-election")
	restConfig.Timeout = shards.RequestTimeout
	api, err := coordinationclient.NewForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("creating a client for leases: %w", err)
	}
	return api.Leases(namespace), nil
}

// serviceAccountNamespace is the file with the namespace of the pod.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// leaseNamespace is the namespace of the leases, found as controller-runtime finds it.
func leaseNamespace(c config.Operator) (string, error) {
	if namespace := cmp.Or(c.LeaderElection.Namespace, os.Getenv(provision.NamespaceEnv)); namespace != "" {
		return namespace, nil
	}
	content, err := os.ReadFile(serviceAccountNamespace)
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("the operator's namespace is unknown: set leaderElection.namespace")
	}
	if err != nil {
		return "", fmt.Errorf("reading the operator's namespace: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// newReplica creates the manager of a replica that shares the work. It works on the namespaces of the view,
// and writes only while it may.
func newReplica(restConfig *rest.Config, c config.Operator, scope Scope, member *shards.Member, view shards.View) (ctrl.Manager, error) {
	options := ManagerOptions(c, scope)
	options.LeaderElection = false // The slot takes its place.
	options.Cache.NewInformer = view.NewInformer
	fenced := rest.CopyConfig(restConfig)
	fenced.Wrap(member.Guard(view))
	return ctrl.NewManager(fenced, options)
}
