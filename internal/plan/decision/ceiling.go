// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"math"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// ceilings are what the operator's configuration lets each container of one resource request.
//
// They limit increases only: requests that a container already has are kept, even if they are higher.
// A decision that no kubelet has applied is not what a container has: otherwise a
// template that requested much for a moment would lift the ceiling for ever.
type ceilings struct {
	pod       podCeiling
	container int64 // 0 for none
	left      headroom
}

// podCeiling is the most that a pod may request; 0 for any.
type podCeiling struct {
	most int64
	// nodePercent is the share of the largest node that this is; 0 if it is a setting of its own.
	nodePercent int64
}

// says names the setting.
func (c podCeiling) says(r model.Resource) string {
	if c.nodePercent > 0 {
		return fmt.Sprintf("at most %s for a pod, which is %d %% of the largest node (ceilings.nodePercent)", r.Format(c.most), c.nodePercent)
	}
	return fmt.Sprintf("at most %s for a pod (ceilings.pod)", r.Format(c.most))
}

// podCeilingFor is the lowest ceiling of a pod.
func podCeilingFor(s model.Situation, policy model.Policy, r model.Resource) podCeiling {
	lowest := podCeiling{most: r.Of(s.Ceilings.Pod)}
	if !policy.InPlace() {
		return lowest
	}
	share := mulDiv(r.Of(s.LargestNode), s.Ceilings.NodePercent, 100, false)
	if share > 0 && (lowest.most == 0 || share < lowest.most) {
		return podCeiling{share, s.Ceilings.NodePercent}
	}
	return lowest
}

// MostPerPod is the most that a pod may be raised to, by the ceilings and the largest node; 0
// for any.
func MostPerPod(s model.Situation, policy model.Policy, r model.Resource) int64 {
	ceiling, node := podCeilingFor(s, policy, r).most, r.Of(s.LargestNode)
	if ceiling == 0 || node == 0 {
		return max(ceiling, node)
	}
	return min(ceiling, node)
}

// ceilingsFor is what the ceilings leave. beside is what a pod requests besides the containers.
func ceilingsFor(s model.Situation, policy model.Policy, r model.Resource, beside quantity.Amounts) ceilings {
	c := ceilings{pod: podCeilingFor(s, policy, r), container: r.Of(s.Ceilings.Container)}
	if c.pod.most == 0 && c.container == 0 {
		return c
	}
	demands := make([]demand, 0, len(s.Deployment.Containers))
	for _, container := range s.Deployment.Containers {
		d := demand{container: container.Name, has: largestRequest(s, policy, container, r)}
		d.wants = d.has
		if !container.Unreadable && s.IsManaged(policy, container.Name, r) {
			d.wants = max(d.has, c.capped(d.has, largestOutcome(s, policy, container, r)))
		}
		demands = append(demands, d)
	}
	c.left = grant(cmp.Or(c.pod.most, math.MaxInt64/2)-r.Of(beside), demands)
	for i, d := range c.left {
		c.left[i].left = c.capped(d.has, d.left)
	}
	return c
}

// capped is an amount below the ceiling of a container, unless it has more.
func (c ceilings) capped(has, v int64) int64 {
	if c.container == 0 {
		return v
	}
	return min(v, max(has, c.container))
}

// leavesNothing reports whether the ceiling of the pod is used up, and that the container has no request.
// Nothing can be decided for it then.
func (c ceilings) leavesNothing(container string) bool {
	left, isBounded := c.left.of(container)
	return isBounded && left == 0
}

// says is the ceiling that keeps a container from getting more.
func (c ceilings) says(container string, r model.Resource) string {
	if left, _ := c.left.of(container); c.container > 0 && left >= c.container {
		return fmt.Sprintf("at most %s for a container (ceilings.container)", r.Format(c.container))
	}
	return c.pod.says(r)
}

// obstacle reports whether the operator's configuration does not allow what is wanted.
func (c ceilings) obstacle(container string, wanted int64, r model.Resource) (reason, message string) {
	return v1beta1.ReasonOperatorCeiling, fmt.Sprintf(
		"%s is recommended or required by minAllowed, but the operator's configuration allows %s", r.Format(wanted), c.says(container, r))
}

// largestRequest is what a container has: the largest request that is granted to a pod, or else what the
// template gives it. The API server sets a missing request to the limit. A pod that has the smallest amount
// less than decided has all of it: that amount keeps its QoS class, and is no reason to lower the decision.
func largestRequest(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) (most int64) {
	for _, pod := range s.Pods {
		if c, ok := pod.Container(container.Name); ok && s.IsActive(policy, pod) && !c.Unreadable {
			most = max(most, granted(pod, c, r))
		}
	}
	if decided := s.Decision.Request(container.Name, r); most > 0 && decided == most+1 {
		return decided
	}
	return cmp.Or(most, r.Request(container.Resources), r.Limit(container.Resources))
}

// granted is the request that a container declares, as far as its kubelet reports it as applied. A raise
// may wait for room on the node, and what is being lowered is not to be raised again.
func granted(pod workload.Pod, c workload.Container, r model.Resource) int64 {
	actual, isReported := pod.Actual[c.Name]
	declared := workload.Resources{Requests: c.Requests}
	if !isReported || r.IsApplied(workload.Resources{Requests: actual.Requests}, declared) {
		return r.Request(declared)
	}
	return min(r.Request(declared), r.Request(actual))
}

// largestOutcome is the most that may be decided for a container, but for ceilings and nodes: a request
// moves from the current one towards its target, and may stop anywhere between. Whole CPUs are rounded up.
func largestOutcome(s model.Situation, policy model.Policy, container workload.Container, r model.Resource) int64 {
	allowed := allowedFor(s, policy, container, r)
	current, _ := currentRequest(s, policy, container, r)
	most := max(allowed.fit(current), targetFor(s, allowed, container, r))
	if hasWholeCores(s, policy, container, r) {
		return roundUpToCore(most)
	}
	return most
}
