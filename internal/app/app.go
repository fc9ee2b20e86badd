// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires the operator together: options to configuration, configuration
// to manager options, manager options to a running manager. It is the only package
// that knows all the others.
package app

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/verticalscaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/inventory"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

// leaseName is the name of the leader's lease.
const leaseName = "verticalscaler.autoscaling.verticalscaler.io"

// userAgent names us in the API server's audit log.
const userAgent = "verticalscaler-operator"

// WatchNamespaceEnv names the environment variable that OLM sets to the namespaces
// to watch, separated by commas. Empty or unset means all.
const WatchNamespaceEnv = "WATCH_NAMESPACE"

// Scheme knows all kinds that the operator reads or writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // a kind registered twice is a bug of ours
		}
	}
	return scheme
}

// Run runs the operator until the context ends.
func Run(ctx context.Context, restConfig *rest.Config, c config.Operator) error {
	options := ManagerOptions(c, Namespaces(os.Getenv(WatchNamespaceEnv)))
	restConfig = rest.CopyConfig(restConfig)
	restConfig.UserAgent = userAgent
	mgr, err := ctrl.NewManager(restConfig, options)
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	source, err := metricsapi.New(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("making the source of usage: %w", err)
	}
	if err := Setup(ctx, mgr, c, source); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// Namespaces reads WATCH_NAMESPACE. None means all.
func Namespaces(watch string) []string {
	var out []string
	for _, name := range strings.Split(watch, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// ManagerOptions turns the configuration into those of the manager.
func ManagerOptions(c config.Operator, namespaces []string) manager.Options {
	options := manager.Options{
		Scheme:                  Scheme(),
		Metrics:                 metricsserver.Options{BindAddress: c.Metrics.BindAddress},
		HealthProbeBindAddress:  c.Health.BindAddress,
		LeaderElection:          c.LeaderElection.Enabled,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: c.LeaderElection.Namespace,
		// The process ends with the manager, so the next leader need not wait.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       ptr.To(20 * time.Second),
		Cache: cache.Options{
			DefaultTransform: inventory.Trim,
			// A kind that nobody has set up for caching is an error, not a silent
			// cluster-wide watch.
			ReaderFailOnMissingInformer: true,
			ByObject: map[client.Object]cache.ByObject{
				&v1beta1.VerticalScaler{}:                {},
				&appsv1.Deployment{}:                     {},
				&corev1.Pod{}:                            {},
				&corev1.LimitRange{}:                     {},
				&autoscalingv2.HorizontalPodAutoscaler{}: {},
			},
		},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&v1beta1.VerticalScalerCheckpoint{}},
		}},
	}
	if c.Metrics.Secure {
		options.Metrics.SecureServing = true
		options.Metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if len(namespaces) > 0 {
		options.Cache.DefaultNamespaces = map[string]cache.Config{}
		for _, name := range namespaces {
			options.Cache.DefaultNamespaces[name] = cache.Config{}
		}
	}
	return options
}

// Setup adds the controllers and the collector to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, c config.Operator, source collect.Source) error {
	// The collector must be able to tell of every scaler without waiting for the
	// controller to take each one up.
	wake := make(chan event.GenericEvent, 1024)
	params := c.Params()
	histories := &checkpoint.Store{Client: mgr.GetClient(), Params: params.History}
	collector := &collect.Collector{
		Cached:    mgr.GetCache(),
		Source:    source,
		Histories: histories,
		Interval:  c.Collection.Interval.Duration,
		Clock:     clock.RealClock{},
		Wake:      wake,
		Count:     verticalscaler.CountSamples,
	}
	reconciler := &verticalscaler.Reconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		Histories:    histories,
		ProblemsOf:   collector.ProblemsOf,
		Params:       params,
		Recorder:     mgr.GetEventRecorder(verticalscaler.Name),
		ResyncPeriod: c.ResyncPeriod.Duration,
	}
	collector.Moved = reconciler.Moved
	if err := reconciler.SetupWithManager(ctx, mgr, wake); err != nil {
		return fmt.Errorf("setting up the scalers' controller: %w", err)
	}
	if err := mgr.Add(collector); err != nil {
		return fmt.Errorf("adding the collector: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr.GetCache())); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	return nil
}
