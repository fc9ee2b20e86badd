// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// gibPerCore is how many GiB of memory cost as much as a core. Clouds that sell the two
// apart charge for a core what 7.5 GiB (Google's E2 machines) to 9.1 GiB (AWS Fargate)
// cost, by their public list prices of 2025.
const gibPerCore = 8

// WantOf says how urgent the plan's step is, and what it is worth.
//
// The benefit is what the step changes of requests, up or down, times the pods that
// still need it:
//
//	pods * sum over containers (|cores after - before| + |GiB after - before| / 8)
//
// in cores. For a lower one it is what is saved, for a raise what is missing.
func WantOf(p Plan, s Situation) budget.Want {
	want := budget.Want{Class: classOf(p)}
	switch {
	case p.Resize != nil:
		for _, pod := range s.Pods {
			if pod.UID == p.Resize.UID {
				want.Benefit = worth(pod.Containers, p.Resize.Sizes) * float64(max(1, p.Pods-p.PodsAtSize))
			}
		}
	case p.Evict != nil:
		for _, pod := range s.Pods {
			if pod.UID == p.Evict.UID {
				want.Benefit = worth(inForceOf(pod), p.NewPods) * float64(max(1, p.Pods-p.PodsAtSize))
			}
		}
	case p.Rewrite != nil:
		want.Benefit = worth(s.Deployment.Containers, p.Rewrite.Sizes) * float64(max(1, p.Pods))
	}
	return want
}

func classOf(p Plan) budget.Class {
	switch {
	case p.Resize != nil && p.Resize.Boost:
		return max(budget.Bounds, classOfDecision(p)) // a start is over soon
	case p.Resize != nil && p.Decision == nil:
		return budget.ScaleDown // the end of a boost
	}
	return classOfDecision(p)
}

func classOfDecision(p Plan) budget.Class {
	if p.GiveBack || p.Decision == nil {
		return budget.Bounds // a person has asked for it
	}
	switch p.Decision.Reason {
	case DecidedOOMKill, DecidedPutBack, DecidedLowerBound:
		return budget.Urgent
	case DecidedBounds:
		return budget.Bounds
	case DecidedRaise:
		return budget.ScaleUp
	}
	return budget.ScaleDown
}

// inForceOf are the pod's containers with what their kubelet says is in force: a resize that
// is Infeasible is declared, and no more.
func inForceOf(pod workload.Pod) []workload.Container {
	out := slices.Clone(pod.Containers)
	for i, c := range out {
		if actual, ok := pod.Actual[c.Name]; ok {
			out[i].Resources = actual
		}
	}
	return out
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

// distance is how far two requests are apart, in cores. What is not set after is left
// alone.
func distance(before, after quantity.Amounts) (cores float64) {
	if after.CPUMillis > 0 {
		cores += math.Abs(float64(after.CPUMillis-before.CPUMillis)) / 1000
	}
	if after.MemoryBytes > 0 {
		cores += math.Abs(float64(after.MemoryBytes-before.MemoryBytes)) / (1 << 30) / gibPerCore
	}
	return cores
}
