// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitor watches all changes of pods and Deployments while tests run. It checks
// each write of the operator against the promises below. It also finds violations that no
// test looks for, and those that are repaired before a test ends.
//
// The promises are:
//
//   - The operator writes only resources of containers, never those of init containers,
//     and only of pods and Deployments that a scaler in their namespace names.
//   - It writes nothing for a scaler that is deleted, suspended, or in a mode that does not
//     allow it: pods are resized in the mode InPlace, templates are written in the mode
//     Rollout or as its fallback. Restoring the original values is allowed in any mode.
//   - A request is at least 1, at most its limit, and at most its maximum; a limit is at
//     most its maximum. A value that was beyond its maximum before may stay.
//   - The QoS class of a pod does not change.
//   - No request is lowered while a running pod of the Deployment has no usage. The end of a
//     startup boost, a maximum that the user lowers and a reverted template are not usage. A
//     resize that is withdrawn lowers nothing: the kubelet has not granted it.
//
// A reconcile may have seen a scaler before its latest edit, so what the previous spec
// allows is allowed, too.
package monitor

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Monitor collects the operator's writes. Events of different kinds do not arrive in the
// order of the writes, so the monitor checks them once it has seen all.
type Monitor struct {
	scalers     map[types.NamespacedName][]version
	sets        map[types.UID]string // the Deployments of ReplicaSets
	pods        map[types.UID]*corev1.Pod
	deployments map[types.UID]*appsv1.Deployment
	writes      []write
	answers     map[string][]answer // of sources of usage, by namespace
	newest      int64               // the newest revision seen
}

// version is a scaler's spec, or its deletion, and the revision from which it holds.
type version struct {
	at   int64
	uid  types.UID
	gone bool
	spec v1beta1.VerticalScalerSpec
	// originals are what the scaler has recorded of its template; nil for nothing.
	originals *v1beta1.OriginalResources
	// reverts is true if the scaler has decided to revert a change.
	reverts bool
}

// write is a write of the operator.
type write struct {
	at        int64
	namespace string
	what      string    // describes the object
	set       types.UID // the pod's ReplicaSet; empty for a Deployment
	target    string    // the Deployment, if the write is to one
	wrong     []string  // violations whatever the scaler says
	changes   []change
}

// change is the effect of a write on one resource of a container.
type change struct {
	container      string
	resource       corev1.ResourceName
	request, limit resource.Quantity
	// raised says which of them the write has raised.
	requestRaised, limitRaised bool
	// requestLowered is true if the write has lowered the request.
	requestLowered             bool
	requestBefore, limitBefore resource.Quantity
}

// New returns a monitor without events.
func New() *Monitor {
	return &Monitor{
		scalers: map[types.NamespacedName][]version{}, sets: map[types.UID]string{},
		pods: map[types.UID]*corev1.Pod{}, deployments: map[types.UID]*appsv1.Deployment{},
		answers: map[string][]answer{},
	}
}

// Saw records an event.
func (m *Monitor) Saw(event watch.Event) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	gone := event.Type == watch.Deleted
	m.newest = max(m.newest, revision(object))
	switch o := object.(type) {
	case *v1beta1.VerticalScaler:
		key := client.ObjectKeyFromObject(o)
		m.scalers[key] = append(m.scalers[key], version{
			at: revision(o), uid: o.UID, gone: gone, spec: *o.Spec.DeepCopy(), originals: o.Status.OriginalResources.DeepCopy(),
			reverts: o.Status.Decision != nil && o.Status.Decision.Reason == model.DecidedReverted,
		})
	case *appsv1.ReplicaSet:
		if owner := metav1.GetControllerOf(o); owner != nil {
			m.sets[o.UID] = owner.Name
		}
	case *corev1.Pod:
		if before := m.pods[o.UID]; before != nil && !gone {
			m.pod(before, o)
		}
		m.pods[o.UID] = o
		if gone {
			delete(m.pods, o.UID)
		}
	case *appsv1.Deployment:
		if before := m.deployments[o.UID]; before != nil && !gone {
			m.deployment(before, o)
		}
		m.deployments[o.UID] = o
		if gone {
			delete(m.deployments, o.UID)
		}
	}
}

// Violations describes the violations among the writes so far.
func (m *Monitor) Violations() (out []string) {
	for _, versions := range m.scalers {
		slices.SortFunc(versions, func(a, b version) int { return cmp.Compare(a.at, b.at) })
	}
	for _, w := range m.writes {
		for _, wrong := range append(w.wrong, m.judge(w)...) {
			out = append(out, fmt.Sprintf("%s, at revision %d: %s", w.what, w.at, wrong))
		}
	}
	slices.Sort(out)
	return out
}

func (m *Monitor) pod(before, after *corev1.Pod) {
	if apiequality.Semantic.DeepEqual(before.Spec, after.Spec) || !isOurs(before, after, "resize") {
		return
	}
	w := write{at: revision(after), namespace: after.Namespace, what: fmt.Sprintf("pod %s/%s", after.Namespace, after.Name)}
	if owner := metav1.GetControllerOf(after); owner != nil {
		w.set = owner.UID
	}
	spec := before.Spec.DeepCopy()
	followPodLevel(spec.Resources, after.Spec.Resources)
	changes, rest := compare(*spec, after.Spec)
	w.changes = changes
	for i := range w.changes {
		c := &w.changes[i]
		c.requestLowered = c.requestLowered && !c.isApplied(before)
	}
	if rest {
		w.wrong = append(w.wrong, "more than resources of containers was changed")
	}
	if is, was := qos(after), qos(before); is != was {
		w.wrong = append(w.wrong, fmt.Sprintf("its QoS class would be %s, and was %s", is, was))
	}
	m.writes = append(m.writes, w)
}

// isApplied reports whether the kubelet has applied the request, so that a resize is only withdrawn.
func (c change) isApplied(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == c.container && status.Resources != nil {
			applied, ok := status.Resources.Requests[c.resource]
			return ok && applied.Cmp(c.request) == 0
		}
	}
	return false
}

// followPodLevel sets the CPU and memory of pod-level resources as they are after a resize, where they were
// set before.
func followPodLevel(before, after *corev1.ResourceRequirements) {
	if before == nil || after == nil {
		return
	}
	for _, lists := range [][2]corev1.ResourceList{{before.Requests, after.Requests}, {before.Limits, after.Limits}} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if amount, ok := lists[1][name]; ok && !lists[0].Name(name, resource.DecimalSI).IsZero() {
				lists[0][name] = amount
			}
		}
	}
}

func qos(p *corev1.Pod) corev1.PodQOSClass {
	read := workload.ReadPod(p, true)
	if read.PodLevelResources {
		return workload.QoSOf([]workload.Container{{Resources: read.PodLevel}})
	}
	return workload.QoSOf(read.Containers, read.Others)
}

func (m *Monitor) deployment(before, after *appsv1.Deployment) {
	if apiequality.Semantic.DeepEqual(before.Spec, after.Spec) || !isOurs(before, after, "") {
		return
	}
	w := write{
		at: revision(after), namespace: after.Namespace, target: after.Name,
		what: fmt.Sprintf("Deployment %s/%s", after.Namespace, after.Name),
	}
	template := before.Spec.DeepCopy()
	template.Template.Spec = after.Spec.Template.Spec
	changes, rest := compare(before.Spec.Template.Spec, after.Spec.Template.Spec)
	if rest || !apiequality.Semantic.DeepEqual(*template, after.Spec) {
		w.wrong = append(w.wrong, "more than resources of containers was changed")
	}
	w.changes = changes
	m.writes = append(m.writes, w)
}

// restoresOriginals reports whether a change of a template writes the values that a scaler has
// recorded.
func (m *Monitor) restoresOriginals(w write, c change) bool {
	for key, versions := range m.scalers {
		for _, v := range versions {
			if key.Namespace != w.namespace || v.originals == nil || v.originals.DeploymentName != w.target {
				continue
			}
			for _, original := range v.originals.Containers {
				if original.ContainerName == c.container && c.restores(original) {
					return true
				}
			}
		}
	}
	return false
}

// restores reports whether each value that was changed is the original one, or as close to
// it as the other value allows.
func (c change) restores(original v1beta1.OriginalContainerResources) bool {
	request, limit := original.Requests.CPU, original.Limits.CPU
	if c.resource == corev1.ResourceMemory {
		request, limit = original.Requests.Memory, original.Limits.Memory
	}
	requestFits := c.request.Cmp(c.requestBefore) == 0 || request != nil &&
		(c.request.Cmp(*request) == 0 || request.Cmp(c.limit) > 0 && c.request.Cmp(c.limit) == 0)
	limitFits := c.limit.Cmp(c.limitBefore) == 0 || limit != nil &&
		(c.limit.Cmp(*limit) == 0 || limit.Cmp(c.request) < 0 && c.limit.Cmp(c.request) == 0)
	return requestFits && limitFits
}

// isOurs reports whether the operator has made a change: the managed fields have a new
// entry of the operator, and no other new entry. Another manager may only lose fields, as
// it does when the operator takes over its values.
func isOurs(before, after client.Object, subresource string) bool {
	entries := func(o client.Object) map[string]metav1.ManagedFieldsEntry {
		out := map[string]metav1.ManagedFieldsEntry{}
		for _, entry := range o.GetManagedFields() {
			if entry.Subresource == subresource {
				out[entry.Manager+" "+string(entry.Operation)] = entry
			}
		}
		return out
	}
	was, is := entries(before), entries(after)
	ours := false
	for _, key := range slices.Collect(maps.Keys(is)) {
		if apiequality.Semantic.DeepEqual(was[key], is[key]) || hasOnlyLost(was[key], is[key]) {
			continue
		}
		if is[key].Manager != ownership.Scalers {
			return false
		}
		ours = true
	}
	return ours
}

// hasOnlyLost reports whether fields were taken from a manager, which wrote nothing itself.
func hasOnlyLost(was, is metav1.ManagedFieldsEntry) bool {
	if was.FieldsV1 == nil || is.FieldsV1 == nil || !apiequality.Semantic.DeepEqual(was.Time, is.Time) {
		return false
	}
	before, after := &fieldpath.Set{}, &fieldpath.Set{}
	if before.FromJSON(bytes.NewReader(was.FieldsV1.GetRawBytes())) != nil || after.FromJSON(bytes.NewReader(is.FieldsV1.GetRawBytes())) != nil {
		return false
	}
	return after.Difference(before).Empty() && !before.Difference(after).Empty()
}

// compare lists the changed resources of containers, and reports whether anything else has
// changed.
func compare(before, after corev1.PodSpec) (changes []change, rest bool) {
	with := before.DeepCopy()
	for i := range with.InitContainers {
		if i < len(after.InitContainers) && workload.IsSidecar(&with.InitContainers[i]) {
			changes = append(changes, compareContainer(&with.InitContainers[i], &after.InitContainers[i])...)
		}
	}
	for i := range with.Containers {
		if i < len(after.Containers) {
			changes = append(changes, compareContainer(&with.Containers[i], &after.Containers[i])...)
		}
	}
	return changes, !apiequality.Semantic.DeepEqual(*with, after)
}

// compareContainer lists the changed resources of a container, and sets them.
func compareContainer(with, after *corev1.Container) (changes []change) {
	was, is := with.Resources, after.Resources
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		c := change{container: after.Name, resource: name, request: is.Requests[name], limit: is.Limits[name]}
		request, limit := was.Requests[name], was.Limits[name]
		if c.request.Cmp(request) == 0 && c.limit.Cmp(limit) == 0 {
			continue
		}
		c.requestRaised, c.limitRaised = c.request.Cmp(request) > 0, c.limit.Cmp(limit) > 0 && !limit.IsZero()
		c.requestLowered, c.requestBefore, c.limitBefore = c.request.Cmp(request) < 0, request, limit
		changes = append(changes, c)
	}
	with.Resources = is
	return changes
}

// judge checks a write against the scalers of that time.
func (m *Monitor) judge(w write) []string {
	target := w.target
	if w.set != "" {
		target = m.sets[w.set]
	} else {
		w.changes = slices.DeleteFunc(slices.Clone(w.changes), func(c change) bool { return m.restoresOriginals(w, c) })
		if len(w.changes) == 0 {
			return nil
		}
	}
	present := m.specsFor(w, target)
	var allowing []v1beta1.VerticalScalerSpec
	for _, spec := range present {
		mayWrite := scaler.WritesTemplate
		if w.set != "" {
			mayWrite = scaler.ResizesPods
		}
		if !spec.Suspend && mayWrite(&spec) {
			allowing = append(allowing, spec)
		}
	}
	switch {
	case len(present) == 0:
		return []string{fmt.Sprintf("no scaler names Deployment %q", target)}
	case len(allowing) == 0:
		return []string{fmt.Sprintf("no scaler may change it: %+v", present[0].UpdatePolicy)}
	}
	var least []string
	for i, spec := range allowing {
		if wrong := beyond(w.changes, spec); i == 0 || len(wrong) < len(least) {
			least = wrong
		}
	}
	return append(least, m.loweredInSilence(w, target, present)...)
}

// specsFor returns the specs that a reconcile may have seen of the scalers of a Deployment.
func (m *Monitor) specsFor(w write, deployment string) (specs []v1beta1.VerticalScalerSpec) {
	for key, versions := range m.scalers {
		if key.Namespace != w.namespace {
			continue
		}
		for _, spec := range specsAt(versions, w) {
			if spec.DeploymentName == deployment {
				specs = append(specs, spec)
			}
		}
	}
	return specs
}

// specsAt returns the specs that a reconcile may have seen: the one at that time, and the one before. versions are in order.
func specsAt(versions []version, w write) (specs []v1beta1.VerticalScalerSpec) {
	for _, v := range slices.Backward(versions) {
		switch {
		case v.at >= w.at:
			continue
		case v.gone, len(specs) >= 2:
			return specs
		case len(specs) == 0 || !apiequality.Semantic.DeepEqual(specs[len(specs)-1], v.spec):
			specs = append(specs, v.spec)
		}
	}
	return specs
}

// beyond describes the changes that a spec does not allow.
func beyond(changes []change, spec v1beta1.VerticalScalerSpec) (out []string) {
	for _, c := range changes {
		wrong := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("container %s, %s: ", c.container, c.resource)+fmt.Sprintf(format, args...))
		}
		if c.request.Sign() <= 0 {
			wrong("the request is %s", &c.request)
		}
		if !c.limit.IsZero() && c.request.Cmp(c.limit) > 0 {
			wrong("the request %s is more than the limit %s", &c.request, &c.limit)
		}
		policy := spec.ResourcePolicy.For(c.container)
		if policy.Mode == v1beta1.ContainerModeOff {
			wrong("the container is not managed")
		}
		if most := boundOf(policy.MaxAllowed, c.resource); most != nil && c.requestRaised && c.request.Cmp(*most) > 0 {
			wrong("the request %s is more than %s", &c.request, most)
		}
		if policy.Limits == nil {
			continue
		}
		if most := boundOf(policy.Limits.MaxAllowed, c.resource); most != nil && c.limitRaised && c.limit.Cmp(*most) > 0 {
			wrong("the limit %s is more than %s", &c.limit, most)
		}
	}
	return out
}

func boundOf(b *v1beta1.ResourceBounds, name corev1.ResourceName) *resource.Quantity {
	switch {
	case b == nil:
		return nil
	case name == corev1.ResourceCPU:
		return b.CPU
	}
	return b.Memory
}

// revision is the object's resource version, which orders all writes of the cluster.
func revision(o client.Object) int64 {
	at, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return at
}
