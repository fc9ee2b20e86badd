// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Which invariant is checked where:
//
//	I1  bounds of requests and limits            not here: pure (internal/plan)
//	I2  nothing out of scope is written          monitor, onlyOwnWrites
//	I3  memory never below what is known         the end state after an OOM kill, and the scenario with a silent pod; the rest is pure (internal/plan)
//	I4  QoS stays, no resize gets 422            onlyOwnWrites
//	I5  no A-B-A                                 noFlapping; steps and cooldowns are pure (internal/plan)
//	I6  availability                             evictions
//	I7  deciding twice decides nothing           unexplained, from outside; as a property it is pure (internal/plan)
//	I8  bounded writes, none when idle           unexplained, everyWriteCounts
//	I9  evidence survives restarts               the end state against the reference run
//	I10 order of inputs                          not here: pure (internal/plan)
//	I11 nothing after the deletion               monitor
//	I12 no decision reads the clock itself       not here: the linter's import table
//
// Beside them: kstatus at every change.

// Change is a change of an object.
type Change struct {
	Type watch.EventType
	// Before is the object before; nil if it is new.
	Before, Object client.Object
	// Seen is the time at which it was seen.
	Seen time.Time
	// isOurs is true if the operator has updated or patched the object.
	isOurs bool
}

// versionsOf are the two versions of an object of a kind. before is the zero value for a new object.
func versionsOf[T client.Object](e Change) (before, after T, ok bool) {
	after, ok = e.Object.(T)
	before, _ = e.Before.(T)
	return before, after, ok
}

// isEffective reports whether a write of the operator may be the reason of a change: it only resizes pods.
func (e Change) isEffective() bool {
	before, after, isPod := versionsOf[*corev1.Pod](e)
	return !isPod || before == nil || !apiequality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// Violations describes what was wrong so far, with the name of an oracle, except what the monitor finds at the end of each
// test. It needs an API server in memory. injected is the number of faults: a write whose answer was lost may be sent again,
// and then changes nothing.
func (w *World) Violations(injected int) (out []string) {
	for _, oracle := range []struct {
		name  string
		found []string
	}{
		{"only-own-writes", w.onlyOwnWrites()},
		{"no-flapping", w.noFlapping()},
		{"evictions", w.evictions()},
		{"quiet", w.unexplained()},
		{"every-write-counts", w.everyWriteCounts(injected)},
		{"kstatus", w.kstatus()},
	} {
		for _, wrong := range oracle.found {
			out = append(out, oracle.name+": "+wrong)
		}
	}
	return out
}

// onlyOwnWrites checks that the operator sends writes of no other kind than it must: it deletes no pods, for one. A refused
// write counts as well. None is invalid: the operator knows the rules, and would try a refused write again.
func (w *World) onlyOwnWrites() (out []string) {
	allowed := map[string]bool{
		"patch pods/resize": true, "create pods/eviction": true, "patch deployments": true, "update deployments": true,
		"patch verticalscalers": true, "update verticalscalers": true, "update verticalscalers/status": true, "create verticalscalers": true,
		"delete verticalscalers": true, "delete deployments": true, "create deployments": true,
		"update scaleddeployments/status": true, "create verticalscalercheckpoints": true, "update verticalscalercheckpoints": true,
		"create newpodsizes": true, "update newpodsizes": true, "delete newpodsizes": true, "apply deployments": true, "apply verticalscalers": true,
	}
	for _, write := range w.writes {
		if !allowed[write.Kind()] || write.Code == 422 || write.Code == 400 {
			out = append(out, write.String()+" is no write of the operator's, or invalid")
		}
	}
	return out
}

// noFlapping checks that what a pod has applied, and a template, do not return to a size that the operator
// has taken away. Restoring original values is not a return: the scaler is then gone or names another
// Deployment, or reverts a change. Neither is to withdraw a resize that the kubelet has not granted.
func (w *World) noFlapping() (out []string) {
	sizes := map[types.UID][]string{}
	reverts := false
	note := func(uid types.UID, what string, containers []corev1.Container) {
		size := strings.Join(sizesOf(containers), ", ")
		had := sizes[uid]
		if len(had) > 0 && had[len(had)-1] == size {
			return
		}
		// The first size is the user's: going back to it once restores it.
		if i := slices.Index(had, size); i > 0 && !reverts {
			out = append(out, fmt.Sprintf("%s has %s again", what, size))
		}
		sizes[uid] = append(had, size)
	}
	for _, e := range w.changes {
		switch o := e.Object.(type) {
		case *v1beta1.VerticalScaler:
			reverts = reverts || len(o.Status.RevertedChanges) > 0
		case *corev1.Pod:
			if applied := appliedTo(o); o.Status.Phase == corev1.PodRunning {
				note(o.UID, "pod "+o.Name, applied)
			}
		case *appsv1.Deployment:
			note(o.UID, "Deployment "+o.Name, o.Spec.Template.Spec.Containers)
		}
	}
	return out
}

// appliedTo are the containers of a pod with the resources that they have.
func appliedTo(p *corev1.Pod) (containers []corev1.Container) {
	for _, c := range p.Spec.Containers {
		containers = append(containers, corev1.Container{Name: c.Name, Resources: *Actual(p, c.Name)})
	}
	return containers
}

// isEvicted reports whether a pod is being evicted through the API.
func isEvicted(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
	})
}

// evictions checks that only pods are evicted that wait for a resize, of a Deployment whose scaler falls back to it. It
// also checks that evictions remove at most one pod of a Deployment at a time. A replacement counts once it is ready.
func (w *World) evictions() (out []string) {
	pods := map[types.UID]*corev1.Pod{}
	want, mayEvict := map[string]int32{}, map[string]bool{} // by app
	for _, e := range w.changes {
		switch o := e.Object.(type) {
		case *appsv1.Deployment:
			want[o.Spec.Selector.MatchLabels[AppLabel]] = ptr.Deref(o.Spec.Replicas, 1)
		case *v1beta1.VerticalScaler:
			mayEvict[o.Spec.DeploymentName] = mayEvict[o.Spec.DeploymentName] || o.Spec.UpdatePolicy.Fallback == v1beta1.FallbackRecreate
		case *corev1.Pod:
			before := pods[o.UID]
			pods[o.UID] = o
			if e.Type == watch.Deleted {
				delete(pods, o.UID)
			}
			if !isEvicted(o) || before == nil || before.DeletionTimestamp != nil {
				continue
			}
			app := o.Labels[AppLabel]
			if !mayEvict[app] {
				out = append(out, fmt.Sprintf("pod %s of %q was evicted, which no scaler may do", o.Name, app))
			}
			if line := podLine(before); !waitsForResize(line) {
				out = append(out, fmt.Sprintf("pod %s was evicted, and waited for no resize: %s", o.Name, line))
			}
			if ready := readyPods(pods, app); ready < want[app]-1 {
				out = append(out, fmt.Sprintf("with the eviction of pod %s, %d of %d pods of %s were ready", o.Name, ready, want[app], app))
			}
		}
	}
	return out
}

// waitsForResize reports whether a pod with that line does not run, or has not applied its resize.
func waitsForResize(line string) bool {
	return !strings.HasPrefix(line, string(corev1.PodRunning)) || strings.Contains(line, " applied ") || strings.Contains(line, "PodResize")
}

// readyPods is the number of an app's pods that are ready and stay.
func readyPods(pods map[types.UID]*corev1.Pod, app string) (ready int32) {
	for _, p := range pods {
		if p.DeletionTimestamp == nil && isReady(p) && p.Labels[AppLabel] == app {
			ready++
		}
	}
	return ready
}

// unexplained are the writes since the scenario has converged that do not follow from the time that passes. Each time that
// the evidence has doubled, a checkpoint is saved, and the recommendation in the status may become surer.
func (w *World) unexplained() (out []string) {
	if w.quiet.IsZero() {
		return nil
	}
	surer := map[string]int{} // the number of status writes that changed the recommendation only
	for _, e := range w.changes {
		before, after, isScaler := versionsOf[*v1beta1.VerticalScaler](e)
		if isScaler && before != nil && !e.Seen.Before(w.quiet) && e.Type == watch.Modified && isSurer(before, after) {
			surer[after.Name]++
		}
	}
	for _, write := range w.writes {
		switch {
		case write.At.Before(w.quiet), write.Resource == "verticalscalercheckpoints":
		case write.Resource == "verticalscalers/status" && write.IsAccepted() && surer[write.Name] > 0:
			surer[write.Name]--
		default:
			out = append(out, write.String()+" after the scenario has converged")
		}
	}
	return out
}

// isSurer reports whether two versions of a scaler differ in the recommendation, and in nothing
// else.
func isSurer(before, after *v1beta1.VerticalScaler) bool {
	a, b := before.DeepCopy(), after.DeepCopy()
	if apiequality.Semantic.DeepEqual(a.Status.Recommendation, b.Status.Recommendation) {
		return false
	}
	a.Status.Recommendation, b.Status.Recommendation = nil, nil
	return apiequality.Semantic.DeepEqual(a.Status, b.Status) && apiequality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		apiequality.Semantic.DeepEqual(a.Finalizers, b.Finalizers) && a.DeletionTimestamp.Equal(b.DeletionTimestamp)
}

// everyWriteCounts checks that each accepted write changes its object, and that no accepted resize is directly followed by
// another of the same pod. The operator would then have acted on a cache that is older than its own last write. The API
// server accepts a write without a change, and delivers no event. Each injected fault excuses one of these, of each object.
func (w *World) everyWriteCounts(injected int) (out []string) {
	idle := map[string]int{}
	again := 0
	for i, write := range w.writes {
		if write.IsAccepted() && !write.changes && write.Verb != "delete" && write.Resource != "pods/eviction" {
			resource, _, _ := strings.Cut(write.Resource, "/")
			if object := resource + " " + write.Name; idle[object] >= injected {
				out = append(out, write.String()+" has changed nothing")
			} else {
				idle[object]++
			}
		}
		if i == 0 {
			continue
		}
		if last := w.writes[i-1]; write.Resource == "pods/resize" && last.IsAccepted() && last.Resource == write.Resource && last.Name == write.Name {
			if again++; again > injected {
				out = append(out, write.String()+" is a second resize at once")
			}
		}
	}
	return out
}

// kstatus checks the rules that our conditions document, at each version of an object.
// observedGeneration is never ahead, never goes back, and each condition is about it. Reconciling
// and Stalled exclude each other, and a stalled object is not Ready. Applied may be False on a
// scaler that is Ready: it learns, waits, or is suspended.
func (w *World) kstatus() (out []string) {
	for _, e := range w.changes {
		var was, observed int64
		var conditions []metav1.Condition
		what := fmt.Sprintf("%s %s at %s", resourceOf(e.Object), e.Object.GetName(), e.Object.GetResourceVersion())
		switch o := e.Object.(type) {
		case *v1beta1.VerticalScaler:
			observed, conditions = o.Status.ObservedGeneration, o.Status.Conditions
			if before, _, _ := versionsOf[*v1beta1.VerticalScaler](e); before != nil {
				was = before.Status.ObservedGeneration
			}
			if c := meta.FindStatusCondition(conditions, v1beta1.ConditionApplied); c != nil && c.Reason == v1beta1.ReasonApplied && o.Status.Decision == nil {
				out = append(out, what+": Applied, and nothing is decided")
			}
		case *v1beta1.ScaledDeployment:
			observed, conditions = o.Status.ObservedGeneration, o.Status.Conditions
			if before, _, _ := versionsOf[*v1beta1.ScaledDeployment](e); before != nil {
				was = before.Status.ObservedGeneration
			}
			if meta.IsStatusConditionTrue(conditions, v1beta1.ConditionReady) && meta.IsStatusConditionTrue(conditions, v1beta1.ConditionReconciling) {
				out = append(out, what+": both Ready and Reconciling")
			}
		}
		if e.Type != watch.Deleted && len(conditions) > 0 {
			out = append(out, wellFormed(what, conditions, was, observed, e.Object.GetGeneration())...)
			out = append(out, exclusive(what, conditions)...)
		}
	}
	return out
}

// wellFormed checks the observed generation, and that each condition is about it, and there once.
func wellFormed(what string, conditions []metav1.Condition, was, observed, generation int64) (out []string) {
	if observed > generation || observed < was {
		out = append(out, fmt.Sprintf("%s: observed generation went from %d to %d, of %d", what, was, observed, generation))
	}
	seen := map[string]bool{}
	for _, c := range conditions {
		if seen[c.Type] || c.ObservedGeneration != observed || c.Reason == "" || c.LastTransitionTime.IsZero() {
			out = append(out, fmt.Sprintf("%s: in a status about generation %d there is %+v, twice: %t", what, observed, c, seen[c.Type]))
		}
		seen[c.Type] = true
	}
	return out
}

// exclusive checks the conditions that exclude each other.
func exclusive(what string, conditions []metav1.Condition) (out []string) {
	for _, pair := range [][2]string{
		{v1beta1.ConditionReconciling, v1beta1.ConditionStalled},
		{v1beta1.ConditionChanging, v1beta1.ConditionStalled},
		{v1beta1.ConditionReady, v1beta1.ConditionStalled},
		{v1beta1.ConditionApplied, v1beta1.ConditionChanging},
		{v1beta1.ConditionApplied, v1beta1.ConditionReconciling},
	} {
		if meta.IsStatusConditionTrue(conditions, pair[0]) && meta.IsStatusConditionTrue(conditions, pair[1]) {
			out = append(out, what+": both "+pair[0]+" and "+pair[1])
		}
	}
	return out
}
