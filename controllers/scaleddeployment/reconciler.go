// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/refusal"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

const (
	// staleCacheRetry is when to look again after our cache was found to be old.
	staleCacheRetry = 50 * time.Millisecond
	// refusedRetry is when to ask again for what the API server has refused. A quota or
	// a webhook may have changed its mind, and nobody tells. A name that gets free does.
	refusedRetry = time.Minute
)

// Reconciler makes and keeps the Deployments, and the VerticalScalers, that
// ScaledDeployments ask for.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Recorder records events.
	Recorder events.EventRecorder
	// Clock is the time; the real one if unset.
	Clock clock.PassiveClock
	// ResyncPeriod is how often an object is reconciled that nothing wakes.
	ResyncPeriod time.Duration

	written     *ownwrites.Memory
	ineffective sync.Map // of things to the last attempt in vain
}

// pass is what one Reconcile found and did.
type scope struct {
	now time.Time
	// deployment is the owner's Deployment after the pass; nil while there is none.
	deployment *appsv1.Deployment
	// scaler is the owner's VerticalScaler likewise.
	scaler *v1beta1.VerticalScaler
	// scaledBy names an HPA that scales the Deployment instead of the owner; empty for
	// none.
	scaledBy string
	// waiting says what must go before the pass can go on; empty for nothing.
	waiting string
	// refused says why a person must act; without a reason nobody must.
	rejection refusal.Rejection
	// deeds are what was done, for events.
	changes []deed
	err     error
}

// Reconcile brings the Deployment and the VerticalScaler to what their owner says.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var owner v1beta1.ScaledDeployment
	if err := r.Client.Get(ctx, request.NamespacedName, &owner); err != nil {
		if apierrors.IsNotFound(err) {
			r.written.Forget(request.NamespacedName)
			for _, kind := range []string{deploymentKind.Kind, scalerKind.Kind} {
				r.ineffective.Delete(thing{kind, request.NamespacedName})
			}
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	if r.written.IsNewerThan(&owner, now) {
		return reconcile.Result{RequeueAfter: staleCacheRetry}, nil
	}
	if owner.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // what is to go with it is the garbage collector's to know
	}
	p := scope{now: now}
	p.err = r.run(ctx, &owner, &p)
	r.recordChanges(&owner, &p) // whatever becomes of the pass, they are done
	switch refused := refusal.Of(p.err); refused.Reason {
	case "":
	case v1beta1.ReasonNamespaceTerminating:
		return reconcile.Result{}, nil // the owner goes next
	default:
		p.rejection, p.err = refused, nil
	}
	if apierrors.IsConflict(p.err) {
		return reconcile.Result{RequeueAfter: staleCacheRetry}, nil // nothing was found out
	}
	if err := r.writeStatus(ctx, &owner, &p); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: staleCacheRetry}, nil
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.recordRejection(&owner, &p)
	if p.err != nil {
		return reconcile.Result{}, p.err
	}
	after := wait.Jitter(r.ResyncPeriod, 0.2)
	if p.rejection.Reason != "" && p.rejection.Reason != v1beta1.ReasonNotControlled {
		after = min(after, refusedRetry)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// run makes the pass. What is not the owner's is left alone, and then nothing else is
// changed either.
func (r *Reconciler) run(ctx context.Context, owner *v1beta1.ScaledDeployment, p *scope) error {
	scaler, otherScaler, err := r.findScaler(ctx, owner)
	if err != nil {
		return err
	}
	p.scaler = scaler
	own, err := r.deployments(ctx, owner)
	if err != nil {
		return err
	}
	var former *appsv1.Deployment
	for i := range own {
		if own[i].Name == deploymentName(owner) {
			p.deployment = &own[i]
		} else {
			former = &own[i]
		}
	}
	if p.deployment == nil {
		other, err := r.foreignObject(ctx, owner, &appsv1.Deployment{}, deploymentName(owner))
		if err != nil {
			return err
		}
		if other != "" {
			p.deployment, p.rejection = former, refusal.Rejection{Reason: v1beta1.ReasonNotControlled, Message: other}
			return nil
		}
	}
	if former != nil {
		err := r.removeFormer(ctx, owner, former, p)
		p.deployment = former
		return err // its going wakes the next pass
	}
	if d := p.deployment; d != nil && d.DeletionTimestamp != nil {
		p.waiting = fmt.Sprintf("Deployment %s is being deleted; it is made anew once it has gone", d.Name)
		return nil
	}
	err = r.keepDeployment(ctx, owner, p)
	if err != nil && refusal.Of(err).Reason == "" {
		return err
	}
	// A template that is refused is no reason to leave the running pods without a size.
	if scalerErr := r.keepScaler(ctx, owner, otherScaler, p); err == nil || apierrors.IsConflict(scalerErr) {
		err = scalerErr
	}
	return err
}

// deployments are those that the owner controls, and that have its UID. The cache may
// not have one yet that we have just made, so before another is made the API server is
// asked.
func (r *Reconciler) deployments(ctx context.Context, owner *v1beta1.ScaledDeployment) ([]appsv1.Deployment, error) {
	cached, err := inventory.DeploymentsOf(ctx, r.Client, owner)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(cached, func(d appsv1.Deployment) bool { return d.Name == deploymentName(owner) }) {
		return cached, nil
	}
	var live appsv1.DeploymentList
	if err := r.Live.List(ctx, &live, client.InNamespace(owner.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the Deployments of %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	return slices.DeleteFunc(live.Items, func(d appsv1.Deployment) bool { return !metav1.IsControlledBy(&d, owner) }), nil
}

// stranger says of an object by that name that it is not the owner's; "" if there is no
// such object.
func (r *Reconciler) foreignObject(ctx context.Context, owner *v1beta1.ScaledDeployment, object client.Object, name string) (string, error) {
	key := types.NamespacedName{Namespace: owner.Namespace, Name: name}
	if err := r.Client.Get(ctx, key, object); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("reading %s: %w", key, err)
	}
	if metav1.IsControlledBy(object, owner) {
		return "", nil
	}
	return describeForeignObject(object), nil
}

// removeFormer removes a Deployment of the owner that has another name than it shall
// have. It stays while the next one would be refused.
func (r *Reconciler) removeFormer(ctx context.Context, owner *v1beta1.ScaledDeployment, former *appsv1.Deployment, p *scope) error {
	if former.DeletionTimestamp == nil && p.deployment == nil {
		next, err := deploymentFor(owner, nil)
		if err != nil {
			return err
		}
		if err := r.isFree(ctx, next); err != nil {
			return err
		}
		if p.rejection, err = r.wouldBeRefused(ctx, next); err != nil || p.rejection.Reason != "" {
			return err
		}
	}
	removed, err := r.remove(ctx, former, metav1.DeletePropagationForeground)
	if err != nil {
		return fmt.Errorf("deleting Deployment %s/%s: %w", former.Namespace, former.Name, err)
	}
	if removed {
		p.did(eventDeleted, former)
	}
	p.waiting = fmt.Sprintf("Deployment %s must go before %s is made", former.Name, deploymentName(owner))
	return nil
}

// keepDeployment makes the Deployment, or puts it back to what its owner says.
func (r *Reconciler) keepDeployment(ctx context.Context, owner *v1beta1.ScaledDeployment, p *scope) error {
	var live client.Object
	var scalers *fieldpath.Set
	if p.deployment != nil {
		var err error
		if scalers, err = r.letGo(ctx, owner, p); err != nil {
			return err
		}
		live = p.deployment
	} else if err := r.isWanted(ctx, owner); err != nil {
		return err
	}
	owner, err := r.yieldReplicas(ctx, owner, p)
	if err != nil {
		return err
	}
	desired, err := deploymentFor(owner, scalers)
	if err != nil {
		return err
	}
	var answer appsv1.Deployment
	done, err := r.apply(ctx, desired, live, &answer)
	if err != nil {
		return err
	}
	if answer.Name != "" {
		p.deployment = &answer
	}
	if done != "" {
		p.did(done, p.deployment)
	}
	return nil
}

// letGo says which fields of the Deployment are a scaler's, less those of containers that
// the owner has removed: these are taken off it.
func (r *Reconciler) letGo(ctx context.Context, owner *v1beta1.ScaledDeployment, p *scope) (scalers *fieldpath.Set, err error) {
	key := client.ObjectKeyFromObject(p.deployment)
	owners, err := ownership.Of(p.deployment.ManagedFields, ownership.Owners)
	if err == nil {
		scalers, err = ownership.Of(p.deployment.ManagedFields, ownership.Scalers)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the managed fields of Deployment %s: %w", key, err)
	}
	document := releasedFields(owner, p.deployment, owners, scalers)
	if document == nil {
		return scalers, nil
	}
	if err := r.Client.Apply(ctx, document, client.FieldOwner(ownership.Scalers), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("letting go of removed containers of Deployment %s: %w", key, err)
	}
	p.deployment = p.deployment.DeepCopy() // it is the cache's
	p.deployment.ResourceVersion = ptr.Deref(document.ResourceVersion, "")
	return scalers, nil
}

// yieldReplicas lets the Deployment keep its number of pods where an HPA scales it. Such
// an HPA belongs on the owner; but to put back what it does would kill pods, over and
// over. Leaving the number out is no way: nobody else may have it, and it would fall to
// the default.
func (r *Reconciler) yieldReplicas(ctx context.Context, owner *v1beta1.ScaledDeployment, p *scope) (*v1beta1.ScaledDeployment, error) {
	if p.deployment == nil || ptr.Deref(owner.Spec.Replicas, 1) == 0 || ptr.Deref(p.deployment.Spec.Replicas, 1) == 0 {
		return owner, nil // an HPA scales neither to nothing nor from nothing
	}
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	if err := r.Client.List(ctx, &hpas, client.InNamespace(owner.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the HorizontalPodAutoscalers of namespace %s: %w", owner.Namespace, err)
	}
	if p.scaledBy = workload.ScaledBy(hpas.Items, p.deployment); p.scaledBy == "" {
		return owner, nil
	}
	yielding := owner.DeepCopy()
	yielding.Spec.Replicas = p.deployment.Spec.Replicas
	return yielding, nil
}

// findScaler is the owner's VerticalScaler, nil if there is none; or what to say of one by
// its name that is not the owner's.
func (r *Reconciler) findScaler(ctx context.Context, owner *v1beta1.ScaledDeployment) (own *v1beta1.VerticalScaler, other string, err error) {
	var found v1beta1.VerticalScaler
	if other, err = r.foreignObject(ctx, owner, &found, owner.Name); other != "" || err != nil || found.Name == "" {
		return nil, other, err
	}
	return &found, "", nil
}

// keepScaler makes the VerticalScaler, puts it back to what its owner says, or removes
// it. Its own finalizer gives back what it holds. other says whose a scaler is that has
// the name.
func (r *Reconciler) keepScaler(ctx context.Context, owner *v1beta1.ScaledDeployment, other string, p *scope) error {
	switch {
	case owner.Spec.Scaling == nil && p.scaler == nil:
		return nil
	case owner.Spec.Scaling == nil:
		removed, err := r.remove(ctx, p.scaler, metav1.DeletePropagationBackground)
		if removed {
			p.did(eventDeleted, p.scaler)
		}
		return err
	case other != "":
		p.rejection = refusal.Rejection{Reason: v1beta1.ReasonNotControlled, Message: other}
		return nil
	case p.scaler != nil && p.scaler.DeletionTimestamp != nil:
		p.waiting = fmt.Sprintf("VerticalScaler %s is being deleted; it is made anew once it has gone", p.scaler.Name)
		return nil
	}
	var live client.Object
	if p.scaler != nil {
		live = p.scaler
	} else if err := r.isWanted(ctx, owner); err != nil {
		return err
	}
	desired, err := scalerFor(owner)
	if err != nil {
		return err
	}
	var answer v1beta1.VerticalScaler
	done, err := r.apply(ctx, desired, live, &answer)
	if err != nil {
		return err
	}
	if answer.Name != "" {
		p.scaler = &answer
	}
	if done != "" {
		p.did(done, p.scaler)
	}
	return nil
}

// isWanted makes sure that the cache has not just missed the owner's deletion, before
// anything is made for it.
func (r *Reconciler) isWanted(ctx context.Context, owner *v1beta1.ScaledDeployment) error {
	live := &metav1.PartialObjectMetadataList{}
	live.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(v1beta1.ScaledDeploymentKind + "List"))
	err := r.Live.List(ctx, live, client.InNamespace(owner.Namespace), client.MatchingFields{metav1.ObjectNameField: owner.Name})
	if err != nil {
		return fmt.Errorf("looking for ScaledDeployment %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	if len(live.Items) == 0 || live.Items[0].UID != owner.UID || live.Items[0].DeletionTimestamp != nil {
		return apierrors.NewConflict(schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "scaleddeployments"}, owner.Name, errors.New("it has just been deleted"))
	}
	return nil
}
