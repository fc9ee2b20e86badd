// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/backup"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
)

const restoreLong = `Restore what scalers have learned from a file that "backup" has written. The operator may run meanwhile, and should.

Missing scalers, ScaledDeployments and policies are created. Existing ones are not changed. Create namespaces and Deployments
before. Scalers that a ScaledDeployment or a policy creates are waited for.

A history of the file is stored if the scaler has learned nothing from more usage than the file, for any container. --overwrite
stores it anyway. The operator then loads it, keeps the memory peaks and OOM kills that it has seen itself, and continues with
the recommendation of the backup. A scaler that the command creates is paused until its history is there.

The whole file is read and the API server is asked about every change before the first one. So a damaged file or a missing
permission changes nothing. If the command fails later, run it again: it continues.

Only users who may delete the ValidatingAdmissionPolicy verticalscaler-checkpoints may write histories, where the admission
policies are installed. The command also requires the permission to create what is missing, to get and patch VerticalScalers,
to update verticalscalers/status, and to get, create and update VerticalScalerCheckpoints.

Exit codes: 0: success, 1: failure, 2: invalid usage.`

const restoreExample = `  # See what would be restored, checked by the API server
  %[1]s restore -f vscaler-backup.yaml --dry-run

  # Restore it
  %[1]s restore -f vscaler-backup.yaml`

// restoring is the value of the annotation that pauses a scaler until its history is stored.
const restoring = "being restored by kubectl vscaler"

// restoration are the flags of restore.
type restoration struct {
	genericiooptions.IOStreams
	cluster *cluster

	file      string
	overwrite bool
	wait      time.Duration
	maxAhead  time.Duration
	dryRun    string
}

func newRestore(streams genericiooptions.IOStreams, cluster *cluster) *cobra.Command {
	o := &restoration{IOStreams: streams, cluster: cluster}
	c := &cobra.Command{
		Use:               "restore -f FILE",
		Short:             "Restore what scalers have learned from a backup",
		Long:              restoreLong,
		Example:           fmt.Sprintf(restoreExample, commandName),
		Args:              noCommand,
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().StringVarP(&o.file, "filename", "f", "", "The file that backup has written. - is the standard input.")
	c.Flags().BoolVar(&o.overwrite, "overwrite", false, "Also replace histories that are based on more usage than those of the file.")
	c.Flags().DurationVar(&o.wait, "wait", time.Minute, "How long to wait for scalers that a ScaledDeployment or a policy creates.")
	c.Flags().DurationVar(&o.maxAhead, "max-ahead", time.Minute, "How far the times in a history may be ahead of the server's clock: recommendation.maxAhead of the operator.")
	addDryRun(c, &o.dryRun)
	return c
}

func (o *restoration) run(ctx context.Context) error {
	switch {
	case o.file == "":
		return usageError{errors.New("name the file with -f")}
	case !slices.Contains(dryRuns, o.dryRun):
		return usageError{fmt.Errorf("--dry-run %q is not one of %s", o.dryRun, strings.Join(dryRuns, ", "))}
	}
	b, err := o.read()
	if err != nil {
		return err
	}
	c, err := o.cluster.open()
	if err != nil {
		return err
	}
	if err := o.check(ctx, c, b); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	r := &restorer{client: c, overwrite: o.overwrite, isDry: true, out: io.Discard}
	if o.dryRun != "none" {
		r.out, r.suffix = o.Out, dryRunSuffix(o.dryRun)
	}
	if o.dryRun == "client" {
		r.isOffline = true
	}
	if err := r.all(ctx, b); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if o.dryRun != "none" {
		return nil
	}
	var stop context.CancelFunc
	r = &restorer{client: c, overwrite: o.overwrite, out: o.Out}
	r.waiting, stop = context.WithTimeout(ctx, o.wait)
	defer stop()
	return r.all(ctx, b)
}

// read reads the whole file.
func (o *restoration) read() (b backup.Backup, err error) {
	from := o.In
	if o.file != "-" {
		file, err := os.Open(o.file)
		if err != nil {
			return b, fmt.Errorf("opening the backup: %w", err)
		}
		defer file.Close() //nolint:errcheck // it is only read
		from = file
	}
	if b, err = backup.Read(from); err != nil {
		return b, fmt.Errorf("reading %s: %w", o.file, err)
	}
	return b, nil
}

// check finds what no request for one object would tell: namespaces that are missing, and histories that an operator would
// not read.
func (o *restoration) check(ctx context.Context, c client.Client, b backup.Backup) error {
	namespaces := map[string]bool{}
	for i := range b.Policies {
		namespaces[b.Policies[i].Namespace] = true
	}
	for i := range b.ScaledDeployments {
		namespaces[b.ScaledDeployments[i].Namespace] = true
	}
	for i := range b.Scalers {
		namespaces[b.Scalers[i].Namespace] = true
	}
	var errs []error
	for name := range namespaces {
		var namespace corev1.Namespace
		switch err := c.Get(ctx, client.ObjectKey{Name: name}, &namespace); {
		case apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("namespace %s does not exist: create it and its Deployments first", name))
		case apierrors.IsForbidden(err): // The requests for its objects tell.
		case err != nil:
			errs = append(errs, fmt.Errorf("reading namespace %s: %w", name, err))
		case namespace.DeletionTimestamp != nil:
			errs = append(errs, fmt.Errorf("namespace %s is being deleted: wait, and create it again", name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	latest := o.cluster.time.Now(clock.RealClock{}.Now()).Add(o.maxAhead)
	for i := range b.Scalers {
		if saved := b.Scalers[i].Checkpoint; saved != nil {
			if _, err := checkpoint.Observed(saved.Spec, latest); err != nil {
				errs = append(errs, fmt.Errorf("VerticalScaler %s: %w", b.Scalers[i].Key(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// restorer writes a backup to the API server. It does so twice: first as a dry run.
type restorer struct {
	client    client.Client
	overwrite bool
	// isDry says that nothing is stored, and isOffline that nothing is sent but reads.
	isDry, isOffline bool
	// waiting ends when scalers of a controller are not waited for any longer; nil if they are not.
	waiting context.Context //nolint:containedctx // a deadline that all scalers share
	out     io.Writer
	suffix  string
}

func (r *restorer) say(format string, args ...any) {
	fmt.Fprintf(r.out, format+r.suffix+"\n", args...)
}

// all restores what creates scalers, and then the scalers. One that fails does not keep the others from being restored.
func (r *restorer) all(ctx context.Context, b backup.Backup) error {
	var errs []error
	for i := range b.ClusterPolicies {
		errs = append(errs, r.ensure(ctx, v1beta1.ClusterScalingPolicyKind, &b.ClusterPolicies[i]))
	}
	for i := range b.Policies {
		errs = append(errs, r.ensure(ctx, v1beta1.ScalingPolicyKind, &b.Policies[i]))
	}
	for i := range b.ScaledDeployments {
		errs = append(errs, r.ensure(ctx, string(ownerKind), &b.ScaledDeployments[i]))
	}
	for i := range b.Scalers {
		if err := r.scaler(ctx, &b.Scalers[i]); err != nil {
			errs = append(errs, fmt.Errorf("VerticalScaler %s: %w", b.Scalers[i].Key(), err))
		}
	}
	return errors.Join(errs...)
}

// ensure creates an object unless it exists.
func (r *restorer) ensure(ctx context.Context, kind string, object client.Object) error {
	name := strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/")
	err := r.create(ctx, object.DeepCopyObject().(client.Object)) //nolint:forcetypeassert // the copy has the type of the object
	switch {
	case apierrors.IsAlreadyExists(err):
		r.say("%s %s exists, and is not changed", kind, name)
		return nil
	case err != nil:
		return fmt.Errorf("creating %s %s: %w", kind, name, err)
	}
	r.say("%s %s created", kind, name)
	return nil
}

func (r *restorer) create(ctx context.Context, object client.Object) error {
	options := []client.CreateOption{client.FieldOwner(fieldManager)}
	switch {
	case r.isOffline:
		return client.IgnoreNotFound(r.exists(ctx, object))
	case r.isDry:
		options = append(options, client.DryRunAll)
	}
	return r.client.Create(ctx, object, options...)
}

// exists is the error that a creation would have.
func (r *restorer) exists(ctx context.Context, object client.Object) error {
	found := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // the copy has the type of the object
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(object), found); err != nil {
		return err
	}
	return apierrors.NewAlreadyExists(v1beta1.GroupVersion.WithResource("objects").GroupResource(), object.GetName())
}

// scaler restores a scaler and its history. The order matters to an operator that runs: a new scaler is paused at first, and the
// recommendation is there before the history. A recommendation is not lowered with less evidence than it was published
// with, so whatever the operator does in between, it lowers nothing.
func (r *restorer) scaler(ctx context.Context, saved *backup.Scaler) error {
	live, isNew, err := r.find(ctx, saved)
	switch {
	case err != nil:
		return err
	case live == nil: // only in a dry run
		r.say("VerticalScaler %s restored once %s has created it", saved.Key(), named(metav1.GetControllerOf(saved)))
		return r.storeCheckpoint(ctx, saved, &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Name: saved.Name, Namespace: saved.Namespace, UID: "unknown"}}, nil)
	case live.Spec.DeploymentName != saved.Spec.DeploymentName:
		r.say("VerticalScaler %s kept: it sizes Deployment %s, and in the backup %s", saved.Key(), live.Spec.DeploymentName, saved.Spec.DeploymentName)
		return nil
	}
	learned, err := r.learn(ctx, saved, live)
	if err != nil {
		return err
	}
	if err := r.annotate(ctx, saved, live, learned.isRestored); err != nil {
		return fmt.Errorf("annotating it: %w", err)
	}
	verb := ""
	if isNew {
		verb = "created, "
	}
	r.say("VerticalScaler %s %s%s", saved.Key(), verb, learned)
	return nil
}

// named is how an owner is called in messages.
func named(owner *metav1.OwnerReference) string {
	if owner == nil {
		return "nothing"
	}
	return owner.Kind + " " + owner.Name
}

// find is the scaler in the cluster. It creates a missing one, or waits until its controller has. In a dry run, there is
// none then.
func (r *restorer) find(ctx context.Context, saved *backup.Scaler) (live *v1beta1.VerticalScaler, isNew bool, err error) {
	live = &v1beta1.VerticalScaler{}
	err = r.client.Get(ctx, saved.Key(), live)
	switch owner := metav1.GetControllerOf(saved); {
	case err == nil && live.DeletionTimestamp == nil:
		return live, false, nil
	case err == nil:
		return nil, false, errors.New("it is being deleted: wait until it is gone")
	case !apierrors.IsNotFound(err):
		return nil, false, fmt.Errorf("reading it: %w", err)
	case owner != nil && r.isDry:
		return nil, false, nil
	case owner != nil:
		if err := r.await(ctx, saved.Key(), live); err != nil {
			return nil, false, fmt.Errorf("%s has not created it: %w. Run the command again once it has", named(owner), err)
		}
		return live, false, nil
	}
	live = &v1beta1.VerticalScaler{ObjectMeta: *saved.ObjectMeta.DeepCopy(), Spec: *saved.Spec.DeepCopy()}
	if live.Annotations[v1beta1.PausedAnnotation] == "" {
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, v1beta1.PausedAnnotation, restoring)
	}
	if err := r.create(ctx, live); err != nil {
		return nil, false, fmt.Errorf("creating it: %w", err)
	}
	if live.UID == "" {
		live.UID = "unknown" // in a dry run of the client
	}
	return live, true, nil
}

// await waits until the scaler exists.
func (r *restorer) await(ctx context.Context, key types.NamespacedName, live *v1beta1.VerticalScaler) error {
	err := wait.PollUntilContextCancel(r.waiting, time.Second, true, func(context.Context) (bool, error) {
		err := r.client.Get(ctx, key, live)
		return err == nil, client.IgnoreNotFound(err)
	})
	if r.waiting.Err() != nil && ctx.Err() == nil {
		return errors.New("it was waited for")
	}
	return err
}

// learned is what became of a history.
type learned struct {
	isRestored      bool
	saved, had      time.Duration
	isKept, hasNone bool
	isThere         bool
}

func (l learned) String() string {
	switch {
	case l.hasNone:
		return "has no history in the backup"
	case l.isKept:
		return fmt.Sprintf("kept: it has learned from %s of usage, and the backup has %s", duration.HumanDuration(l.had), duration.HumanDuration(l.saved))
	case l.isThere:
		return fmt.Sprintf("has this history already, of %s of usage", duration.HumanDuration(l.saved))
	case l.had > 0:
		return fmt.Sprintf("history of %s of usage restored; it had %s", duration.HumanDuration(l.saved), duration.HumanDuration(l.had))
	}
	return fmt.Sprintf("history of %s of usage restored", duration.HumanDuration(l.saved))
}

// learn stores the recommendation and the history, unless the scaler has learned from more usage. The operator may write at
// the same time: then what it has written is compared as well.
func (r *restorer) learn(ctx context.Context, saved *backup.Scaler, live *v1beta1.VerticalScaler) (l learned, err error) {
	if saved.Checkpoint == nil {
		return learned{hasNone: true}, nil
	}
	err = retry.OnError(races, isRace, func() error {
		var there v1beta1.VerticalScalerCheckpoint
		found := &there
		if err := r.client.Get(ctx, saved.Key(), found); apierrors.IsNotFound(err) {
			found = nil
		} else if err != nil {
			return fmt.Errorf("reading its history: %w", err)
		}
		if l = r.compare(saved, live, found); l.isKept || l.isThere {
			return nil
		}
		if err := r.storeStatus(ctx, saved, live); err != nil {
			return fmt.Errorf("storing its recommendation: %w", err)
		}
		if err := r.storeCheckpoint(ctx, saved, live, found); err != nil {
			return err
		}
		l.isRestored = true
		return nil
	})
	return l, err
}

// races are how often, and how soon, a write is repeated that another writer has overtaken.
var races = wait.Backoff{Steps: 10, Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.1}

// isRace says whether another writer came first.
func isRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// compare says what to do with a history. One that is not of this scaler and its Deployment does not count.
func (r *restorer) compare(saved *backup.Scaler, live *v1beta1.VerticalScaler, found *v1beta1.VerticalScalerCheckpoint) (l learned) {
	ours, err := checkpoint.Observed(saved.Checkpoint.Spec, latestTime)
	if err != nil {
		return learned{hasNone: true} // The file was checked before.
	}
	l.saved = longest(ours)
	if found == nil || !metav1.IsControlledBy(found, live) || found.Spec.DeploymentName != live.Spec.DeploymentName {
		return l
	}
	theirs, err := checkpoint.Observed(found.Spec, latestTime)
	if err != nil {
		return l // It is of no use to the operator either.
	}
	l.had = longest(theirs)
	l.isThere = digestOf(found.Spec) == digestOf(saved.Checkpoint.Spec)
	if r.overwrite || live.Annotations[v1beta1.PausedAnnotation] == restoring {
		return l // What a scaler has learned since it was created for this history is no reason not to restore it.
	}
	for container, observed := range theirs {
		l.isKept = l.isKept || observed > ours[container]
	}
	return l
}

// latestTime is later than all times in a history.
var latestTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

func longest(observed map[string]time.Duration) (most time.Duration) {
	for _, d := range observed {
		most = max(most, d)
	}
	return most
}

// storeStatus puts the recommendation, and the changes that are not tried again, into the status. The rest of the status is
// about the cluster, and not restored.
func (r *restorer) storeStatus(ctx context.Context, saved *backup.Scaler, live *v1beta1.VerticalScaler) error {
	return retry.RetryOnConflict(races, func() error {
		now := live.DeepCopy()
		if err := r.client.Get(ctx, saved.Key(), now); r.isDry && apierrors.IsNotFound(err) {
			now = live.DeepCopy()
		} else if err != nil {
			return err
		}
		if saved.Status.Recommendation != nil {
			now.Status.Recommendation = saved.Status.Recommendation
		}
		if len(now.Status.RevertedChanges) == 0 {
			now.Status.RevertedChanges = saved.Status.RevertedChanges
		}
		if now.Status.ObservedGeneration == 0 {
			now.Status.ObservedGeneration = -1 // as the API server sets it; the operator has not seen the object
		}
		options := []client.SubResourceUpdateOption{client.FieldOwner(fieldManager)}
		switch {
		case r.isOffline:
			return nil
		case r.isDry:
			err := r.client.Status().Update(ctx, now, append(options, client.DryRunAll)...)
			return client.IgnoreNotFound(err) // It does not exist yet, and the right to update it does.
		}
		return r.client.Status().Update(ctx, now, options...)
	})
}

// storeCheckpoint stores the history as that of the scaler in this cluster.
func (r *restorer) storeCheckpoint(ctx context.Context, saved *backup.Scaler, live *v1beta1.VerticalScaler, found *v1beta1.VerticalScalerCheckpoint) error {
	if saved.Checkpoint == nil {
		return nil
	}
	object := &v1beta1.VerticalScalerCheckpoint{ObjectMeta: *saved.Checkpoint.ObjectMeta.DeepCopy(), Spec: *saved.Checkpoint.Spec.DeepCopy()}
	object.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1beta1.GroupVersion.String(), Kind: string(scalerKind), Name: live.Name, UID: live.UID, Controller: new(true),
	}}
	var err error
	switch {
	case r.isOffline:
	case found == nil:
		err = r.create(ctx, object)
	default:
		object.ResourceVersion, object.UID = found.ResourceVersion, found.UID
		options := []client.UpdateOption{client.FieldOwner(fieldManager)}
		if r.isDry {
			options = append(options, client.DryRunAll)
		}
		err = r.client.Update(ctx, object, options...)
	}
	if err != nil {
		return fmt.Errorf("storing its history: %w", err)
	}
	return nil
}

// annotate tells the operator to load the history, and lets a scaler go that was paused for it. What a policy has noted about the
// scaler continues to count.
func (r *restorer) annotate(ctx context.Context, saved *backup.Scaler, live *v1beta1.VerticalScaler, isRestored bool) error {
	changes := map[string]any{}
	if isRestored {
		changes[v1beta1.RestoredAnnotation] = digestOf(saved.Checkpoint.Spec)
	}
	if live.Annotations[v1beta1.PausedAnnotation] == restoring {
		changes[v1beta1.PausedAnnotation] = nil
	}
	for _, key := range []string{v1beta1.PromotedAnnotation, v1beta1.HarmedAnnotation} {
		if value, isSaved := saved.Annotations[key]; isSaved && isRestored && v1beta1.IsPolicy(metav1.GetControllerOf(live)) && live.Annotations[key] == "" {
			changes[key] = value
		}
	}
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return err
	}
	dryRun := "none"
	switch {
	case r.isOffline:
		dryRun = "client"
	case r.isDry:
		dryRun = "server"
	}
	object := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: live.Namespace, Name: live.Name}}
	err = patchAs(ctx, r.client, object, string(patch), dryRun)
	if r.isDry {
		return client.IgnoreNotFound(err)
	}
	return err
}

// digestOf identifies a history. It is not a secret, and short enough to be read.
func digestOf(spec v1beta1.VerticalScalerCheckpointSpec) string {
	data, err := json.Marshal(spec)
	if err != nil {
		panic(err) // a struct of strings, times and bytes
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
