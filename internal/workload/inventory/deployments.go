// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Deployments knows the Deployments that a scaler or a ScaledDeployment names, and those that a ScaledDeployment
// controls. It watches all, and stores these, trimmed and encoded. A decoded Deployment takes ten times the memory.
//
// Any other Deployment is read from the API server.
type Deployments struct {
	api        client.WithWatch
	namespaces []string

	claims  []Claims
	objects *objects[*deploymentRecord]
	lists   firstLists

	mu sync.Mutex
	// owner is the UID of the ScaledDeployment that controls a Deployment. owned is the reverse.
	owner    map[types.NamespacedName]types.UID
	owned    map[types.UID]map[types.NamespacedName]bool
	handlers []toolscache.ResourceEventHandler
}

func newDeployments(api client.WithWatch, namespaces ...string) *Deployments {
	d := &Deployments{api: api, namespaces: allIfNone(namespaces), owner: map[types.NamespacedName]types.UID{}, owned: map[types.UID]map[types.NamespacedName]bool{}}
	d.objects = newObjects[*deploymentRecord](d.IsClaimed)
	d.objects.oneEach = true
	return d
}

// Watch adds claims. It must be called before the cache is started.
func (d *Deployments) Watch(claims Claims) {
	d.claims = append(d.claims, claims)
	d.lists.expect(len(d.namespaces))
}

// Release drops a Deployment that is not claimed any more.
func (d *Deployments) Release(deployment types.NamespacedName) { d.objects.release(deployment) }

// Stored is the number of Deployments that are stored.
func (d *Deployments) Stored() int { return d.objects.len() }

// IsClaimed implements Claims.
func (d *Deployments) IsClaimed(deployment types.NamespacedName) bool {
	if slices.ContainsFunc(d.claims, func(c Claims) bool { return c.IsClaimed(deployment) }) {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, isOwned := d.owner[deployment]
	return isOwned
}

// AllClaimed implements Claims.
func (d *Deployments) AllClaimed(ctx context.Context, namespace string) (all []types.NamespacedName, err error) {
	for _, claims := range d.claims {
		some, err := claims.AllClaimed(ctx, namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for deployment := range d.owner {
		if namespace == metav1.NamespaceAll || namespace == deployment.Namespace {
			all = append(all, deployment)
		}
	}
	return all, nil
}

// HasSynced implements Claims.
func (d *Deployments) HasSynced() bool {
	return !slices.ContainsFunc(d.claims, func(c Claims) bool { return !c.HasSynced() })
}

// start watches until the context ends.
func (d *Deployments) start(ctx context.Context) {
	if len(d.claims) == 0 || !toolscache.WaitForCacheSync(ctx.Done(), d.HasSynced) {
		return
	}
	var watches sync.WaitGroup
	for _, namespace := range d.namespaces {
		f := d.feed(namespace)
		watches.Go(func() { f.run(ctx, d.api, func() client.ObjectList { return &appsv1.DeploymentList{} }) })
	}
	watches.Wait()
}

// feed stores the Deployments of a namespace.
func (d *Deployments) feed(namespace string) *feed[*appsv1.Deployment, *deploymentRecord] {
	return &feed[*appsv1.Deployment, *deploymentRecord]{
		objects: d.objects, claims: d, namespace: namespace,
		deploymentOf: d.keyOf, read: newDeploymentRecord, changed: d.tell, synced: d.synced(namespace),
	}
}

// get reads a Deployment. The first time after it is claimed, it is read live.
func (d *Deployments) get(ctx context.Context, key types.NamespacedName, out *appsv1.Deployment) error {
	if err := d.lists.wait(ctx); err != nil {
		return fmt.Errorf("waiting for the Deployments: %w", err)
	}
	found, err := d.objects.read(key, func() ([]*deploymentRecord, string, error) { return d.list(ctx, key) })
	if err != nil {
		return fmt.Errorf("reading Deployment %s: %w", key, err)
	}
	if len(found) == 0 {
		return apierrors.NewNotFound(appsv1.Resource("deployments"), key.Name)
	}
	newest := found[0]
	for _, other := range found[1:] { // An event of one that was deleted is still to come.
		if isNewer(other.version(), newest.version()) {
			newest = other
		}
	}
	return newest.into(out)
}

// list reads a Deployment live. The operator may list Deployments.
func (d *Deployments) list(ctx context.Context, key types.NamespacedName) (out []*deploymentRecord, version string, err error) {
	var list appsv1.DeploymentList
	if err := d.api.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name}); err != nil {
		return nil, "", err
	}
	for i := range list.Items {
		out = append(out, newDeploymentRecord(&list.Items[i]))
	}
	return out, list.ResourceVersion, nil
}

// ofOwner reads the Deployments that a ScaledDeployment controls.
func (d *Deployments) ofOwner(ctx context.Context, namespace string, owner types.UID) (out []appsv1.Deployment, err error) {
	if err := d.lists.wait(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the Deployments: %w", err)
	}
	d.mu.Lock()
	keys := slices.Collect(maps.Keys(d.owned[owner]))
	d.mu.Unlock()
	for _, key := range keys {
		var found appsv1.Deployment
		err := d.get(ctx, key, &found)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if controller := metav1.GetControllerOfNoCopy(&found); err == nil && key.Namespace == namespace && controller != nil && controller.UID == owner {
			out = append(out, found)
		}
	}
	return out, nil
}

// keyOf is the key of a Deployment. It notes which ScaledDeployment controls the Deployment, if any.
func (d *Deployments) keyOf(deployment *appsv1.Deployment) types.NamespacedName {
	key := client.ObjectKeyFromObject(deployment)
	var owner types.UID
	if controller := metav1.GetControllerOfNoCopy(deployment); controller != nil && v1beta1.IsScaledDeployment(controller) {
		owner = controller.UID
	}
	d.setOwner(key, owner)
	return key
}

// setOwner notes the ScaledDeployment that controls a Deployment; empty for none.
func (d *Deployments) setOwner(key types.NamespacedName, owner types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if before := d.owner[key]; before != owner {
		if delete(d.owned[before], key); len(d.owned[before]) == 0 {
			delete(d.owned, before)
		}
		delete(d.owner, key)
	}
	if owner == "" {
		return
	}
	if d.owned[owner] == nil {
		d.owned[owner] = map[types.NamespacedName]bool{}
	}
	d.owned[owner][key], d.owner[key] = true, owner
}

// synced returns what a watch of the namespace calls after each list. Then each Deployment that a ScaledDeployment
// controls is stored, or is gone.
func (d *Deployments) synced(namespace string) func() {
	first := d.lists.one()
	return func() {
		d.mu.Lock()
		known := slices.Collect(maps.Keys(d.owner))
		d.mu.Unlock()
		for _, deployment := range known {
			if isIn(namespace, deployment) {
				d.forgetIfGone(deployment)
			}
		}
		first()
	}
}

// forgetIfGone forgets the owner of a Deployment that is not stored any more.
func (d *Deployments) forgetIfGone(deployment types.NamespacedName) {
	if !d.objects.has(deployment) {
		d.setOwner(deployment, "")
		d.Release(deployment)
	}
}

// tell calls the handlers after a change. They must not modify the Deployments.
func (d *Deployments) tell(c change[*deploymentRecord]) {
	if c.after == nil {
		d.forgetIfGone(c.deployment)
	}
	d.mu.Lock()
	handlers := slices.Clone(d.handlers)
	d.mu.Unlock()
	var before, after appsv1.Deployment
	if err := errors.Join(c.before.into(&before), c.after.into(&after)); err != nil {
		panic(err) // We have encoded it ourselves.
	}
	for _, handler := range handlers {
		switch {
		case c.before != nil && c.after != nil:
			handler.OnUpdate(&before, &after)
		case c.before != nil:
			handler.OnDelete(&before)
		case c.after != nil:
			handler.OnAdd(&after, false)
		default: // It may have changed.
			handler.OnAdd(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.deployment.Namespace, Name: c.deployment.Name}}, false)
		}
	}
}

// deploymentRecord is a stored Deployment.
type deploymentRecord struct {
	id              types.UID
	resourceVersion string
	// encoded is the trimmed Deployment as the API server sends it.
	encoded []byte
}

// newDeploymentRecord trims and encodes a Deployment, which the caller must not use again.
func newDeploymentRecord(d *appsv1.Deployment) *deploymentRecord {
	trimDeployment(d)
	encoded, err := d.Marshal()
	if err != nil {
		panic(err) // Marshalling what was unmarshalled never fails.
	}
	return &deploymentRecord{id: d.UID, resourceVersion: d.ResourceVersion, encoded: slices.Clip(encoded)}
}

// into decodes the Deployment; nil decodes to an empty one.
func (r *deploymentRecord) into(out *appsv1.Deployment) error {
	*out = appsv1.Deployment{}
	if r == nil {
		return nil
	}
	if err := out.Unmarshal(r.encoded); err != nil {
		return fmt.Errorf("decoding Deployment %s: %w", r.id, err)
	}
	out.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return nil
}

func (r *deploymentRecord) uid() types.UID          { return r.id }
func (r *deploymentRecord) version() string         { return r.resourceVersion }
func (r *deploymentRecord) share(*deploymentRecord) {}
