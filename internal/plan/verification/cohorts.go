// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verification

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// clearly is how many times the share of unhealthy pods among the changed ones must exceed
// that of the unchanged ones.
const clearly = 3

// cohortHealth is the health of the pods that have been changed, and of those that have not.
type cohortHealth struct {
	changed, unhealthyChanged     int
	unchanged, unhealthyUnchanged int
	failures                      []string // of the changed pods
	kills                         []string // of changed pods, with less memory than before
	lastFailure                   time.Time
	wait                          time.Duration
}

// podHealth is the health of one pod, and which cohort it belongs to.
type podHealth struct {
	cohort  cohort
	failure podFailure
	pod     string
	kill    string // the container that was OOM-killed with the memory that was taken from it
}

type cohort int

const (
	neither cohort = iota
	changed
	unchanged
	unhealthyBefore
)

// comparison compares the pods of a situation.
type comparison struct {
	model.Situation
	*model.Verification

	decision *model.Decision
	policy   model.Policy
	now      time.Time
}

// compared is the health of the pods that are compared with each other: in a rollout all of them, and
// in place those of the newest template, and those of older ones. A template can be the cause of
// failures, too, and must neither hide what a resize does nor be mistaken for it.
type compared []cohortHealth

func compare(s model.Situation, policy model.Policy, d *model.Decision, now time.Time) compared {
	c := comparison{Situation: s, Verification: d.Verification, decision: d, policy: policy, now: now}
	if policy.RollsOut() {
		return compared{c.healthOf(func(workload.Pod) bool { return true })}
	}
	return compared{
		c.healthOf(func(pod workload.Pod) bool { return pod.Current }),
		c.healthOf(func(pod workload.Pod) bool { return !pod.Current }),
	}
}

// healthOf is the health of the comparable pods that belong together.
func (c comparison) healthOf(belongs func(workload.Pod) bool) cohortHealth {
	var health cohortHealth
	for _, pod := range c.Pods {
		if c.isComparable(pod) && belongs(pod) {
			health.add(c.podHealth(pod))
		}
	}
	if len(health.kills) > 0 {
		health.failures = health.kills
	}
	return health
}

// regression is the first health that shows one; ok is false for none.
func (all compared) regression() (h cohortHealth, ok bool) {
	i := slices.IndexFunc(all, cohortHealth.isRegression)
	if i < 0 {
		return h, false
	}
	return all[i], true
}

// wait is the time until there may be more to see; 0 for no time.
func (all compared) wait() (left time.Duration) {
	for _, h := range all {
		left = model.Sooner(left, h.wait)
	}
	return left
}

// lastFailure is when a changed pod last failed; zero for never.
func (all compared) lastFailure() (last time.Time) {
	for _, h := range all {
		last = model.Latest(last, h.lastFailure)
	}
	return last
}

// isComparable reports whether the pod runs, and in place, that it stays.
func (c comparison) isComparable(pod workload.Pod) bool {
	if c.policy.RollsOut() {
		return model.IsAlive(pod)
	}
	return c.IsActive(c.policy, pod)
}

func (c comparison) podHealth(pod workload.Pod) podHealth {
	health := podHealth{pod: pod.Name}
	isChanged, since := c.hasChanged(pod), c.Began
	if isChanged {
		since = model.Latest(c.Began, changedAt(pod))
		health.kill = c.killOf(pod, c.byItsNode(pod, since))
	}
	if isChanged && c.isVerified(pod) {
		isChanged, since = false, c.FirstPodsVerified
	}
	health.failure = failureOf(pod, c.byItsNode(pod, since), c.now, c.checksReadiness(pod, isChanged))
	health.cohort = c.cohortOf(pod, isChanged)
	return health
}

// checksReadiness reports whether an unready pod is a failed one. A rollout waits for
// readiness by itself, and a new pod may take its time to start.
func (c comparison) checksReadiness(pod workload.Pod, isChanged bool) bool {
	switch {
	case c.policy.RollsOut():
		return false
	case isChanged:
		return isResized(pod)
	}
	return true
}

func (c comparison) cohortOf(pod workload.Pod, isChanged bool) cohort {
	switch {
	case slices.Contains(c.UnhealthyPods, pod.UID):
		return unhealthyBefore
	case isChanged:
		return changed
	case c.policy.RollsOut():
		return unchanged
	case pod.Started.After(c.Began):
		return neither // it is new, and has not run for as long as the others
	}
	return unchanged
}

// isVerified reports whether the pod is one of the first pods, which are verified already.
func (c comparison) isVerified(pod workload.Pod) bool {
	return !c.policy.RollsOut() && !changedAt(pod).After(c.FirstPodsVerified)
}

// changedAt is when the pod got what it has: when it was last resized, or created.
func changedAt(pod workload.Pod) time.Time {
	if isResized(pod) {
		return pod.Resized
	}
	return pod.Created
}

// isResized reports whether the pod was resized once it had a node, and not before (step.setBack): then it has never run with
// another size. The API server tells both times.
func isResized(pod workload.Pod) bool { return pod.Resized.After(pod.Scheduled) }

// hasChanged reports whether the pod has the values to verify, and not those before.
func (c comparison) hasChanged(pod workload.Pod) bool {
	if c.policy.RollsOut() {
		return c.decision.AppliedToTemplate && pod.Current
	}
	if !isResized(pod) && !c.isReplacement(pod) {
		return false
	}
	return slices.ContainsFunc(pod.Containers, func(container workload.Container) bool {
		return slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return c.isLowered(container, r) })
	})
}

// isReplacement reports whether the pod may be the replacement of an evicted one.
func (c comparison) isReplacement(pod workload.Pod) bool {
	return c.policy.MayEvict() && pod.Created.After(c.Began)
}

// isLowered reports whether a request is nearer to a lower decided value than to the one
// before.
func (c comparison) isLowered(container workload.Container, r model.Resource) bool {
	good, decided := r.Of(c.Good[container.Name]), c.decision.Request(container.Name, r)
	if decided == 0 || decided >= good {
		return false
	}
	return r.Request(container.Resources) <= decided+(good-decided)/2
}

// byItsNode is the time since which the node of a pod, whose clock may be behind, may have reported a failure
// of it. What a pod had that was unhealthy before is from before.
func (c comparison) byItsNode(pod workload.Pod, since time.Time) time.Time {
	if slices.Contains(c.UnhealthyPods, pod.UID) {
		return since
	}
	return since.Add(-clockSkew)
}

// killOf names the container of the pod that was OOM-killed with less memory than before;
// empty for none.
func (c comparison) killOf(pod workload.Pod, since time.Time) string {
	var names []string
	for _, exit := range pod.Exits {
		hasLess := c.decision.Request(exit.Container, model.Memory) < model.Memory.Of(c.Good[exit.Container])
		switch {
		case !exit.OOMKilled, exit.At.Before(since):
		case hasLess:
			names = append(names, exit.Container)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

func (h *cohortHealth) add(p podHealth) {
	h.wait = model.Sooner(h.wait, p.failure.wait)
	if p.kill != "" {
		h.kills = append(h.kills, fmt.Sprintf("pod %s: container %s was OOM-killed", p.pod, p.kill))
	}
	switch p.cohort {
	case unhealthyBefore:
		h.unchanged++
		h.unhealthyUnchanged++
	case unchanged:
		h.unchanged++
		h.unhealthyUnchanged += p.failure.count()
	case changed:
		h.changed++
		h.unhealthyChanged += p.failure.count()
		h.lastFailure = model.Latest(h.lastFailure, p.failure.last)
		if p.failure.count() > 0 {
			h.failures = append(h.failures, "pod "+p.pod+": "+p.failure.evidence)
		}
	}
}

// isRegression reports whether the change is the cause of the failures. A single pod of many may
// fail by chance.
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

// evidence says what is wrong with the changed pods.
func (h cohortHealth) evidence() string {
	if more := len(h.failures) - model.MostNamed; more > 0 {
		return strings.Join(h.failures[:model.MostNamed], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(h.failures, "; ")
}
