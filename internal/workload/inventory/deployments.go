// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Deployments caches all Deployments of some namespaces: trimmed for the reconcilers, and as policies see them.
type Deployments struct {
	deployments *records[*deploymentRecord]
	large       room
}

// Indexes of Deployments: their namespace, and the UID of the controller.
const (
	namespaceIndex = "namespace"
	ownerIndex     = "owner"
)

// NewDeployments returns a Deployments of some namespaces, or of all if there are none. It must be started.
func NewDeployments(api client.WithWatch, namespaces ...string) *Deployments {
	f := &Deployments{}
	read := func(d *appsv1.Deployment) *deploymentRecord {
		r := newDeploymentRecord(d)
		if !f.large.holds(r) {
			r.strip()
		}
		return r
	}
	f.deployments = newRecords(namespaces, &appsv1.Deployment{}, listed(api, func() client.ObjectList { return &appsv1.DeploymentList{} }), read,
		map[string]func(*deploymentRecord) string{
			namespaceIndex: func(d *deploymentRecord) string { return d.seen.Namespace },
			ownerIndex:     func(d *deploymentRecord) string { return string(d.owner) },
		})
	f.deployments.onChange(func(before, after *deploymentRecord) {
		if before != nil && (after == nil || after.uid != before.uid) {
			f.large.free(before)
		}
	})
	return f
}

// Start watches until the context ends.
func (f *Deployments) Start(ctx context.Context) error {
	f.deployments.run(ctx)
	return nil
}

// WaitForSync waits until all Deployments are known, or until the context ends.
func (f *Deployments) WaitForSync(ctx context.Context) error { return f.deployments.wait(ctx) }

// OnChange adds a function that is called after a Deployment has appeared, has changed as policies see it, or has gone. It
// gets no events for known objects, and may not block.
func (f *Deployments) OnChange(handler func(types.NamespacedName)) {
	f.deployments.onChange(func(before, after *deploymentRecord) {
		switch {
		case after == nil:
			handler(before.seen.Key())
		case before == nil || !isSameDeployment(before.seen, after.seen):
			handler(after.seen.Key())
		}
	})
}

// Get returns a Deployment, which may not be modified, or nil.
func (f *Deployments) Get(key types.NamespacedName) *fleet.Deployment {
	if found := f.deployments.get(key.Namespace, key.Name); found != nil {
		return found.seen
	}
	return nil
}

// All returns the Deployments of a namespace, or of all namespaces, in any order. They may not be modified.
func (f *Deployments) All(namespace string) (all []*fleet.Deployment) {
	found := f.deployments.all
	if namespace != metav1.NamespaceAll {
		found = func() []*deploymentRecord { return f.deployments.by(namespaceIndex, namespace) }
	}
	for _, d := range found() {
		all = append(all, d.seen)
	}
	return all
}

func isSameDeployment(a, b *fleet.Deployment) bool {
	return a.Excluded == b.Excluded && a.IsOwned == b.IsOwned && a.TooLarge == b.TooLarge && a.Replicas == b.Replicas && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Requests, b.Requests)
}

// ReadForFleet reads the policies' view of a Deployment.
func ReadForFleet(d *appsv1.Deployment) *fleet.Deployment {
	controller := metav1.GetControllerOfNoCopy(d)
	out := &fleet.Deployment{
		Namespace: d.Namespace, Name: d.Name, Labels: d.Labels, Excluded: fleet.IsExcluded(d.Annotations),
		IsOwned: controller != nil && v1beta1.IsScaledDeployment(controller), Replicas: 1, Requests: map[string]quantity.Amounts{},
	}
	if d.Spec.Replicas != nil {
		out.Replicas = *d.Spec.Replicas
	}
	out.Replicas = min(out.Replicas, d.Status.Replicas)
	for _, c := range workload.ReadDeployment(d).Containers {
		out.Requests[c.Name] = c.Requests
	}
	if sizeOf(d.Labels) > mostOfLabels || len(out.Requests) > mostContainers || IsTooLarge(d) {
		omit(out)
	}
	return out
}

// omit keeps no labels and requests of a Deployment that is too large to be stored.
func omit(d *fleet.Deployment) {
	d.Labels, d.Requests, d.TooLarge = nil, map[string]quantity.Amounts{}, true
}

func sizeOf(labels map[string]string) (bytes int) {
	for key, value := range labels {
		bytes += len(key) + len(value)
	}
	return bytes
}

// deploymentRecord is a stored Deployment.
type deploymentRecord struct {
	version string
	uid     types.UID
	// owner is the UID of its controller, if any.
	owner types.UID
	// seen is the policies' view of it.
	seen *fleet.Deployment
	// encoded is the trimmed Deployment as the API server sends it. A decoded Deployment takes ten times the memory.
	encoded []byte
}

// newDeploymentRecord trims and encodes a Deployment, which the caller must not use again.
func newDeploymentRecord(d *appsv1.Deployment) *deploymentRecord {
	r := &deploymentRecord{version: d.ResourceVersion, uid: d.UID, seen: ReadForFleet(d)}
	trimDeployment(d)
	if owner := metav1.GetControllerOfNoCopy(d); owner != nil {
		r.owner = owner.UID
	}
	if IsTooLarge(d) {
		omit(r.seen)
	}
	r.encode(d)
	return r
}

func (r *deploymentRecord) encode(d *appsv1.Deployment) {
	encoded, err := d.Marshal()
	if err != nil {
		panic(err) // Marshalling an unmarshalled value never fails.
	}
	r.encoded = slices.Clip(encoded)
}

// strip keeps only the identity of the Deployment.
func (r *deploymentRecord) strip() {
	var d appsv1.Deployment
	if err := r.into(&d); err != nil {
		panic(err) // We have encoded it ourselves.
	}
	stripDeployment(&d)
	r.encode(&d)
	omit(r.seen)
}

// size is about the size of the record in bytes.
func (r *deploymentRecord) size() int { return len(r.encoded) + sizeOf(r.seen.Labels) }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *deploymentRecord) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.seen.Namespace, Name: r.seen.Name, ResourceVersion: r.version}
}

// into decodes the Deployment.
func (r *deploymentRecord) into(out *appsv1.Deployment) error {
	*out = appsv1.Deployment{}
	if err := out.Unmarshal(r.encoded); err != nil {
		return fmt.Errorf("decoding Deployment %s: %w", r.seen.Key(), err)
	}
	out.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return nil
}

// Larger records than mostOrdinary share mostOfNamespace in each namespace.
const (
	mostOrdinary    = 2 << 10
	mostOfNamespace = 8 << 20
)

// room adds up the large records of each namespace.
type room struct {
	mu    sync.Mutex
	taken map[string]map[types.UID]int
}

// holds reports whether the namespace has room for a record, and notes what it takes.
func (m *room) holds(r *deploymentRecord) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(r)
	if r.size() <= mostOrdinary {
		return true
	}
	sum := r.size()
	for _, bytes := range m.taken[r.seen.Namespace] {
		sum += bytes
	}
	if sum > mostOfNamespace {
		return false
	}
	if m.taken == nil {
		m.taken = map[string]map[types.UID]int{}
	}
	if m.taken[r.seen.Namespace] == nil {
		m.taken[r.seen.Namespace] = map[types.UID]int{}
	}
	m.taken[r.seen.Namespace][r.uid] = r.size()
	return true
}

// free notes that a Deployment is gone.
func (m *room) free(r *deploymentRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(r)
}

func (m *room) drop(r *deploymentRecord) {
	delete(m.taken[r.seen.Namespace], r.uid)
	if len(m.taken[r.seen.Namespace]) == 0 {
		delete(m.taken, r.seen.Namespace)
	}
}
