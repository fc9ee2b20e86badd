// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// A pod that is created with the decided size may find no node, where one of the template's size would. Its rollout would then
// wait until a user deletes it. So after a while it is set back: insufficient resources get the requests of the template, and the
// scheduler tries it again. Once it runs, it is resized like any other. For a time, later pods start as in the template.

// nodeGrace is the time that a new pod may wait for a node, so that an autoscaler can add one. Tools that wait for a
// rollout give up later: Helm after 5 minutes by default, and a Deployment after 10.
const nodeGrace = 3 * time.Minute

// setBack is the resize of the first pod that has waited for a node too long; nil for none. The planner
// requeues for the next one.
func (p planner) setBack() (planner, *model.Resize) {
	if !p.Policy.InPlace() || !p.Policy.SizesNewPods {
		return p, nil
	}
	for _, pod := range p.Pods {
		if !goal.LacksNode(pod) || !pod.Resized.IsZero() || pod.Generation > 1 { // after the end of a scheduling gate, it is not known how long it has waited
			continue
		}
		in := p.In(pod)
		sizes, left := in.AsInTemplate(), pod.NoNodeSince.Add(nodeGrace).Sub(p.Now)
		switch {
		case !sizes.Differ(), sizes.QoSOf(pod) != goal.QoSOf(pod), pod.PodLevelResources:
		case cmp.Or(in.RefusalOf(sizes), in.LimitRangeObstacle(sizes)).Exists():
		case left > 0:
			p = p.within(left)
		default:
			return p, &model.Resize{Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Sizes: sizes.Sizes(), SetsBack: true}
		}
	}
	return p, nil
}
