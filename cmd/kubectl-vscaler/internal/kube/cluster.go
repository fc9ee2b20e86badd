// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube reads the cluster that kubectl would use, with the rights of the user.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
)

// Cluster is the cluster that kubectl would use. The kubeconfig is read when it is first
// needed.
type Cluster struct {
	// Clock is the local time.
	Clock clock.WithTicker

	config    clientcmd.ClientConfig
	overrides *clientcmd.ConfigOverrides // by flags
	// operatorNamespace is where the operator runs; empty if the user does not say.
	operatorNamespace string
	time              serverClock
}

// New adds kubectl's own flags: --kubeconfig, --context, --namespace and the like.
func New(root *cobra.Command) *Cluster {
	rules, overrides, flags := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}, root.PersistentFlags()
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	c := &Cluster{Clock: clock.RealClock{}, config: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), overrides: overrides}
	flags.StringVar(&c.operatorNamespace, "operator-namespace", "", "The namespace of the operator, to see whether it runs. By default it is looked for")
	return c
}

// Now is the time of the API server.
func (c *Cluster) Now() time.Time { return c.time.Now(c.Clock.Now()) }

// Name is the name of the kubeconfig's cluster; empty if it has none.
func (c *Cluster) Name() string {
	config, err := c.config.RawConfig()
	if err != nil {
		return ""
	}
	if current := config.Contexts[config.CurrentContext]; current != nil {
		return current.Cluster
	}
	return ""
}

// Namespace is the value of --namespace, or the namespace of the kubeconfig's context. It works
// without a kubeconfig.
func (c *Cluster) Namespace() (string, error) {
	name, _, err := c.config.Namespace()
	if clientcmd.IsEmptyConfig(err) {
		return metav1.NamespaceDefault, nil
	}
	return name, c.explain(err)
}

// NamespaceOrAll is "" for all namespaces.
func (c *Cluster) NamespaceOrAll(isAll bool) (string, error) {
	if isAll {
		return metav1.NamespaceAll, nil
	}
	return c.Namespace()
}

// explain says which context the kubeconfig does not have, if that is the error.
func (c *Cluster) explain(err error) error {
	if !clientcmd.IsContextNotFound(err) {
		return err
	}
	name := c.overrides.CurrentContext
	if raw, err := c.config.RawConfig(); err == nil && name == "" {
		name = raw.CurrentContext
	}
	return fmt.Errorf("the kubeconfig has no context %q: see \"kubectl config get-contexts\"", name)
}

// Config is the configuration of clients.
func (c *Cluster) Config() (*rest.Config, error) {
	config, err := c.config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: set KUBECONFIG or --kubeconfig, or create ~/.kube/config")
	}
	return config, c.explain(err)
}

// OpenNamespace is the namespace, or "" for all of them, and a client.
func (c *Cluster) OpenNamespace(isAll bool) (string, client.Client, error) {
	namespace, err := c.NamespaceOrAll(isAll)
	if err != nil {
		return "", nil, err
	}
	opened, err := c.Open()
	return namespace, opened, err
}

// Open creates a client for the few kinds that the plugin reads. They are known in advance, which
// saves the discovery requests.
func (c *Cluster) Open() (client.Client, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	// The client's library would print a stack trace into commands that run for more than 30
	// seconds without a logger. Its errors are returned.
	log.SetLogger(logr.Discard())
	config.Wrap(c.time.wrap)
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, autoscalingv2.AddToScheme, coordinationv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	for _, kind := range append([]schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		appsv1.SchemeGroupVersion.WithKind("DaemonSet"), batchv1.SchemeGroupVersion.WithKind("CronJob"), RolloutKind, coordinationv1.SchemeGroupVersion.WithKind("Lease"), VPAKind,
		v1beta1.GroupVersion.WithKind(string(ScalerKind)), v1beta1.GroupVersion.WithKind(string(OwnerKind)), v1beta1.GroupVersion.WithKind(string(PolicyKind)),
	}, Bundled...) {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("Node"), admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"), admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"), v1beta1.GroupVersion.WithKind(string(ClusterPolicyKind)),
		authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
	} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	usage := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	mapper.AddSpecific(usage.WithKind("PodMetrics"), usage.WithResource("pods"), usage.WithResource("pod"), meta.RESTScopeNamespace)
	return client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// VPAKind is the kind of VerticalPodAutoscalers.
var VPAKind = schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"}

// RolloutKind is the kind of Argo Rollouts.
var RolloutKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Rollout"}

// Bundled are kinds of which a support bundle has all objects of a namespace.
var Bundled = []schema.GroupVersionKind{
	autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
	corev1.SchemeGroupVersion.WithKind("LimitRange"),
	corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
	corev1.SchemeGroupVersion.WithKind("Event"),
}

// pageSize is the number of objects in one response of the API server.
const pageSize = 500

// List reads all objects of a list, page by page. Each page is a new list.
func List[P interface {
	*L
	client.ObjectList
}, L any](ctx context.Context, c client.Reader, each func(page P), options ...client.ListOption) error {
	for next := ""; ; {
		page := P(new(L))
		if err := c.List(ctx, page, append(options[:len(options):len(options)], client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		each(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// DefaultOperatorNamespace is where dist/install.yaml installs the operator.
const DefaultOperatorNamespace = "verticalscaler-system"

// Operators reads the leases of the operators, and their freeze switches. Without a lease, the operators are nil, and the error
// is ErrNoLease or why none could be read.
func (c *Cluster) Operators(ctx context.Context, reader client.Reader, namespace string) (explain.Operators, error) {
	leases, err := c.leases(ctx, reader, namespace)
	operators := explain.OperatorsOf(leases)
	for i := range operators {
		// Users who may not read it see it in the conditions of scalers.
		var found corev1.ConfigMap
		if reader.Get(ctx, types.NamespacedName{Namespace: operators[i].Namespace, Name: v1beta1.FreezeName}, &found) == nil {
			operators[i].Freeze = FreezeIn(&found)
		}
	}
	if err == nil && len(operators) == 0 {
		err = ErrNoLease
	}
	return operators, err
}

// ErrNoLease is the error for a cluster without a lease of an operator.
var ErrNoLease = errors.New("no lease of an operator is found: none has run, or it runs without leader election (leaderElection.enabled)")

// OperatorMay reports whether the ServiceAccount of an operator has a right. Most users may not ask.
func OperatorMay(ctx context.Context, c client.Client, operatorNamespace string, right authorizationv1.ResourceAttributes) (bool, error) {
	user := "system:serviceaccount:" + operatorNamespace + ":" + release.ServiceAccount
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &right, User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + operatorNamespace, "system:authenticated"},
	}}
	if err := c.Create(ctx, &review); err != nil {
		return false, fmt.Errorf("asking what %s may do: %w", user, err)
	}
	return review.Status.Allowed, nil
}

// FreezeIn reads the freeze switch of an operator.
func FreezeIn(switched *corev1.ConfigMap) *explain.Freeze {
	state, by := freeze.Read(switched), switched.Data[freeze.KeyUser]
	if len(switched.ManagedFields) > 0 {
		by = cmp.Or(by, switched.ManagedFields[0].Manager)
	}
	return &explain.Freeze{Namespaces: state.Namespaces, Reason: state.Reason, By: by, Since: &switched.CreationTimestamp}
}

// leases reads the leases of the operators. Without the right to list them, it reads those in the operator's
// namespace and in the given one. It fails if it can read none.
func (c *Cluster) leases(ctx context.Context, reader client.Reader, namespace string) ([]coordinationv1.Lease, error) {
	var leases coordinationv1.LeaseList
	candidates := []string{c.operatorNamespace}
	if c.operatorNamespace == "" {
		err := reader.List(ctx, &leases, client.MatchingFields{"metadata.name": v1beta1.LeaseName})
		switch {
		case err == nil:
			return leases.Items, nil
		case !apierrors.IsForbidden(err):
			return nil, fmt.Errorf("listing leases: %w", err)
		}
		candidates = []string{DefaultOperatorNamespace, namespace}
	}
	var reasons []string
	for _, candidate := range slices.Compact(candidates) {
		if candidate == "" { // all namespaces
			continue
		}
		var lease coordinationv1.Lease
		switch err := reader.Get(ctx, types.NamespacedName{Namespace: candidate, Name: v1beta1.LeaseName}, &lease); {
		case err == nil:
			leases.Items = append(leases.Items, lease)
		case !apierrors.IsNotFound(err):
			reasons = append(reasons, fmt.Sprintf("reading the lease in namespace %s: %v", candidate, err))
		}
	}
	if len(leases.Items) == 0 && len(reasons) > 0 {
		return nil, errors.New(strings.Join(reasons, "; "))
	}
	return leases.Items, nil
}

// OperatorsOr is Operators. An error is added to what is missing.
func (c *Cluster) OperatorsOr(ctx context.Context, reader client.Reader, namespace string, missing *[]string) explain.Operators {
	operators, err := c.Operators(ctx, reader, namespace)
	if err != nil {
		*missing = append(*missing, fmt.Sprintf("Whether the operator runs: %v", err))
	}
	return operators
}

// OperatorNamespace is the namespace of --operator-namespace, or the default.
func (c *Cluster) OperatorNamespace() string {
	return cmp.Or(c.operatorNamespace, DefaultOperatorNamespace)
}

// serverClock tells the time of the API server, by the Date of its responses: the operator's clock is
// closer to it than that of the user's machine. The zero value is the local time.
type serverClock struct{ offset atomic.Int64 }

// Now is the server's time at a local time.
func (c *serverClock) Now(local time.Time) time.Time {
	return local.Add(time.Duration(c.offset.Load()))
}

// wrap notes the time of each response.
func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil {
			c.note(response.Header.Get("Date"), clock.RealClock{}.Now())
		}
		return response, err
	})
}

// note notes the time of a response. Dates are in whole seconds, so that smaller offsets mean
// nothing.
func (c *serverClock) note(date string, local time.Time) {
	if at, err := http.ParseTime(date); err == nil {
		offset := at.Sub(local)
		if offset.Abs() < 2*time.Second {
			offset = 0
		}
		c.offset.Store(int64(offset))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
