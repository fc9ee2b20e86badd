// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestWantOf(t *testing.T) {
	const gibi = 1 << 30
	amounts := func(cpu, memory int64) workload.Resources {
		return workload.Resources{Requests: quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory}}
	}
	containers := []workload.Container{
		{Name: "app", Resources: amounts(500, 4*gibi)},
		{Name: "log", Resources: amounts(100, gibi)},
	}
	s := plan.Situation{
		Deployment: workload.Deployment{Containers: containers},
		Pods:       []workload.Pod{{UID: "a", Containers: containers}, {UID: "b"}, {UID: "k", Kills: []workload.OOMKill{{Container: "app"}}}},
	}
	sizes := []plan.Size{
		{Container: "app", Resources: amounts(1500, 2*gibi)}, // a core more, a quarter's worth less
		{Container: "log", Resources: amounts(0, gibi)},      // CPU is left alone
		{Container: "gone", Resources: amounts(9000, gibi)},
	}
	decided := func(reason string) *plan.Decision { return &plan.Decision{Reason: reason} }
	for what, c := range map[string]struct {
		plan plan.Plan
		want budget.Want
	}{
		"a resize, times the pods": {
			plan.Plan{Decision: decided(plan.DecidedScaleUp), Step: plan.Resize{UID: "a", Sizes: sizes}, Progress: plan.Progress{Pods: 10}},
			budget.Want{Class: budget.ScaleUp, Benefit: 10 * 1.25},
		},
		"a resize after others": {
			plan.Plan{Decision: decided(plan.DecidedScaleUp), Step: plan.Resize{UID: "a", Sizes: sizes}, Progress: plan.Progress{Pods: 10, PodsAtSize: 1}},
			budget.Want{Class: budget.ScaleUp, Benefit: math.Inf(1)},
		},
		"a rewrite, times the pods": {
			plan.Plan{Decision: decided(plan.DecidedScaleDown), Step: plan.Rewrite{Sizes: sizes}, Progress: plan.Progress{Pods: 10}},
			budget.Want{Class: budget.ScaleDown, Benefit: 10 * 1.25},
		},
		"an OOM kill":         {plan.Plan{Decision: decided(plan.DecidedOOMKill)}, budget.Want{Class: budget.Emergency}},
		"a killed pod":        {plan.Plan{Decision: decided(plan.DecidedOOMKill), Step: plan.Resize{UID: "k"}}, budget.Want{Class: budget.Emergency}},
		"another pod":         {plan.Plan{Decision: decided(plan.DecidedOOMKill), Step: plan.Resize{UID: "b"}}, budget.Want{Class: budget.Urgent}},
		"a revert":            {plan.Plan{Decision: decided(plan.DecidedReverted)}, budget.Want{Class: budget.Emergency}},
		"usage above":         {plan.Plan{Decision: decided(plan.DecidedLowerBound)}, budget.Want{Class: budget.Urgent}},
		"bounds":              {plan.Plan{Decision: decided(plan.DecidedBounds)}, budget.Want{Class: budget.Bounds}},
		"a lost status":       {plan.Plan{Decision: decided(plan.DecidedAdopted)}, budget.Want{Class: budget.ScaleDown}},
		"giving back":         {plan.Plan{Decision: decided(plan.DecidedScaleDown), Step: plan.Restore{}}, budget.Want{Class: budget.Bounds}},
		"a boost":             {plan.Plan{Decision: decided(plan.DecidedScaleDown), Step: plan.Resize{UID: "c", Boost: true}}, budget.Want{Class: budget.Bounds}},
		"a boost, and an OOM": {plan.Plan{Decision: decided(plan.DecidedOOMKill), Step: plan.Resize{UID: "k", Boost: true}}, budget.Want{Class: budget.Emergency}},
		"a first boost":       {plan.Plan{Step: plan.Resize{UID: "c", Boost: true}}, budget.Want{Class: budget.Bounds}},
		"a pod that has gone": {plan.Plan{Decision: decided(plan.DecidedScaleDown), Step: plan.Resize{UID: "c", Sizes: sizes}}, budget.Want{Class: budget.ScaleDown}},
	} {
		if got := plan.WantOf(c.plan, s); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}
