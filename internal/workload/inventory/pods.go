// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Pods caches all pods and ReplicaSets of some namespaces, reduced to the values that are read.
type Pods struct {
	sets *records[*setRecord]
	pods *records[*podRecord]
}

// PodHandler is called after a pod of a Deployment has changed. before is nil for a new pod, after for a deleted one.
// Both are nil if any pod of the Deployment may have changed. They must not be modified.
type PodHandler func(deployment types.NamespacedName, before, after *workload.Pod)

// Indexes of ReplicaSets and of pods: the UID of the controller, and the node.
const (
	deploymentIndex = "deployment"
	setIndex        = "replicaSet"
	nodeIndex       = "node"
)

// NewPods returns the pods of some namespaces, or of all if there are none. They must be started.
func NewPods(api client.WithWatch, namespaces ...string) *Pods {
	return &Pods{
		sets: newRecords(namespaces, &metav1.PartialObjectMetadata{}, listed(api, func() client.ObjectList { return newSetList() }), newSetRecord,
			map[string]func(*setRecord) string{deploymentIndex: func(s *setRecord) string { return string(s.deployment) }}),
		pods: newRecords(namespaces, &corev1.Pod{}, listed(api, func() client.ObjectList { return &corev1.PodList{} }), newPodRecord,
			map[string]func(*podRecord) string{
				setIndex:  func(p *podRecord) string { return string(p.set) },
				nodeIndex: func(p *podRecord) string { return p.node },
			}),
	}
}

// Start watches until the context ends.
func (p *Pods) Start(ctx context.Context) error {
	var watches sync.WaitGroup
	watches.Go(func() { p.sets.run(ctx) })
	watches.Go(func() { p.pods.run(ctx) })
	watches.Wait()
	return nil
}

// WaitForSync waits until all pods are known, or until the context ends.
func (p *Pods) WaitForSync(ctx context.Context) error {
	if err := p.sets.wait(ctx); err != nil {
		return fmt.Errorf("waiting for the ReplicaSets: %w", err)
	}
	if err := p.pods.wait(ctx); err != nil {
		return fmt.Errorf("waiting for the pods: %w", err)
	}
	return nil
}

// Of reads the pods of a Deployment, sorted by name. Their slices and maps are shared and must not be modified.
func (p *Pods) Of(ctx context.Context, d *appsv1.Deployment) ([]workload.Pod, error) {
	if err := p.WaitForSync(ctx); err != nil {
		return nil, err
	}
	return podsOf(d, p.sets.by(deploymentIndex, string(d.UID)), func(s *setRecord) []*podRecord { return p.pods.by(setIndex, string(s.uid)) }), nil
}

// requestedOn adds up the scheduler's requests of all pods of a node.
func (p *Pods) requestedOn(node string) (sum quantity.Amounts) {
	for _, pod := range p.pods.by(nodeIndex, node) {
		sum = sum.Plus(pod.requests)
	}
	return sum
}

// PodsAmong reads the pods of a Deployment from lists of ReplicaSets and pods, sorted by name.
func PodsAmong(d *appsv1.Deployment, sets []metav1.PartialObjectMetadata, pods []corev1.Pod) []workload.Pod {
	var known []*setRecord
	for i := range sets {
		known = append(known, newSetRecord(&sets[i]))
	}
	bySet := map[types.UID][]*podRecord{}
	for i := range pods {
		pod := newPodRecord(&pods[i])
		bySet[pod.set] = append(bySet[pod.set], pod)
	}
	return podsOf(d, known, func(s *setRecord) []*podRecord { return bySet[s.uid] })
}

func podsOf(d *appsv1.Deployment, sets []*setRecord, bySet func(*setRecord) []*podRecord) []workload.Pod {
	sets = slices.DeleteFunc(sets, func(s *setRecord) bool { return s.deployment != d.UID || s.namespace != d.Namespace })
	newest := newestOf(sets)
	out := []workload.Pod{}
	for _, set := range sets {
		pods := bySet(set)
		out = slices.Grow(out, len(pods))
		for _, pod := range pods {
			if pod.namespace == d.Namespace {
				out = append(out, *pod.pod)
				out[len(out)-1].Current, out[len(out)-1].ReplicaSet = set == newest, set.uid
			}
		}
	}
	slices.SortFunc(out, func(a, b workload.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// OnChange adds a handler. It may be called several times at once, must not block, and gets no events for known
// objects. The watches of ReplicaSets and pods do not wait for each other, so a new ReplicaSet may have pods.
func (p *Pods) OnChange(handle PodHandler) {
	report := func(before, after *podRecord) {
		r := before
		if r == nil {
			r = after
		}
		if set := p.sets.get(r.namespace, r.setName); set != nil && set.uid == r.set && set.deployment != "" {
			handle(set.deploymentKey(), before.read(), after.read())
		}
	}
	p.pods.onChange(func(before, after *podRecord) {
		switch {
		case before == nil || after == nil:
			report(before, after)
		case before.set != after.set || before.uid() != after.uid():
			report(before, nil)
			report(nil, after)
		case after.differs(before):
			report(before, after)
		}
	})
	p.sets.onChange(func(before, after *setRecord) {
		if before != nil && after != nil && !after.differs(before) {
			return
		}
		reported := types.NamespacedName{}
		for _, set := range []*setRecord{before, after} {
			if set != nil && set.deployment != "" && set.deploymentKey() != reported {
				reported = set.deploymentKey()
				handle(reported, nil, nil)
			}
		}
	})
}

// podRecord is a stored pod: the values of workload.ReadPod, in integers and shared strings.
type podRecord struct {
	namespace, name, version string
	// node is the name of the pod's node, and requests are its requests by the scheduler's count.
	node     string
	requests quantity.Amounts
	// set is the UID of the ReplicaSet that controls the pod. If none does, the other fields are empty.
	set     types.UID
	setName string
	pod     *workload.Pod
}

func newPodRecord(p *corev1.Pod) *podRecord {
	pod := workload.ReadPod(p, false)
	r := &podRecord{namespace: shared(p.Namespace), name: p.Name, version: p.ResourceVersion, node: shared(pod.Node), requests: pod.Counted().Requests}
	owners := controllerIn(p)
	if len(owners) == 0 || owners[0].Kind != "ReplicaSet" || len(pod.Containers)+len(pod.Others) > mostContainers {
		return r // A pod with so many containers belongs to a Deployment that is too large.
	}
	owner := owners[0]
	pod.Resize.Message = cut(pod.Resize.Message)
	pod.Runs, pod.QoS, pod.Node = slices.Clip(pod.Runs), shared(pod.QoS), r.node
	for _, containers := range [][]workload.Container{pod.Containers, pod.Others} {
		for i := range containers {
			containers[i].Name = shared(containers[i].Name)
		}
	}
	for i := range pod.Runs {
		pod.Runs[i].Container = shared(pod.Runs[i].Container)
	}
	pod.Actual = slices.Clone(pod.Actual) // with no room for more
	for i := range pod.Actual {
		pod.Actual[i].Name = shared(pod.Actual[i].Name)
	}
	r.set, r.setName, r.pod = shared(owner.UID), shared(owner.Name), &pod
	return r
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *podRecord) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.namespace, Name: r.name, ResourceVersion: r.version}
}

// read is the pod as workload.ReadPod returns it, or nil.
func (r *podRecord) read() *workload.Pod {
	if r == nil {
		return nil
	}
	return r.pod
}

func (r *podRecord) uid() types.UID {
	if r.pod == nil {
		return ""
	}
	return r.pod.UID
}

// differs reports whether a field that is read has changed. The resource version alone does not count.
func (r *podRecord) differs(from *podRecord) bool {
	if r.pod == nil {
		return false
	}
	a, b := *r.pod, *from.pod
	a.ResourceVersion, b.ResourceVersion = "", ""
	return !reflect.DeepEqual(a, b)
}

// setRecord is a stored ReplicaSet.
type setRecord struct {
	namespace, name, version string
	uid                      types.UID
	// deployment is the UID of the Deployment that controls it, if any.
	deployment     types.UID
	deploymentName string
	// revision orders the ReplicaSets of a Deployment: the highest one has the latest template. It is 0
	// if unset or invalid.
	revision int64
}

func newSetRecord(set *metav1.PartialObjectMetadata) *setRecord {
	r := &setRecord{namespace: shared(set.Namespace), name: set.Name, version: set.ResourceVersion, uid: shared(set.UID)}
	if owners := controllerIn(set); len(owners) > 0 && owners[0].Kind == "Deployment" {
		r.deployment, r.deploymentName = shared(owners[0].UID), shared(owners[0].Name)
	}
	if revision, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64); err == nil {
		r.revision = max(revision, 0)
	}
	return r
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (r *setRecord) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: r.namespace, Name: r.name, ResourceVersion: r.version}
}

func (r *setRecord) deploymentKey() types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: r.deploymentName}
}

// differs reports whether a field that is read has changed. The resource version alone does not count.
func (r *setRecord) differs(from *setRecord) bool {
	a, b := *r, *from
	a.version, b.version = "", ""
	return a != b
}

// newestOf is the ReplicaSet with the latest template, or nil.
func newestOf(sets []*setRecord) (newest *setRecord) {
	for _, set := range sets {
		if newest == nil || cmp.Or(cmp.Compare(set.revision, newest.revision), strings.Compare(set.name, newest.name)) > 0 {
			newest = set
		}
	}
	return newest
}

// newSetList is the type in which ReplicaSets are read: only metadata is needed.
func newSetList() *metav1.PartialObjectMetadataList {
	return &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSetList",
	}}
}
