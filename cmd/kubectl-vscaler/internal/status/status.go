// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status has the commands that tell how scalers are doing, and why.
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// watchEvery is the interval of --watch.
const watchEvery = 2 * time.Second

// statusOptions are the flags.
type statusOptions struct {
	genericiooptions.IOStreams
	cluster *kube.Cluster

	everywhere bool
	output     string
	noHeaders  bool
	watch      bool
	check      bool
	selector   string
	sortBy     string

	client    client.Reader
	namespace string // "" for all
	names     []kube.Reference
	labels    client.MatchingLabelsSelector
	warn      func(what string, err error)
}

// New is the command status.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &statusOptions{IOStreams: streams, cluster: cluster, output: "table"}
	c := cli.Command(&cobra.Command{Use: "status [NAME | TYPE/NAME]...", Short: "Show the status of scalers", ValidArgsFunction: cluster.CompleteNames}, o.run)
	flags := c.Flags()
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "Show the scalers of all namespaces.")
	flags.StringVarP(&o.selector, "selector", "l", "", "Show only objects with these labels, such as team=shop,tier!=test.")
	cli.AddChoice(c, &o.sortBy, "sort-by", "", explain.SortKeys(), "The order, instead of that by namespace and name")
	cli.AddChoice(c, &o.output, "output", "o", []string{"table", "wide", "csv", "json", "yaml"}, "The format")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "Omit the header of the table.")
	flags.BoolVarP(&o.watch, "watch", "w", false, "Watch for changes and print a line for each.")
	flags.BoolVar(&o.check, "check", false, "Exit with code 3 if a listed object is not Ready, or if the operator is silent.")
	return c
}

func (o *statusOptions) run(ctx context.Context, _ *cobra.Command, args []string) error {
	var err error
	if o.names, err = kube.References(args); err != nil {
		return err
	}
	if o.labels.Selector, err = labels.Parse(o.selector); err != nil {
		return cli.Usagef("--selector: %w", err)
	}
	if err := o.validate(); err != nil {
		return err
	}
	if o.namespace, o.client, err = o.cluster.OpenNamespace(o.everywhere); err != nil {
		return err
	}
	o.warn = cli.WarnOnce(o.ErrOut)
	overview, err := o.read(ctx)
	if err != nil {
		return err
	}
	headlines := overview.Headlines(o.cluster.Now())
	for _, line := range headlines {
		fmt.Fprintln(o.ErrOut, "warning:", line)
	}
	if err := o.write(overview, nil); err != nil {
		return err
	}
	switch {
	case o.watch:
		return o.follow(ctx, overview)
	case o.check && overview.IsEmpty() && len(headlines) > 0:
		return errors.Join(cli.FailedCheck(headlines[0]), o.missing(ctx, overview))
	case len(o.names) == 0 && overview.IsEmpty() && !o.isData():
		fmt.Fprintln(o.ErrOut, kube.NothingIn(o.namespace))
		if o.selector == "" {
			fmt.Fprintln(o.ErrOut, kube.HowToBegin(o.namespace))
		}
	case o.check && overview.Tally().NotReady > 0:
		return errors.Join(cli.FailedCheck(overview.Tally().String()), o.missing(ctx, overview))
	}
	return o.missing(ctx, overview)
}

// validate rejects flags that contradict each other.
func (o *statusOptions) validate() error {
	switch {
	case o.everywhere && len(o.names) > 0:
		return cli.Usagef("a name cannot be combined with --all-namespaces")
	case o.selector != "" && len(o.names) > 0:
		return cli.Usagef("a name cannot be combined with --selector")
	case o.watch && o.isData():
		return cli.Usagef("--watch requires the output table or wide")
	case o.watch && o.check:
		return cli.Usagef("--check cannot be combined with --watch")
	}
	return nil
}

// isData reports whether the output is for programs.
func (o *statusOptions) isData() bool {
	return slices.Contains([]string{"csv", "json", "yaml"}, o.output)
}

// write writes an overview, or only what the last one did not have.
func (o *statusOptions) write(overview explain.Overview, last *explain.Overview) error {
	switch o.output {
	case "json", "yaml":
		return cli.WriteData(o.Out, o.output, overview)
	case "csv":
		_, err := io.WriteString(o.Out, overview.CSV(!o.noHeaders))
		return err
	}
	columns := explain.Columns{Namespace: o.everywhere, Bare: o.noHeaders || last != nil, Since: last, Width: cli.Width(o.Out)}
	if o.output == "wide" {
		columns.Wide, columns.Width = true, 0
	}
	_, err := io.WriteString(o.Out, overview.Table(o.cluster.Now(), columns))
	return err
}

// follow writes changes until it is stopped.
func (o *statusOptions) follow(ctx context.Context, last explain.Overview) error {
	ticker := o.cluster.Clock.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		now, err := o.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := o.write(now, &last); err != nil {
			return err
		}
		last = now
	}
}

func (o *statusOptions) read(ctx context.Context) (out explain.Overview, err error) {
	which := []client.ListOption{client.InNamespace(o.namespace), o.labels}
	scalers, err := kube.Scalers(ctx, o.client, which...)
	if err != nil {
		return out, err
	}
	owners, err := kube.Owners(ctx, o.client, which...)
	if err != nil {
		o.warn("ScaledDeployments are not shown", err)
	}
	for i, name := range o.names {
		o.names[i] = name.Resolved(scalers, owners)
	}
	operators, err := o.cluster.Operators(ctx, o.client, o.namespace)
	if err != nil && (o.check || errors.Is(err, kube.ErrNoLease)) {
		o.warn("whether the operator runs is not known", err)
	}
	chosen := slices.DeleteFunc(scalers, func(s v1beta1.VerticalScaler) bool {
		return !o.isNamed(func(name kube.Reference) bool { return name.IsScaler(&s) })
	})
	out.Scalers, out.Operators = []explain.Row{}, operators
	deployments, now := o.readDeployments(ctx), o.cluster.Now()
	for i := range chosen {
		e := explain.Evidence{Scaler: &chosen[i], Deployment: deployments[scaler.Target(&chosen[i])], Operators: operators, Now: now}
		out.Scalers = append(out.Scalers, explain.RowOf(e))
	}
	for i := range owners {
		if o.isNamed(func(name kube.Reference) bool { return name.IsOwner(&owners[i]) }) {
			out.ScaledDeployments = append(out.ScaledDeployments, explain.OwnedRowOf(&owners[i], operators, now))
		}
	}
	for _, policy := range kube.Policies(ctx, o.client, o.namespace, o.labels) {
		row := explain.PolicyRowOf(explain.PolicyOf(policy), operators, now)
		isNamed := o.isNamed(func(name kube.Reference) bool { return name.IsPolicyRow(row) })
		if isNamed && (len(o.names) > 0 || kube.Concerns(row, o.namespace, out.Scalers)) {
			out.Policies = append(out.Policies, row)
		}
	}
	out.Sort(o.sortBy)
	return out, nil
}

// isNamed reports whether an object has one of the names, or no names are given.
func (o *statusOptions) isNamed(isOf func(kube.Reference) bool) bool {
	return len(o.names) == 0 || slices.ContainsFunc(o.names, isOf)
}

// readDeployments reads the Deployments, which only savings need.
func (o *statusOptions) readDeployments(ctx context.Context) map[types.NamespacedName]*appsv1.Deployment {
	if o.output == "table" && !strings.HasPrefix(o.sortBy, "saved-") {
		return nil
	}
	deployments, err := kube.Deployments(ctx, o.client, o.namespace)
	if err != nil {
		o.warn("savings are not shown", err)
	}
	return deployments
}

// missing is an error for names that do not exist.
func (o *statusOptions) missing(ctx context.Context, in explain.Overview) error {
	var errs []error
	for _, name := range o.names {
		if !slices.ContainsFunc(in.Scalers, name.IsRow) && !slices.ContainsFunc(in.ScaledDeployments, name.IsOwnedRow) && !slices.ContainsFunc(in.Policies, name.IsPolicyRow) {
			errs = append(errs, o.cluster.NotFound(ctx, o.client, o.namespace, name))
		}
	}
	return errors.Join(errs...)
}

// NewExplain is the command explain.
func NewExplain(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	output := "text"
	c := cli.Command(&cobra.Command{Use: "explain NAME | TYPE/NAME", Short: "Explain a scaler's numbers, its last changes, and what blocks them", ValidArgsFunction: cluster.CompleteName}, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Usagef("name one VerticalScaler: NAME or TYPE/NAME")
		}
		found, err := explanationOf(ctx, cluster, args[0])
		if err != nil {
			return err
		}
		text := explain.Wrap(found.Text(cluster.Now()), cli.Width(streams.Out))
		switch output {
		case "json", "yaml":
			return cli.WriteData(streams.Out, output, found)
		case "patch", "patch-guaranteed":
			of, ok := found.(explain.Explanation)
			if !ok {
				return cli.Usagef("only a scaler has a patch")
			}
			if text, err = of.Patch(output == "patch-guaranteed"); err != nil {
				return err
			}
		}
		_, err = io.WriteString(streams.Out, text)
		return err
	})
	cli.AddChoice(c, &output, "output", "o", []string{"text", "json", "yaml", "patch", "patch-guaranteed"}, "The format; patch is the requests for the Deployment's pod template, in YAML, and patch-guaranteed has limits that equal them")
	return c
}

// explanation is the explanation of a scaler or of a ScaledDeployment.
type explanation interface {
	// Text has ages relative to now.
	Text(now time.Time) string
}

// explanationOf explains the scaler or policy that the user names. A ScaledDeployment without a scaler is
// explained.
func explanationOf(ctx context.Context, cluster *kube.Cluster, name string) (explanation, error) {
	names, err := kube.References([]string{name})
	if err != nil {
		return nil, err
	}
	namespace, reader, err := cluster.OpenNamespace(false)
	if err != nil {
		return nil, err
	}
	if names[0].IsPolicy() {
		evidence, err := policyEvidenceOf(ctx, cluster, reader, namespace, names[0])
		if err != nil {
			return nil, err
		}
		return explain.OfPolicy(evidence), nil
	}
	evidence, owner, err := cluster.Find(ctx, reader, namespace, names[0])
	if err != nil {
		return nil, err
	}
	evidence.Operators = cluster.OperatorsOr(ctx, reader, namespace, &evidence.Missing)
	evidence.Now = cluster.Now()
	if owner != nil {
		return explain.OfOwned(owner, evidence.Operators, evidence.Now), nil
	}
	return explain.Of(evidence), nil
}

// policyEvidenceOf reads a policy.
func policyEvidenceOf(ctx context.Context, cluster *kube.Cluster, c client.Reader, namespace string, name kube.Reference) (e explain.PolicyEvidence, err error) {
	var policy client.Object = &v1beta1.ClusterScalingPolicy{}
	key := types.NamespacedName{Name: name.Name}
	if name.Kind == kube.PolicyKind {
		policy, key.Namespace = &v1beta1.ScalingPolicy{}, namespace
	}
	switch err := c.Get(ctx, key, policy); {
	case apierrors.IsNotFound(err):
		return e, fmt.Errorf("%s %s not found", name.Kind, strings.TrimPrefix(key.String(), "/"))
	case err != nil:
		return e, fmt.Errorf("reading %s %s: %w", name.Kind, strings.TrimPrefix(key.String(), "/"), err)
	}
	e.Policy = explain.PolicyOf(policy)
	e.Operators = cluster.OperatorsOr(ctx, c, namespace, &e.Missing)
	e.Now = cluster.Now()
	return e, nil
}
