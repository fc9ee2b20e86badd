// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/refusal"
)

// attempt is an apply that the API server answered with something else than was
// asked for, as one does whose webhooks change what they see.
type attempt struct {
	document string // its version
	uid      types.UID
	live     int64 // the generation that the answer had
}

// thing is what an owner has: one of each kind.
type thing struct {
	kind  string
	owner types.NamespacedName
}

func thingOf(desired *unstructured.Unstructured) thing {
	return thing{desired.GetKind(), types.NamespacedName{Namespace: desired.GetNamespace(), Name: desired.GetLabels()[v1beta1.ScaledDeploymentLabel]}}
}

func attemptOf(desired *unstructured.Unstructured, live client.Object) attempt {
	return attempt{appliedHash(desired), live.GetUID(), live.GetGeneration()}
}

// apply puts the document in force, unless it is. live is what there is; it is nil where
// there is nothing. into receives the answer. It says what was done to the object;
// "" where nothing was.
//
// Without a live object nothing is forced, so that whatever somebody else has made by
// that name meanwhile is a conflict, not a victim. With one, the write is bound to the
// very version that was read: who owns which field may have changed since.
func (r *Reconciler) apply(ctx context.Context, desired *unstructured.Unstructured, live, into client.Object) (done string, err error) {
	document := desired.DeepCopy()
	options := []client.ApplyOption{client.FieldOwner(Name)}
	if live != nil {
		inForce, err := isApplied(desired, live)
		if inForce || err != nil {
			return "", err
		}
		// The same was tried before, on what there is now.
		if before, ok := r.ineffective.Load(thingOf(desired)); ok && before == attemptOf(desired, live) {
			return "", nil
		}
		document.SetUID(live.GetUID())
		document.SetResourceVersion(live.GetResourceVersion())
		options = append(options, client.ForceOwnership)
	} else if err := r.isFree(ctx, desired); err != nil {
		return "", err
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(document), options...); err != nil {
		return "", fmt.Errorf("applying %s %s/%s: %w", desired.GetKind(), desired.GetNamespace(), desired.GetName(), err)
	}
	// The answer was read into what was sent.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(document.Object, into); err != nil {
		return "", fmt.Errorf("reading the answer to applying %s: %w", desired.GetKind(), err)
	}
	if inForce, err := isApplied(desired, into); err == nil && !inForce {
		r.ineffective.Store(thingOf(desired), attemptOf(desired, into))
		log.FromContext(ctx).Info("The API server has changed what was applied", "kind", desired.GetKind(), "name", desired.GetName())
	}
	switch {
	case live == nil:
		return eventCreated, nil
	case isSameSpec(live, into):
		return "", nil // but our note on it has changed
	}
	return eventUpdated, nil
}

// isSameSpec says whether two objects of a kind have the same spec. A Deployment's
// generation does not tell: it counts annotations too.
func isSameSpec(a, b client.Object) bool {
	switch a := a.(type) {
	case *appsv1.Deployment:
		b, ok := b.(*appsv1.Deployment)
		return ok && equality.Semantic.DeepEqual(a.Spec, b.Spec)
	default:
		return a.GetGeneration() == b.GetGeneration()
	}
}

// isFree makes sure that the cache has not just missed an object by that name: one that
// says the same in all that is desired would be no conflict, and become the owner's.
func (r *Reconciler) isFree(ctx context.Context, desired *unstructured.Unstructured) error {
	kind := desired.GroupVersionKind()
	there := &metav1.PartialObjectMetadataList{}
	there.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := r.Live.List(ctx, there, client.InNamespace(desired.GetNamespace()), client.MatchingFields{metav1.ObjectNameField: desired.GetName()})
	if err != nil {
		return fmt.Errorf("looking for %s %s/%s: %w", kind.Kind, desired.GetNamespace(), desired.GetName(), err)
	}
	if len(there.Items) > 0 {
		return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, desired.GetName(), errors.New("it has just been made"))
	}
	return nil
}

// wouldBeRefused tries the document out. Only a refusal that deleting something else
// would not lift counts.
func (r *Reconciler) wouldBeRefused(ctx context.Context, desired *unstructured.Unstructured) (refusal.Rejection, error) {
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired.DeepCopy()), client.FieldOwner(Name), client.DryRunAll)
	refused := refusal.Of(err)
	switch {
	case refused.Reason == v1beta1.ReasonQuotaExceeded:
		return refusal.Rejection{}, nil
	case refused.Reason == "" && err != nil:
		return refused, fmt.Errorf("trying out %s %s/%s: %w", desired.GetKind(), desired.GetNamespace(), desired.GetName(), err)
	}
	return refused, nil
}

// remove deletes the very object that was read. Deleting in the foreground keeps it
// until all that belongs to it has gone.
func (r *Reconciler) remove(ctx context.Context, object client.Object, how metav1.DeletionPropagation) (bool, error) {
	if object.GetDeletionTimestamp() != nil {
		return false, nil
	}
	err := r.Client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID()), ResourceVersion: ptr.To(object.GetResourceVersion())}, client.PropagationPolicy(how))
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return true, nil
}
