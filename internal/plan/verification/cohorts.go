// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verification

import (
	"fmt"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// clearly is how many times the share of unhealthy pods among the changed ones must exceed that of the unchanged ones.
const clearly = 3

// cohortHealth is the health of the pods that have been changed, and of those that have not.
type cohortHealth struct {
	changed, unhealthyChanged     int
	unchanged, unhealthyUnchanged int
	failures                      []string // of the changed pods
	kills                         []string // of changed pods, with less memory than before
	lastFailure                   time.Time
	wait                          time.Duration // until there may be more to see; 0 for no time
}

// comparison compares the pods of a situation.
type comparison struct {
	model.Situation
	*model.Verification

	decision *model.Decision
	policy   model.Policy
	now      time.Time
}

// compare is the health of the pods that run, and in place, of those that stay and have the template that most of them have. A
// template can be the cause of failures, too, and must neither hide what a resize does nor be mistaken for it.
func compare(s model.Situation, policy model.Policy, d *model.Decision, now time.Time) (health cohortHealth) {
	c := comparison{Situation: s, Verification: d.Verification, decision: d, policy: policy, now: now}
	c.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(pod workload.Pod) bool { return !c.isComparable(pod) })
	if !policy.RollsOut() {
		isCurrent := 2*c.Count(func(pod workload.Pod) bool { return pod.Current }) >= len(c.Pods)
		c.Pods = slices.DeleteFunc(c.Pods, func(pod workload.Pod) bool { return pod.Current != isCurrent })
	}
	for _, pod := range c.Pods {
		c.add(&health, pod)
	}
	if len(health.kills) > 0 {
		health.failures = health.kills
	}
	return health
}

// isComparable reports whether the pod runs, and in place, that it stays.
func (c comparison) isComparable(pod workload.Pod) bool {
	if c.policy.RollsOut() {
		return model.IsAlive(pod)
	}
	return c.IsActive(c.policy, pod)
}

func (c comparison) add(h *cohortHealth, pod workload.Pod) {
	isChanged, since := c.hasChanged(pod), c.Began
	if isChanged {
		since = model.Latest(c.Began, changedAt(pod))
		h.kills = append(h.kills, c.killsOf(pod, c.byItsNode(pod, since))...)
	}
	if isChanged && !changedAt(pod).After(c.FirstPodsVerified) { // it is one of the first pods, which are verified already
		isChanged, since = false, c.FirstPodsVerified
	}
	switch {
	case c.policy.RollsOut(), isChanged && !isResized(pod), isStarting(pod):
		pod.Unready = time.Time{} // a rollout waits for readiness by itself, and a new pod may take its time to start
	}
	failure := failureOf(pod, c.byItsNode(pod, since), c.now)
	h.wait = model.Sooner(h.wait, failure.wait)
	switch {
	case slices.Contains(c.UnhealthyPods, pod.UID):
		h.unchanged++
		h.unhealthyUnchanged++
	case isChanged:
		h.changed++
		h.unhealthyChanged += failure.count()
		h.lastFailure = model.Latest(h.lastFailure, failure.last)
		if failure.count() > 0 {
			h.failures = append(h.failures, "pod "+pod.Name+": "+failure.evidence)
		}
	case c.policy.RollsOut(), !pod.Started.After(c.Began): // in place, a new pod has not run for as long as the others
		h.unchanged++
		h.unhealthyUnchanged += failure.count()
	}
}

// changedAt is the time at which the pod got its size: by its last resize, or its creation.
func changedAt(pod workload.Pod) time.Time {
	if isResized(pod) {
		return pod.Resized
	}
	return pod.Created
}

// isResized reports whether the pod was resized once it had a node, and not before (step.setBack): then it has never run with
// another size. The API server tells both times.
func isResized(pod workload.Pod) bool { return pod.Resized.After(pod.Scheduled) }

// hasChanged reports whether the pod has the values to verify, and not those before: one of its requests is nearer to a lower
// decided value than to the one before.
func (c comparison) hasChanged(pod workload.Pod) bool {
	switch {
	case c.policy.RollsOut():
		return c.decision.AppliedToTemplate && pod.Current
	case isResized(pod):
	case !c.policy.MayEvict(), !pod.Created.After(c.Began): // it does not replace an evicted pod
		return false
	}
	for _, container := range pod.Containers {
		for _, r := range model.Resources {
			good, decided := r.Of(c.Good[container.Name]), c.decision.Request(container.Name, r)
			if model.IsBelow(decided, good) && r.Request(container.Resources) <= decided+(good-decided)/2 {
				return true
			}
		}
	}
	return false
}

// byItsNode is the time since which the node of a pod, whose clock may be behind, may have reported a
// failure of it. An earlier failure of a pod that was unhealthy before does not count.
func (c comparison) byItsNode(pod workload.Pod, since time.Time) time.Time {
	if slices.Contains(c.UnhealthyPods, pod.UID) {
		return since
	}
	return since.Add(-ClockSkew)
}

// killsOf names the containers of the pod that were OOM-killed with less memory than before.
func (c comparison) killsOf(pod workload.Pod, since time.Time) (kills []string) {
	for _, exit := range pod.Exits {
		hasLess := c.decision.Request(exit.Container, model.Memory) < model.Memory.Of(c.Good[exit.Container])
		switch {
		case !exit.OOMKilled, exit.At.Before(since):
		case hasLess:
			kills = append(kills, fmt.Sprintf("pod %s: container %s was OOM-killed", pod.Name, exit.Container))
		}
	}
	slices.Sort(kills)
	return slices.Compact(kills)
}

// isRegression reports whether the change is the cause of the failures. A single pod of many may fail by chance.
func (h cohortHealth) isRegression() bool {
	least := 1
	if h.changed > 3 {
		least = max(2, (h.changed+9)/10)
	}
	switch {
	case len(h.kills) > 0:
		return true
	case h.unhealthyChanged < least:
		return false
	case h.unchanged == 0:
		return true
	}
	return h.unhealthyChanged*h.unchanged > clearly*h.unhealthyUnchanged*h.changed
}
