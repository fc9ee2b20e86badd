// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// gibPerCore is the GiB of memory that cost as much as a core. Clouds that sell the two separately charge for a core what 7.5 GiB
// (Google's E2 machines) to 9.1 GiB (AWS Fargate) cost, by their public list prices of 2025.
const gibPerCore = 8

// WantOf says how urgent the plan's step is, and what it is worth.
//
// The benefit is the change of requests by the step, up or down, times the pods:
//
//	pods * sum over containers (|cores after - before| + |GiB after - before| / 8)
//
// in cores. It is infinite once a pod has its size: a workload is finished before the next one begins, so that few are half changed.
func WantOf(p Plan, s Situation) budget.Want {
	pods := float64(max(1, p.Progress.Pods))
	want := budget.Want{Class: classOf(p)}
	switch step := p.Step.(type) {
	case Resize:
		pod, _ := s.Pod(step.UID)
		want.Benefit = worth(pod.Containers, step.Sizes) * pods
		if p.Decision.HasReason(DecidedOOMKill) && len(pod.Kills) == 0 {
			want.Class = budget.Urgent // after all pods that were killed themselves
		}
	case Evict:
		pod, _ := s.Pod(step.Pods[0].UID)
		want.Benefit = worth(model.AppliedTo(pod), p.NewPods.Sizes) * pods
	case Rewrite:
		want.Benefit = worth(s.Deployment.Containers, step.Sizes) * pods
	}
	if p.Progress.PodsAtSize > 0 {
		want.Benefit = math.Inf(1)
	}
	return want
}

func classOf(p Plan) budget.Class {
	switch step := p.Step.(type) {
	case Restore:
		return budget.Bounds // a user has requested it
	case Resize:
		if step.Boost {
			return max(budget.Bounds, classOfDecision(p.Decision)) // the pod will have started soon
		}
		if step.SetsBack && !p.Decided {
			return budget.Urgent // a rollout waits for it
		}
	}
	return classOfDecision(p.Decision)
}

// classes are the classes of steps by the reason of the decision.
var classes = map[string]budget.Class{
	DecidedOOMKill:    budget.Emergency,
	DecidedReverted:   budget.Emergency,
	DecidedBounds:     budget.Bounds,
	DecidedLowerBound: budget.Urgent,
	DecidedScaleUp:    budget.ScaleUp,
	DecidedScaleDown:  budget.ScaleDown,
	DecidedAdopted:    budget.ScaleDown,
}

func classOfDecision(d *Decision) budget.Class {
	if d == nil {
		return budget.Bounds // a user has requested it
	}
	return classes[d.Reason]
}

func worth(containers []workload.Container, sizes []Size) (cores float64) {
	for _, size := range sizes {
		for _, c := range containers {
			if c.Name == size.Container {
				cores += distance(c.Requests, size.Requests)
			}
		}
	}
	return cores
}

// distance is the difference of two requests, in cores. A request that is not set after is not changed.
func distance(before, after quantity.Amounts) (cores float64) {
	if after.CPUMillis > 0 {
		cores += math.Abs(float64(after.CPUMillis-before.CPUMillis)) / 1000
	}
	if after.MemoryBytes > 0 {
		cores += math.Abs(float64(after.MemoryBytes-before.MemoryBytes)) / (1 << 30) / gibPerCore
	}
	return cores
}
