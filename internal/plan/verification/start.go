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

// checkStarts adds to a finding that pods do not start, or cannot be created, with the decided size.
func checkStarts(f Finding, s model.Situation, now time.Time) Finding {
	if s.Decision == nil {
		return f
	}
	good, evidence := model.Requests{}, ""
	for _, pod := range s.Pods {
		if !pod.Current || pod.Ready || pod.IsOver() {
			continue
		}
		for _, c := range pod.Containers {
			how, left := startOf(pod, c.Name, s.Deployment.ProgressDeadline, now)
			what := fmt.Sprintf("pod %s: container %s %s with less than the pod template has", pod.Name, c.Name, how)
			for _, r := range model.Resources {
				before, has := originalRequest(s, c.Name, r), r.Request(c.Resources)
				switch {
				case how == "", max(has, s.Decision.Request(c.Name, r)) >= before, hasStarted(s, c.Name, r, has):
				case left > 0:
					f.Starting, f.RequeueAfter = cmp.Or(f.Starting, what), model.Sooner(f.RequeueAfter, left)
				default:
					model.SetRequest(good, c.Name, r, before)
					evidence = cmp.Or(evidence, what)
				}
			}
		}
	}
	switch left := quotaGrace(s, now); {
	case s.Deployment.CreateFailure == "":
	case left > 0:
		f.RequeueAfter = model.Sooner(f.RequeueAfter, left)
	default:
		evidence = "pods cannot be created: " + s.Deployment.CreateFailure
		restoreOriginals(good, s)
	}
	s.Decision = s.Decision.WithVerification(&model.Verification{Good: good})
	d, reverted := revert(s, true, evidence, now)
	isNew := func(c model.RevertedChange) bool {
		return !slices.ContainsFunc(s.RevertedChanges, func(old model.RevertedChange) bool {
			return old.IsLike(c) && old.Value == c.Value && old.Good == c.Good
		})
	}
	if !slices.ContainsFunc(reverted[:min(len(reverted), maxReverted)], isNew) { // bounds do not allow what was restored before
		return f
	}
	return Finding{Decision: d, RevertedChanges: remember(s.RevertedChanges, reverted), Evidence: evidence}
}

// quotaGrace is the time until a refusal because of a quota counts: pods that end use the quota until they are gone.
func quotaGrace(s model.Situation, now time.Time) time.Duration {
	if !s.Deployment.LacksQuota() {
		return 0
	}
	if slices.ContainsFunc(s.Pods, func(pod workload.Pod) bool { return pod.Terminating }) {
		return quotaPatience
	}
	return s.Deployment.CreateFailureSince.Add(quotaPatience).Sub(now)
}

// quotaPatience is the time in which a quota and the ReplicaSet controller notice that pods are gone.
const quotaPatience = 2 * time.Minute

// restoreOriginals sets the requests of containers to those of the template before we rewrote it. A smaller request is no
// reason for a quota.
func restoreOriginals(requests model.Requests, s model.Situation) {
	for _, o := range s.Originals {
		for _, r := range model.Resources {
			before := originalRequest(s, o.Container, r)
			if !s.Deployment.LacksQuota() || s.Decision.Request(o.Container, r) > before {
				model.SetRequest(requests, o.Container, r, before)
			}
		}
	}
}

// startOf says how a container of an unready pod starts, and when that counts as failed: after the deadline of a rollout. how
// is empty if it does not run, or has been Ready since it was started. The kubelet delays restarts of what ends sooner, by
// itself or by a probe (CrashLoopBackOff), so neither is missed.
func startOf(pod workload.Pod, container string, within time.Duration, now time.Time) (how string, left time.Duration) {
	run, _ := pod.Run(container)
	switch {
	case slices.Contains(pod.BackingOff, container):
		return "crashes each time it is started", 0
	case run.Since.IsZero(), wasReady(pod, run):
		return "", 0
	}
	return "is not Ready since it was started", max(run.Since.Add(within).Sub(now), 0)
}

func wasReady(pod workload.Pod, run workload.Run) bool {
	return pod.Ready || pod.Unready.After(run.Since)
}

// hasStarted reports whether a container has started in a pod with at most that request, and was Ready.
func hasStarted(s model.Situation, container string, r model.Resource, request int64) bool {
	return slices.ContainsFunc(s.Pods, func(pod workload.Pod) bool {
		c, _ := pod.Container(container)
		run, _ := pod.Run(container)
		return pod.Current && wasReady(pod, run) && r.Request(c.Resources) <= request && run.Since.After(changedAt(pod))
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
