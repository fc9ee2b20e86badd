// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app assembles the operator: options become configuration, configuration becomes
// manager options, and manager options become a running manager. It is the only package
// that imports all the others.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/scaleddeployment"
	"github.com/verticalscaler/verticalscaler-operator/controllers/scalingpolicy"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/policies"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/upgradeable"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// userAgent identifies the operator in the API server's audit log.
const userAgent = "verticalscaler-operator"

// WatchNamespaceEnv is the environment variable that OLM sets to the namespaces to watch,
// separated by commas. Empty or unset means all.
const WatchNamespaceEnv = "WATCH_NAMESPACE"

// NamespaceEnv is the environment variable with the operator's namespace.
const NamespaceEnv = "POD_NAMESPACE"

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

// Options are the inputs of an operator beside its configuration.
type Options struct {
	// Source has the usage of pods.
	Source collect.Source
	// Clock is the time of decisions, statuses and rounds of usage; the real time if nil. Leases, time-outs and the delays of
	// queues always follow the real time.
	Clock clock.WithTicker
}

// RunInNamespaces runs the operator in the given namespaces, or in all if there are none,
// until the context ends.
//
// The operator skips a namespace that it cannot read, because the namespace does not exist
// or because rights are missing. It notices later that it has them. A cache
// cannot be extended to another namespace, so the operator then restarts the manager in the
// same process.
func RunInNamespaces(ctx context.Context, restConfig *rest.Config, c config.Operator, o Options, namespaces ...string) error {
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Wrap(withDeadline)
	p := newProcess(c, o)
	var err error
	if p.check, err = checkWithReview(restConfig); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := p.runManager(ctx, restConfig, namespaces); err != nil {
			return err
		}
	}
	return nil
}

// process is the state that outlives a manager.
type process struct {
	config    config.Operator
	source    collect.Source
	clock     clock.WithTicker
	namespace string      // the operator's own; empty if unknown
	check     accessCheck // nil if the manager was set up by Setup
	changes   *budget.Budget
	histories *checkpoint.Store
}

func newProcess(c config.Operator, o Options) *process {
	p := &process{
		config:    c,
		source:    o.Source,
		clock:     o.Clock,
		namespace: os.Getenv(NamespaceEnv),
		changes:   newBudget(c),
		histories: &checkpoint.Store{Params: c.Params().History},
	}
	if p.clock == nil {
		p.clock = clock.RealClock{}
	}
	return p
}

// newBudget creates the change budget. All managers of the process share it, so that a
// restarted manager does not start with a full budget.
func newBudget(c config.Operator) *budget.Budget {
	return budget.New(budget.Limits{
		Changes:      c.Budget.ChangesPerMinute,
		PerNamespace: c.Budget.ChangesPerMinutePerNamespace,
		PodPercent:   c.Budget.PodPercentPerMinute,
		Window:       c.Budget.Window,
		Wakes:        2 * c.Workers.VerticalScalers,
	})
}

// runManager runs one manager until the context ends, or until the operator has rights that it lacked. If the API server does
// not answer, it waits for the API server instead.
func (p *process) runManager(ctx context.Context, restConfig *rest.Config, namespaces []string) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	a := &assembly{process: p, restart: stop}
	err := a.connect(running, restConfig, namespaces)
	if isUnanswered(err) {
		return p.waitForAPIServer(ctx, restConfig, err)
	}
	if err == nil {
		err = a.addAll(running)
	}
	if err != nil {
		return err
	}
	return a.mgr.Start(running)
}

// connect creates the manager, for the part of the cluster that the operator may read.
func (a *assembly) connect(ctx context.Context, restConfig *rest.Config, namespaces []string) (err error) {
	if a.scope, err = a.check.findScope(ctx, a.config, namespaces); err != nil {
		return err
	}
	a.scope.log(log.FromContext(ctx))
	missing := &atomic.Bool{}
	if a.mgr, err = NewManager(restConfig, a.config, a.scope, missing); err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	if a.config.LeaderElection.Enabled { // else there is no lease
		a.missing = missing
	}
	return nil
}

// Setup adds the controllers and the collector to the manager, and returns the collector.
func Setup(ctx context.Context, mgr ctrl.Manager, c config.Operator, o Options, scope Scope) (*collect.Collector, error) {
	a := &assembly{process: newProcess(c, o), mgr: mgr, scope: scope}
	err := a.addAll(ctx)
	return a.collector, err
}

// assembly adds the parts of the operator to one manager.
type assembly struct {
	*process

	mgr     ctrl.Manager
	scope   Scope
	restart func() // ends the manager, so that the next one has the rights that the operator lacks now

	cached    *inventory.Cache
	triggers  chan event.GenericEvent // reconciles the scalers that the collector names
	collector *collect.Collector
	missing   *atomic.Bool   // usage of nearly all pods is missing; nil without a lease
	freeze    *freeze.Switch // nil without a switch
	freezeAPI corev1client.ConfigMapsGetter
}

// addAll adds each part after those that it uses.
func (a *assembly) addAll(ctx context.Context) error {
	parts := []func(context.Context) error{
		a.fillCache,
		a.addCollector,
		a.addFreezeSwitch,
		a.addScalers,
		a.addScaledDeployments,
		a.addPolicies,
		a.addInstallation,
		a.addChecks,
		a.addAccessChecker,
	}
	if _, ok := a.scope.readable(); !ok {
		parts = []func(context.Context) error{a.addChecks, a.addAccessChecker}
	}
	for _, add := range parts {
		if err := add(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fillCache fills the manager's cache for the controllers from the start, also while another replica leads. A controller
// starts only when the whole cache is filled. A new leader would wait for a kind that it requests only then, and forever
// if an uninstallation has deleted the kind already.
func (a *assembly) fillCache(ctx context.Context) error {
	// Index the Deployments before a controller looks them up.
	if err := inventory.Index(ctx, a.mgr.GetFieldIndexer()); err != nil {
		return err
	}
	kinds := []client.Object{
		&corev1.LimitRange{}, &corev1.ResourceQuota{}, &autoscalingv2.HorizontalPodAutoscaler{}, &v1beta1.NewPodSizes{}, &v1beta1.ScalingPolicy{},
	}
	if a.scope.servesCluster(ClusterPolicies) {
		kinds = append(kinds, &v1beta1.ClusterScalingPolicy{})
	}
	for _, kind := range kinds {
		if _, err := a.mgr.GetCache().GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return nil
}

// addCollector adds the collector of usage. It triggers a reconcile of every scaler without waiting for the controller.
func (a *assembly) addCollector(context.Context) error {
	var ok bool
	if a.cached, ok = a.mgr.GetCache().(*inventory.Cache); !ok {
		return fmt.Errorf("the manager's cache is a %T", a.mgr.GetCache())
	}
	a.triggers = make(chan event.GenericEvent, 1024)
	a.histories.Client, a.histories.Live = a.mgr.GetClient(), a.mgr.GetAPIReader()
	a.collector = &collect.Collector{
		Cached:    a.mgr.GetCache(),
		Pods:      a.cached.Pods,
		Source:    a.source,
		Histories: a.histories,
		Interval:  a.config.Collection.Interval.Duration,
		Clock:     a.clock,
		Params:    a.config.Params(),
		Wake:      a.triggers,
		Missing:   a.missing,
	}
	if len(a.scope.Namespaces) == 0 {
		a.collector.CountPods = countPods(a.mgr.GetAPIReader())
	}
	if err := a.mgr.Add(a.collector); err != nil {
		return fmt.Errorf("adding the collector: %w", err)
	}
	return nil
}

// countPods counts the pods of all namespaces. It asks the API server for one, and for the number of others.
func countPods(api client.Reader) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		one := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if err := api.List(ctx, one, client.Limit(1)); err != nil {
			return 0, fmt.Errorf("counting the pods of all namespaces: %w", err)
		}
		if one.Continue != "" && one.RemainingItemCount == nil {
			return 0, errors.New("the API server does not say how many pods there are")
		}
		return len(one.Items) + int(ptr.Deref(one.RemainingItemCount, 0)), nil
	}
}

// addFreezeSwitch adds the switch that freezes changes, and the client that watches its ConfigMap, if both have a name.
func (a *assembly) addFreezeSwitch(context.Context) error {
	name := types.NamespacedName{Namespace: cmp.Or(a.config.Freeze.Namespace, a.namespace), Name: a.config.Freeze.ConfigMap}
	if name.Namespace == "" || name.Name == "" {
		a.mgr.GetLogger().Info("Freeze switch is disabled because the operator's namespace is unknown or the configuration names no ConfigMap",
			"unset", NamespaceEnv)
		return nil
	}
	api, err := corev1client.NewForConfigAndClient(a.mgr.GetConfig(), a.mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("creating a client for the freeze switch: %w", err)
	}
	a.freeze, a.freezeAPI = freeze.New(name), api
	return nil
}

// addScaledDeployments adds the ScaledDeployment controller.
func (a *assembly) addScaledDeployments(ctx context.Context) error {
	owners := &scaleddeployment.Reconciler{
		Client:       a.mgr.GetClient(),
		Live:         a.mgr.GetAPIReader(),
		Recorder:     a.mgr.GetEventRecorder(scaleddeployment.Name),
		Clock:        a.clock,
		ResyncPeriod: a.config.ResyncPeriod.Duration,
	}
	return owners.SetupWithManager(ctx, a.mgr)
}

// addPolicies adds the controllers of policies.
func (a *assembly) addPolicies(ctx context.Context) error {
	policies := &scalingpolicy.Reconciler{
		Client:        a.mgr.GetClient(),
		Cached:        a.mgr.GetCache(),
		Live:          a.mgr.GetAPIReader(),
		Deployments:   a.cached.Deployments,
		Freeze:        a.freeze,
		Recorder:      a.mgr.GetEventRecorder(scalingpolicy.Name),
		Clock:         a.clock,
		ResyncPeriod:  a.config.ResyncPeriod.Duration,
		Workers:       a.config.Workers.VerticalScalers,
		OwnNamespace:  a.namespace,
		Release:       a.release(),
		ServesCluster: a.scope.servesCluster(ClusterPolicies),
		Forbidden:     a.scope.policiesForbidden(),
	}
	return policies.SetupWithManager(ctx, a.mgr)
}

// addInstallation adds the parts that concern the operator's own installation: the OLM
// upgrade gate, and the check of the admission policies.
func (a *assembly) addInstallation(context.Context) error {
	if err := upgradeable.Setup(a.mgr, a.namespace); err != nil {
		return fmt.Errorf("adding the upgrade gate: %w", err)
	}
	if err := policies.Setup(a.mgr, a.namespace, a.release()); err != nil {
		return fmt.Errorf("adding the check of the admission policies: %w", err)
	}
	return nil
}

// release is the release that the operator belongs to.
func (p *process) release() release.Release {
	return release.Release{Version: p.config.Version, Namespace: p.namespace}
}
