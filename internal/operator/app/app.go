// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app assembles the operator: options become configuration, configuration becomes
// manager options, and manager options become a running manager. It is the only package
// that imports all the others.
package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/newpods"
	"github.com/verticalscaler/verticalscaler-operator/controllers/scaleddeployment"
	"github.com/verticalscaler/verticalscaler-operator/controllers/verticalscaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// leaseName is the name of the leader's lease.
const leaseName = v1beta1.LeaseName

// userAgent identifies the operator in the API server's audit log.
const userAgent = "verticalscaler-operator"

// WatchNamespaceEnv is the environment variable that OLM sets to the namespaces to watch,
// separated by commas. Empty or unset means all.
const WatchNamespaceEnv = "WATCH_NAMESPACE"

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

// Run runs the operator until the context ends, in the namespaces that WATCH_NAMESPACE
// lists.
func Run(ctx context.Context, restConfig *rest.Config, c config.Operator) error {
	namespaces, err := Namespaces(os.Getenv(WatchNamespaceEnv))
	if err != nil {
		return err
	}
	restConfig = rest.CopyConfig(restConfig)
	restConfig.UserAgent = userAgent
	source, err := metricsapi.New(restConfig)
	if err != nil {
		return fmt.Errorf("creating the usage source: %w", err)
	}
	return RunInNamespaces(ctx, restConfig, c, Options{Source: source}, namespaces...)
}

// Options are what an operator is given beside its configuration.
type Options struct {
	// Source has the usage of pods.
	Source collect.Source
	// Clock is the time of decisions, statuses and rounds of usage; the real time if nil. Leases, time-outs and the delays of
	// queues always follow the real time.
	Clock clock.WithTicker
}

func (o Options) clock() clock.WithTicker {
	if o.Clock == nil {
		return clock.RealClock{}
	}
	return o.Clock
}

// RunInNamespaces runs the operator in the given namespaces, or in all if there are none,
// until the context ends.
//
// The operator skips a namespace that it cannot read, because the namespace does not exist
// or because rights are missing, and checks its rights again every 15 s. A cache cannot be
// extended to another namespace, so the operator then restarts the manager in the same
// process.
func RunInNamespaces(ctx context.Context, restConfig *rest.Config, c config.Operator, o Options, namespaces ...string) error {
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Wrap(withDeadline)
	reviews, err := authorizationclient.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("creating a client for access reviews: %w", err)
	}
	check := checkWithReview(reviews.SelfSubjectAccessReviews())
	kept := newKept(c)
	for ctx.Err() == nil {
		if err := runManager(ctx, restConfig, c, o, namespaces, check, kept); err != nil {
			return err
		}
	}
	return nil
}

// kept is what outlives a manager.
type kept struct {
	changes   *budget.Budget
	histories *checkpoint.Store
}

func newKept(c config.Operator) kept {
	return kept{newBudget(c), &checkpoint.Store{Params: c.Params().History}}
}

// runManager runs one manager until the context ends, or until the operator has rights that it lacked.
func runManager(
	process context.Context, restConfig *rest.Config, c config.Operator, o Options, namespaces []string, check accessCheck, kept kept,
) error {
	ctx, stop := context.WithCancel(process)
	defer stop()
	scope, err := check.findScope(ctx, namespaces, c.Metrics.Secure && c.Metrics.BindAddress != "0")
	if err != nil {
		return err
	}
	scope.log(log.FromContext(ctx))
	mgr, err := NewManager(restConfig, c, scope)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	if _, ok := scope.readable(); ok {
		_, err = setup(ctx, mgr, c, o, policyAccess{check, scope, stop}, kept)
	} else {
		err = addChecks(mgr, scope)
	}
	if err != nil {
		return err
	}
	if scope.lacks() {
		if err := mgr.Add(&accessChecker{check: check, scope: scope, clock: o.clock(), improved: stop}); err != nil {
			return fmt.Errorf("adding the access checker: %w", err)
		}
	}
	return mgr.Start(ctx)
}

// Namespaces parses WATCH_NAMESPACE: names separated by commas. It returns them sorted and
// without duplicates; none means all. An invalid name is an error.
func Namespaces(watch string) ([]string, error) {
	var out []string
	for _, name := range strings.Split(watch, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return nil, fmt.Errorf("%s: %q is not a valid namespace name: %s", WatchNamespaceEnv, name, strings.Join(wrong, "; "))
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// ManagerOptions converts the configuration and the scope to options of the manager.
func ManagerOptions(c config.Operator, scope Scope) manager.Options {
	options := manager.Options{
		Scheme:                  Scheme(),
		Metrics:                 metricsserver.Options{BindAddress: c.Metrics.BindAddress},
		HealthProbeBindAddress:  c.Health.BindAddress,
		LeaderElection:          c.LeaderElection.Enabled,
		LeaderElectionID:        leaseName,
		LeaderElectionNamespace: c.LeaderElection.Namespace,
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
		if scope.MetricsForbidden != "" {
			options.Metrics.FilterProvider = rejectAll(scope.MetricsForbidden)
		}
	}
	if scope.readsNodes() {
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
	}
	return options
}

// Setup adds the controllers and the collector to the manager, and returns the collector.
func Setup(ctx context.Context, mgr ctrl.Manager, c config.Operator, o Options, scope Scope) (*collect.Collector, error) {
	return setup(ctx, mgr, c, o, policyAccess{scope: scope}, newKept(c))
}

func setup(ctx context.Context, mgr ctrl.Manager, c config.Operator, o Options, rights policyAccess, kept kept) (*collect.Collector, error) {
	scope := rights.scope
	// Index the Deployments before a controller looks them up.
	if err := inventory.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	cached, ok := mgr.GetCache().(*inventory.Cache)
	if !ok {
		return nil, fmt.Errorf("the manager's cache is a %T", mgr.GetCache())
	}
	// The collector can trigger a reconcile of every scaler without waiting for the controller.
	triggers := make(chan event.GenericEvent, 1024)
	kept.histories.Client, kept.histories.Live = mgr.GetClient(), mgr.GetAPIReader()
	collector := &collect.Collector{
		Cached:    mgr.GetCache(),
		Pods:      cached.Pods,
		Source:    o.Source,
		Histories: kept.histories,
		Interval:  c.Collection.Interval.Duration,
		Clock:     o.clock(),
		Params:    c.Params(),
		Wake:      triggers,
	}
	if len(scope.Namespaces) == 0 {
		collector.CountPods = countPods(mgr.GetAPIReader())
	}
	frozen, configMaps, err := freezeSwitch(mgr, c)
	if err != nil {
		return nil, err
	}
	if err := fillCache(ctx, mgr, scope); err != nil {
		return nil, err
	}
	if err := addScalers(ctx, mgr, c, cached, collector, triggers, scope, freezing{frozen, configMaps}, kept.changes); err != nil {
		return nil, err
	}
	owners := &scaleddeployment.Reconciler{
		Client:       mgr.GetClient(),
		Live:         mgr.GetAPIReader(),
		Recorder:     mgr.GetEventRecorder(scaleddeployment.Name),
		Clock:        o.clock(),
		ResyncPeriod: c.ResyncPeriod.Duration,
		Workers:      c.Workers.ScaledDeployments,
	}
	if err := owners.SetupWithManager(ctx, mgr); err != nil {
		return nil, fmt.Errorf("setting up the ScaledDeployment controller: %w", err)
	}
	if err := mgr.Add(collector); err != nil {
		return nil, fmt.Errorf("adding the collector: %w", err)
	}
	if err := addPolicies(ctx, mgr, c, cached.Fleet, o.clock(), rights, frozen); err != nil {
		return nil, err
	}
	if err := addInstallation(mgr, c); err != nil {
		return nil, err
	}
	return collector, addChecks(mgr, scope)
}

// fillCache keeps what the controllers read in the manager's cache from the start, also while another replica leads. A
// controller starts only when the whole cache is filled, so a new leader would wait for a kind that it asks for only then,
// and forever if an uninstallation has deleted the kind already.
func fillCache(ctx context.Context, mgr ctrl.Manager, scope Scope) error {
	kinds := []client.Object{
		&corev1.LimitRange{}, &corev1.ResourceQuota{}, &autoscalingv2.HorizontalPodAutoscaler{}, &v1beta1.NewPodSizes{}, &v1beta1.ScalingPolicy{},
	}
	if scope.servesClusterPolicies() {
		kinds = append(kinds, &v1beta1.ClusterScalingPolicy{})
	}
	for _, kind := range kinds {
		if _, err := mgr.GetCache().GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return nil
}

// freezing is the switch that stops all changes, and where it is watched.
type freezing struct {
	by  *freeze.Switch
	api corev1client.ConfigMapsGetter
}

// addScalers adds the VerticalScaler controller and the backfill of its histories.
func addScalers(
	ctx context.Context, mgr ctrl.Manager, c config.Operator, cached *inventory.Cache, collector *collect.Collector, triggers chan event.GenericEvent,
	scope Scope, freezing freezing, changes *budget.Budget,
) error {
	usage, err := addBackfill(mgr, c, collector)
	if err != nil {
		return err
	}
	nodes, err := watchedNodes(ctx, mgr, scope)
	if err != nil {
		return err
	}
	vpas, err := watchedVPAs(mgr, scope)
	if err != nil {
		return err
	}
	sizes := &newpods.Reconciler{Client: mgr.GetClient(), Clock: collector.Clock, Workers: c.Workers.VerticalScalers, Wake: triggers}
	reconciler := &verticalscaler.Reconciler{
		Client:         mgr.GetClient(),
		Live:           mgr.GetAPIReader(),
		Recorder:       mgr.GetEventRecorder(verticalscaler.Name),
		Clock:          collector.Clock,
		Pods:           cached.Pods,
		Histories:      collector.Histories,
		Usage:          usage,
		Params:         c.Params(),
		Budget:         changes,
		Freeze:         freezing.by,
		FreezeAPI:      freezing.api,
		Nodes:          nodes,
		Ceilings:       c.Ceilings.Plan(),
		VPAs:           vpas,
		Metrics:        &metrics.Scalers{Detail: c.Metrics.Scalers},
		Policies:       mgr.GetCache(),
		Release:        releaseOf(c),
		Access:         scaler.ClusterAccess{Namespaces: scope.Namespaces, NodesForbidden: scope.NodesForbidden},
		NewPodsRefused: sizes.Refused,
		ResyncPeriod:   c.ResyncPeriod.Duration,
		Workers:        c.Workers.VerticalScalers,
	}
	if err := reconciler.SetupWithManager(ctx, mgr, triggers); err != nil {
		return fmt.Errorf("setting up the VerticalScaler controller: %w", err)
	}
	if err := sizes.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the sizes of new pods: %w", err)
	}
	return nil
}

// watchedNodes reads nodes; nil without the right to read them.
func watchedNodes(ctx context.Context, mgr ctrl.Manager, scope Scope) (*inventory.Nodes, error) {
	if !scope.readsNodes() {
		return nil, nil
	}
	return inventory.WatchNodes(ctx, mgr.GetCache())
}

// watchedVPAs reads the VerticalPodAutoscalers of the watched namespaces.
func watchedVPAs(mgr ctrl.Manager, scope Scope) (*inventory.VPAs, error) {
	reader, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating a client for VerticalPodAutoscalers: %w", err)
	}
	namespaces, _ := scope.readable()
	return &inventory.VPAs{Client: reader, Namespaces: namespaces, RetryPeriod: inventory.VPARetryPeriod, Clock: clock.RealClock{}}, nil
}

// addChecks adds the health and readiness checks.
func addChecks(mgr ctrl.Manager, scope Scope) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("caches", cachesSynced(mgr.GetCache())); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	if err := mgr.AddReadyzCheck("namespaces", anyNamespaceReadable(scope)); err != nil {
		return fmt.Errorf("adding the readiness check of namespaces: %w", err)
	}
	return nil
}
