// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package newpods publishes the sizes of new pods to the API server: one NewPodSizes for each namespace with
// scalers that size new pods.
//
// It is derived from status.newPods of the scalers only. So a crash or an outage loses nothing: the objects stay, and
// so do the sizes of new pods.
package newpods

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/operator-framework/operator-lib/prune"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

const (
	// Name is the name of the controller.
	Name = "newpods"

	// pause is the least time between two writes for one namespace. An object has the sizes of all
	// Deployments, so that each write costs as much as its namespace is large.
	pause = 5 * time.Second

	// maxOwners limits the scalers that own an object. The garbage collector deletes it with the last one, even if no
	// operator runs. It is small because the API server reads the object for each new pod.
	maxOwners = 8

	// rejectedRetry is the time until a rejected write is retried.
	rejectedRetry = time.Minute
)

// Labels are the labels of all NewPodSizes that the operator writes.
func Labels() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "verticalscaler-operator"}
}

var kind = v1beta1.GroupVersion.WithKind("NewPodSizes")

// Reconciler writes the NewPodSizes of namespaces.
type Reconciler struct {
	// Client reads scalers and NewPodSizes from the cache, and writes.
	Client client.Client
	// Workers is the number of namespaces that are reconciled at once.
	Workers int
	// Clock is the time.
	Clock clock.PassiveClock
	// The scalers of a namespace are sent to this channel when the answer of Refused changes; nil for none.
	Wake chan<- event.GenericEvent
	// Longest is the longest text of one object, in bytes; admission.MaxText if 0.
	Longest int

	conflicts queue.Conflicts
	written   sync.Map // when a namespace was last written: a time.Time by its name
	mu        sync.Mutex
	refused   map[string]apierror.Rejection // why a namespace cannot be written
}

// request is the request to reconcile a namespace.
func request(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: v1beta1.NewPodSizesName}}
}

// Reconcile publishes the sizes of a namespace's scalers in its NewPodSizes.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	lines, owners, err := r.lines(ctx, req.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	var found v1beta1.NewPodSizesList
	if err := r.Client.List(ctx, &found, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the sizes of new pods in namespace %s: %w", req.Namespace, err)
	}
	ours := slices.DeleteFunc(found.Items, func(o v1beta1.NewPodSizes) bool { return !isOurs(&o) })
	wanted := objects(req.Namespace, lines, owners, ours, cmp.Or(r.Longest, admission.MaxText))
	if isWritten(wanted, ours) {
		if len(ours) == 0 {
			r.written.Delete(req.Namespace)
		}
		return r.result(ctx, req, nil)
	}
	if left := r.untilNext(req.Namespace); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return r.result(ctx, req, r.write(ctx, req.Namespace, lines, wanted, ours))
}

// result returns when to write again.
func (r *Reconciler) result(ctx context.Context, req reconcile.Request, err error) (reconcile.Result, error) {
	rejection := apierror.Of(err)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err): // The cache was old.
		return reconcile.Result{RequeueAfter: r.conflicts.Delay(req.NamespacedName)}, nil
	case rejection.Reason == v1beta1.ReasonNamespaceTerminating:
		return reconcile.Result{}, nil
	case rejection.Reason != "":
		log.FromContext(ctx).Info("The sizes of new pods cannot be written, so new pods keep those that they had", "reason", rejection.Reason, "message", rejection.Message)
		r.noteRefusal(ctx, req.Namespace, rejection)
		return reconcile.Result{RequeueAfter: rejectedRetry}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	r.noteRefusal(ctx, req.Namespace, apierror.Rejection{})
	r.conflicts.Forget(req.NamespacedName)
	return reconcile.Result{}, nil
}

// Refused returns why the API server rejected the last write for a namespace, if it did.
func (r *Reconciler) Refused(namespace string) apierror.Rejection {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused[namespace]
}

// noteRefusal records the outcome of the last write for a namespace. A new outcome triggers the scalers, which report it.
func (r *Reconciler) noteRefusal(ctx context.Context, namespace string, why apierror.Rejection) {
	r.mu.Lock()
	before := r.refused[namespace]
	if r.refused == nil {
		r.refused = map[string]apierror.Rejection{}
	}
	if why.Reason == "" {
		delete(r.refused, namespace)
	} else {
		r.refused[namespace] = why
	}
	r.mu.Unlock()
	if before == why || r.Wake == nil {
		return
	}
	var scalers v1beta1.VerticalScalerList
	if err := r.Client.List(ctx, &scalers, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing the scalers of the namespace") // Their resync is soon enough.
		return
	}
	for i := range scalers.Items { // Also those without sizes: their previous sizes may be impossible to remove.
		select {
		case r.Wake <- event.GenericEvent{Object: &scalers.Items[i]}:
		case <-ctx.Done():
			return
		}
	}
}

// lines returns the lines to publish for a namespace, by Deployment, and the owners of the objects. A scaler counts while
// its status and spec name the same Deployment.
func (r *Reconciler) lines(ctx context.Context, namespace string) (lines map[string]string, owners []metav1.OwnerReference, err error) {
	var scalers v1beta1.VerticalScalerList
	if err := r.Client.List(ctx, &scalers, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing the scalers of namespace %s: %w", namespace, err)
	}
	lines = map[string]string{}
	for i := range scalers.Items {
		s := &scalers.Items[i]
		if line := lineOf(s); line != "" {
			lines[s.Spec.DeploymentName] = line
			owners = append(owners, metav1.OwnerReference{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScaler", Name: s.Name, UID: s.UID})
		}
	}
	slices.SortFunc(owners, func(a, b metav1.OwnerReference) int { return strings.Compare(a.Name, b.Name) })
	return lines, owners[:min(len(owners), maxOwners)], nil
}

// lineOf is the line to publish for the scaler's Deployment, if any.
func lineOf(s *v1beta1.VerticalScaler) string {
	if s.Status.NewPods == nil || s.DeletionTimestamp != nil || scaler.RecordedClaim(s) != scaler.Claim(s) {
		return ""
	}
	return admission.LineOf(s, *s.Status.NewPods)
}

// objects are the NewPodSizes with these lines and owners. A line stays in the object that has it,
// the first one by name. It sorts the objects that were found.
func objects(namespace string, lines map[string]string, owners []metav1.OwnerReference, found []v1beta1.NewPodSizes, longest int) (out []v1beta1.NewPodSizes) {
	slices.SortFunc(found, func(a, b v1beta1.NewPodSizes) int { return cmp.Compare(a.Name, b.Name) })
	var before []string
	for i := range found {
		before = append(before, found[i].Spec.Deployments)
	}
	number := 0
	for i, text := range admission.Texts(lines, longest, before...) {
		var name string
		if i < len(found) {
			name = found[i].Name
		}
		for name == "" || i >= len(found) && indexOf(found, name) >= 0 {
			number++
			name = nameOf(number)
		}
		if text != "" {
			out = append(out, v1beta1.NewPodSizes{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: Labels(), OwnerReferences: owners},
				Spec:       v1beta1.NewPodSizesSpec{Deployments: text},
			})
		}
	}
	return out
}

// nameOf is the name of one of our objects in a namespace, from 1.
func nameOf(number int) string {
	if number == 1 {
		return v1beta1.NewPodSizesName
	}
	return fmt.Sprintf("%s-%d", v1beta1.NewPodSizesName, number)
}

// isWritten reports whether our objects are exactly the wanted ones.
func isWritten(wanted, ours []v1beta1.NewPodSizes) bool {
	return len(wanted) == len(ours) && !slices.ContainsFunc(ours, func(o v1beta1.NewPodSizes) bool {
		i := indexOf(wanted, o.Name)
		return i < 0 || !isSame(&wanted[i], &o)
	})
}

func isSame(want, found *v1beta1.NewPodSizes) bool {
	return found.Spec == want.Spec && isLabelled(found) && slices.Equal(found.OwnerReferences, want.OwnerReferences)
}

func indexOf(objects []v1beta1.NewPodSizes, name string) int {
	return slices.IndexFunc(objects, func(o v1beta1.NewPodSizes) bool { return o.Name == name })
}

// isOurs reports whether an object has our label, or a name of ours: a user may have removed the label.
func isOurs(o *v1beta1.NewPodSizes) bool {
	number := 1
	if suffix, ok := strings.CutPrefix(o.Name, v1beta1.NewPodSizesName+"-"); ok {
		number, _ = strconv.Atoi(suffix)
	}
	return isLabelled(o) || o.Name == nameOf(number)
}

func isLabelled(o *v1beta1.NewPodSizes) bool {
	for key, value := range Labels() {
		if o.Labels[key] != value {
			return false
		}
	}
	return true
}

// untilNext is the time until the next write for a namespace.
func (r *Reconciler) untilNext(namespace string) time.Duration {
	last, _ := r.written.Load(namespace)
	at, _ := last.(time.Time)
	return at.Add(pause).Sub(r.Clock.Now())
}

// write writes the differences, and deletes the objects that are not needed. An object that is too long loses lines to others,
// and gets none from them. It is written after them, so that no line is ever missing. After an error, two objects may have a
// line: the first one counts, as in objects.
func (r *Reconciler) write(ctx context.Context, namespace string, lines map[string]string, wanted, found []v1beta1.NewPodSizes) error {
	r.written.Store(namespace, r.Clock.Now())
	home := map[string]string{} // of the line of each Deployment
	for _, o := range slices.Backward(found) {
		for line := range strings.Lines(o.Spec.Deployments) {
			home[admission.DeploymentOf(line)] = o.Name
		}
	}
	loses := map[string]int{} // lines, by object
	for deployment, name := range home {
		if i := indexOf(wanted, name); i >= 0 && lines[deployment] != "" && !admission.HasDeployment(wanted[i].Spec.Deployments, deployment) {
			loses[name]++
		}
	}
	slices.SortStableFunc(wanted, func(a, b v1beta1.NewPodSizes) int { return min(loses[a.Name], 1) - min(loses[b.Name], 1) })
	for i := range wanted {
		if err := r.writeOne(ctx, &wanted[i], found); err != nil {
			return fmt.Errorf("writing the sizes of new pods in namespace %s: %w", namespace, err)
		}
	}
	for i, o := range found {
		if indexOf(wanted, o.Name) < 0 && !isLabelled(&o) { // The pruner needs the label.
			if err := r.writeOne(ctx, &v1beta1.NewPodSizes{ObjectMeta: o.ObjectMeta, Spec: o.Spec}, found[i:]); err != nil {
				return fmt.Errorf("labelling the sizes of new pods in namespace %s: %w", namespace, err)
			}
		}
	}
	return r.prune(ctx, namespace, wanted, found)
}

// prune deletes our objects in a namespace that are not wanted.
func (r *Reconciler) prune(ctx context.Context, namespace string, wanted, found []v1beta1.NewPodSizes) error {
	isLeftover := func(o client.Object) bool { return indexOf(wanted, o.GetName()) < 0 }
	if !slices.ContainsFunc(found, func(o v1beta1.NewPodSizes) bool { return isLeftover(&o) }) {
		return nil
	}
	leftovers := func(_ context.Context, ours []client.Object) ([]client.Object, error) {
		return slices.DeleteFunc(ours, func(o client.Object) bool { return !isLeftover(o) }), nil
	}
	pruner, err := prune.NewPruner(r.Client, kind, leftovers, prune.WithNamespace(namespace), prune.WithLabels(Labels()))
	if err != nil {
		return fmt.Errorf("creating the pruner: %w", err)
	}
	if _, err := pruner.Prune(ctx); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting sizes of new pods that are not needed in namespace %s: %w", namespace, err)
	}
	return nil
}

func (r *Reconciler) writeOne(ctx context.Context, want *v1beta1.NewPodSizes, found []v1beta1.NewPodSizes) error {
	i := indexOf(found, want.Name)
	if i < 0 {
		return r.Client.Create(ctx, want, client.FieldOwner(ownership.Scalers))
	}
	if isSame(want, &found[i]) {
		return nil
	}
	updated := found[i].DeepCopy()
	updated.Spec, updated.OwnerReferences = want.Spec, want.OwnerReferences
	if updated.Labels == nil {
		updated.Labels = map[string]string{}
	}
	for key, value := range Labels() {
		updated.Labels[key] = value
	}
	return r.Client.Update(ctx, updated, client.FieldOwner(ownership.Scalers))
}
