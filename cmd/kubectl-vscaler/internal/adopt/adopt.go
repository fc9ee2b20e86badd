// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adopt has the command that on-boards Deployments by a policy.
package adopt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/adopt/preview"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// adopting are the flags of adopt.
type adopting struct {
	genericiooptions.IOStreams
	cluster *kube.Cluster
	policy  policyFlags

	file   string
	output string
	dryRun cli.DryRun
	yes    bool
}

// New is the command adopt.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &adopting{IOStreams: streams, cluster: cluster, output: "table"}
	c := cli.Command(&cobra.Command{Use: "adopt", Short: "On-board Deployments by a policy", Args: cli.NoArguments}, o.run)
	o.policy.add(c)
	flags := c.Flags()
	flags.StringVarP(&o.file, "filename", "f", "", "A file with a ScalingPolicy or ClusterScalingPolicy; - is the standard input.")
	cli.AddChoice(c, &o.output, "output", "o", []string{"table", "json", "yaml", "manifest"}, "The format, where manifest prints the policy and writes nothing to the cluster")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Write the policy without asking.")
	cli.AddDryRun(c, &o.dryRun)
	return c
}

func (o *adopting) run(ctx context.Context, c *cobra.Command, _ []string) error {
	if o.file == "-" && !o.yes && o.writes() {
		return cli.Usagef("the standard input has the policy, so there is no terminal to ask: add --yes or --dry-run")
	}
	policy, err := o.read(c)
	if err != nil {
		return err
	}
	reader, err := o.cluster.Open()
	if err != nil {
		return err
	}
	return o.adopt(ctx, reader, policy)
}

// writes reports whether the policy is written in the end.
func (o *adopting) writes() bool { return o.dryRun == cli.NoDryRun && o.output != "manifest" }

// read is the policy of the file or of the flags.
func (o *adopting) read(c *cobra.Command) (client.Object, error) {
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, err
	}
	if o.file == "" {
		return o.policy.build(c, namespace)
	}
	if flag := o.policy.firstSet(c); flag != "" {
		return nil, cli.Usagef("--%s cannot be combined with --filename: set it in the file", flag)
	}
	text, name, err := o.text()
	if err != nil {
		return nil, err
	}
	policy, err := readPolicy(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	isNamespaced := fleet.ViewOf(policy).Cluster == nil
	switch in := policy.GetNamespace(); {
	case isNamespaced && in == "":
		policy.SetNamespace(namespace)
	case isNamespaced && c.Flags().Changed("namespace") && in != namespace:
		return nil, cli.Usagef("%s: the policy is of namespace %s, and --namespace is %s", name, in, namespace)
	case !isNamespaced:
		policy.SetNamespace("")
	}
	return policy, nil
}

func (o *adopting) text() (text []byte, name string, err error) {
	if o.file == "-" {
		text, err = io.ReadAll(o.In)
		return text, "standard input", err
	}
	text, err = os.ReadFile(o.file)
	return text, o.file, err
}

// adopt shows what the policy does, asks, and writes it.
func (o *adopting) adopt(ctx context.Context, c client.Client, policy client.Object) error {
	s := &surveyor{client: c, policy: policy, cluster: o.cluster}
	if err := s.findExisting(ctx); err != nil {
		return err
	}
	stored := s.toWrite()
	if err := o.send(ctx, c, s, stored, o.dryRun != cli.ClientDryRun, true); err != nil {
		return err
	}
	if o.dryRun == cli.ClientDryRun {
		setDefaults(stored)
	}
	input, err := s.input(ctx, stored)
	if err != nil {
		return err
	}
	p := preview.Of(input)
	if err := o.show(p, policy); err != nil {
		return err
	}
	o.warn(p.Warnings)
	o.warn(s.doubts(ctx))
	switch {
	case o.output == "manifest":
		return nil
	case p.Action == preview.None:
		o.report("%s unchanged", resourceOf(policy))
		return nil
	case o.dryRun != cli.NoDryRun:
		o.report("%s %s%s", resourceOf(policy), s.past(), o.dryRun.Suffix())
		return nil
	}
	if err := o.confirm(p); err != nil {
		return err
	}
	if err := o.send(ctx, c, s, s.toWrite(), true, false); err != nil {
		return err
	}
	o.report("%s %s", resourceOf(policy), s.past())
	if o.output == "table" {
		fmt.Fprintf(o.Out, "See how it is doing: %s explain %s/%s%s\n", cli.Name, fleet.ViewOf(policy).Kind, policy.GetName(), inNamespace(policy.GetNamespace()))
	}
	return nil
}

func inNamespace(name string) string {
	if name == "" {
		return ""
	}
	return " -n " + name
}

// report writes a line about what was done: beside data, to the standard error.
func (o *adopting) report(format string, args ...any) {
	out := o.Out
	if o.output != "table" {
		out = o.ErrOut
	}
	fmt.Fprintf(out, format+"\n", args...)
}

func (o *adopting) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(o.ErrOut, "warning: %s\n", w)
	}
}

// send creates or updates the policy, if it is sent at all. A dry run leaves it as the API server would store it.
func (o *adopting) send(ctx context.Context, c client.Client, s *surveyor, policy client.Object, isSent, isDryRun bool) error {
	if !isSent {
		return nil
	}
	what := resourceOf(policy) // the client writes the answer into the object
	if c = client.WithFieldOwner(c, cli.FieldManager); isDryRun {
		c = client.NewDryRunClient(c)
	}
	write := func() error { return c.Create(ctx, policy) }
	if s.existing != nil {
		write = func() error { return c.Update(ctx, policy) }
	}
	err := write()
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err) && s.policy.GetNamespace() != "":
		return fmt.Errorf("there is no namespace %s: %w", s.policy.GetNamespace(), err)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("another writer was faster, run the command again: %w", err)
	}
	return fmt.Errorf("the API server refuses %s: %w", what, err)
}

// outputView has the fields of the outputs json and yaml.
type outputView struct {
	preview.Preview `json:",inline"`
	// Manifest is the policy.
	Manifest map[string]any `json:"manifest"`
}

func (o *adopting) show(p preview.Preview, policy client.Object) error {
	manifest, err := manifestOf(policy)
	if err != nil {
		return err
	}
	switch o.output {
	case "json", "yaml":
		return cli.WriteData(o.Out, o.output, outputView{p, manifest})
	case "manifest":
		return cli.WriteData(o.Out, "yaml", manifest)
	}
	_, err = io.WriteString(o.Out, explain.Wrap(p.Text(), cli.Width(o.Out))+"\n")
	return err
}

// errNotConfirmed is the result of the answer no.
var errNotConfirmed = errors.New("not confirmed: nothing was written")

// confirm asks whether to write the policy.
func (o *adopting) confirm(p preview.Preview) error {
	if o.yes {
		return nil
	}
	if !cli.IsTerminal(o.In) {
		return cli.Usagef("nothing was written: there is no terminal to ask, so add --yes, or --dry-run to only look")
	}
	return asked(o.In, o.ErrOut, fmt.Sprintf("%s %s %s?", p.Action, p.Kind, p.Name))
}

// asked asks a question. Anything but yes is a no.
func asked(in io.Reader, out io.Writer, question string) error {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// past is the past tense of the action on the policy.
func (s *surveyor) past() string {
	if s.existing == nil {
		return "created"
	}
	return "changed"
}

// surveyor reads what the preview of a policy needs.
type surveyor struct {
	client  client.Client
	policy  client.Object
	cluster *kube.Cluster

	// existing is the policy with that name; nil if there is none.
	existing client.Object
	others   []client.Object
	missing  []string

	operators    explain.Operators
	operatorsErr error
}

// errPoliciesNotServed is the error for an operator that is too old, or not installed.
var errPoliciesNotServed = errors.New("the API server does not serve ScalingPolicies: is the operator installed, in a version that has them? See " + cli.Name + " check")

// findExisting reads the policies that the user may read.
func (s *surveyor) findExisting(ctx context.Context) error {
	isCluster := s.policy.GetNamespace() == ""
	namespaced, err := kube.Objects(ctx, s.client, &v1beta1.ScalingPolicyList{}, client.InNamespace(s.policy.GetNamespace()))
	switch {
	case apierrors.IsNotFound(err):
		return errPoliciesNotServed
	case err != nil && !isCluster:
		return fmt.Errorf("listing ScalingPolicies: %w", err)
	case err != nil:
		s.missing = append(s.missing, fmt.Sprintf("ScalingPolicies, which come before a ClusterScalingPolicy: %v", err))
	}
	cluster, err := kube.Objects(ctx, s.client, &v1beta1.ClusterScalingPolicyList{})
	switch {
	case apierrors.IsNotFound(err) && isCluster:
		return errPoliciesNotServed
	case err != nil && isCluster:
		return fmt.Errorf("listing ClusterScalingPolicies: %w", err)
	} // A ScalingPolicy comes before all of them.
	for _, p := range append(namespaced, cluster...) {
		if p.GetNamespace() == s.policy.GetNamespace() && p.GetName() == s.policy.GetName() {
			s.existing = p
			continue
		}
		s.others = append(s.others, p)
	}
	return nil
}

// toWrite is the object to send to the API server.
func (s *surveyor) toWrite() client.Object {
	if s.existing != nil {
		return withSpecOf(s.existing, s.policy)
	}
	return policyCopy(s.policy)
}

// input reads what the policy may select. stored is the policy as the API server would store it.
func (s *surveyor) input(ctx context.Context, stored client.Object) (in preview.Input, err error) {
	own := s.cluster.OperatorNamespace()
	s.operators, s.operatorsErr = s.cluster.Operators(ctx, s.client, s.policy.GetNamespace())
	if operator, ok := s.operators.For(s.policy.GetNamespace()); ok {
		own = operator.Namespace
	}
	described := explain.PolicyOf(stored)
	described.Operators = s.operators
	in = preview.Input{Described: described, Exists: s.existing != nil, IsSame: s.existing != nil && isSame(s.existing, stored)}
	if in.Policy, err = fleet.Read(stored, own); err != nil {
		return in, err
	}
	for _, other := range s.others {
		// One that cannot be parsed selects nothing.
		if p, err := fleet.Read(other, own); err == nil {
			in.Others = append(in.Others, p)
		}
	}
	if in.Namespaces, err = s.namespaces(ctx); err != nil {
		return in, err
	}
	in.Averages = map[types.NamespacedName][]workload.Average{}
	if in.Deployments, err = s.deployments(ctx, in.Averages); err != nil {
		return in, err
	}
	if in.Scalers, err = kube.Scalers(ctx, s.client, client.InNamespace(s.policy.GetNamespace())); err != nil {
		return in, err
	}
	in.Missing = s.missing
	return in, nil
}

func (s *surveyor) namespaces(ctx context.Context) (map[string]*fleet.Namespace, error) {
	out := map[string]*fleet.Namespace{}
	add := func(n *corev1.Namespace) {
		out[n.Name] = kube.ForFleet(n)
	}
	if name := s.policy.GetNamespace(); name != "" {
		var n corev1.Namespace
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			// An operator that watches some namespaces only does not read it, either.
			s.missing = append(s.missing, fmt.Sprintf("Whether an annotation excludes namespace %s: %v", name, err))
			return out, nil
		}
		add(&n)
		return out, nil
	}
	err := kube.List(ctx, s.client, func(page *corev1.NamespaceList) {
		for i := range page.Items {
			add(&page.Items[i])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	return out, nil
}

func (s *surveyor) deployments(ctx context.Context, averages map[types.NamespacedName][]workload.Average) (all []*fleet.Deployment, err error) {
	hpas, err := kube.HPAs(ctx, s.client, s.policy.GetNamespace())
	if err != nil {
		s.missing = append(s.missing, fmt.Sprintf("HorizontalPodAutoscalers, which may be in conflict: %v", err))
	}
	inNamespace := map[string][]autoscalingv2.HorizontalPodAutoscaler{}
	for _, hpa := range hpas {
		inNamespace[hpa.Namespace] = append(inNamespace[hpa.Namespace], hpa)
	}
	err = kube.List(ctx, s.client, func(page *appsv1.DeploymentList) {
		for i := range page.Items {
			d := inventory.ReadForFleet(&page.Items[i])
			all, averages[d.Key()] = append(all, d), workload.AveragesOf(inNamespace[d.Namespace], &page.Items[i])
		}
	}, client.InNamespace(s.policy.GetNamespace()))
	if err != nil {
		return nil, fmt.Errorf("listing Deployments: %w", err)
	}
	return all, nil
}

// doubts say why the policy may do nothing.
func (s *surveyor) doubts(ctx context.Context) (out []string) {
	now := s.cluster.Now()
	operator, isKnown := s.operators.For(s.policy.GetNamespace())
	switch {
	case s.operatorsErr != nil:
		out = append(out, fmt.Sprintf("whether the operator runs is not known: %v", s.operatorsErr))
	case operator.IsSilent(now):
		out = append(out, "nothing happens until the operator runs: "+operator.Report(now))
	}
	if isKnown && s.isForbidden(ctx, operator.Namespace) {
		out = append(out, fmt.Sprintf("the operator in namespace %s lacks the rights that policies need: %s", operator.Namespace, release.Release{Version: cli.Version, Namespace: operator.Namespace}.Install(release.Policies)))
	}
	if s.existing != nil {
		if c := meta.FindStatusCondition(fleet.ViewOf(s.existing).Status.Conditions, v1beta1.ConditionReady); c != nil && c.Status != "True" && !slices.Contains(out, c.Message) {
			out = append(out, fmt.Sprintf("the policy that exists is not Ready (%s): %s", c.Reason, explain.Printable(c.Message)))
		}
	}
	return out
}

// isForbidden reports whether the operator is known to lack a right that policies need. Most users may not ask.
func (s *surveyor) isForbidden(ctx context.Context, operatorNamespace string) bool {
	rights := []authorizationv1.ResourceAttributes{{
		Namespace: s.policy.GetNamespace(), Verb: "create", Group: v1beta1.GroupVersion.Group, Version: v1beta1.GroupVersion.Version, Resource: "verticalscalers",
	}}
	if s.policy.GetNamespace() == "" {
		rights = append(rights, authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "namespaces"})
	}
	for _, right := range rights {
		if may, err := kube.OperatorMay(ctx, s.client, operatorNamespace, right); err == nil && !may {
			return true
		}
	}
	return false
}
