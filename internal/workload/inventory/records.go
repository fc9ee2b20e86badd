// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// podRecord is a stored pod: what workload.ReadPod reads of it, in integers and shared strings.
type podRecord struct {
	pod workload.Pod
	// set is the UID of the ReplicaSet that controls the pod.
	set types.UID
}

func newPodRecord(p *corev1.Pod) *podRecord {
	r := &podRecord{pod: workload.ReadPod(p, false)}
	if owner := replicaSetOf(p); owner != nil {
		r.set = owner.UID
	}
	r.pod.Runs = slices.Clip(r.pod.Runs)
	for i := range r.pod.Runs {
		r.pod.Runs[i].Container = r.sharedName(r.pod.Runs[i].Container)
	}
	actual := make(map[string]workload.Resources, len(r.pod.Actual))
	for name, resources := range r.pod.Actual {
		actual[r.sharedName(name)] = resources
	}
	r.pod.Actual = actual
	return r
}

// sharedName is the name of a container, as the string that the pod's spec has.
func (r *podRecord) sharedName(name string) string {
	for _, containers := range [][]workload.Container{r.pod.Containers, r.pod.Others} {
		for i := range containers {
			shareString(&name, containers[i].Name)
		}
	}
	return name
}

// read is the pod as workload.ReadPod returns it. Its slices and its map are shared and must not be modified.
func (r *podRecord) read(current bool) workload.Pod {
	pod := r.pod
	pod.Current = current
	return pod
}

// differs reports whether anything that is read has changed. The resource version alone says nothing.
func (r *podRecord) differs(from *podRecord) bool {
	a, b := *r, *from
	a.pod.ResourceVersion, b.pod.ResourceVersion = "", ""
	return !reflect.DeepEqual(a, b)
}

func (r *podRecord) uid() types.UID  { return r.pod.UID }
func (r *podRecord) version() string { return r.pod.ResourceVersion }

// share implements object.
func (r *podRecord) share(sibling *podRecord) {
	shareString(&r.set, sibling.set)
	shareString(&r.pod.UID, sibling.pod.UID)
	shareString(&r.pod.Name, sibling.pod.Name)
	shareString(&r.pod.QoS, sibling.pod.QoS)
	for i := range min(len(r.pod.Containers), len(sibling.pod.Containers)) {
		shareString(&r.pod.Containers[i].Name, sibling.pod.Containers[i].Name)
	}
	for i := range min(len(r.pod.Others), len(sibling.pod.Others)) {
		shareString(&r.pod.Others[i].Name, sibling.pod.Others[i].Name)
	}
	for i := range min(len(r.pod.Runs), len(sibling.pod.Runs)) {
		shareString(&r.pod.Runs[i].Container, sibling.pod.Runs[i].Container)
	}
	if maps.Equal(r.pod.Actual, sibling.pod.Actual) { // as in most pods of a Deployment
		r.pod.Actual = sibling.pod.Actual
	}
}

// shareString replaces a string by an equal one that is in memory already.
func shareString[S ~string](s *S, known S) {
	if *s == known {
		*s = known
	}
}

// setRecord is a stored ReplicaSet.
type setRecord struct {
	id, deployment  types.UID
	name            string
	resourceVersion string
	// revision orders the ReplicaSets of a Deployment: the highest one has the latest template. It is 0
	// if it is not set yet, or invalid.
	revision int64
}

func newSetRecord(set *metav1.PartialObjectMetadata) *setRecord {
	r := &setRecord{id: set.UID, name: set.Name, resourceVersion: set.ResourceVersion}
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		r.deployment = owner.UID
	}
	if revision, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64); err == nil {
		r.revision = revision
	}
	return r
}

// differs reports whether anything that is read has changed. The resource version alone says nothing.
func (r *setRecord) differs(from *setRecord) bool {
	a, b := *r, *from
	a.resourceVersion, b.resourceVersion = "", ""
	return a != b
}

func (r *setRecord) uid() types.UID  { return r.id }
func (r *setRecord) version() string { return r.resourceVersion }

// share implements object.
func (r *setRecord) share(sibling *setRecord) {
	shareString(&r.id, sibling.id)
	shareString(&r.deployment, sibling.deployment)
	shareString(&r.name, sibling.name)
}

// newestOf is the UID of the Deployment's ReplicaSet with the latest template.
func newestOf(sets []*setRecord, deployment types.UID) (uid types.UID) {
	best := int64(-1)
	for _, set := range sets {
		if set.deployment == deployment && set.revision > best {
			best, uid = set.revision, set.id
		}
	}
	return uid
}

// newSetList is the type in which ReplicaSets are read: only metadata is needed.
func newSetList() *metav1.PartialObjectMetadataList {
	return &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSetList",
	}}
}

// deploymentOfSet is the Deployment that controls a ReplicaSet; without a name if none does.
func deploymentOfSet(set *metav1.PartialObjectMetadata) types.NamespacedName {
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil && owner.Kind == "Deployment" {
		return types.NamespacedName{Namespace: set.Namespace, Name: owner.Name}
	}
	return types.NamespacedName{}
}

// replicaSetOf is the ReplicaSet that controls a pod; nil if none does.
func replicaSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "ReplicaSet" {
		return owner
	}
	return nil
}

// withoutHash is the name that the Deployment controller has made a ReplicaSet's name from, by adding the hash
// of the template. A ReplicaSet that a Deployment has adopted may have any name.
func withoutHash(set string) string { return set[:max(strings.LastIndexByte(set, '-'), 0)] }
