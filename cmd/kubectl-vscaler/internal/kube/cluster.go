// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube reads the cluster that kubectl would use, with the rights of the user.
package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
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
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, authorizationv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	for _, kind := range append([]schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"), appsv1.SchemeGroupVersion.WithKind("Deployment"), coordinationv1.SchemeGroupVersion.WithKind("Lease"), VPAKind,
		v1beta1.GroupVersion.WithKind(string(ScalerKind)), v1beta1.GroupVersion.WithKind(string(OwnerKind)), v1beta1.GroupVersion.WithKind(string(PolicyKind)),
	}, Bundled...) {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Namespace"), admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), v1beta1.GroupVersion.WithKind(string(ClusterPolicyKind)),
		authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
	} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	usage := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	mapper.AddSpecific(usage.WithKind("PodMetrics"), usage.WithResource("pods"), usage.WithResource("pod"), meta.RESTScopeNamespace)
	return client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// VPAKind is the kind of VerticalPodAutoscalers.
var VPAKind = schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"}

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
