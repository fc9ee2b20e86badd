// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// settled is how long a pod must be silent before a lower request is a violation: a reconcile may
// have read usage before.
const settled = 5 * time.Second

// round is a round of usage.
type round struct {
	// at is the newest revision seen by then, and time when that was.
	at   int64
	time time.Time
	// silent are the running pods without usage, by UID, and their Deployments.
	silent map[types.UID]string
}

// sized is a write of sizes by the operator.
type sized struct {
	at     int64
	what   string // describes the object
	isPod  bool
	target string   // the Deployment
	wrong  []string // violations whatever the scaler says
	deltas []delta
}

// delta is the effect of a write on one resource of a container.
type delta struct {
	container                  string
	resource                   corev1.ResourceName
	request, limit             resource.Quantity
	requestBefore, limitBefore resource.Quantity
	isLowered                  bool // the request
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
// allows is allowed, too. On a real API server, changes of different kinds are not seen in their order, so all scalers are
// read first.
func (w *World) monitor() (out []string) {
	h := history{rounds: w.rounds, scalers: map[string][]version{}}
	for _, e := range w.changes {
		if s, ok := e.Object.(*v1beta1.VerticalScaler); ok {
			h.scalers[s.Name] = append(h.scalers[s.Name], version{s, revision(s), e.Type == watch.Deleted})
		}
	}
	for _, versions := range h.scalers {
		slices.SortFunc(versions, func(a, b version) int { return cmp.Compare(a.at, b.at) })
	}
	for _, e := range w.changes {
		if !e.isOurs || e.Before == nil || e.Type == watch.Deleted {
			continue
		}
		var write sized
		if before, after, isPod := versionsOf[*corev1.Pod](e); isPod && !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
			write = resizeOf(before, after)
		} else if before, after, ok := versionsOf[*appsv1.Deployment](e); ok && !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
			write = rewriteOf(before, after)
		} else {
			continue
		}
		for _, wrong := range append(write.wrong, h.judge(write)...) {
			out = append(out, fmt.Sprintf("%s, at revision %d: %s", write.what, write.at, wrong))
		}
	}
	return out
}

// history is what the monitor knows of a run.
type history struct {
	scalers map[string][]version // by name, in order
	rounds  []round
}

// version is a scaler as it was from a revision on.
type version struct {
	*v1beta1.VerticalScaler
	at     int64
	isGone bool
}

// deploymentOf is the Deployment of a pod, by the name of its ReplicaSet.
func deploymentOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ""
	}
	return owner.Name[:max(0, strings.LastIndex(owner.Name, "-"))]
}

// resizeOf describes a resize. Pod-level resources follow those of the containers.
func resizeOf(before, after *corev1.Pod) sized {
	w := sized{at: revision(after), what: "pod " + after.Name, isPod: true, target: deploymentOf(after)}
	spec := before.Spec.DeepCopy()
	spec.Resources = after.Spec.Resources
	deltas, rest := deltasOf(*spec, after.Spec)
	w.deltas = deltas
	for i := range w.deltas {
		d := &w.deltas[i]
		applied, ok := Actual(before, d.container).Requests[d.resource]
		d.isLowered = d.isLowered && (!ok || applied.Cmp(d.request) != 0) // otherwise, a resize is only withdrawn
	}
	if rest {
		w.wrong = append(w.wrong, "more than resources of containers was changed")
	}
	if is, was := qosOf(after), qosOf(before); is != was {
		w.wrong = append(w.wrong, fmt.Sprintf("its QoS class would be %s, and was %s", is, was))
	}
	return w
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
		d := delta{
			container: after.Name, resource: name,
			request: is.Requests[name], limit: is.Limits[name], requestBefore: was.Requests[name], limitBefore: was.Limits[name],
		}
		if d.isLowered = d.request.Cmp(d.requestBefore) < 0; d.request.Cmp(d.requestBefore) != 0 || d.limit.Cmp(d.limitBefore) != 0 {
			deltas = append(deltas, d)
		}
	}
	with.Resources = is
	return deltas
}

// judge checks a write against the scalers of that time.
func (h *history) judge(w sized) []string {
	mayWrite := scaler.ResizesPods
	if !w.isPod {
		mayWrite = scaler.WritesTemplate
		w.deltas = slices.DeleteFunc(slices.Clone(w.deltas), func(d delta) bool { return h.isRestored(w.target, d) })
		if len(w.deltas) == 0 {
			return nil
		}
	}
	present := h.specsFor(w)
	var least []string
	isAllowed := false
	for _, spec := range present {
		if spec.Suspend || !mayWrite(&spec) {
			continue
		}
		if wrong := beyond(w.deltas, spec); !isAllowed || len(wrong) < len(least) {
			least = wrong
		}
		isAllowed = true
	}
	switch {
	case len(present) == 0:
		return []string{fmt.Sprintf("no scaler names Deployment %q", w.target)}
	case !isAllowed:
		return []string{fmt.Sprintf("no scaler may change it: %+v", present[0].UpdatePolicy)}
	}
	return append(least, h.loweredInSilence(w, present)...)
}

// specsFor returns the specs that a reconcile may have seen of the scalers of a Deployment: of each scaler the one at that
// time, and the one before.
func (h *history) specsFor(w sized) (all []v1beta1.VerticalScalerSpec) {
	for _, versions := range h.scalers {
		var specs []v1beta1.VerticalScalerSpec
		for _, v := range slices.Backward(versions) {
			if v.at < w.at && (v.isGone || len(specs) >= 2) {
				break
			}
			if v.at < w.at && (len(specs) == 0 || !apiequality.Semantic.DeepEqual(specs[len(specs)-1], v.Spec)) {
				specs = append(specs, v.Spec)
			}
		}
		all = append(all, specs...)
	}
	return slices.DeleteFunc(all, func(spec v1beta1.VerticalScalerSpec) bool { return spec.DeploymentName != w.target })
}

// isRestored reports whether a change of a template writes the original values that a scaler has recorded, or values as
// close to them as the other value of the container allows.
func (h *history) isRestored(deployment string, d delta) bool {
	fits := func(before, after resource.Quantity, original *resource.Quantity, bound resource.Quantity, side int) bool {
		return after.Cmp(before) == 0 ||
			original != nil && (after.Cmp(*original) == 0 || original.Cmp(bound) == side && after.Cmp(bound) == 0)
	}
	for _, versions := range h.scalers {
		for _, v := range versions {
			held := v.Status.OriginalResources
			if held == nil || held.DeploymentName != deployment {
				continue
			}
			for _, c := range held.Containers {
				request, limit := c.Requests.CPU, c.Limits.CPU
				if d.resource == corev1.ResourceMemory {
					request, limit = c.Requests.Memory, c.Limits.Memory
				}
				if c.ContainerName == d.container && fits(d.requestBefore, d.request, request, d.limit, 1) && fits(d.limitBefore, d.limit, limit, d.request, -1) {
					return true
				}
			}
		}
	}
	return false
}

// beyond describes the changes that a spec does not allow.
func beyond(deltas []delta, spec v1beta1.VerticalScalerSpec) (out []string) {
	for _, d := range deltas {
		wrong := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("container %s, %s: ", d.container, d.resource)+fmt.Sprintf(format, args...))
		}
		if d.request.Sign() <= 0 {
			wrong("the request is %s", &d.request)
		}
		if !d.limit.IsZero() && d.request.Cmp(d.limit) > 0 {
			wrong("the request %s is more than the limit %s", &d.request, &d.limit)
		}
		policy := spec.ResourcePolicy.For(d.container)
		if policy.Mode == v1beta1.ContainerModeOff {
			wrong("the container is not managed")
		}
		if most := boundOf(policy.MaxAllowed, d.resource); most != nil && d.request.Cmp(d.requestBefore) > 0 && d.request.Cmp(*most) > 0 {
			wrong("the request %s is more than %s", &d.request, most)
		}
		if policy.Limits == nil || d.limitBefore.IsZero() {
			continue
		}
		if most := boundOf(policy.Limits.MaxAllowed, d.resource); most != nil && d.limit.Cmp(d.limitBefore) > 0 && d.limit.Cmp(*most) > 0 {
			wrong("the limit %s is more than %s", &d.limit, most)
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
func (h *history) silentPod(w sized) types.UID {
	before := slices.DeleteFunc(slices.Clone(h.rounds), func(a round) bool { return a.at >= w.at })
	if len(before) == 0 {
		return ""
	}
	last := before[len(before)-1]
	for uid, deployment := range last.silent {
		since := last.time
		for _, a := range slices.Backward(before) {
			if _, silent := a.silent[uid]; !silent {
				break
			}
			since = a.time
		}
		if deployment == w.target && last.time.Sub(since) >= settled {
			return uid
		}
	}
	return ""
}

// loweredInSilence describes the requests that were lowered while a pod was silent. Usage is not the
// reason if a boost ends, if a bound of the user falls, or if a template is reverted.
func (h *history) loweredInSilence(w sized, specs []v1beta1.VerticalScalerSpec) (out []string) {
	uid := h.silentPod(w)
	if uid == "" || !w.isPod && h.isReverting(w) {
		return nil
	}
	for _, d := range w.deltas {
		isExempt := slices.ContainsFunc(specs, func(spec v1beta1.VerticalScalerSpec) bool {
			policy := spec.ResourcePolicy.For(d.container)
			most := boundOf(policy.MaxAllowed, d.resource)
			return policy.StartupBoost != nil && d.resource == corev1.ResourceCPU || most != nil && d.requestBefore.Cmp(*most) > 0
		})
		if d.isLowered && !isExempt {
			out = append(out, fmt.Sprintf("container %s, %s: the request was lowered to %s, and pod %s has no usage", d.container, d.resource, &d.request, uid))
		}
	}
	return out
}

// isReverting reports whether a scaler of the Deployment had last decided to revert a change.
func (h *history) isReverting(w sized) bool {
	for _, versions := range h.scalers {
		for _, v := range slices.Backward(versions) {
			if v.at < w.at && v.Spec.DeploymentName == w.target {
				if d := v.Status.Decision; d != nil && d.Reason == plan.DecidedReverted {
					return true
				}
				break
			}
		}
	}
	return false
}
