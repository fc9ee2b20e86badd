// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// versions are the versions of what a reconcile reads.
type versions struct{ owner, deployment, scaler, scaledBy string }

func versionsOf(s *scope) (v versions) {
	v = versions{owner: versionOf(s.owner), scaledBy: s.scaledBy}
	if s.deployment != nil {
		v.deployment = versionOf(s.deployment)
	}
	if s.scaler != nil {
		v.scaler = versionOf(s.scaler)
	}
	return v
}

func versionOf(o client.Object) string { return string(o.GetUID()) + "/" + o.GetResourceVersion() }

// cachedVersions are the versions in the cache; the zero value if it has another Deployment than the one that the owner wants.
func (r *Reconciler) cachedVersions(ctx context.Context, owner *v1beta1.ScaledDeployment) versions {
	s := &scope{owner: owner}
	deployments, err := inventory.DeploymentsOf(ctx, r.Client, owner)
	if err != nil || len(deployments) != 1 || deployments[0].Name != deploymentName(owner) {
		return versions{}
	}
	s.deployment = &deployments[0]
	if s.scaler, _, err = r.scalerOf(ctx, owner); err != nil {
		return versions{}
	}
	if s.scaledBy, err = r.directHPA(ctx, owner, s.deployment); err != nil {
		return versions{}
	}
	return versionsOf(s)
}

// liveOwner reads the owner from the API server; nil if it was deleted and the cache has not seen it yet.
func (r *Reconciler) liveOwner(ctx context.Context, cached *v1beta1.ScaledDeployment) (*v1beta1.ScaledDeployment, error) {
	var live v1beta1.ScaledDeploymentList
	if err := r.Live.List(ctx, &live, client.InNamespace(cached.Namespace), client.MatchingFields{metav1.ObjectNameField: cached.Name}); err != nil {
		return nil, fmt.Errorf("reading ScaledDeployment %s: %w", client.ObjectKeyFromObject(cached), err)
	}
	if len(live.Items) == 0 || live.Items[0].UID != cached.UID {
		return nil, nil
	}
	return &live.Items[0], nil
}

// observe is a phase: it reads the owner's VerticalScaler, its Deployments, and the HPA
// that scales the Deployment directly.
func (r *Reconciler) observe(ctx context.Context, s *scope) (done bool, err error) {
	if s.scaler, s.foreignScaler, err = r.scalerOf(ctx, s.owner); err != nil {
		return false, err
	}
	deployments, err := r.deploymentsOf(ctx, s.owner)
	if err != nil {
		return false, err
	}
	for i := range deployments {
		if deployments[i].Name == deploymentName(s.owner) {
			s.deployment = &deployments[i]
		} else {
			s.previous = &deployments[i]
		}
	}
	s.scaledBy, err = r.directHPA(ctx, s.owner, s.deployment)
	return false, err
}

// claimName is a phase: it stops the reconcile while a Deployment that the owner does not
// control has the name that the owner wants. The operator never adopts a Deployment.
func (r *Reconciler) claimName(ctx context.Context, s *scope) (done bool, err error) {
	if s.deployment != nil {
		return false, nil
	}
	foreign, err := r.foreignObject(ctx, s.owner, &appsv1.Deployment{}, deploymentName(s.owner))
	if err != nil || foreign == "" {
		return false, err
	}
	s.deployment = s.previous // The status reports it meanwhile.
	s.reject(apierror.Rejection{Reason: v1beta1.ReasonNotControlled, Message: foreign})
	return true, nil
}

// scalerOf returns the owner's VerticalScaler, or nil. foreign describes a VerticalScaler
// with the owner's name that the owner does not control.
func (r *Reconciler) scalerOf(ctx context.Context, owner *v1beta1.ScaledDeployment) (own *v1beta1.VerticalScaler, foreign string, err error) {
	var found v1beta1.VerticalScaler
	if foreign, err = r.foreignObject(ctx, owner, &found, owner.Name); foreign != "" || err != nil || found.Name == "" {
		return nil, foreign, err
	}
	return &found, "", nil
}

// deploymentsOf reads the Deployments that the owner controls from the API server. The cache names them, with or without our label. It
// may lack one that we have just created, so before another one is created, those with our label are listed: a Deployment has it from
// its creation.
func (r *Reconciler) deploymentsOf(ctx context.Context, owner *v1beta1.ScaledDeployment) (found []appsv1.Deployment, err error) {
	cached, err := inventory.DeploymentsOf(ctx, r.Client, owner)
	if err != nil {
		return nil, err
	}
	names := sets.New[string]()
	for i := range cached {
		names.Insert(cached[i].Name)
	}
	if !names.Has(deploymentName(owner)) {
		if err := r.addLabelled(ctx, owner, names); err != nil {
			return nil, err
		}
	}
	for _, name := range sets.List(names) {
		var live appsv1.DeploymentList
		if err := r.Live.List(ctx, &live, client.InNamespace(owner.Namespace), client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
			return nil, fmt.Errorf("reading Deployment %s/%s: %w", owner.Namespace, name, err)
		}
		if len(live.Items) > 0 && metav1.IsControlledBy(&live.Items[0], owner) {
			found = append(found, live.Items[0])
		}
	}
	return found, nil
}

// addLabelled adds the names of the Deployments with our label that the owner controls. Any user of the namespace can label thousands
// of large ones, so they are read in small pages.
func (r *Reconciler) addLabelled(ctx context.Context, owner *v1beta1.ScaledDeployment, names sets.Set[string]) error {
	ours, next := client.MatchingLabels{v1beta1.ScaledDeploymentLabel: owner.Name}, ""
	for {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
		if err := r.Live.List(ctx, page, client.InNamespace(owner.Namespace), ours, client.Limit(pageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("listing the Deployments of %s/%s: %w", owner.Namespace, owner.Name, err)
		}
		for i := range page.Items {
			if metav1.IsControlledBy(&page.Items[i], owner) {
				names.Insert(page.Items[i].Name)
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// pageSize is the number of objects of other users that are read at once.
const pageSize = 10

// foreignObject reads the object with that name. It describes an object that the owner
// does not control, and returns "" for any other and for none.
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

// directHPA names the HPA that scales the Deployment itself instead of its owner, if any. An HPA
// neither scales to zero replicas nor from zero.
func (r *Reconciler) directHPA(ctx context.Context, owner *v1beta1.ScaledDeployment, deployment *appsv1.Deployment) (string, error) {
	if deployment == nil || ptr.Deref(owner.Spec.Replicas, 1) == 0 || ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
		return "", nil
	}
	hpas, err := inventory.HPAsOf(ctx, r.Client, deployment)
	if err != nil {
		return "", err
	}
	return workload.ScaledBy(hpas, deployment), nil
}

// checkNameAvailable returns a conflict if an object with that name exists and the cache
// has not seen it yet. Server-side apply reports no conflict with an object whose fields
// are already equal to the document, and would make it the owner's.
func (r *Reconciler) checkNameAvailable(ctx context.Context, desired *unstructured.Unstructured) error {
	kind := desired.GroupVersionKind()
	found, err := r.readLive(ctx, kind, client.ObjectKeyFromObject(desired))
	if err == nil && found != nil {
		err = apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, desired.GetName(), errors.New("it was just created"))
	}
	return err
}

// readLive reads the metadata of an object from the API server, with the right to list; nil if it does not exist.
func (r *Reconciler) readLive(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := r.Live.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name}); err != nil {
		return nil, fmt.Errorf("looking for %s %s: %w", kind.Kind, key, err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return &list.Items[0], nil
}
