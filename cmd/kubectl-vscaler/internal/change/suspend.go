// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package change has the commands that change scalers.
package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
)

// suspension are the flags of suspend and resume.
type suspension struct {
	genericiooptions.IOStreams
	cluster *kube.Cluster

	suspend  bool
	all      bool
	selector string
	dryRun   cli.DryRun
}

// NewSuspend is the command suspend.
func NewSuspend(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &suspension{IOStreams: streams, cluster: cluster, suspend: true}
	return o.command("suspend")
}

// NewResume is the command resume.
func NewResume(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &suspension{IOStreams: streams, cluster: cluster}
	return o.command("resume")
}

func (o *suspension) command(verb string) *cobra.Command {
	c := cli.Command(verb, o.cluster.CompleteNames, o.run)
	flags := c.Flags()
	flags.BoolVar(&o.all, "all", false, "All scalers of the namespace.")
	flags.StringVarP(&o.selector, "selector", "l", "", "The scalers with these labels, such as team=shop,tier!=test.")
	cli.AddDryRun(c, &o.dryRun)
	return c
}

func (o *suspension) run(ctx context.Context, _ *cobra.Command, args []string) error {
	names, err := kube.References(args)
	if err != nil {
		return err
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return cli.Usagef("--selector: %w", err)
	}
	ways := []bool{len(names) > 0, o.selector != "", o.all}
	if i := slices.Index(ways, true); i < 0 || slices.Contains(ways[i+1:], true) {
		return cli.Usagef("give names, --selector or --all: one of them")
	}
	_, namespace, n, err := each(ctx, o.cluster, selector, names, o.set)
	if err == nil && n == 0 {
		fmt.Fprintln(o.ErrOut, kube.NothingIn(namespace))
	}
	return err
}

// each changes the chosen scalers, and tells how many there are.
func each(ctx context.Context, cluster *kube.Cluster, selector labels.Selector, names []kube.Reference,
	change func(context.Context, client.Client, *v1beta1.VerticalScaler) error,
) (c client.Client, namespace string, n int, err error) {
	if namespace, c, err = cluster.OpenNamespace(false); err != nil {
		return nil, "", 0, err
	}
	scalers, err := kube.Chosen(ctx, c, namespace, selector, names)
	if err != nil {
		return nil, "", 0, err
	}
	var errs []error
	for i := range scalers {
		errs = append(errs, change(ctx, c, &scalers[i]))
	}
	return c, namespace, len(scalers), errors.Join(errs...)
}

// SuspendedByPlugin is the value of the annotation by which suspend pauses a scaler, so that resume knows its own.
const SuspendedByPlugin = "suspended by kubectl vscaler"

// set suspends or resumes one scaler, where its spec comes from. A policy would revert a change of the spec, so its scalers are
// paused by an annotation.
func (o *suspension) set(ctx context.Context, c client.Client, s *v1beta1.VerticalScaler) error {
	var (
		object   client.Object = &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
		what                   = resourceName("verticalscaler", s.Name)
		patch                  = fmt.Sprintf(`{"spec":{"suspend":%t}}`, o.suspend)
		isDone                 = s.Spec.Suspend == o.suspend
		isPaused               = isPaused(s)
		owner                  = metav1.GetControllerOf(s)
		ofPolicy               = fleet.IsGenerated(s) && !fleet.IsDetached(s.Annotations)
	)
	switch {
	case ofPolicy && o.suspend:
		patch, isDone = fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1beta1.PausedAnnotation, SuspendedByPlugin), isPaused || s.Spec.Suspend
	case ofPolicy:
		patch, isDone = fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1beta1.PausedAnnotation), s.Annotations[v1beta1.PausedAnnotation] != SuspendedByPlugin
		isPaused = isPaused && isDone
	case owner != nil && owner.Kind == string(kube.OwnerKind):
		object = &v1beta1.ScaledDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: owner.Name}}
		what, patch = resourceName("scaleddeployment", owner.Name), `{"spec":{"scaling":`+strings.TrimPrefix(patch, `{"spec":`)+"}"
	}
	past := map[bool]string{true: "suspended", false: "resumed"}[o.suspend]
	if isDone {
		fmt.Fprintf(o.Out, "%s %s (unchanged)\n", what, past)
	} else {
		if err := patchAs(ctx, c, object, patch, o.dryRun); err != nil {
			return fmt.Errorf("patching %s in namespace %s: %w", what, s.Namespace, err)
		}
		fmt.Fprintf(o.Out, "%s %s%s\n", what, past, o.dryRun.Suffix())
	}
	if !o.suspend && isPaused {
		fmt.Fprintf(o.ErrOut, "warning: VerticalScaler %s/%s is still paused: remove its annotation %s\n", s.Namespace, s.Name, v1beta1.PausedAnnotation)
	}
	if !o.suspend && ofPolicy && s.Spec.Suspend {
		fmt.Fprintf(o.ErrOut, "warning: VerticalScaler %s/%s is still suspended: set spec.template.suspend of %s to false\n", s.Namespace, s.Name, explain.OriginOf(s).ID())
	}
	return nil
}

// isPaused reports whether the annotation pauses a scaler.
func isPaused(s *v1beta1.VerticalScaler) bool {
	value, isSet := s.Annotations[v1beta1.PausedAnnotation]
	return isSet && value != "false"
}

// resourceName is such as "verticalscaler.autoscaling.verticalscaler.io/web".
func resourceName(resource, name string) string {
	return resource + "." + v1beta1.GroupVersion.Group + "/" + name
}

// patchAs sends a JSON merge patch, unless it is a dry run of the client.
func patchAs(ctx context.Context, c client.Client, object client.Object, patch string, dryRun cli.DryRun) error {
	switch c = client.WithFieldOwner(c, cli.FieldManager); dryRun {
	case cli.ClientDryRun:
		return nil
	case cli.ServerDryRun:
		c = client.NewDryRunClient(c)
	}
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
}
