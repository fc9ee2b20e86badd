// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check has the command that checks the cluster and the rights of the user.
package check

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
)

// New is the command check.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	return cli.Command("check", nil, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		findings, err := Run(ctx, cluster)
		if err != nil {
			return err
		}
		if err := Write(streams.Out, findings); err != nil {
			return err
		}
		if slices.ContainsFunc(findings, func(f Finding) bool { return f.result == checkFailed }) {
			return cli.FailedCheck("a check failed")
		}
		return nil
	})
}

// checkResult is how a check ended.
type checkResult string

const (
	checkOK      checkResult = "OK"
	checkWarned  checkResult = "WARN"
	checkFailed  checkResult = "FAIL"
	checkUnknown checkResult = "UNKNOWN"
)

// Finding is one line of the result.
type Finding struct {
	what    string
	result  checkResult
	message string
}

// Write writes a table.
func Write(w io.Writer, findings []Finding) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CHECK\tRESULT\tMESSAGE")
	for _, f := range findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.what, f.result, strings.Join(strings.Fields(f.message), " "))
	}
	return table.Flush()
}

// preflight is what the checks read.
type preflight struct {
	client    client.Client
	discovery discovery.DiscoveryInterface
	cluster   *kube.Cluster
	namespace string
}

// Run runs all checks. It is an error if the API server cannot be reached.
func Run(ctx context.Context, cluster *kube.Cluster) ([]Finding, error) {
	namespace, c, err := cluster.OpenNamespace(false)
	if err != nil {
		return nil, err
	}
	config, err := cluster.Config()
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	p := &preflight{c, d, cluster, namespace}
	server, err := p.discovery.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its version: %w", err)
	}
	findings := []Finding{kubernetes(server.GitVersion)}
	operator, state := p.operator(ctx)
	findings = append(findings, p.api(ctx), state)
	if operator != nil {
		findings = append(findings, versions(operator.Version, cli.Version))
	}
	for _, check := range []func(context.Context) Finding{p.metrics, p.policies, p.vpas, p.scalers} {
		findings = append(findings, check(ctx))
	}
	return append(findings, p.rights(ctx)...), nil
}

// oldest is the oldest version of Kubernetes that the operator supports.
const oldest = "1.34.0"

func kubernetes(git string) Finding {
	found, err := utilversion.ParseGeneric(git)
	switch {
	case err != nil:
		return Finding{"Kubernetes", checkUnknown, fmt.Sprintf("the version %s cannot be read", git)}
	case found.LessThan(utilversion.MustParseGeneric(oldest)):
		return Finding{"Kubernetes", checkFailed, fmt.Sprintf("%s is older than %s", git, strings.TrimSuffix(oldest, ".0"))}
	case found.LessThan(utilversion.MustParseGeneric("1.36.0")):
		return Finding{"Kubernetes", checkWarned, git + ": the mode Initial and the fallback Recreate need 1.36"}
	}
	return Finding{"Kubernetes", checkOK, git}
}

func (p *preflight) api(ctx context.Context) Finding {
	const what = "VerticalScaler API"
	switch err := p.client.List(ctx, &v1beta1.VerticalScalerList{}, client.InNamespace(p.namespace), client.Limit(1)); {
	case err == nil:
		return Finding{what, checkOK, v1beta1.GroupVersion.String() + " is served"}
	case apierrors.IsNotFound(err):
		return Finding{what, checkFailed, v1beta1.GroupVersion.String() + " is not served: install the operator with " + release.Release{Version: cli.Version}.Install(release.Operator)}
	default:
		return Finding{what, checkUnknown, err.Error()}
	}
}

// operator is the operator of the namespace, nil if none is known, and whether it runs.
func (p *preflight) operator(ctx context.Context) (*explain.Operator, Finding) {
	const what = "Operator"
	operators, err := p.cluster.Operators(ctx, p.client, p.namespace)
	var scalers v1beta1.VerticalScalerList
	if p.client.List(ctx, &scalers, client.InNamespace(p.namespace)) != nil {
		scalers.Items = nil // the check of the API says so
	}
	isObserved := slices.ContainsFunc(scalers.Items, func(s v1beta1.VerticalScaler) bool { return len(s.Status.Conditions) > 0 })
	operator, ok := operators.Serving(scalers.Items...).For(p.namespace)
	now := p.cluster.Now()
	switch {
	case err != nil:
		return nil, Finding{what, checkUnknown, err.Error()}
	case !ok && isObserved:
		return nil, Finding{what, checkWarned, "no lease is found, so it is not known whether the operator runs"}
	case !ok:
		return nil, Finding{what, checkFailed, "no lease is found: no operator runs, or without leader election"}
	case operator.IsSilent(now):
		return &operator, Finding{what, checkFailed, operator.Report(now)}
	}
	return &operator, Finding{what, checkOK, operator.Report(now)}
}

// versions compares the versions of an operator and of this plugin. They may be one minor version
// apart.
func versions(operator, plugin string) Finding {
	const what = "Versions"
	if operator == "" {
		return Finding{what, checkUnknown, fmt.Sprintf("the plugin is %s, and the operator does not tell its version", plugin)}
	}
	both := fmt.Sprintf("the plugin is %s, the operator is %s", plugin, operator)
	ours, err := utilversion.ParseSemantic(plugin)
	theirs, theirErr := utilversion.ParseSemantic(operator)
	switch {
	case plugin == operator:
		return Finding{what, checkOK, both}
	case err != nil || theirErr != nil:
		return Finding{what, checkUnknown, both + ", which cannot be compared"}
	case ours.Major() != theirs.Major() || max(ours.Minor(), theirs.Minor())-min(ours.Minor(), theirs.Minor()) > 1:
		return Finding{what, checkWarned, both + ": what the plugin does not know, it leaves out. Use versions that are one minor version apart at most"}
	}
	return Finding{what, checkOK, both}
}

// metrics asks for the usage of the namespace's pods, as the operator does.
func (p *preflight) metrics(ctx context.Context) Finding {
	const what = "Usage (metrics.k8s.io)"
	switch err := p.list(ctx, schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}, new(int)); {
	case err == nil:
		return Finding{what, checkOK, "the usage of pods is served"}
	case apierrors.IsForbidden(err):
		return Finding{what, checkUnknown, err.Error()}
	case apierrors.IsNotFound(err):
		return Finding{what, checkFailed, "metrics.k8s.io is not served: install metrics-server"}
	default:
		return Finding{what, checkFailed, err.Error()}
	}
}

// list counts the objects of a kind in the namespace.
func (p *preflight) list(ctx context.Context, kind schema.GroupVersionKind, n *int) error {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := p.client.List(ctx, &list, client.InNamespace(p.namespace))
	*n = len(list.Items)
	return err
}

func (p *preflight) policies(ctx context.Context) Finding {
	const what = "Admission policies"
	var policies admissionv1.ValidatingAdmissionPolicyList
	switch err := p.client.List(ctx, &policies); {
	case err != nil:
		return Finding{what, checkUnknown, err.Error()}
	case !slices.ContainsFunc(policies.Items, func(v admissionv1.ValidatingAdmissionPolicy) bool {
		return strings.HasPrefix(v.Name, "verticalscaler-")
	}):
		return Finding{what, checkWarned, "none is installed, so users can size what they may not change: " + release.Release{Version: cli.Version}.Install(release.AdmissionPolicies)}
	}
	return Finding{what, checkOK, "they are installed"}
}

func (p *preflight) vpas(ctx context.Context) Finding {
	const what = "VerticalPodAutoscalers"
	n := 0
	switch err := p.list(ctx, kube.VPAKind, &n); {
	case apierrors.IsNotFound(err) || err == nil && n == 0:
		return Finding{what, checkOK, "there are none in namespace " + p.namespace}
	case err != nil:
		return Finding{what, checkUnknown, err.Error()}
	}
	return Finding{what, checkWarned, fmt.Sprintf("there are %d in namespace %s: a scaler leaves alone what they size", n, p.namespace)}
}

func (p *preflight) scalers(ctx context.Context) Finding {
	const what = "Scalers"
	var list v1beta1.VerticalScalerList
	if err := p.client.List(ctx, &list, client.InNamespace(p.namespace)); err != nil {
		return Finding{what, checkUnknown, err.Error()}
	}
	var bad []string
	for i := range list.Items {
		if row := explain.RowOf(explain.Evidence{Scaler: &list.Items[i]}); row.Ready != metav1.ConditionTrue {
			bad = append(bad, row.Name+" ("+row.Reason+")")
		}
	}
	if len(bad) > 0 {
		const most = 5
		more := ""
		if len(bad) > most {
			more = fmt.Sprintf(" and %d more", len(bad)-most)
		}
		return Finding{what, checkWarned, fmt.Sprintf("%d of %d in namespace %s are not Ready: %s%s", len(bad), len(list.Items), p.namespace, strings.Join(bad[:min(most, len(bad))], ", "), more)}
	}
	return Finding{what, checkOK, fmt.Sprintf("%d in namespace %s, all Ready", len(list.Items), p.namespace)}
}

// rights are those that a user needs in a namespace to size Deployments.
func (p *preflight) rights(ctx context.Context) (findings []Finding) {
	for _, right := range []struct {
		authorizationv1.ResourceAttributes

		otherwise string
	}{
		{authorizationv1.ResourceAttributes{Verb: "create", Group: v1beta1.GroupVersion.Group, Resource: "verticalscalers"}, "you can only look: ask for the ClusterRole verticalscaler-editor"},
		{authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Resource: "deployments"}, "the admission policies refuse your scalers"},
		{authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Subresource: "resize"}, "the admission policies refuse your scalers of the mode InPlace: ask for the ClusterRole verticalscaler-resizer"},
	} {
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right.ResourceAttributes}}
		review.Spec.ResourceAttributes.Namespace = p.namespace
		what := "Right to " + right.Verb + " " + strings.TrimSuffix(right.Resource+"/"+right.Subresource, "/")
		switch err := p.client.Create(ctx, &review); {
		case err != nil:
			findings = append(findings, Finding{what, checkUnknown, err.Error()})
		case review.Status.Allowed:
			findings = append(findings, Finding{what, checkOK, "in namespace " + p.namespace})
		default:
			findings = append(findings, Finding{what, checkWarned, "not in namespace " + p.namespace + ": " + right.otherwise})
		}
	}
	return findings
}
