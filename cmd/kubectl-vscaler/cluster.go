// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// cluster is the cluster that kubectl would use. The kubeconfig is read when it is first
// needed.
type cluster struct {
	config    clientcmd.ClientConfig
	overrides *clientcmd.ConfigOverrides // by flags
	// operatorNamespace is where the operator runs; empty if the user does not say.
	operatorNamespace string
	time              serverClock
}

// newCluster adds kubectl's own flags: --kubeconfig, --context, --namespace and the like.
func newCluster(root *cobra.Command) *cluster {
	rules, overrides, flags := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}, root.PersistentFlags()
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	c := &cluster{config: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), overrides: overrides}
	flags.StringVar(&c.operatorNamespace, "operator-namespace", "", "The namespace of the operator, to see whether it runs. By default it is looked for")
	return c
}

// namespace is the value of --namespace, or the namespace of the kubeconfig's context. It works
// without a kubeconfig.
func (c *cluster) namespace() (string, error) {
	name, _, err := c.config.Namespace()
	if clientcmd.IsEmptyConfig(err) {
		return metav1.NamespaceDefault, nil
	}
	return name, c.explain(err)
}

// explain says which context the kubeconfig does not have, if that is the error.
func (c *cluster) explain(err error) error {
	if !clientcmd.IsContextNotFound(err) {
		return err
	}
	name := c.overrides.CurrentContext
	if raw, err := c.config.RawConfig(); err == nil && name == "" {
		name = raw.CurrentContext
	}
	return fmt.Errorf("the kubeconfig has no context %q: see \"kubectl config get-contexts\"", name)
}

// open creates a client for the few kinds that the plugin reads. They are known in advance, which
// saves the discovery requests.
func (c *cluster) open() (client.Client, error) {
	config, err := c.config.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no cluster is configured: set KUBECONFIG or --kubeconfig, or create ~/.kube/config")
	case err != nil:
		return nil, c.explain(err)
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
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), meta.RESTScopeRoot)
	usage := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	mapper.AddSpecific(usage.WithKind("PodMetrics"), usage.WithResource("pods"), usage.WithResource("pod"), meta.RESTScopeNamespace)
	mapper.Add(vpaKind, meta.RESTScopeNamespace)
	for _, kind := range bundled {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(v1beta1.GroupVersion.WithKind("VerticalScaler"), meta.RESTScopeNamespace)
	mapper.Add(v1beta1.GroupVersion.WithKind("VerticalScalerCheckpoint"), meta.RESTScopeNamespace)
	mapper.Add(v1beta1.GroupVersion.WithKind("ScaledDeployment"), meta.RESTScopeNamespace)
	mapper.Add(v1beta1.GroupVersion.WithKind(v1beta1.ScalingPolicyKind), meta.RESTScopeNamespace)
	mapper.Add(v1beta1.GroupVersion.WithKind(v1beta1.ClusterScalingPolicyKind), meta.RESTScopeRoot)
	return client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
}
