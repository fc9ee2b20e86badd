// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provision creates what the operator brings along but cannot be installed
// with it: a ServiceMonitor and alerts, whose API is not served everywhere, and a
// NetworkPolicy, which some catalogs refuse in a bundle.
//
// They are in the operator's namespace and belong to its Deployment, so that Kubernetes
// deletes them when it is uninstalled. The operator checks them when it starts and once per
// resync period, and writes them only if they differ. It leaves foreign objects alone.
package provision

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// NamespaceEnv names the environment variable that tells the operator's namespace.
	NamespaceEnv = "POD_NAMESPACE"
	// DeploymentEnv names the one that tells the name of the operator's Deployment.
	DeploymentEnv = "OPERATOR_DEPLOYMENT"
	// Manager is the field manager of what is provisioned.
	Manager = "verticalscaler-operator"
	// retryPeriod is when a round is made again that has failed for a reason that may
	// pass by itself. It doubles, up to the resync period.
	retryPeriod = 10 * time.Second
)

// Options say what to provision, and where.
type Options struct {
	// Namespace is the operator's own. Without it, nothing is provisioned.
	Namespace string
	// Deployment is the name of the operator's own, which owns what is provisioned.
	// Without it, nothing is provisioned.
	Deployment string
	// Monitoring is for a ServiceMonitor and a PrometheusRule.
	Monitoring bool
	// NetworkPolicy is for a NetworkPolicy.
	NetworkPolicy bool
	// SecureMetrics says that the metrics are served over TLS, to those who may read
	// them.
	SecureMetrics bool
	// CertDir is the folder of the certificate of the metrics.
	CertDir string
	// ResyncPeriod is how often the objects are looked at.
	ResyncPeriod time.Duration
}

// Setup adds a Provisioner to the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	p, err := New(mgr.GetConfig(), o)
	if err != nil {
		return err
	}
	return mgr.Add(p)
}

// Provisioner keeps the objects as they should be. It runs on the leader only.
type Provisioner struct {
	Options
	// Clock is the time.
	Clock clock.Clock

	api       dynamic.Interface
	discovery discovery.DiscoveryInterfaceWithContext
	// told is what was last said of each kind of object, so that it is said once.
	told map[string]string
}

// New makes a Provisioner. It reads live: these few objects are not worth a watch, nor
// the right to list them.
func New(c *rest.Config, o Options) (*Provisioner, error) {
	api, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("creating a client for provisioned objects: %w", err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("creating a discovery client: %w", err)
	}
	return &Provisioner{Options: o, Clock: clock.RealClock{}, api: api, discovery: found, told: map[string]string{}}, nil
}

// NeedLeaderElection says that only the leader provisions.
func (p *Provisioner) NeedLeaderElection() bool { return true }

// Start makes a round at once and then once per resync period, until the context ends.
// Nothing that fails ends the operator.
func (p *Provisioner) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("provision")
	ctx = log.IntoContext(ctx, logger)
	if p.Namespace == "" || p.Deployment == "" {
		logger.Info("Nothing is provisioned: the operator does not know its own Deployment",
			"unset", map[string]bool{NamespaceEnv: p.Namespace == "", DeploymentEnv: p.Deployment == ""})
		return nil
	}
	retry := retryPeriod
	for {
		pause := p.ResyncPeriod
		if p.Round(ctx) {
			retry = retryPeriod
		} else {
			pause, retry = min(retry, p.ResyncPeriod), min(2*retry, p.ResyncPeriod)
		}
		timer := p.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// Round looks at every object once. It returns false if it is worth trying again soon.
func (p *Provisioner) Round(ctx context.Context) (done bool) {
	deployment, err := p.api.Resource(deployments).Namespace(p.Namespace).Get(ctx, p.Deployment, metav1.GetOptions{})
	if err != nil {
		p.tell(ctx, "Deployment", err.Error(), "Nothing is provisioned: the operator's own Deployment cannot be read",
			"Deployment", p.Namespace+"/"+p.Deployment, "error", err.Error())
		return !isPassing(err)
	}
	p.told["Deployment"] = ""
	if deployment.GetDeletionTimestamp() != nil {
		return true // and what it owns goes with it
	}
	objects, err := wanted(p.Options, deployment.GetUID())
	if err != nil {
		log.FromContext(ctx).Error(err, "Nothing is provisioned") // the files are ours, so it is a bug of ours
		return true
	}
	done = true
	for _, o := range objects {
		became, err := p.settle(ctx, o, deployment.GetUID())
		p.report(ctx, o.want, became, err)
		if o.want.GetKind() == "ServiceMonitor" && o.on && err == nil && became != notServed {
			p.tellOfCertificate(ctx)
		}
		done = done && became != former && !isPassing(err)
	}
	return done
}

// outcome is what has become of an object, in the words of the log.
type outcome string

const (
	// What has been done.
	unchanged outcome = ""
	created   outcome = "Provisioned"
	repaired  outcome = "Reverted changes"
	removed   outcome = "Removed a disabled object"
	// These last until a user or another controller acts.
	notServed outcome = "Not provisioned: the cluster does not serve its API"
	foreign   outcome = "Not provisioned: an object with that name belongs to another owner"
	former    outcome = "Not provisioned yet: the object of a previous Deployment of the operator is being garbage-collected"
	forbidden outcome = "Not provisioned: the operator lacks the right"
	failing   outcome = "Not provisioned: the request to the API server failed"
)

// settle makes one object as it should be, for the Deployment of this UID.
func (p *Provisioner) settle(ctx context.Context, o object, owner types.UID) (outcome, error) {
	resource, err := p.resourceOf(ctx, o.want.GroupVersionKind())
	if err != nil {
		return failing, err
	}
	if resource == "" {
		return notServed, nil
	}
	api := p.api.Resource(o.want.GroupVersionKind().GroupVersion().WithResource(resource)).Namespace(p.Namespace)
	have, err := api.Get(ctx, o.want.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if !o.on {
			return unchanged, nil
		}
		// Without force: another writer that creates it at this moment keeps it.
		_, err := api.Apply(ctx, o.want.GetName(), o.want, metav1.ApplyOptions{FieldManager: Manager})
		return created, err
	case err != nil:
		return failing, err
	case !ownedBy(have, owner):
		if !o.on {
			return unchanged, nil
		}
		if p.wasOurs(have) {
			return former, nil
		}
		return foreign, nil
	case have.GetDeletionTimestamp() != nil:
		return former, nil // created again after it is deleted
	case !o.on:
		return removed, api.Delete(ctx, o.want.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID: ptr.To(have.GetUID()), ResourceVersion: ptr.To(have.GetResourceVersion()),
		}})
	case !differs(o.want, have):
		return unchanged, nil
	}
	// With the version that was compared: a later change is compared again.
	want := o.want.DeepCopy()
	want.SetResourceVersion(have.GetResourceVersion())
	_, err = api.Apply(ctx, want.GetName(), want, metav1.ApplyOptions{FieldManager: Manager, Force: true})
	return repaired, err
}

// wasOurs says whether the object belongs to a Deployment of the operator that is no
// more: the garbage collector will delete it.
func (p *Provisioner) wasOurs(have *unstructured.Unstructured) bool {
	for _, owner := range have.GetOwnerReferences() {
		if owner.Kind == "Deployment" && owner.Name == p.Deployment {
			return true
		}
	}
	return false
}

// resourceOf is the plural under which the API server serves the kind; empty if it does
// not.
func (p *Provisioner) resourceOf(ctx context.Context, kind schema.GroupVersionKind) (string, error) {
	list, err := p.discovery.ServerResourcesForGroupVersionWithContext(ctx, kind.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("discovering the resources of %s: %w", kind.GroupVersion(), err)
	}
	for _, r := range list.APIResources {
		if r.Kind == kind.Kind && r.Namespaced {
			return r.Name, nil
		}
	}
	return "", nil
}

// isPassing says whether an error may pass by itself. A missing right does not, nor
// does what the API server calls wrong.
func isPassing(err error) bool {
	return err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err)
}

// report says what has become of an object: what was done each time, and what it waits
// for once.
func (p *Provisioner) report(ctx context.Context, want *unstructured.Unstructured, became outcome, err error) {
	key, name := want.GetKind(), p.Namespace+"/"+want.GetName()
	switch {
	case apierrors.IsConflict(err):
		// Another client has changed it. The next round checks it again.
	case apierrors.IsForbidden(err):
		p.tell(ctx, key, string(forbidden), string(forbidden), key, name, "error", err.Error())
	case err != nil:
		p.tell(ctx, key, err.Error(), string(failing), key, name, "error", err.Error())
	case became == foreign, became == former:
		p.tell(ctx, key, string(became), string(became), key, name)
	case became == notServed:
		p.tell(log.IntoContext(ctx, log.FromContext(ctx).V(1)), key, string(became), string(became), key, name)
	case became == unchanged:
		p.told[key] = ""
	default:
		p.told[key] = ""
		log.FromContext(ctx).Info(string(became), key, name)
	}
}

// tellOfCertificate says once that Prometheus cannot scrape the operator yet: it refuses a
// self-signed certificate.
func (p *Provisioner) tellOfCertificate(ctx context.Context) {
	if !p.SecureMetrics || exists(p.CertDir, certFile) {
		p.told[certFile] = ""
		return
	}
	p.tell(ctx, certFile, "missing", "Prometheus does not scrape the metrics until they have a certificate: create the Secret, see docs/monitoring.md",
		"Secret", p.Namespace+"/verticalscaler-metrics-tls")
}

// tell says what an object waits for, unless it was the last thing said of it.
func (p *Provisioner) tell(ctx context.Context, key, state, message string, more ...any) {
	if p.told[key] == state {
		return
	}
	p.told[key] = state
	log.FromContext(ctx).Info(message, more...)
}
