// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"maps"
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
//	I1  bounds of requests and limits            monitor
//	I2  nothing out of scope is written          monitor, onlyOwnWrites
//	I3  memory never below what is known         monitor (silent pods), aboveKills
//	I4  QoS stays, no resize gets 422            monitor, neverInvalid
//	I5  no A-B-A                                 noFlapping; steps and cooldowns are pure (internal/plan)
//	I6  availability                             evictions, availability
//	I7  deciding twice decides nothing           quiet, from outside; as a property it is pure (internal/plan)
//	I8  bounded writes, none when idle           quiet, everyWriteCounts
//	I9  evidence survives restarts               the end state against the reference run, aboveKills
//	I10 order of inputs                          not here: pure (internal/plan)
//	I11 nothing after the deletion               monitor
//	I12 no decision reads the clock itself       not here: the linter's import table
//
// Beside them: kstatus at every change.

// Change is a change of an object.
type Change struct {
	Type   watch.EventType
	Object client.Object
	// Seen is when it was seen.
	Seen time.Time
}

// Record is all that happened in a run.
type Record struct {
	Changes []Change // in order
	Writes  []Write  // of the operator, in the order of the answers
	Rounds  []Round  // of usage
	// Quiet is since when each write is a violation; zero if it never was.
	Quiet time.Time
	// Injected is the number of faults. A write whose answer was lost may be sent again, and then changes nothing.
	Injected int
}

// oracle describes what is wrong with a run.
type oracle func(Record) []string

// oracles are all oracles by name.
func oracles() map[string]oracle {
	return map[string]oracle{
		"only-own-writes":    onlyOwnWrites,
		"never-invalid":      neverInvalid,
		"above-kills":        aboveKills,
		"no-flapping":        noFlapping,
		"evictions":          evictions,
		"availability":       availability,
		"quiet":              quiet,
		"every-write-counts": everyWriteCounts,
		"kstatus":            kstatus,
		"monitor":            monitor,
	}
}

// Violations describes what was wrong during the run, each with the name of its oracle.
func (r Record) Violations() (out []string) {
	all := oracles()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, wrong := range all[name](r) {
			out = append(out, name+": "+wrong)
		}
	}
	return out
}

// changed calls f with each version of the objects of a kind and the one before. The one
// before is the zero object for the first version. Deletions are passed as gone.
func changed[T client.Object](changes []Change, f func(before, after T, gone bool)) {
	last := map[types.UID]T{}
	for _, e := range changes {
		if after, ok := e.Object.(T); ok {
			f(last[after.GetUID()], after, e.Type == watch.Deleted)
			last[after.GetUID()] = after
		}
	}
}

// onlyOwnWrites checks that the operator sends writes of no other kind than it must: it
// deletes no pods, for one. A refused write counts as well.
func onlyOwnWrites(r Record) (out []string) {
	allowed := map[string]bool{
		"patch pods/resize": true, "create pods/eviction": true, "patch deployments": true, "update deployments": true,
		"patch verticalscalers": true, "update verticalscalers": true, "update verticalscalers/status": true, "create verticalscalers": true,
		"delete verticalscalers": true, "delete deployments": true, "create deployments": true,
		"update scaleddeployments/status": true, "create verticalscalercheckpoints": true, "update verticalscalercheckpoints": true,
		"create newpodsizes": true, "update newpodsizes": true, "delete newpodsizes": true, "apply deployments": true, "apply verticalscalers": true,
	}
	for _, w := range r.Writes {
		if !allowed[w.Verb+" "+w.Resource] {
			out = append(out, w.String()+" is no write of the operator's")
		}
	}
	return out
}

// neverInvalid checks that the API server finds no write invalid: the operator knows the
// rules, and a refused write changes nothing but is tried again.
func neverInvalid(r Record) (out []string) {
	for _, w := range r.Writes {
		if w.Code == 422 || w.Code == 400 {
			out = append(out, w.String()+" is invalid")
		}
	}
	return out
}

// memoryOf are the memory limits, or else the requests, of a pod's containers in bytes.
func memoryOf(containers []corev1.Container) map[string]int64 {
	out := map[string]int64{}
	for _, c := range containers {
		memory := c.Resources.Limits.Memory()
		if memory.IsZero() {
			memory = c.Resources.Requests.Memory()
		}
		out[c.Name] = memory.Value()
	}
	return out
}

// aboveKills checks that no pod of a Deployment gets less memory than one of its containers
// was OOM-killed with.
func aboveKills(r Record) (out []string) {
	killed := map[string]int64{} // by app and container
	count := map[types.UID]map[string]int32{}
	changed(r.Changes, func(before, after *corev1.Pod, gone bool) {
		if gone {
			return
		}
		app := after.Labels[AppLabel]
		if before != nil {
			was, is := memoryOf(before.Spec.Containers), memoryOf(after.Spec.Containers)
			for name, memory := range is {
				if floor := killed[app+"/"+name]; memory < was[name] && memory <= floor {
					out = append(out, fmt.Sprintf("pod %s: container %s was lowered to %d bytes of memory, and was killed with %d", after.Name, name, memory, floor))
				}
			}
		}
		if count[after.UID] == nil {
			count[after.UID] = map[string]int32{}
		}
		for _, s := range after.Status.ContainerStatuses {
			t := s.LastTerminationState.Terminated
			if t == nil || t.Reason != "OOMKilled" || s.RestartCount <= count[after.UID][s.Name] || s.Resources == nil {
				continue
			}
			count[after.UID][s.Name] = s.RestartCount
			killed[app+"/"+s.Name] = max(killed[app+"/"+s.Name], s.Resources.Limits.Memory().Value())
		}
	})
	return out
}

// noFlapping checks that what a pod has applied, and a template, do not return to a size that
// the operator has taken away. Restoring original values is no return: the scaler is then
// gone or names another Deployment, or reverts a change. Neither is to withdraw a resize that
// the kubelet has not granted.
func noFlapping(r Record) (out []string) {
	sizes := map[types.UID][]string{}
	reverts := false
	note := func(uid types.UID, what string, containers []corev1.Container) {
		size := strings.Join(sizesOf(containers, true), ", ")
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
	for _, e := range r.Changes {
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

// evictions checks that each pod is evicted at most once, only with a
// scaler that falls back to it, and only pods of that scaler's Deployment. Names of pods are
// unique: their controllers generate them.
func evictions(r Record) (out []string) {
	apps := map[string]string{} // by pod
	mayEvict := map[string]bool{}
	sized := map[string]string{} // each pod as podLine describes it
	for _, e := range r.Changes {
		switch o := e.Object.(type) {
		case *corev1.Pod:
			apps[o.Name] = o.Labels[AppLabel]
			if o.DeletionTimestamp == nil {
				sized[o.Name] = podLine(o)
			}
		case *v1beta1.VerticalScaler:
			if o.Spec.UpdatePolicy.Fallback == v1beta1.FallbackRecreate {
				mayEvict[o.Spec.DeploymentName] = true
			}
		}
	}
	count := map[string]int{}
	for _, w := range r.Writes {
		if w.Resource != "pods/eviction" || !w.IsAccepted() {
			continue
		}
		count[w.Name]++
		if count[w.Name] == 2 {
			out = append(out, fmt.Sprintf("pod %s was evicted twice", w.Name))
		}
		if app, known := apps[w.Name]; !known || !mayEvict[app] {
			out = append(out, fmt.Sprintf("pod %s of %q was evicted, which no scaler may do", w.Name, app))
		}
		if line := sized[w.Name]; hasItsSize(line) {
			out = append(out, fmt.Sprintf("pod %s was evicted, and waited for no resize: %s", w.Name, line))
		}
	}
	return out
}

// hasItsSize reports whether a pod, as podLine describes it, runs and waits for no resize.
func hasItsSize(line string) bool {
	return strings.HasPrefix(line, string(corev1.PodRunning)) && !strings.Contains(line, " applied ") && !strings.Contains(line, "PodResize")
}

// availability checks that at most one pod of a Deployment is missing because of evictions.
// A replacement counts once it is ready.
func availability(r Record) (out []string) {
	pods := map[types.UID]*corev1.Pod{}
	want := map[string]int32{}
	for _, e := range r.Changes {
		switch o := e.Object.(type) {
		case *appsv1.Deployment:
			want[o.Spec.Selector.MatchLabels[AppLabel]] = ptr.Deref(o.Spec.Replicas, 1)
		case *corev1.Pod:
			before := pods[o.UID]
			pods[o.UID] = o
			if e.Type == watch.Deleted {
				delete(pods, o.UID)
			}
			app := o.Labels[AppLabel]
			if !isEvicted(o) || before == nil || before.DeletionTimestamp != nil {
				continue
			}
			if ready := readyPods(pods, app); ready < want[app]-1 {
				out = append(out, fmt.Sprintf("with the eviction of pod %s, %d of %d pods of %s were ready", o.Name, ready, want[app], app))
			}
		}
	}
	return out
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

// quiet checks that nothing is written after the scenario has converged.
func quiet(r Record) (out []string) {
	if r.Quiet.IsZero() {
		return nil
	}
	for _, w := range Unexplained(r.Changes, r.Writes, r.Quiet) {
		out = append(out, w.String()+" after the scenario has converged")
	}
	return out
}

// Unexplained are the writes since a time that do not follow from the time that passes. Each
// time that the evidence has doubled, a checkpoint is saved, and the recommendation in the
// status may become surer.
func Unexplained(changes []Change, writes []Write, since time.Time) (out []Write) {
	surer := map[string]int{} // the number of status writes that changed the recommendation only
	last := map[types.UID]*v1beta1.VerticalScaler{}
	for _, e := range changes {
		s, ok := e.Object.(*v1beta1.VerticalScaler)
		if !ok {
			continue
		}
		if before := last[s.UID]; before != nil && !e.Seen.Before(since) && e.Type == watch.Modified && isSurer(before, s) {
			surer[s.Name]++
		}
		last[s.UID] = s
	}
	for _, w := range writes {
		switch {
		case w.At.Before(since), w.Resource == "verticalscalercheckpoints":
		case w.Resource == "verticalscalers/status" && w.IsAccepted() && surer[w.Name] > 0:
			surer[w.Name]--
		default:
			out = append(out, w)
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

// everyWriteCounts checks that each accepted write changes its object, and that of a resize its spec: the API server
// accepts a write without a change, and delivers no event. Each injected fault excuses one such write.
func everyWriteCounts(r Record) (out []string) {
	changes := map[string]int{}
	last := map[types.UID]client.Object{}
	for _, e := range r.Changes {
		if isOtherVersion(last[e.Object.GetUID()], e.Object) {
			changes[resourceOf(e.Object)+" "+e.Object.GetName()]++
		}
		last[e.Object.GetUID()] = e.Object
	}
	count := map[string]int{}
	for _, w := range r.Writes {
		resource, _, _ := strings.Cut(w.Resource, "/")
		if !w.IsAccepted() || w.Verb == "delete" || w.Resource == "pods/eviction" {
			continue
		}
		count[resource+" "+w.Name]++
	}
	for _, object := range slices.Sorted(maps.Keys(count)) {
		if count[object] > changes[object]+r.Injected {
			out = append(out, fmt.Sprintf("%s was written %d times, and has changed %d times", object, count[object], changes[object]))
		}
	}
	return append(out, resizedAtOnce(r)...)
}

// isOtherVersion reports whether a write of the operator may have led from one version of an object to the next: it only
// resizes pods.
func isOtherVersion(before, after client.Object) bool {
	was, known := before.(*corev1.Pod)
	if is, ok := after.(*corev1.Pod); known && ok {
		return !apiequality.Semantic.DeepEqual(was.Spec, is.Spec)
	}
	return before == nil || before.GetResourceVersion() != after.GetResourceVersion()
}

// resizedAtOnce checks that no accepted resize is directly followed by another of the same pod: the operator would have
// acted on a cache that is older than its own last write.
func resizedAtOnce(r Record) (out []string) {
	for i, w := range r.Writes[:max(0, len(r.Writes)-1)] {
		if next := r.Writes[i+1]; w.Resource == "pods/resize" && w.IsAccepted() && next.Resource == w.Resource && next.Name == w.Name {
			out = append(out, fmt.Sprintf("pod %s was resized again at once (%d)", w.Name, next.Code))
		}
	}
	return out[min(r.Injected, len(out)):]
}

// kstatus checks the rules that our conditions document, at each version of an object:
// observedGeneration is never ahead, never goes back, and each condition is about it;
// Reconciling and Stalled exclude each other; a stalled object is not Ready. Applied may be
// False on a scaler that is Ready: it learns, waits, or is suspended.
func kstatus(r Record) (out []string) {
	was := map[types.UID]int64{}
	for _, e := range r.Changes {
		var observed int64
		var conditions []metav1.Condition
		what := fmt.Sprintf("%s %s at %s", resourceOf(e.Object), e.Object.GetName(), e.Object.GetResourceVersion())
		switch o := e.Object.(type) {
		case *v1beta1.VerticalScaler:
			observed, conditions = o.Status.ObservedGeneration, o.Status.Conditions
			if c := meta.FindStatusCondition(conditions, v1beta1.ConditionApplied); c != nil && c.Reason == v1beta1.ReasonApplied && o.Status.Decision == nil {
				out = append(out, what+": Applied, and nothing is decided")
			}
		case *v1beta1.ScaledDeployment:
			observed, conditions = o.Status.ObservedGeneration, o.Status.Conditions
			if meta.IsStatusConditionTrue(conditions, v1beta1.ConditionReady) && meta.IsStatusConditionTrue(conditions, v1beta1.ConditionReconciling) {
				out = append(out, what+": both Ready and Reconciling")
			}
		}
		if e.Type != watch.Deleted && len(conditions) > 0 {
			out = append(out, checkConditions(what, e.Object.GetGeneration(), was[e.Object.GetUID()], observed, conditions)...)
			was[e.Object.GetUID()] = observed
		}
	}
	return out
}

// checkConditions checks the rules of kstatus for one version of an object. was is the
// observed generation of the version before.
func checkConditions(what string, generation, was, observed int64, conditions []metav1.Condition) (out []string) {
	wrong := func(format string, args ...any) {
		out = append(out, what+": "+fmt.Sprintf(format, args...))
	}
	if observed > generation {
		wrong("observed generation %d is ahead of %d", observed, generation)
	}
	if observed < was {
		wrong("observed generation went from %d to %d", was, observed)
	}
	seen := map[string]bool{}
	for _, c := range conditions {
		if seen[c.Type] {
			wrong("%s is there twice", c.Type)
		}
		seen[c.Type] = true
		if c.ObservedGeneration != observed {
			wrong("%s is about generation %d, the status about %d", c.Type, c.ObservedGeneration, observed)
		}
		if c.Reason == "" || c.LastTransitionTime.IsZero() {
			wrong("%s has no reason or no time", c.Type)
		}
	}
	return append(out, exclusive(what, conditions)...)
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
