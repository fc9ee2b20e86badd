// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/fence"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// NewManager creates a manager. If it takes part in a leader election, it sends writes only while
// it knows that it leads. The lease is labeled with missing, unless that is nil.
func NewManager(restConfig *rest.Config, c config.Operator, scope Scope, missing *atomic.Bool) (ctrl.Manager, error) {
	options := ManagerOptions(c, scope)
	if !options.LeaderElection {
		mgr, err := ctrl.NewManager(restConfig, options)
		if err != nil {
			return nil, err
		}
		check := restoreCheck{api: mgr.GetAPIReader()}
		if namespaces, _ := scope.readable(); len(namespaces) > 0 {
			check.namespace = namespaces[0]
		}
		return mgr, mgr.Add(check)
	}
	leading, lease := fence.New(clock.RealClock{}, renewDeadline), &labeledLock{missing: missing, fallback: scope.fallback()}
	options.LeaderElectionResourceLockInterface = leading.Lock(lease)
	fenced := rest.CopyConfig(restConfig)
	fenced.Wrap(leading.Wrap)
	mgr, err := ctrl.NewManager(fenced, options)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(leading); err != nil {
		return nil, fmt.Errorf("adding the check of the lease: %w", err)
	}
	if err := lease.create(restConfig, mgr, options, c.Version); err != nil {
		return nil, fmt.Errorf("creating the lease of the leader: %w", err)
	}
	return mgr, nil
}

// restoreCheck ends the operator after etcd was restored from a backup, if it has no lease that shows that.
type restoreCheck struct {
	api       client.Reader
	namespace string // whose scalers are listed; empty for all
}

// Start implements manager.Runnable. A version of the API server that is behind an earlier one is an error.
func (r restoreCheck) Start(ctx context.Context) error {
	last := ""
	for ctx.Err() == nil {
		var scalers v1beta1.VerticalScalerList
		if err := r.api.List(ctx, &scalers, client.InNamespace(r.namespace), client.Limit(1)); err == nil {
			if order, err := resourceversion.CompareResourceVersion(scalers.ResourceVersion, last); err == nil && order < 0 {
				return fmt.Errorf("etcd was restored from a backup: version %s was followed by %s", last, scalers.ResourceVersion)
			}
			last = scalers.ResourceVersion
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPeriod):
		}
	}
	return nil
}

// ManagerOptions converts the configuration and the scope to options of the manager.
func ManagerOptions(c config.Operator, scope Scope) manager.Options {
	options := manager.Options{
		Scheme:                  Scheme(),
		Metrics:                 metricsserver.Options{BindAddress: c.Metrics.BindAddress},
		HealthProbeBindAddress:  c.Health.BindAddress,
		LeaderElection:          c.LeaderElection.Enabled,
		LeaderElectionID:        v1beta1.LeaseName,
		LeaderElectionNamespace: leaseNamespace(c),
		// The leader has stopped all its work by then, so the next leader need not wait.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(leaseDuration),
		RenewDeadline:                 ptr.To(renewDeadline),
		RetryPeriod:                   ptr.To(retryPeriod),
		GracefulShutdownTimeout:       ptr.To(20 * time.Second),
		// A restarted manager has controllers of the same names.
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
		NewCache:   inventory.NewCache,
		Cache: cache.Options{
			DefaultTransform: inventory.Trim,
			// Reading a kind without a cache configuration is an error, not a silent
			// cluster-wide watch.
			ReaderFailOnMissingInformer: true,
			ByObject: map[client.Object]cache.ByObject{
				&v1beta1.VerticalScaler{}:                {},
				&v1beta1.ScaledDeployment{}:              {},
				&corev1.LimitRange{}:                     {},
				&corev1.ResourceQuota{}:                  {},
				&autoscalingv2.HorizontalPodAutoscaler{}: {},
			},
		},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&v1beta1.VerticalScalerCheckpoint{}},
		}},
	}
	if c.Metrics.Secure {
		options.Metrics.SecureServing = true
		options.Metrics.TLSOpts = []func(*tls.Config){metricsTLS(c.Metrics.CertDir)}
		options.Metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
		if missing := scope.missing(Metrics, metav1.NamespaceAll); missing != "" {
			options.Metrics.FilterProvider = rejectAll(missing)
		}
	}
	if scope.servesCluster(Nodes) {
		options.Cache.ByObject[&corev1.Node{}] = cache.ByObject{}
	}
	if len(scope.Namespaces) > 0 {
		namespaces, ok := scope.readable()
		if !ok {
			namespaces = scope.Namespaces // a missing or empty map would mean all
		}
		options.Cache.DefaultNamespaces = map[string]cache.Config{}
		for _, name := range namespaces {
			options.Cache.DefaultNamespaces[name] = cache.Config{}
		}
	}
	if _, ok := scope.readable(); !ok {
		options.LeaderElection = false // there is no namespace to lead in
		options.NewCache = nil         // its watches would fail, and a manager that waits for them cannot stop
	}
	return options
}

// Scheme has all kinds that the operator reads or writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // registering a kind twice is a programming error
		}
	}
	return scheme
}
