// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
)

// replacePrevious is a phase: it deletes a Deployment of the owner that has a previous
// name. The Deployment stays while the API server would reject its replacement.
func (r *Reconciler) replacePrevious(ctx context.Context, s *scope) (done bool, err error) {
	if s.previous == nil {
		return false, nil
	}
	replaced := s.deployment != nil
	s.deployment = s.previous // The status reports it meanwhile.
	if s.previous.DeletionTimestamp == nil && !replaced {
		if err := r.checkReplacement(ctx, s); err != nil || s.rejection.Reason != "" {
			return true, err
		}
	}
	deleted, err := r.deleteObject(ctx, s.previous, metav1.DeletePropagationForeground)
	if err != nil {
		return true, fmt.Errorf("deleting Deployment %s/%s: %w", s.previous.Namespace, s.previous.Name, err)
	}
	if deleted {
		s.changed(eventDeleted, s.previous)
	}
	// The end of the deletion triggers the next reconcile.
	s.waiting = fmt.Sprintf("Waiting for Deployment %s to be deleted before Deployment %s is created", s.previous.Name, deploymentName(s.owner))
	return true, nil
}

// checkReplacement checks that the API server would accept the Deployment that replaces the
// previous one.
func (r *Reconciler) checkReplacement(ctx context.Context, s *scope) error {
	next, err := deploymentFor(s.owner, nil)
	if err != nil {
		return err
	}
	if err := r.checkNameAvailable(ctx, next); err != nil {
		return err
	}
	rejection, err := r.dryRun(ctx, next)
	s.reject(rejection)
	return err
}

// applyDeployment is a phase: it creates the Deployment, or restores the owner's spec. A rejected
// template does not end the reconcile: the running pods still need a VerticalScaler.
func (r *Reconciler) applyDeployment(ctx context.Context, s *scope) (done bool, err error) {
	if d := s.deployment; d != nil && d.DeletionTimestamp != nil {
		s.waiting = fmt.Sprintf("Waiting for Deployment %s to be deleted; it is then created again", d.Name)
		return true, nil
	}
	err = r.ensureDeployment(ctx, s)
	if rejection := apierror.Of(err); rejection.Reason != "" {
		s.reject(rejection)
		return false, nil
	}
	return false, err
}

func (r *Reconciler) ensureDeployment(ctx context.Context, s *scope) error {
	var live client.Object
	var scalers *fieldpath.Set
	if s.deployment != nil {
		var err error
		if scalers, err = ownership.Of(s.deployment.ManagedFields, ownership.Scalers); err != nil {
			return fmt.Errorf("reading the managed fields of Deployment %s: %w", client.ObjectKeyFromObject(s.deployment), err)
		}
		live = s.deployment
	}
	desired, err := deploymentFor(adoptHPAReplicas(s), scalers)
	if err != nil {
		return err
	}
	var answer appsv1.Deployment
	if applied, err := r.apply(ctx, s, desired, live, &answer); !applied {
		return err
	}
	s.deployment = &answer
	return nil
}

// applyScaler is a phase: it creates the VerticalScaler, restores the owner's spec, or deletes it.
// The VerticalScaler's own finalizer restores the original resources.
func (r *Reconciler) applyScaler(ctx context.Context, s *scope) (done bool, err error) {
	switch {
	case s.owner.Spec.Scaling == nil:
		return true, r.deleteScaler(ctx, s)
	case s.foreignScaler != "":
		s.reject(apierror.Rejection{Reason: v1beta1.ReasonNotControlled, Message: s.foreignScaler})
		return true, nil
	case s.scaler != nil && s.scaler.DeletionTimestamp != nil:
		s.waiting = fmt.Sprintf("Waiting for VerticalScaler %s to be deleted; it is then created again", s.scaler.Name)
		return true, nil
	}
	return true, r.ensureScaler(ctx, s)
}

func (r *Reconciler) deleteScaler(ctx context.Context, s *scope) error {
	if s.scaler == nil {
		return nil
	}
	deleted, err := r.deleteObject(ctx, s.scaler, metav1.DeletePropagationBackground)
	if deleted {
		s.changed(eventDeleted, s.scaler)
	}
	return err
}

func (r *Reconciler) ensureScaler(ctx context.Context, s *scope) error {
	var live client.Object
	if s.scaler != nil {
		live = s.scaler
	}
	desired, err := scalerFor(s.owner)
	if err != nil {
		return err
	}
	var answer v1beta1.VerticalScaler
	if applied, err := r.apply(ctx, s, desired, live, &answer); !applied {
		return err
	}
	s.scaler = &answer
	return nil
}

// attempt is an apply whose result differs from the document, for example because of a mutating
// webhook. Applying the same document again has no effect.
type attempt struct {
	document   string // its hash
	uid        types.UID
	generation int64 // of the result
}

// objectKey identifies an object of an owner, which has at most one of each kind.
type objectKey struct {
	kind  string
	owner types.NamespacedName
}

func keyOf(desired *unstructured.Unstructured) objectKey {
	return objectKey{desired.GetKind(), types.NamespacedName{Namespace: desired.GetNamespace(), Name: desired.GetLabels()[v1beta1.ScaledDeploymentLabel]}}
}

func attemptOf(desired *unstructured.Unstructured, live client.Object) attempt {
	return attempt{appliedHash(desired), live.GetUID(), live.GetGeneration()}
}

// apply applies the document unless live already has all of it. live is nil if the object
// does not exist. The result is decoded into answer.
//
// Without a live object, the apply is not forced: if another client has created the object
// meanwhile, the result is a conflict. With a live object, the write has the version that
// was read as a precondition, because field ownership may have changed since.
func (r *Reconciler) apply(ctx context.Context, s *scope, desired *unstructured.Unstructured, live, answer client.Object) (applied bool, err error) {
	document := desired.DeepCopy()
	options := []client.ApplyOption{client.FieldOwner(Name)}
	if live != nil {
		applied, err := isApplied(desired, live)
		before, _ := r.ineffective.Load(keyOf(desired))
		if applied || err != nil || before == attemptOf(desired, live) {
			return false, err
		}
		document.SetUID(live.GetUID())
		document.SetResourceVersion(live.GetResourceVersion())
		options = append(options, client.ForceOwnership)
	} else {
		if err := r.checkNameAvailable(ctx, desired); err != nil {
			return false, err
		}
	}
	if err := r.write(ctx, document, options...); err != nil {
		return false, fmt.Errorf("applying %s %s/%s: %w", desired.GetKind(), desired.GetNamespace(), desired.GetName(), err)
	}
	// The client has decoded the response into the document.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(document.Object, answer); err != nil {
		return false, fmt.Errorf("decoding the response to applying %s: %w", desired.GetKind(), err)
	}
	if applied, err := isApplied(desired, answer); err == nil && !applied {
		r.ineffective.Store(keyOf(desired), attemptOf(desired, answer))
		log.FromContext(ctx).Info("The API server modified the applied object", "kind", desired.GetKind(), "name", desired.GetName())
	}
	switch {
	case live == nil:
		s.changed(eventCreated, answer)
	case !isSameSpec(live, answer): // Otherwise, only our annotation has changed.
		s.changed(eventUpdated, answer)
	}
	return true, nil
}

// write applies the document. A Deployment first gets the label that the admission policies
// require, and loses it again: with it, they would refuse copies and backups.
func (r *Reconciler) write(ctx context.Context, document *unstructured.Unstructured, options ...client.ApplyOption) error {
	if document.GetKind() == deploymentKind.Kind {
		applying := applyingDocument(document)
		if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applying), options...); err != nil {
			return err
		}
		document.SetUID(applying.GetUID())
		document.SetResourceVersion("") // The deployment controller writes the status meanwhile.
		options = append(options, client.ForceOwnership)
	}
	return r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(document), options...)
}

// isSameSpec reports whether two objects of one kind have the same spec. The generation of
// a Deployment does not show this, because annotations change it too.
func isSameSpec(a, b client.Object) bool {
	switch a := a.(type) {
	case *appsv1.Deployment:
		b, ok := b.(*appsv1.Deployment)
		return ok && equality.Semantic.DeepEqual(a.Spec, b.Spec)
	default:
		return a.GetGeneration() == b.GetGeneration()
	}
}

// dryRun asks the API server whether it would accept the Deployment. It ignores an exceeded
// quota, because deleting the previous object frees its share.
func (r *Reconciler) dryRun(ctx context.Context, desired *unstructured.Unstructured) (apierror.Rejection, error) {
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applyingDocument(desired)), client.FieldOwner(Name), client.DryRunAll)
	rejection := apierror.Of(err)
	switch {
	case rejection.Reason == v1beta1.ReasonQuotaExceeded:
		return apierror.Rejection{}, nil
	case rejection.Reason == "" && err != nil:
		return rejection, fmt.Errorf("applying %s %s/%s as a dry run: %w", desired.GetKind(), desired.GetNamespace(), desired.GetName(), err)
	}
	return rejection, nil
}

// deleteObject deletes exactly the object that was read, and reports whether it was this call
// that started the deletion. Foreground deletion keeps the object until its dependents are
// deleted.
func (r *Reconciler) deleteObject(ctx context.Context, object client.Object, propagation metav1.DeletionPropagation) (bool, error) {
	if object.GetDeletionTimestamp() != nil {
		return false, nil
	}
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID()), ResourceVersion: ptr.To(object.GetResourceVersion())}, client.PropagationPolicy(propagation))
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return true, nil
}
