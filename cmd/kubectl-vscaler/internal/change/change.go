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
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/rollback"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
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
	return o.command("suspend (NAME | TYPE/NAME | -l SELECTOR | --all)", "Stop the changes of scalers")
}

// NewResume is the command resume.
func NewResume(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &suspension{IOStreams: streams, cluster: cluster}
	return o.command("resume (NAME | TYPE/NAME | -l SELECTOR | --all)", "Continue the changes of suspended scalers")
}

func (o *suspension) command(usage, summary string) *cobra.Command {
	c := cli.Command(&cobra.Command{Use: usage, Short: summary, ValidArgsFunction: o.cluster.CompleteNames}, o.run)
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
	scalers, err := cluster.Chosen(ctx, c, namespace, selector, names)
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
		isPaused               = scaler.IsPaused(s)
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

// resourceName is such as "verticalscaler.autoscaling.verticalscaler.io/web".
func resourceName(resource, name string) string {
	return resource + "." + v1beta1.GroupVersion.Group + "/" + name
}

// patchAs sends a JSON merge patch, unless it is a dry run of the client.
func patchAs(ctx context.Context, c client.Client, object client.Object, patch string, dryRun cli.DryRun) error {
	return send(c, dryRun, func(c client.Client) error {
		return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch)))
	})
}

// send writes, unless it is a dry run of the client.
func send(c client.Client, dryRun cli.DryRun, write func(client.Client) error) error {
	switch c = client.WithFieldOwner(c, cli.FieldManager); dryRun {
	case cli.ClientDryRun:
		return nil
	case cli.ServerDryRun:
		c = client.NewDryRunClient(c)
	}
	return write(c)
}

// rollingBack are the flags of rollback.
type rollingBack struct {
	genericiooptions.IOStreams
	cluster *kube.Cluster

	to     rollback.To
	undo   bool
	detach bool
	dryRun cli.DryRun
}

// NewRollback is the command rollback.
func NewRollback(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &rollingBack{IOStreams: streams, cluster: cluster, to: rollback.Previous}
	c := cli.Command(&cobra.Command{Use: "rollback (NAME | TYPE/NAME)...", Short: "Return to earlier requests", ValidArgsFunction: cluster.CompleteNames}, o.run)
	flags := c.Flags()
	cli.AddChoice(c, &o.to, "to", "", []rollback.To{rollback.Previous, rollback.Original}, "The requests to return to")
	flags.BoolVar(&o.undo, "undo", false, "End a rollback: set the spec that was there before it.")
	flags.BoolVar(&o.detach, "detach", false, "Detach scalers that a policy has created, so that it does not revert the rollback.")
	cli.AddDryRun(c, &o.dryRun)
	return c
}

func (o *rollingBack) run(ctx context.Context, command *cobra.Command, args []string) error {
	names, err := kube.References(args)
	switch {
	case err != nil:
		return err
	case len(names) == 0:
		return cli.Usagef("name the scalers to roll back: NAME or TYPE/NAME")
	case o.undo && command.Flags().Changed("to"):
		return cli.Usagef("--undo cannot be combined with --to")
	case o.undo && o.detach:
		return cli.Usagef("--undo cannot be combined with --detach")
	}
	c, namespace, n, err := each(ctx, o.cluster, labels.Everything(), names, o.persist)
	if n > 0 {
		o.warnOfSilence(ctx, c, namespace)
	}
	return err
}

// holder is the object that a scaler's spec comes from.
type holder struct {
	client.Object

	name    string // such as "verticalscaler.autoscaling.verticalscaler.io/web"
	scaling v1beta1.Scaling
	isOwner bool
}

// holderOf reads the ScaledDeployment that a scaler belongs to. Without one, it is the scaler.
func holderOf(ctx context.Context, c client.Reader, s *v1beta1.VerticalScaler) (holder, error) {
	owner := metav1.GetControllerOf(s)
	if owner == nil || owner.Kind != string(kube.OwnerKind) {
		return holder{s, resourceName("verticalscaler", s.Name), s.Spec.Scaling, false}, nil
	}
	var d v1beta1.ScaledDeployment
	if err := c.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: owner.Name}, &d); err != nil {
		return holder{}, fmt.Errorf("reading ScaledDeployment %s/%s: %w", s.Namespace, owner.Name, err)
	}
	if d.Spec.Scaling == nil {
		return holder{}, fmt.Errorf("ScaledDeployment %s/%s has no spec.scaling any more", s.Namespace, owner.Name)
	}
	return holder{&d, resourceName("scaleddeployment", d.Name), *d.Spec.Scaling, true}, nil
}

// persist rolls back one scaler, again if another writer was faster: the operator writes the status of
// a busy scaler every few seconds.
func (o *rollingBack) persist(ctx context.Context, c client.Client, s *v1beta1.VerticalScaler) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := o.roll(ctx, c, s)
		if apierrors.IsConflict(err) {
			var fresh v1beta1.VerticalScaler
			if err := c.Get(ctx, client.ObjectKeyFromObject(s), &fresh); err != nil {
				return fmt.Errorf("reading VerticalScaler %s/%s again: %w", s.Namespace, s.Name, err)
			}
			*s = fresh
		}
		return err
	})
}

// roll rolls back one scaler, or undoes that.
func (o *rollingBack) roll(ctx context.Context, c client.Client, s *v1beta1.VerticalScaler) error {
	if err := o.leavePolicy(ctx, c, s); err != nil {
		return err
	}
	from, err := holderOf(ctx, c, s)
	if err != nil {
		return err
	}
	record, isRolledBack := rollback.RecordOf(from.GetAnnotations(), from.scaling)
	if o.undo {
		return o.undoOne(ctx, c, from, record, isRolledBack)
	}
	if isRolledBack && record.To == o.to {
		fmt.Fprintf(o.Out, "%s rolled back (unchanged)\n", from.name)
		return nil
	}
	deployment, err := deploymentFor(ctx, c, s, o.to)
	if err != nil {
		return err
	}
	plan, err := rollback.Of(s, deployment, o.to)
	if err != nil {
		return fmt.Errorf("VerticalScaler %s/%s is not rolled back: %w", s.Namespace, s.Name, err)
	}
	if len(plan.Changes) == 0 && !plan.RestoresTemplate {
		return fmt.Errorf("VerticalScaler %s/%s is not rolled back: it keeps %s", s.Namespace, s.Name, strings.Join(plan.Kept, "; "))
	}
	before := rollback.SpecOf(from.scaling)
	if isRolledBack {
		before = record.Before
	}
	if err := o.patch(ctx, c, from, plan.Spec, &rollback.Record{To: o.to, Before: before, After: plan.Spec}); err != nil {
		return err
	}
	for _, kept := range plan.Kept {
		fmt.Fprintf(o.ErrOut, "warning: VerticalScaler %s/%s keeps %s\n", s.Namespace, s.Name, kept)
	}
	for _, change := range plan.Changes {
		fmt.Fprintf(o.Out, "  %s\n", change)
	}
	if plan.RestoresTemplate {
		fmt.Fprintf(o.Out, "  updateMode Recommend: the operator restores the pod template of Deployment %s\n", s.Spec.DeploymentName)
	}
	fmt.Fprintf(o.Out, "%s rolled back%s\n", from.name, o.dryRun.Suffix())
	o.warnOfRest(s)
	return nil
}

// leavePolicy detaches a scaler that a policy has created, or says that its policy would revert the rollback.
func (o *rollingBack) leavePolicy(ctx context.Context, c client.Client, s *v1beta1.VerticalScaler) error {
	origin := explain.OriginOf(s)
	if origin == nil || origin.Detaching {
		return nil
	}
	if !o.detach {
		return fmt.Errorf("VerticalScaler %s/%s is not rolled back: %s has created it, and would revert the change. Detach it with --detach, or exclude Deployment %s with its annotation %s",
			s.Namespace, s.Name, origin.ID(), s.Spec.DeploymentName, v1beta1.ExcludeAnnotation)
	}
	changed := s.DeepCopy() // the client writes the answer into it
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, v1beta1.DetachedAnnotation)
	if err := patchAs(ctx, c, changed, patch, o.dryRun); err != nil {
		return fmt.Errorf("detaching VerticalScaler %s/%s: %w", s.Namespace, s.Name, err)
	}
	if o.dryRun == cli.NoDryRun {
		*s = *changed
	}
	fmt.Fprintf(o.Out, "%s detached from %s%s\n", resourceName("verticalscaler", s.Name), origin.ID(), o.dryRun.Suffix())
	return nil
}

func (o *rollingBack) undoOne(ctx context.Context, c client.Client, from holder, record rollback.Record, isRolledBack bool) error {
	if _, isNoted := from.GetAnnotations()[rollback.Annotation]; !isRolledBack {
		if isNoted {
			return fmt.Errorf("%s in namespace %s was edited after its rollback: correct its bounds, and remove its annotation %s", from.name, from.GetNamespace(), rollback.Annotation)
		}
		fmt.Fprintf(o.Out, "%s not rolled back (unchanged)\n", from.name)
		return nil
	}
	if err := o.patch(ctx, c, from, record.Before, nil); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s no longer rolled back%s\n", from.name, o.dryRun.Suffix())
	return nil
}

func (o *rollingBack) patch(ctx context.Context, c client.Client, on holder, spec rollback.Spec, record *rollback.Record) error {
	patch, err := rollback.Patch(on.GetResourceVersion(), on.isOwner, spec, record)
	if err != nil {
		return err
	}
	object, ok := on.DeepCopyObject().(client.Object) // the client writes the answer into it
	if !ok {
		return fmt.Errorf("%T is not an object", on.Object)
	}
	if err := patchAs(ctx, c, object, string(patch), o.dryRun); err != nil {
		return fmt.Errorf("patching %s in namespace %s: %w", on.name, on.GetNamespace(), err)
	}
	return nil
}

// deploymentFor reads the Deployment, which has the original requests; nil if it does not exist, or
// is not needed.
func deploymentFor(ctx context.Context, c client.Reader, s *v1beta1.VerticalScaler, to rollback.To) (*workload.Deployment, error) {
	if to != rollback.Original || s.Status.OriginalResources != nil {
		return nil, nil
	}
	var d appsv1.Deployment
	switch err := c.Get(ctx, scaler.Target(s), &d); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Deployment %s: %w", scaler.Target(s), err)
	}
	read := workload.ReadDeployment(&d)
	return &read, nil
}

// warnOfRest tells why pods may stay as they are.
func (o *rollingBack) warnOfRest(s *v1beta1.VerticalScaler) {
	var why string
	switch {
	case s.Spec.Suspend:
		why = "it is suspended: resume it"
	case scaler.IsPaused(s):
		why = "it is paused: remove its annotation " + v1beta1.PausedAnnotation
	case scaler.Mode(&s.Spec) == v1beta1.UpdateModeInitial:
		why = "updateMode is Initial: only new pods get the requests"
	default:
		return
	}
	fmt.Fprintf(o.ErrOut, "warning: the pods of VerticalScaler %s/%s stay as they are: %s\n", s.Namespace, s.Name, why)
}

// warnOfSilence tells that no operator makes the changes.
func (o *rollingBack) warnOfSilence(ctx context.Context, c client.Reader, namespace string) {
	operators, err := o.cluster.Operators(ctx, c, namespace)
	if err != nil {
		return // nothing is known
	}
	now := o.cluster.Now()
	if operator, ok := operators.For(namespace); ok && operator.IsSilent(now) {
		fmt.Fprintf(o.ErrOut, "warning: nothing changes until the operator runs: %s\n", operator.Report(now))
	}
}
