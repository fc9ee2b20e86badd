// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verification

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// No pod fails to start because of our size. A container that does not start with less than its template has may need that to
// start: a heap is often sized from the limit when a process starts. Requests below the template are restored then, unless
// another pod has started with as little. Where we own the template, the original values count.

// startsWithin is how long a process may take until its pod is Ready: the default of progressDeadlineSeconds. The kubelet delays
// restarts of what ends sooner, by itself or by a probe (CrashLoopBackOff), so neither is missed.
const startsWithin = 10 * time.Minute

// CheckStarts adds to a finding that pods do not start, or cannot be created, with the decided size.
func CheckStarts(f Finding, s model.Situation, policy model.Policy, now time.Time) Finding {
	s.Decision, s.RevertedChanges = f.Decision, f.RevertedChanges
	if s.Decision == nil {
		return f
	}
	good, evidence, starting, left := failedStart(s, now)
	if s.Deployment.CreateFailure != "" && policy.MayRollOut() && len(s.Originals) > 0 {
		good, evidence = originalRequests(s), "pods cannot be created: "+s.Deployment.CreateFailure
	}
	if len(good) == 0 {
		f.Starting, f.RequeueAfter = starting, model.Sooner(f.RequeueAfter, left)
		return f
	}
	s.Decision = s.Decision.WithVerification(&model.Verification{Good: good})
	d, reverted := revert(s, true, evidence, now)
	if len(reverted) == 0 {
		return f
	}
	return Finding{Decision: d, RevertedChanges: remember(s.RevertedChanges, reverted), Evidence: evidence}
}

// failedStart are the template's requests of containers that do not start with less, and what was seen. Without any,
// starting names a container that is not Ready with less yet, and left is when that counts.
func failedStart(s model.Situation, now time.Time) (good model.Requests, evidence, starting string, left time.Duration) {
	good = model.Requests{}
	for _, pod := range s.Pods {
		if !pod.Current || pod.Ready || pod.IsOver() {
			continue
		}
		for _, c := range pod.Containers {
			how, after := startOf(pod, c.Name, now)
			for _, r := range model.Resources {
				before, has := originalRequest(s, c.Name, r), r.Request(c.Resources)
				isLess := model.IsBelow(s.Decision.Request(c.Name, r), before) && has < before
				if how == "" || !isLess || hasStarted(s, c.Name, r, has) {
					continue
				}
				what := fmt.Sprintf("pod %s: container %s %s with less than the pod template has", pod.Name, c.Name, how)
				if after > 0 {
					starting, left = cmp.Or(starting, what), model.Sooner(left, after)
					continue
				}
				model.SetRequest(good, c.Name, r, before)
				evidence = cmp.Or(evidence, what)
			}
		}
	}
	return good, evidence, starting, left
}

// startOf says how a container of an unready pod starts, and when that counts as failed; empty if it does not run, or has
// been Ready since it was started.
func startOf(pod workload.Pod, container string, now time.Time) (how string, left time.Duration) {
	run, _ := pod.Run(container)
	switch {
	case slices.Contains(pod.BackingOff, container):
		return "crashes each time it is started", 0
	case run.Since.IsZero(), wasReady(pod, run):
		return "", 0
	}
	return "is not Ready since it was started", max(run.Since.Add(startsWithin).Sub(now), 0)
}

// wasReady reports whether the pod has been Ready with the process.
func wasReady(pod workload.Pod, run workload.Run) bool {
	return pod.Ready || pod.Unready.After(run.Since)
}

// hasStarted reports whether a container has started in a pod with at most that request, and was Ready.
func hasStarted(s model.Situation, container string, r model.Resource, request int64) bool {
	return slices.ContainsFunc(s.Pods, func(pod workload.Pod) bool {
		c, ok := pod.Container(container)
		run, _ := pod.Run(container)
		return ok && pod.Current && wasReady(pod, run) && r.Request(c.Resources) <= request && run.Since.After(changedAt(pod))
	})
}

// originalRequest is the request that a user has given a container: that of the template, or the one before ours.
func originalRequest(s model.Situation, container string, r model.Resource) int64 {
	c, _ := s.Deployment.Container(container)
	from := c.Resources
	if before, _ := s.Original(container); before.Has(r) {
		from = before.Resources
	}
	return cmp.Or(r.Request(from), r.Limit(from))
}

func originalRequests(s model.Situation) model.Requests {
	good := model.Requests{}
	for _, o := range s.Originals {
		for _, r := range model.Resources {
			if o.Has(r) {
				model.SetRequest(good, o.Container, r, originalRequest(s, o.Container, r))
			}
		}
	}
	return good
}
