// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// summaryOf is the summary for kubectl get: the current and the wanted requests of a pod. The
// current request of each container comes from the pod furthest from the wanted one, so that the
// arrow stays until the last pod has followed.
func summaryOf(s *scope) *v1beta1.Summary {
	situation, wanted := s.observation.situation, s.wanted()
	isStarting := func(pod workload.Pod, container string) bool {
		boost := s.policy.Containers[container].Boost
		return boost != nil && !boost.Until(pod, container, s.now).IsZero()
	}
	var now, then quantity.Amounts
	for _, c := range situation.Deployment.Containers {
		current := furthestRequests(situation, c.Name, wanted.requests[c.Name], isStarting)
		now = now.Plus(current)
		then = then.Plus(wanted.requests[c.Name].Or(current))
	}
	return &v1beta1.Summary{
		CPU:    wanted.format(quantity.FormatCPU, now.CPUMillis, then.CPUMillis),
		Memory: wanted.format(quantity.FormatMemory, now.MemoryBytes, then.MemoryBytes),
		Pods:   fmt.Sprintf("%d/%d", s.plan.Progress.PodsAtSize, s.plan.Progress.Pods),
	}
}

// wanted are the requests that a summary points to, by container.
type wanted struct {
	requests map[string]quantity.Amounts
	// isOnlyRecommended is true if the operator would not apply them.
	isOnlyRecommended bool
}

// wanted are the decided requests, or while changes wait for a user or for their turn, the requests
// that would be decided now. Applied requests count as wanted, even where a limit or a LimitRange
// made them a little different.
func (s *scope) wanted() wanted {
	switch reason := s.plan.Verdict.Reason; {
	case s.plan.Verdict.State.IsApplied():
		return wanted{}
	case reason == v1beta1.ReasonRecommendOnly:
		out := wanted{requests: map[string]quantity.Amounts{}, isOnlyRecommended: true}
		for _, r := range s.observation.situation.Recommendations {
			out.requests[r.Name] = r.Target
		}
		return out
	case s.plan.Postponed != nil:
		return wanted{requests: s.plan.Postponed.Requests}
	}
	return wanted{requests: ptr.Deref(s.plan.Decision, plan.Decision{}).Requests}
}

// format writes "500m->310m", or "500m (310m)" for a request that is only recommended.
func (w wanted) format(format func(int64) string, now, then int64) string {
	if w.isOnlyRecommended && now > 0 && then > 0 && now != then {
		return fmt.Sprintf("%s (%s)", format(now), format(then))
	}
	return arrow(format, now, then)
}

func arrow(format func(int64) string, now, wanted int64) string {
	switch {
	case wanted == 0 && now == 0:
		return ""
	case wanted == 0 || wanted == now:
		return format(now)
	case now == 0:
		return "none->" + format(wanted)
	}
	return format(now) + "->" + format(wanted)
}

// furthestRequests are, per resource, the container's request that is furthest from the wanted
// one, among the running pods of any template. It is the least request if nothing is wanted, and
// the template's without pods. CPU that a pod has only while it starts does not count. isStarting
// is nil if no pod is to be treated as starting.
func furthestRequests(s plan.Situation, container string, wanted quantity.Amounts, isStarting func(workload.Pod, string) bool) quantity.Amounts {
	template, _ := s.Deployment.Container(container)
	cpu, memory := make([]int64, 0, len(s.Pods)), make([]int64, 0, len(s.Pods))
	for _, pod := range s.Pods {
		in, ok := pod.Container(container)
		if !ok || !pod.Running || pod.Terminating {
			continue
		}
		memory = append(memory, in.Requests.MemoryBytes)
		amount := in.Requests.CPUMillis
		if isAbove := wanted.CPUMillis > 0 && amount > wanted.CPUMillis; isAbove && isStarting != nil && isStarting(pod, container) {
			amount = wanted.CPUMillis
		}
		cpu = append(cpu, amount)
	}
	return quantity.Amounts{
		CPUMillis:   furthest(cpu, wanted.CPUMillis, template.Requests.CPUMillis),
		MemoryBytes: furthest(memory, wanted.MemoryBytes, template.Requests.MemoryBytes),
	}
}

// furthest is the amount furthest from the wanted one: the smallest of two that are equally far, and
// the smallest of all if nothing is wanted. Without amounts, it is the template's.
func furthest(amounts []int64, wanted, template int64) int64 {
	if len(amounts) == 0 {
		return template
	}
	out := amounts[0]
	for _, a := range amounts[1:] {
		distance, most := max(a-wanted, wanted-a), max(out-wanted, wanted-out)
		if wanted == 0 {
			distance, most = -a, -out
		}
		if distance > most || distance == most && a < out {
			out = a
		}
	}
	return out
}
