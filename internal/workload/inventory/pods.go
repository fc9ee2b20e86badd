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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Claims says which Deployments scalers claim.
type Claims interface {
	// IsClaimed reports whether a scaler in the cache claims the Deployment.
	IsClaimed(deployment types.NamespacedName) bool
	// AllClaimed lists the claimed Deployments of a namespace, or of all namespaces if it is empty.
	AllClaimed(ctx context.Context, namespace string) ([]types.NamespacedName, error)
	// HasSynced reports whether all scalers are in the cache.
	HasSynced() bool
}

// Pods knows the pods of the Deployments that scalers claim. It watches all pods and ReplicaSets, but stores only
// these, as the values that are read of them. So its memory follows the scalers, not the size of the cluster.
//
// The pods of any other Deployment are read from the API server.
type Pods struct {
	api        client.WithWatch
	namespaces []string

	sets *objects[*setRecord]
	pods *objects[*podRecord]

	claims Claims
	lists  firstLists

	mu sync.Mutex
	// adopted is the Deployment of each ReplicaSet whose name does not tell it.
	adopted  map[types.NamespacedName]string
	handlers []PodHandler
}

// PodHandler is called after a pod of a claimed Deployment has changed. before is nil for a new pod, after
// for a deleted one. Both are nil if any pod of the Deployment may have changed. They must not be modified.
type PodHandler func(deployment types.NamespacedName, before, after *workload.Pod)

// NewPods returns the pods of some namespaces; none means all. Until Watch is called, nothing is stored.
func NewPods(api client.WithWatch, namespaces ...string) *Pods {
	p := &Pods{api: api, namespaces: allIfNone(namespaces), adopted: map[types.NamespacedName]string{}}
	p.sets, p.pods = newObjects[*setRecord](p.isClaimed), newObjects[*podRecord](p.isClaimed)
	return p
}

// Watch says which Deployments are claimed. It must be called before the cache is started.
func (p *Pods) Watch(claims Claims) {
	p.claims = claims
	p.lists.expect(2 * len(p.namespaces))
}

// OnChange adds a handler. It may be called several times at once, must not block, and is not told of what is stored
// already.
func (p *Pods) OnChange(handler PodHandler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers = append(p.handlers, handler)
}

// Release drops what is stored of a Deployment that no scaler claims any more.
func (p *Pods) Release(deployment types.NamespacedName) {
	if p.isClaimed(deployment) {
		return
	}
	p.mu.Lock()
	maps.DeleteFunc(p.adopted, func(set types.NamespacedName, name string) bool {
		return set.Namespace == deployment.Namespace && name == deployment.Name
	})
	p.mu.Unlock()
	// After those that were adopted: while a ReplicaSet is stored, its Deployment must be known.
	p.sets.forget(deployment)
	p.pods.forget(deployment)
}

// Stored is the number of pods that are stored.
func (p *Pods) Stored() int { return p.pods.len() }

// Of reads the pods of a Deployment. The first time after a scaler has claimed it, they are listed live. Their
// slices and maps are shared and must not be modified.
func (p *Pods) Of(ctx context.Context, d *appsv1.Deployment) ([]workload.Pod, error) {
	if err := p.lists.wait(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the pods: %w", err)
	}
	key := client.ObjectKeyFromObject(d)
	listed := false
	sets, err := p.sets.read(key, func() ([]*setRecord, string, error) {
		listed = true
		return p.listSets(ctx, d)
	})
	if listed {
		p.Release(key) // The claim may have ended meanwhile, or there is none.
	}
	if err != nil {
		return nil, fmt.Errorf("listing the ReplicaSets of Deployment %s: %w", key, err)
	}
	own := make(map[types.UID]bool, len(sets))
	for _, set := range sets {
		own[set.id] = set.deployment == d.UID
	}
	pods, err := p.pods.read(key, func() ([]*podRecord, string, error) { return p.listPods(ctx, d, own) })
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Deployment %s: %w", key, err)
	}
	newest := newestOf(sets, d.UID)
	out := make([]workload.Pod, 0, len(pods))
	for _, pod := range pods {
		if own[pod.set] {
			out = append(out, pod.read(pod.set == newest))
		}
	}
	return out, nil
}

// start watches until the context ends, after all scalers are in the cache.
func (p *Pods) start(ctx context.Context) {
	if p.claims == nil || !toolscache.WaitForCacheSync(ctx.Done(), p.claims.HasSynced) {
		return
	}
	var watches sync.WaitGroup
	for _, namespace := range p.namespaces {
		sets, pods := p.feeds(namespace)
		watches.Go(func() { sets.run(ctx, p.api, func() client.ObjectList { return newSetList() }) })
		watches.Go(func() { pods.run(ctx, p.api, func() client.ObjectList { return &corev1.PodList{} }) })
	}
	watches.Wait()
}

// feeds store the ReplicaSets and the pods of a namespace.
func (p *Pods) feeds(namespace string) (*feed[*metav1.PartialObjectMetadata, *setRecord], *feed[*corev1.Pod, *podRecord]) {
	sets := &feed[*metav1.PartialObjectMetadata, *setRecord]{
		objects: p.sets, claims: p.claims, namespace: namespace,
		deploymentOf: deploymentOfSet, read: newSetRecord, changed: p.setChanged, synced: p.lists.one(),
	}
	pods := &feed[*corev1.Pod, *podRecord]{
		objects: p.pods, claims: p.claims, namespace: namespace,
		deploymentOf: p.deploymentOfPod, read: newPodRecord, changed: p.podChanged, synced: p.lists.one(),
	}
	return sets, pods
}

func (p *Pods) isClaimed(deployment types.NamespacedName) bool {
	return p.claims != nil && deployment.Name != "" && p.claims.IsClaimed(deployment)
}

// listSets lists the ReplicaSets of a Deployment live.
func (p *Pods) listSets(ctx context.Context, d *appsv1.Deployment) (sets []*setRecord, version string, err error) {
	list := newSetList()
	if err := p.listOf(ctx, d, list); err != nil {
		return nil, "", err
	}
	key := client.ObjectKeyFromObject(d)
	for i := range list.Items {
		if deploymentOfSet(&list.Items[i]) != key {
			continue
		}
		set := newSetRecord(&list.Items[i])
		p.adopt(key, set)
		sets = append(sets, set)
	}
	return sets, list.ResourceVersion, nil
}

// listPods lists the pods of a Deployment live: those of the ReplicaSets in own, and of any newer one, by its name.
func (p *Pods) listPods(ctx context.Context, d *appsv1.Deployment, own map[types.UID]bool) (pods []*podRecord, version string, err error) {
	var list corev1.PodList
	if err := p.listOf(ctx, d, &list); err != nil {
		return nil, "", err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if owner := replicaSetOf(pod); owner != nil && (own[owner.UID] || p.deploymentOfPod(pod) == client.ObjectKeyFromObject(d)) {
			pods = append(pods, newPodRecord(pod))
		}
	}
	return pods, list.ResourceVersion, nil
}

// listOf lists live what the Deployment selects. A ReplicaSet and its pods have the labels of the selector,
// or the Deployment would not control them.
func (p *Pods) listOf(ctx context.Context, d *appsv1.Deployment, list client.ObjectList) error {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return fmt.Errorf("reading the selector: %w", err)
	}
	return p.api.List(ctx, list, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector})
}

// deploymentOfPod is the Deployment that a pod belongs to, by the name of its ReplicaSet; without a name if there
// is none. It selects what to store. Of compares the UIDs.
func (p *Pods) deploymentOfPod(pod *corev1.Pod) types.NamespacedName {
	owner := replicaSetOf(pod)
	if owner == nil {
		return types.NamespacedName{}
	}
	p.mu.Lock()
	name, isAdopted := p.adopted[types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}]
	p.mu.Unlock()
	if !isAdopted {
		name = withoutHash(owner.Name)
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: name}
}

// setChanged tells the handlers of a ReplicaSet in which something has changed that is read: its pods may have come
// before it.
func (p *Pods) setChanged(c change[*setRecord]) {
	if c.before != nil && c.after != nil && !c.after.differs(c.before) {
		return
	}
	switch {
	case c.after != nil:
		p.adopt(c.deployment, c.after)
		p.Release(c.deployment) // The claim may have ended meanwhile.
	case c.before != nil:
		p.mu.Lock()
		delete(p.adopted, types.NamespacedName{Namespace: c.deployment.Namespace, Name: c.before.name})
		p.mu.Unlock()
	}
	p.podChanged(change[*podRecord]{deployment: c.deployment})
}

// adopt remembers a ReplicaSet whose name does not tell its Deployment. Events of its pods were dropped until now, so
// they are listed again.
func (p *Pods) adopt(deployment types.NamespacedName, set *setRecord) {
	if withoutHash(set.name) == deployment.Name {
		return
	}
	key := types.NamespacedName{Namespace: deployment.Namespace, Name: set.name}
	p.mu.Lock()
	isNew := p.adopted[key] != deployment.Name
	p.adopted[key] = deployment.Name
	p.mu.Unlock()
	if isNew {
		p.pods.forget(deployment)
	}
}

// podChanged tells the handlers of a pod in which something has changed that is read.
func (p *Pods) podChanged(c change[*podRecord]) {
	if c.before != nil && c.after != nil && !c.after.differs(c.before) {
		return
	}
	var before, after *workload.Pod
	if c.before != nil {
		before = ptr.To(c.before.read(false))
	}
	if c.after != nil {
		after = ptr.To(c.after.read(false))
	}
	p.mu.Lock()
	handlers := slices.Clone(p.handlers)
	p.mu.Unlock()
	for _, handle := range handlers {
		handle(c.deployment, before, after)
	}
}
