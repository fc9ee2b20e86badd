// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

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
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// settled is how long a pod must be silent before a lower request is a violation: a reconcile may
// have read usage before.
const settled = 5 * time.Second

// Round is a round of usage.
type Round struct {
	// at is the newest revision seen by then, and time when that was.
	at   int64
	time time.Time
	// silent are the running pods without usage, by UID, and their ReplicaSets.
	silent map[types.UID]types.UID
}

// specVersion is a scaler's spec, or its deletion, and the revision from which it holds.
type specVersion struct {
	at   int64
	gone bool
	spec v1beta1.VerticalScalerSpec
	// originals are what the scaler has recorded of its template; nil for nothing.
	originals *v1beta1.OriginalResources
	// reverts is true if the scaler has decided to revert a change.
	reverts bool
}

// sized is a write of sizes by the operator.
type sized struct {
	at     int64
	what   string    // describes the object
	set    types.UID // the pod's ReplicaSet; empty for a Deployment
	target string    // the Deployment, if the write is to one
	wrong  []string  // violations whatever the scaler says
	deltas []delta
}

// delta is the effect of a write on one resource of a container.
type delta struct {
	container      string
	resource       corev1.ResourceName
	request, limit resource.Quantity
	// These report which of them the write has raised, and whether it has lowered the request.
	requestRaised, limitRaised, requestLowered bool
	requestBefore, limitBefore                 resource.Quantity
}

// monitor checks each write of the operator against these promises:
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
// allows is allowed, too. On a real API server, changes of different kinds are not seen in their order, so all are read first.
func monitor(r Record) (out []string) {
	m := &history{rounds: r.Rounds, scalers: map[string][]specVersion{}, sets: map[types.UID]string{}}
	var writes []sized
	for _, e := range r.Changes {
		switch o := e.Object.(type) {
		case *v1beta1.VerticalScaler:
			m.scalers[o.Name] = append(m.scalers[o.Name], specVersion{
				at: revision(o), gone: e.Type == watch.Deleted, spec: o.Spec, originals: o.Status.OriginalResources,
				reverts: o.Status.Decision != nil && o.Status.Decision.Reason == plan.DecidedReverted,
			})
		case *appsv1.ReplicaSet:
			if owner := metav1.GetControllerOf(o); owner != nil {
				m.sets[o.UID] = owner.Name
			}
		}
	}
	for _, versions := range m.scalers {
		slices.SortFunc(versions, func(a, b specVersion) int { return cmp.Compare(a.at, b.at) })
	}
	changed(r.Changes, func(before, after *corev1.Pod, gone bool) {
		if before != nil && !gone && !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) && isOurs(before, after, "resize") {
			writes = append(writes, resizeOf(before, after))
		}
	})
	changed(r.Changes, func(before, after *appsv1.Deployment, gone bool) {
		if before != nil && !gone && !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) && isOurs(before, after, "") {
			writes = append(writes, rewriteOf(before, after))
		}
	})
	for _, w := range writes {
		for _, wrong := range append(w.wrong, m.judge(w)...) {
			out = append(out, fmt.Sprintf("%s, at revision %d: %s", w.what, w.at, wrong))
		}
	}
	return out
}

// history is what the monitor knows of a run.
type history struct {
	scalers map[string][]specVersion
	sets    map[types.UID]string // the Deployments of ReplicaSets
	rounds  []Round
}

// resizeOf describes a resize.
func resizeOf(before, after *corev1.Pod) sized {
	w := sized{at: revision(after), what: "pod " + after.Name}
	if owner := metav1.GetControllerOf(after); owner != nil {
		w.set = owner.UID
	}
	spec := before.Spec.DeepCopy()
	followPodLevel(spec.Resources, after.Spec.Resources)
	deltas, rest := deltasOf(*spec, after.Spec)
	w.deltas = deltas
	for i := range w.deltas {
		d := &w.deltas[i]
		applied, ok := Actual(before, d.container).Requests[d.resource]
		d.requestLowered = d.requestLowered && (!ok || applied.Cmp(d.request) != 0) // otherwise, a resize is only withdrawn
	}
	if rest {
		w.wrong = append(w.wrong, "more than resources of containers was changed")
	}
	if is, was := qosOf(after), qosOf(before); is != was {
		w.wrong = append(w.wrong, fmt.Sprintf("its QoS class would be %s, and was %s", is, was))
	}
	return w
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

// rewriteOf describes a write of a template.
func rewriteOf(before, after *appsv1.Deployment) sized {
	w := sized{at: revision(after), target: after.Name, what: "Deployment " + after.Name}
	template := before.Spec.DeepCopy()
	template.Template.Spec = after.Spec.Template.Spec
	deltas, rest := deltasOf(before.Spec.Template.Spec, after.Spec.Template.Spec)
	if rest || !apiequality.Semantic.DeepEqual(*template, after.Spec) {
		w.wrong = append(w.wrong, "more than resources of containers was changed")
	}
	w.deltas = deltas
	return w
}

// restoresOriginals reports whether a change of a template writes the values that a scaler has
// recorded.
func (m *history) restoresOriginals(w sized, c delta) bool {
	for _, versions := range m.scalers {
		for _, v := range versions {
			if v.originals == nil || v.originals.DeploymentName != w.target {
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
func (c delta) restores(original v1beta1.OriginalContainerResources) bool {
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

// deltasOf lists the changed resources of containers, and reports whether anything else has
// changed.
func deltasOf(before, after corev1.PodSpec) (deltas []delta, rest bool) {
	with := before.DeepCopy()
	for i := range with.InitContainers {
		if i < len(after.InitContainers) && workload.IsSidecar(&with.InitContainers[i]) {
			deltas = append(deltas, deltasIn(&with.InitContainers[i], &after.InitContainers[i])...)
		}
	}
	for i := range with.Containers {
		if i < len(after.Containers) {
			deltas = append(deltas, deltasIn(&with.Containers[i], &after.Containers[i])...)
		}
	}
	return deltas, !apiequality.Semantic.DeepEqual(*with, after)
}

// deltasIn lists the changed resources of a container, and sets them.
func deltasIn(with, after *corev1.Container) (deltas []delta) {
	was, is := with.Resources, after.Resources
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		c := delta{container: after.Name, resource: name, request: is.Requests[name], limit: is.Limits[name]}
		request, limit := was.Requests[name], was.Limits[name]
		if c.request.Cmp(request) == 0 && c.limit.Cmp(limit) == 0 {
			continue
		}
		c.requestRaised, c.limitRaised = c.request.Cmp(request) > 0, c.limit.Cmp(limit) > 0 && !limit.IsZero()
		c.requestLowered, c.requestBefore, c.limitBefore = c.request.Cmp(request) < 0, request, limit
		deltas = append(deltas, c)
	}
	with.Resources = is
	return deltas
}

// judge checks a write against the scalers of that time.
func (m *history) judge(w sized) []string {
	target := w.target
	if w.set != "" {
		target = m.sets[w.set]
	} else {
		w.deltas = slices.DeleteFunc(slices.Clone(w.deltas), func(c delta) bool { return m.restoresOriginals(w, c) })
		if len(w.deltas) == 0 {
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
		if wrong := beyond(w.deltas, spec); i == 0 || len(wrong) < len(least) {
			least = wrong
		}
	}
	return append(least, m.loweredInSilence(w, target, present)...)
}

// specsFor returns the specs that a reconcile may have seen of the scalers of a Deployment.
func (m *history) specsFor(w sized, deployment string) (specs []v1beta1.VerticalScalerSpec) {
	for _, versions := range m.scalers {
		for _, spec := range specsAt(versions, w) {
			if spec.DeploymentName == deployment {
				specs = append(specs, spec)
			}
		}
	}
	return specs
}

// specsAt returns the specs that a reconcile may have seen: the one at that time, and the one before. versions are in order.
func specsAt(versions []specVersion, w sized) (specs []v1beta1.VerticalScalerSpec) {
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
func beyond(deltas []delta, spec v1beta1.VerticalScalerSpec) (out []string) {
	for _, c := range deltas {
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

// silentPod is a pod of the Deployment that was silent for long before the write; empty for none.
func (m *history) silentPod(w sized, deployment string) types.UID {
	before := slices.DeleteFunc(slices.Clone(m.rounds), func(a Round) bool { return a.at >= w.at })
	if len(before) == 0 {
		return ""
	}
	last := before[len(before)-1]
	for uid, set := range last.silent {
		if m.sets[set] != deployment {
			continue
		}
		since := last.time
		for _, a := range slices.Backward(before) {
			if _, silent := a.silent[uid]; !silent {
				break
			}
			since = a.time
		}
		if last.time.Sub(since) >= settled {
			return uid
		}
	}
	return ""
}

// loweredInSilence describes the requests that were lowered while a pod was silent. Usage is not the
// reason if a boost ends, if a bound of the user falls, or if a template is reverted.
func (m *history) loweredInSilence(w sized, deployment string, specs []v1beta1.VerticalScalerSpec) (out []string) {
	uid := m.silentPod(w, deployment)
	if uid == "" || w.set == "" && m.isReverting(w, deployment) {
		return nil
	}
	for _, c := range w.deltas {
		isExempt := slices.ContainsFunc(specs, func(spec v1beta1.VerticalScalerSpec) bool { return mayLower(c, spec) })
		if c.requestLowered && !isExempt {
			out = append(out, fmt.Sprintf("container %s, %s: the request was lowered to %s, and pod %s has no usage", c.container, c.resource, &c.request, uid))
		}
	}
	return out
}

// mayLower reports whether the spec lowers a request for another reason than usage.
func mayLower(c delta, spec v1beta1.VerticalScalerSpec) bool {
	policy := spec.ResourcePolicy.For(c.container)
	if policy.StartupBoost != nil && c.resource == corev1.ResourceCPU {
		return true
	}
	most := boundOf(policy.MaxAllowed, c.resource)
	return most != nil && c.requestBefore.Cmp(*most) > 0
}

// isReverting reports whether a scaler of the Deployment had last decided to revert a change.
func (m *history) isReverting(w sized, deployment string) bool {
	for _, versions := range m.scalers {
		isReverting := false
		for _, v := range versions {
			if v.at < w.at && v.spec.DeploymentName == deployment {
				isReverting = v.reverts
			}
		}
		if isReverting {
			return true
		}
	}
	return false
}
