// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verification

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// No pod fails to start because of our size. A container that crashes each time it is started with less than its template
// has may need that to start: a heap is often sized from the limit when a process starts. Requests below the template
// are restored then, unless another pod has started with as little. Where we own the template, the original values count.

// CheckStarts adds to a finding that pods do not start, or cannot be created, with the decided size.
func CheckStarts(f Finding, s model.Situation, policy model.Policy, now time.Time) Finding {
	s.Decision, s.RevertedChanges = f.Decision, f.RevertedChanges
	if s.Decision == nil {
		return f
	}
	good, evidence := failedStart(s)
	if s.Deployment.CreateFailure != "" && policy.MayRollOut() && len(s.Originals) > 0 {
		good, evidence = originalRequests(s), "pods cannot be created: "+s.Deployment.CreateFailure
	}
	if len(good) == 0 {
		return f
	}
	s.Decision = s.Decision.WithVerification(&model.Verification{Good: good})
	d, reverted := revert(s, true, evidence, now)
	if len(reverted) == 0 {
		return f
	}
	return Finding{Decision: d, RevertedChanges: remember(s.RevertedChanges, reverted), Evidence: evidence}
}

// failedStart are the template's requests of containers that crash with less, and what was seen.
func failedStart(s model.Situation) (good model.Requests, evidence string) {
	good = model.Requests{}
	pods := slices.SortedFunc(slices.Values(s.Pods), func(a, b workload.Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, pod := range pods {
		if !pod.Current || pod.Ready || pod.IsOver() {
			continue
		}
		for _, name := range pod.BackingOff {
			c, _ := pod.Container(name)
			for _, r := range model.Resources {
				before, has := originalRequest(s, name, r), r.Request(c.Resources)
				if isLess := model.IsBelow(s.Decision.Request(name, r), before) && has < before; !isLess || hasStarted(s, name, r, has) {
					continue
				}
				model.SetRequest(good, name, r, before)
				evidence = cmp.Or(evidence, fmt.Sprintf("pod %s: container %s crashes each time it is started with less than the pod template has", pod.Name, name))
			}
		}
	}
	return good, evidence
}

// hasStarted reports whether a container has started in a pod with at most that request, and is Ready.
func hasStarted(s model.Situation, container string, r model.Resource, request int64) bool {
	return slices.ContainsFunc(s.Pods, func(pod workload.Pod) bool {
		c, ok := pod.Container(container)
		run, _ := pod.Run(container)
		return ok && pod.Current && pod.Ready && r.Request(c.Resources) <= request && run.Since.After(changedAt(pod))
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
