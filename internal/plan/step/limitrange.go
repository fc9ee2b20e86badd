// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// LimitRanger sets defaults on each resize too, in all containers of the pod, also in those that the resize does not name. A
// pod that is older than its LimitRange would get limits for good: a resize cannot remove them again. So such a pod is not
// resized. It is not replaced for that either: the next pod would have the same limits from its start.

// limitRangeObstacle reports that the LimitRanges of the namespace refuse a resize of the pod, or would add to it.
func (p planner) limitRangeObstacle(pod workload.Pod, sizes []model.Size) model.Obstacle {
	if !differsFrom(pod, sizes) {
		return model.Obstacle{} // no resize is sent
	}
	after := p.resizedPod(pod, sizes)
	o := cmp.Or(p.addedByLimitRange(after), decision.OutOfBounds(after, sizes, p.Bounds))
	for _, c := range after.Running {
		limit, most := p.Bounds.Defaulted(c).Limits.MemoryBytes, p.Bounds.ContainerMax.MemoryBytes
		if need := decision.KnownMemory(p.Situation, c.Name); o.Exists() && (model.IsBelow(limit, need) || model.IsBelow(most, need)) {
			o.Message += fmt.Sprintf("; container %s is known to need %s of memory", c.Name, model.Memory.Format(need))
		}
	}
	return o
}

// addedByLimitRange reports the defaults that LimitRanger would add to the containers of a resized pod.
func (p planner) addedByLimitRange(after workload.Footprint) model.Obstacle {
	var added, lines []string
	template := p.Deployment.Footprint()
	for _, c := range slices.Concat(after.Running, after.Init) {
		full, place := p.Bounds.Defaulted(c), "where it is injected"
		if _, ok := template.Container(c.Name); ok {
			place = "in the Deployment"
		}
		for _, r := range model.Resources {
			for _, part := range []struct {
				name      string
				has, gets int64
			}{{"request", r.Request(c.Resources), r.Request(full)}, {"limit", r.Limit(c.Resources), r.Limit(full)}} {
				if part.has != part.gets {
					added = append(added, fmt.Sprintf("a %s %s of %s to container %s", r, part.name, r.Format(part.gets), c.Name))
					lines = append(lines, fmt.Sprintf("resources.%ss.%s of container %s %s", part.name, r, c.Name, place))
				}
			}
		}
	}
	if len(added) == 0 {
		return model.Obstacle{}
	}
	return model.Obstacle{
		Reason: v1beta1.ReasonLimitRange, Stalled: true,
		Message: fmt.Sprintf("LimitRange %s would add %s when the pod is resized: set %s",
			p.Bounds.DefaultName, model.Listed(added, ", "), model.Listed(lines, ", ")),
	}
}
