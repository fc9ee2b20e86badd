// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

const statusLong = `Show the status of scalers and ScaledDeployments, one line each.

  CPU, MEMORY   the requests of a pod, current -> target
  PODS          pods at the target size / all pods
  REASON        the reason for the current state; "explain NAME" explains it
  CHANGED       the time since the last decision
  SAVED-CORES   the requests of the pod template minus the requests of the resized pods, summed over all pods.
  SAVED-GIB     Negative if the pods request more. A dash if there is no decision or the Deployment cannot be read

The command requires the permission to list VerticalScalers. It reads ScaledDeployments and Deployments if it may.

Exit codes: 0: success, 1: failure or not found, 2: invalid usage, 3: --check found a scaler that is not Ready. Scalers
that are learning, waiting or suspended are Ready.`

const statusExample = `  # All scalers of a namespace
  %[1]s status -n shop

  # All namespaces, with advice for each scaler
  %[1]s status -A -o wide

  # Watch two scalers: a line for each change
  %[1]s status web api --watch

  # In a script
  %[1]s status web --check -o json`

// watchEvery is the interval of --watch.
const watchEvery = 2 * time.Second

// statusOptions are the flags.
type statusOptions struct {
	genericiooptions.IOStreams
	cluster *cluster
	clock   clock.WithTicker

	everywhere bool
	output     string
	noHeaders  bool
	watch      bool
	check      bool
}

var statusOutputs = []string{"table", "wide", "json", "yaml"}

func newStatus(streams genericiooptions.IOStreams, cluster *cluster) *cobra.Command {
	o := &statusOptions{IOStreams: streams, cluster: cluster, clock: clock.RealClock{}, output: "table"}
	c := &cobra.Command{
		Use:               "status [NAME...]",
		Short:             "Show the status of scalers",
		Long:              statusLong,
		Example:           fmt.Sprintf(statusExample, commandName),
		RunE:              func(c *cobra.Command, args []string) error { return o.run(c.Context(), args) },
		ValidArgsFunction: cluster.completeNames,
	}
	flags := c.Flags()
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "Show the scalers of all namespaces.")
	flags.StringVarP(&o.output, "output", "o", o.output, "The format: "+strings.Join(statusOutputs, ", ")+".")
	flags.BoolVar(&o.noHeaders, "no-headers", false, "Omit the header of the table.")
	flags.BoolVarP(&o.watch, "watch", "w", false, "Watch for changes and print a line for each.")
	flags.BoolVar(&o.check, "check", false, "Exit with code 3 if a listed scaler is not Ready.")
	if err := c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(statusOutputs, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // a flag that does not exist
	}
	return c
}

func (o *statusOptions) run(ctx context.Context, names []string) error {
	switch {
	case !slices.Contains(statusOutputs, o.output):
		return usageError{fmt.Errorf("--output %q is not one of %s", o.output, strings.Join(statusOutputs, ", "))}
	case o.everywhere && len(names) > 0:
		return usageError{errors.New("a name cannot be combined with --all-namespaces")}
	case o.watch && o.isData():
		return usageError{errors.New("--watch requires the output table or wide")}
	case o.watch && o.check:
		return usageError{errors.New("--check cannot be combined with --watch")}
	}
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	c, err := o.cluster.open()
	if err != nil {
		return err
	}
	r := &statusReader{client: c, namespace: namespace, names: names, warn: warnOnce(o.ErrOut)}
	overview, err := r.read(ctx)
	if err != nil {
		return err
	}
	if err := o.write(overview, o.noHeaders); err != nil {
		return err
	}
	switch {
	case o.watch:
		return o.follow(ctx, r, overview)
	case len(names) == 0 && len(overview.Scalers)+len(overview.ScaledDeployments) == 0 && !o.isData():
		fmt.Fprintln(o.ErrOut, nothingIn(namespace))
	case o.check && overview.NotReady():
		return errors.Join(errNotReady, r.missing(overview))
	}
	return r.missing(overview)
}

// namespace is "" for all namespaces.
func (o *statusOptions) namespace() (string, error) {
	if o.everywhere {
		return metav1.NamespaceAll, nil
	}
	return o.cluster.namespace()
}

func nothingIn(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "No VerticalScalers found."
	}
	return "No VerticalScalers found in namespace " + namespace + "."
}

func (o *statusOptions) isData() bool { return o.output == "json" || o.output == "yaml" }

func (o *statusOptions) write(overview explain.Overview, bare bool) error {
	switch o.output {
	case "json":
		return overview.WriteJSON(o.Out)
	case "yaml":
		return overview.WriteYAML(o.Out)
	}
	return overview.WriteTable(o.Out, o.clock.Now(), explain.Columns{Namespace: o.everywhere, Wide: o.output == "wide", Bare: bare})
}

// follow writes changes until it is stopped.
func (o *statusOptions) follow(ctx context.Context, r *statusReader, last explain.Overview) error {
	ticker := o.clock.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		now, err := r.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := o.write(changed(last, now), true); err != nil {
			return err
		}
		last = now
	}
}

// changed returns the lines of an overview that the previous one did not have.
func changed(last, now explain.Overview) (news explain.Overview) {
	seen := map[string]bool{}
	for _, r := range last.Scalers {
		seen[said(r)] = true
	}
	for _, r := range last.ScaledDeployments {
		seen[said(r)] = true
	}
	for _, r := range now.Scalers {
		if !seen[said(r)] {
			news.Scalers = append(news.Scalers, r)
		}
	}
	for _, r := range now.ScaledDeployments {
		if !seen[said(r)] {
			news.ScaledDeployments = append(news.ScaledDeployments, r)
		}
	}
	return news
}

func said(row any) string {
	out, err := json.Marshal(row)
	if err != nil {
		panic(err) // it holds only text and numbers
	}
	return fmt.Sprintf("%T %s", row, out)
}

// statusReader reads scalers and the objects that belong to them.
type statusReader struct {
	client    client.Reader
	namespace string // "" for all
	names     []string
	warn      func(what string, err error)

	// versions are the resource versions of the scalers when deployments were read. They are
	// read again only after a scaler has changed.
	versions    string
	deployments map[types.NamespacedName]*appsv1.Deployment
}

func (r *statusReader) read(ctx context.Context) (out explain.Overview, err error) {
	var scalers v1beta1.VerticalScalerList
	if err := r.client.List(ctx, &scalers, client.InNamespace(r.namespace)); err != nil {
		if apierrors.IsNotFound(err) {
			return out, errNotInstalled
		}
		return out, fmt.Errorf("listing VerticalScalers: %w", err)
	}
	var owners v1beta1.ScaledDeploymentList
	if err := r.client.List(ctx, &owners, client.InNamespace(r.namespace)); err != nil && !apierrors.IsNotFound(err) {
		r.warn("ScaledDeployments are not shown", err)
	}
	chosen := slices.DeleteFunc(scalers.Items, func(s v1beta1.VerticalScaler) bool { return !r.isNamed(s.Name) })
	r.readDeployments(ctx, chosen)
	out.Scalers = []explain.Row{}
	for i := range chosen {
		s := &chosen[i]
		out.Scalers = append(out.Scalers, explain.RowOf(s, r.deployments[types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.DeploymentName}]))
	}
	for i := range owners.Items {
		if r.isNamed(owners.Items[i].Name) {
			out.ScaledDeployments = append(out.ScaledDeployments, explain.OwnedRowOf(&owners.Items[i]))
		}
	}
	return out, nil
}

func (r *statusReader) isNamed(name string) bool {
	return len(r.names) == 0 || slices.Contains(r.names, name)
}

// readDeployments reads the Deployments of the scalers: one by one if scalers are named.
func (r *statusReader) readDeployments(ctx context.Context, scalers []v1beta1.VerticalScaler) {
	var versions strings.Builder
	for i := range scalers {
		fmt.Fprintln(&versions, scalers[i].UID, scalers[i].ResourceVersion)
	}
	if r.deployments != nil && versions.String() == r.versions {
		return
	}
	r.versions, r.deployments = versions.String(), map[types.NamespacedName]*appsv1.Deployment{}
	if len(scalers) == 0 {
		return
	}
	if len(r.names) > 0 {
		for i := range scalers {
			key := types.NamespacedName{Namespace: scalers[i].Namespace, Name: scalers[i].Spec.DeploymentName}
			var d appsv1.Deployment
			switch err := r.client.Get(ctx, key, &d); {
			case err == nil:
				r.deployments[key] = &d
			case !apierrors.IsNotFound(err):
				r.warn("savings are not shown", err)
			}
		}
		return
	}
	var list appsv1.DeploymentList
	if err := r.client.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
		r.warn("savings are not shown", err)
		return
	}
	for i := range list.Items {
		r.deployments[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
}

// missing is an error for names that do not exist.
func (r *statusReader) missing(o explain.Overview) error {
	var errs []error
	for _, name := range r.names {
		if !slices.ContainsFunc(o.Scalers, func(s explain.Row) bool { return s.Name == name }) &&
			!slices.ContainsFunc(o.ScaledDeployments, func(s explain.OwnedRow) bool { return s.Name == name }) {
			errs = append(errs, fmt.Errorf("VerticalScaler %s/%s not found", r.namespace, name))
		}
	}
	return errors.Join(errs...)
}
