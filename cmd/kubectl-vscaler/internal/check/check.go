// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check has the command that checks the cluster and the rights of the user.
package check

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// New is the command check.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &past.Options{Step: time.Minute}
	c := cli.Command(&cobra.Command{Use: "check", Short: "Check the cluster and your rights", Args: cli.NoArguments}, func(ctx context.Context, c *cobra.Command, _ []string) error {
		if err := o.Require(c.Flags().Changed); err != nil {
			return cli.Usage(err)
		}
		if o.Address != "" {
			if err := o.Validate(); err != nil {
				return cli.Usage(err)
			}
		}
		findings, err := Run(ctx, cluster, o)
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
	o.Bind(c, "The URL of a Prometheus to check for the usage that report and the operator read.")
	return c
}

// checkResult is the result of a check.
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

// Write writes a table that fits into a terminal.
func Write(w io.Writer, findings []Finding) error {
	_, err := io.WriteString(w, table(findings, cli.Width(w)))
	return err
}

// table breaks messages between words, at the width; 0 breaks none.
func table(findings []Finding, width int) string {
	var b strings.Builder
	writer := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(writer, "CHECK\tRESULT\tMESSAGE")
	for _, f := range findings {
		fmt.Fprintf(writer, "%s\t%s\t%s\n", f.what, f.result, strings.Join(strings.Fields(f.message), " "))
	}
	_ = writer.Flush() // A Builder has no error.
	at := strings.Index(b.String(), "MESSAGE")
	if width < 2*at {
		return b.String()
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		lines = append(lines, line[:at]+strings.Join(explain.Wrapped(line[at:], width-at), "\n"+strings.Repeat(" ", at))+"\n")
	}
	return strings.Join(lines, "")
}

// preflight is the input of the checks.
type preflight struct {
	client    client.Client
	cluster   *kube.Cluster
	namespace string
	operators explain.Operators
	overview  explain.Overview // of the scalers of the namespace
	waiting   int              // those whose pods wait for room on their node
	unsized   int              // those whose new pods start as in the template although they resize pods
	nodes     []string         // one Linux node of each kind, at most askedNodes
	allNodes  int
	// unknown is the error of reading the operators, and unread the error of reading the scalers.
	unknown, unread error
}

// check returns what it has found. With an error, it is UNKNOWN.
type check func(ctx context.Context) (checkResult, string, error)

// Run runs all checks, that of Prometheus if it has an address. It is an error if the API server cannot be reached.
func Run(ctx context.Context, cluster *kube.Cluster, history *past.Options) (findings []Finding, err error) {
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
	server, err := d.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its version: %w", err)
	}
	p := &preflight{client: c, cluster: cluster, namespace: namespace}
	run := func(what string, of check) {
		result, message, err := of(ctx)
		if err != nil {
			result, message = checkUnknown, err.Error()
		}
		findings = append(findings, Finding{what, result, message})
	}
	p.read(ctx)
	if frozen := p.operators.Freeze(namespace); frozen != nil {
		run("Freeze", func(context.Context) (checkResult, string, error) {
			return checkWarned, frozen.Report(cluster.Now()), nil
		})
	}
	run("Operator", p.runs)
	run("Kubernetes", func(context.Context) (checkResult, string, error) { return kubernetes(server.GitVersion) })
	run("Kubelets", p.kubelets)
	if len(p.nodes) > 0 {
		run("OOM kills of processes", p.processKills(d.RESTClient()))
	}
	run("VerticalScaler API", p.api)
	if operator, ok := p.operators.For(namespace); ok {
		run("Versions", func(context.Context) (checkResult, string, error) { return versions(operator.Version, cli.Version) })
		run("Rights of the operator", p.rightsOf(operator))
	}
	run("Usage (metrics.k8s.io)", p.metrics)
	if history.Address != "" {
		run("Past usage (Prometheus)", pastUsage(history, cluster.Config, cluster.Now()))
	}
	run("Admission policies", p.policies)
	run("Policies for new pods", p.newPods)
	run("VerticalPodAutoscalers", p.vpas)
	run("HorizontalPodAutoscalers", p.hpas)
	run("Scalers", p.scalers)
	run("Node autoscaler", p.nodeAutoscaler(d.RESTClient()))
	// These are the rights that a user needs in a namespace to size Deployments.
	run("Right to create verticalscalers", p.right(authorizationv1.ResourceAttributes{Verb: "create", Group: v1beta1.GroupVersion.Group, Resource: "verticalscalers"},
		"you can only look: ask for the ClusterRole verticalscaler-editor"))
	run("Right to patch deployments", p.right(authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Resource: "deployments"}, "the admission policies refuse your scalers"))
	run("Right to patch pods/resize", p.right(authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Subresource: "resize"},
		"the admission policies refuse your scalers of the mode InPlace: ask for the ClusterRole verticalscaler-resizer"))
	return findings, nil
}

// oldest is the oldest version of Kubernetes that the operator supports.
const oldest = "1.34.0"

func kubernetes(git string) (checkResult, string, error) {
	found, err := utilversion.ParseGeneric(git)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("the version %s cannot be read", git)
	case found.LessThan(utilversion.MustParseGeneric(oldest)):
		return checkFailed, fmt.Sprintf("%s is older than %s", git, strings.TrimSuffix(oldest, ".0")), nil
	case found.LessThan(utilversion.MustParseGeneric("1.36.0")):
		return checkWarned, git + ": the mode Initial and the fallbacks that evict pods need 1.36", nil
	}
	return checkOK, git, nil
}

// raisesAfterKills is the first version whose kubelets raise the limit of a pod while a container of it is OOM-killed. Nodes declare
// features, not fixes, so only the version tells.
const raisesAfterKills = "1.37.1"

// kubelets warns of those with a known fault that is fixed.
func (p *preflight) kubelets(ctx context.Context) (checkResult, string, error) {
	old, kinds := 0, map[[3]string]bool{}
	err := kube.List(ctx, p.client, func(page *corev1.NodeList) {
		for i := range page.Items {
			p.allNodes++
			info := page.Items[i].Status.NodeInfo
			version, err := utilversion.ParseGeneric(info.KubeletVersion)
			if err == nil && version.LessThan(utilversion.MustParseGeneric(raisesAfterKills)) {
				old++
			}
			kind := [3]string{info.KubeletVersion, info.KernelVersion, info.OSImage}
			if !kinds[kind] && info.OperatingSystem != "windows" && len(p.nodes) < askedNodes {
				p.nodes = append(p.nodes, page.Items[i].Name)
			}
			kinds[kind] = true
		}
	})
	if old == 0 || err != nil {
		return checkOK, fmt.Sprintf("none of %d is older than %s", p.allNodes, raisesAfterKills), err
	}
	return checkWarned, fmt.Sprintf("%d of %d are older than %s: while a container is OOM-killed, they do not raise the limit of its pod, so kills go on after a raise (kubernetes#138760, docs/runbook.md)", old, p.allNodes, raisesAfterKills), nil
}

const (
	// askedNodes limits the nodes whose configuration is read. Nodes of one pool are alike.
	askedNodes = 10
	// nodeTimeout bounds the requests to one node, which may be down.
	nodeTimeout = 5 * time.Second
)

// processKills names nodes where the kernel kills single processes of a container. The API has nothing about such a kill.
func (p *preflight) processKills(server rest.Interface) check {
	return func(ctx context.Context) (checkResult, string, error) {
		var found []string
		answers := 0
		for _, node := range p.nodes {
			isFound, err := killsProcesses(ctx, server, node)
			switch {
			case apierrors.IsForbidden(err):
				return checkUnknown, "not known: you may not get nodes/proxy", nil
			case err == nil:
				answers++
			}
			if isFound {
				found = append(found, node)
			}
		}
		asked := fmt.Sprintf("%d of %d nodes were read, one of each kind", answers, p.allNodes)
		switch {
		case answers == 0:
			return checkUnknown, "not known: none of the nodes answers: " + strings.Join(p.nodes, ", "), nil
		case len(found) == 0:
			return checkOK, asked + ": the kernel kills all processes of a container at once, and its status shows that", nil
		}
		return checkWarned, fmt.Sprintf("on %s, the kernel kills single processes of a container (cgroup v1 or singleProcessOOMKill), and neither pods nor events show that: docs/oom-after-a-change.md (%s)",
			strings.Join(found, ", "), asked), nil
	}
}

// killsProcesses reads the configuration of a kubelet through the API server, with the rights of the user. The configuration
// lacks the default of cgroup v1, so a kubelet that may run with that is asked for its metrics, too.
func killsProcesses(ctx context.Context, server rest.Interface, node string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	read := func(path string) ([]byte, error) {
		return server.Get().AbsPath("/api/v1/nodes/" + node + "/proxy/" + path).Do(ctx).Raw()
	}
	var config struct {
		Kubelet struct {
			SingleProcessOOMKill bool `json:"singleProcessOOMKill"`
			FailCgroupV1         bool `json:"failCgroupV1"`
		} `json:"kubeletconfig"`
	}
	body, err := read("configz")
	if err == nil {
		err = json.Unmarshal(body, &config)
	}
	if err != nil || config.Kubelet.SingleProcessOOMKill || config.Kubelet.FailCgroupV1 {
		return config.Kubelet.SingleProcessOOMKill, err
	}
	body, err = read("metrics")
	return bytes.Contains(body, []byte("\nkubelet_cgroup_version 1\n")), err
}

func (p *preflight) api(ctx context.Context) (checkResult, string, error) {
	err := p.client.List(ctx, &v1beta1.VerticalScalerList{}, client.InNamespace(p.namespace), client.Limit(1))
	if apierrors.IsNotFound(err) {
		return checkFailed, v1beta1.GroupVersion.String() + " is not served: install the operator with " + release.Release{Version: cli.Version}.Install(release.Operator), nil
	}
	return checkOK, v1beta1.GroupVersion.String() + " is served", err
}

// read reads the operators and the scalers, which several checks are about.
func (p *preflight) read(ctx context.Context) {
	var scalers []v1beta1.VerticalScaler
	scalers, p.unread = kube.Scalers(ctx, p.client, client.InNamespace(p.namespace))
	p.operators, p.unknown = p.cluster.Operators(ctx, p.client, p.namespace)
	for i := range scalers {
		if s := &scalers[i]; scaler.ResizesPods(&s.Spec) && p.operators.FallbackOf(s) == v1beta1.FallbackWait {
			p.waiting++
		}
		if c := meta.FindStatusCondition(scalers[i].Status.Conditions, v1beta1.ConditionNewPodsSized); c != nil && c.Status == metav1.ConditionFalse {
			p.unsized++
		}
		p.overview.Scalers = append(p.overview.Scalers, explain.RowOf(explain.Evidence{Scaler: &scalers[i], Operators: p.operators, Now: p.cluster.Now()}))
	}
}

// runs reports whether the operator of the namespace runs.
func (p *preflight) runs(context.Context) (checkResult, string, error) {
	now := p.cluster.Now()
	switch operator, _ := p.operators.For(p.namespace); {
	case p.operators == nil:
		return checkUnknown, "", fmt.Errorf("whether an operator runs is not known: %w", p.unknown)
	case operator.IsSilent(now):
		return checkFailed, operator.Report(now), nil
	default:
		return checkOK, operator.Report(now), nil
	}
}

// operatorNeeds are the rights without which an operator recommends or changes nothing.
var operatorNeeds = []authorizationv1.ResourceAttributes{
	{Verb: "list", Group: "apps", Resource: "deployments"},
	{Verb: "list", Resource: "pods"},
	{Verb: "list", Group: "metrics.k8s.io", Resource: "pods"},
	{Verb: "update", Group: v1beta1.GroupVersion.Group, Resource: "verticalscalers", Subresource: "status"},
	{Verb: "patch", Resource: "pods", Subresource: "resize"},
}

// rightsOf checks the rights of an operator's ServiceAccount in the namespace.
func (p *preflight) rightsOf(operator explain.Operator) check {
	return func(ctx context.Context) (checkResult, string, error) {
		var missing []string
		for _, need := range operatorNeeds {
			need.Namespace = p.namespace
			may, err := kube.OperatorMay(ctx, p.client, operator.Namespace, need)
			if err != nil {
				return "", "", err
			}
			if !may {
				missing = append(missing, strings.TrimRight(need.Verb+" "+need.Resource+"/"+need.Subresource, "/")+strings.TrimRight("."+need.Group, "."))
			}
		}
		switch len(missing) {
		case 0:
		case len(operatorNeeds):
			return "", "", fmt.Errorf("the ServiceAccount %s in namespace %s has none: the operator lacks its roles, or runs as another user", release.ServiceAccount, operator.Namespace)
		default:
			return checkWarned, fmt.Sprintf("the operator in namespace %s may not %s in namespace %s: apply the roles of its installation again", operator.Namespace, strings.Join(missing, ", "), p.namespace), nil
		}
		return checkOK, "in namespace " + p.namespace, nil
	}
}

// versions compares the versions of an operator and of this plugin. They may be one minor version
// apart.
func versions(operator, plugin string) (checkResult, string, error) {
	if operator == "" {
		return "", "", fmt.Errorf("the plugin is %s, and the operator does not tell its version", plugin)
	}
	both := fmt.Sprintf("the plugin is %s, the operator is %s", plugin, operator)
	ours, err := utilversion.ParseSemantic(plugin)
	theirs, theirErr := utilversion.ParseSemantic(operator)
	switch {
	case plugin == operator:
	case err != nil || theirErr != nil:
		return "", "", errors.New(both + ", which cannot be compared")
	case ours.Major() != theirs.Major() || max(ours.Minor(), theirs.Minor())-min(ours.Minor(), theirs.Minor()) > 1:
		return checkWarned, both + ": what the plugin does not know, it leaves out. Use versions that are one minor version apart at most", nil
	}
	return checkOK, both, nil
}

// metrics asks for the usage of the namespace's pods, as the operator does.
func (p *preflight) metrics(ctx context.Context) (checkResult, string, error) {
	_, err := kube.Untyped(ctx, p.client, schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}, client.InNamespace(p.namespace))
	switch {
	case apierrors.IsNotFound(err):
		return checkFailed, "metrics.k8s.io is not served: install metrics-server", nil
	case err != nil && !apierrors.IsForbidden(err):
		return checkFailed, err.Error(), nil
	}
	switch tally := p.overview.Tally(); {
	case err != nil || tally.Blind == 0:
		return checkOK, "the usage of pods is served", err
	case tally.IsBlind():
		return checkFailed, tally.Usage(), nil
	default:
		return checkWarned, tally.Usage(), nil
	}
}

// metricsRead are the metrics that report and the operator read, with the effect of their absence.
var metricsRead = []struct {
	name    string
	without checkResult
	effect  string
}{
	{prometheus.CPUMetric, checkFailed, "it must scrape the kubelets' /metrics/cadvisor"},
	{prometheus.MemoryMetric, checkFailed, "it must scrape the kubelets' /metrics/cadvisor"},
	{prometheus.OOMMetric, checkWarned, "the operator cannot count OOM kills of single processes (docs/oom-after-a-change.md)"},
}

// pastUsage checks the metrics in a Prometheus, which it looks for if the address is past.Auto.
func pastUsage(o *past.Options, config func() (*rest.Config, error), now time.Time) check {
	return func(ctx context.Context) (checkResult, string, error) {
		var found strings.Builder
		err := o.Find(ctx, config, &found)
		switch {
		case apierrors.IsForbidden(err):
			return "", "", err
		case err != nil:
			return checkFailed, err.Error(), nil //nolint:nilerr // the finding
		}
		source, err := o.Source()
		if err != nil {
			return "", "", err
		}
		server := cmp.Or(strings.TrimSpace(found.String()), o.Address)
		for _, m := range metricsRead {
			has, err := source.HasOurs(ctx, m.name, now)
			var rejected *prometheus.Error
			switch {
			case errors.As(err, &rejected) && rejected.Unauthorized:
				return "", "", o.Explain(err)
			case err != nil:
				return checkFailed, o.Explain(err).Error(), nil
			case !has:
				return m.without, fmt.Sprintf("%s: it has no %s: %s", server, m.name, m.effect), nil
			}
		}
		return checkOK, fmt.Sprintf("%s: it has the usage that report reads. Set prometheus.address in the operator's configuration to %s to start new scalers with it (docs/prometheus.md)",
			server, cmp.Or(o.InCluster, "its address in the cluster")), nil
	}
}

func (p *preflight) policies(ctx context.Context) (checkResult, string, error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	err := cmp.Or(p.client.List(ctx, &policies), p.client.List(ctx, &bindings))
	isBound := sets.New[string]()
	for i := range bindings.Items {
		isBound.Insert(bindings.Items[i].Spec.PolicyName)
	}
	versions := map[string]string{}
	for i := range policies.Items {
		versions[policies.Items[i].Name] = cmp.Or(policies.Items[i].Labels[release.VersionLabel], "unknown")
	}
	of := release.Release{Version: cli.Version}
	if operator, ok := p.operators.For(p.namespace); ok && operator.Version != "" {
		of.Version = operator.Version
	}
	var missing, old []string
	for _, name := range release.AdmissionPolicyNames {
		switch version := versions[name]; {
		case version == "":
			missing = append(missing, name)
		case !isBound.Has(name):
			missing = append(missing, "the binding of "+name)
		case !of.Has(version):
			old = append(old, name+" ("+version+")")
		}
	}
	install := ". To install them: " + of.Install(release.AdmissionPolicies)
	switch {
	case len(missing) == len(release.AdmissionPolicyNames):
		return checkWarned, "none is installed, so users can size what they may not change" + install, err
	case len(missing) > 0:
		return checkWarned, "missing: " + strings.Join(missing, ", ") + install, err
	case len(old) > 0:
		return checkWarned, "not of the operator's version, " + of.Version + ": " + strings.Join(old, ", ") + install, err
	}
	return checkOK, fmt.Sprintf("all %d are installed", len(release.AdmissionPolicyNames)), err
}

// newPods names policies for new pods that an older version has left.
func (p *preflight) newPods(ctx context.Context) (checkResult, string, error) {
	var policies admissionv1.MutatingAdmissionPolicyList
	err := p.client.List(ctx, &policies)
	var old []string
	for i := range policies.Items {
		if name := policies.Items[i].Name; strings.HasPrefix(name, "verticalscaler-new-pods-") && name != admission.PolicyName {
			old = append(old, name)
		}
	}
	if len(old) == 0 {
		return checkOK, "no older version has left one", client.IgnoreNotFound(err)
	}
	return checkWarned, "of another version. If no operator of that version runs: kubectl delete mutatingadmissionpolicies,mutatingadmissionpolicybindings " + strings.Join(old, " "), nil
}

func (p *preflight) vpas(ctx context.Context) (checkResult, string, error) {
	vpas, err := kube.Untyped(ctx, p.client, kube.VPAKind, client.InNamespace(p.namespace))
	if len(vpas) == 0 {
		return checkOK, "there are none in namespace " + p.namespace, client.IgnoreNotFound(err)
	}
	return checkWarned, fmt.Sprintf("there are %d in namespace %s: a scaler leaves alone what they size", len(vpas), p.namespace), err
}

// hpas warns of HorizontalPodAutoscalers that scale on utilization, and prints a patch for the first one.
func (p *preflight) hpas(ctx context.Context) (checkResult, string, error) {
	all, err := kube.HPAs(ctx, p.client, p.namespace)
	if len(all) == 0 || err != nil {
		return checkOK, "there are none in namespace " + p.namespace, err
	}
	var advice []string
	err = kube.List(ctx, p.client, func(page *appsv1.DeploymentList) {
		for i := range page.Items {
			advice = append(advice, workload.AdviceOn(workload.AveragesOf(all, &page.Items[i]), func(corev1.ResourceName) bool { return true })...)
		}
	}, client.InNamespace(p.namespace))
	if len(advice) == 0 {
		return checkOK, fmt.Sprintf("none of %d in namespace %s divides usage by requests", len(all), p.namespace), err
	}
	return checkWarned, fmt.Sprintf("%s usage by requests in namespace %s, so scalers leave these resources alone. To size them, begin with: %s", explain.Counted(len(advice), "metric divides", "metrics divide"), p.namespace, advice[0]), err
}

// nodeAutoscaler warns of pods that wait for room on nodes that a node autoscaler packs. It finds Karpenter by its API, and
// the cluster autoscaler by its status.
func (p *preflight) nodeAutoscaler(server rest.Interface) check {
	return func(ctx context.Context) (checkResult, string, error) {
		found := "Karpenter"
		err := server.Get().AbsPath("/apis/karpenter.sh").Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			found = "the cluster autoscaler"
			err = server.Get().AbsPath("/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status").Do(ctx).Error()
		}
		switch {
		case apierrors.IsNotFound(err):
			return checkOK, "neither Karpenter nor the cluster autoscaler is found", nil
		case err != nil:
			return "", "", fmt.Errorf("whether one runs is not known: %w", err)
		}
		operator, _ := p.operators.For(p.namespace)
		switch {
		case p.unsized > 0:
			return checkWarned, fmt.Sprintf("%s packs nodes by lowered requests, and new pods of %d scalers in namespace %s start as in the template (NewPodsSized is False). A pod that it moves then needs more room, so it adds a node, and begins again: %s",
				found, p.unsized, p.namespace, release.Release{Version: cli.Version, Namespace: operator.Namespace}.Install(release.NewPods)), nil
		case p.waiting == 0:
			return checkOK, found + " is found", p.unread
		}
		return checkWarned, fmt.Sprintf("%s packs nodes, and %d scalers in namespace %s have the fallback Wait: a pod keeps its size while its node is full. Those that name no fallback have Recreate once the operator may evict pods: %s",
			found, p.waiting, p.namespace, release.Release{Version: cli.Version, Namespace: operator.Namespace}.Install(release.Recreate)), nil
	}
}

func (p *preflight) scalers(context.Context) (checkResult, string, error) {
	var bad, idle []string
	all := p.overview.Scalers
	for _, row := range all {
		switch {
		case row.Ready != metav1.ConditionTrue:
			bad = append(bad, row.Name+" ("+row.Reason+")")
		case row.Reason == v1beta1.ReasonNoPods:
			idle = append(idle, row.Name)
		}
	}
	switch {
	case errors.Is(p.unread, kube.ErrNotInstalled):
		return checkUnknown, "VerticalScalers are not served", nil
	case len(all) == 0:
		return checkOK, "there are none in namespace " + p.namespace, p.unread
	case len(bad)+len(idle) == 0:
		return checkOK, fmt.Sprintf("%d in namespace %s, all Ready", len(all), p.namespace), p.unread
	}
	var parts []string
	list := func(names []string, what string) {
		const most = 5
		more := ""
		if len(names) > most {
			more = fmt.Sprintf(" and %d more", len(names)-most)
		}
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d in namespace %s %s: %s%s", len(names), len(all), p.namespace, what, strings.Join(names[:min(most, len(names))], ", "), more))
		}
	}
	list(bad, "are not Ready")
	list(idle, "have no running pods")
	return checkWarned, strings.Join(parts, "; "), nil
}

// right checks a right of the user in the namespace.
func (p *preflight) right(right authorizationv1.ResourceAttributes, otherwise string) check {
	return func(ctx context.Context) (checkResult, string, error) {
		right.Namespace = p.namespace
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		if err := p.client.Create(ctx, &review); err != nil || !review.Status.Allowed {
			return checkWarned, "not in namespace " + p.namespace + ": " + otherwise, err
		}
		return checkOK, "in namespace " + p.namespace, nil
	}
}
