// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A pod that is created with the decided size may find no node, where one of the template's size would. Its
// rollout would then wait until somebody deletes it. So after a while it is set back: it gets the requests of the
// template, and the scheduler tries it again. Once it runs, it is resized like any other. For a time, later pods
// start as in the template.

// nodeGrace is how long a new pod may wait for a node. Most autoscalers add one sooner, and a
// Deployment gives up on its rollout later, after 10 minutes by default.
const nodeGrace = 5 * time.Minute

// setBack is the resize of the first pod that has waited for a node too long; nil for none. The planner
// requeues for the next one.
func (p planner) setBack() (planner, *model.Resize) {
	if !p.policy.SizesNewPods || p.policy.MayEvict() { // with the fallback Recreate, the size is what pods are replaced for
		return p, nil
	}
	made := p.withDefaults(p.NewPod())
	for _, pod := range p.byName() {
		sizes, lowered := p.asInTemplate(*pod, made)
		if !lacksNode(*pod) || !isAsCreated(*pod) || len(lowered) == 0 || !p.mayBeSetBack(*pod, sizes) {
			continue
		}
		if left := pod.NoNodeSince.Add(nodeGrace).Sub(p.now); left > 0 {
			p = p.within(left)
			continue
		}
		return p, &model.Resize{Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Sizes: sizes, SetsBack: lowered}
	}
	return p, nil
}

// lacksNode says that the scheduler has found no node for a pod of the current template.
func lacksNode(pod workload.Pod) bool {
	return !pod.NoNodeSince.IsZero() && pod.Current && !pod.Terminating && !pod.Ended
}

// asInTemplate is what the pod has, with the template's amounts of what it requests more of. lowered has the
// requests before, of what becomes lower. A request that the template does not have stays: a resize may not remove it.
func (p planner) asInTemplate(pod workload.Pod, made workload.Footprint) (sizes, lowered []model.Size) {
	for _, c := range pod.Containers {
		inTemplate, ok := made.Container(c.Name)
		if !ok || !p.isDecided(c) {
			continue
		}
		size, before := model.Size{Container: c.Name, Resources: c.Resources}, model.Size{Container: c.Name}
		for _, r := range model.Resources {
			if request := r.Request(inTemplate.Resources); request > 0 && request < r.Request(c.Resources) {
				r.Copy(&size.Resources, inTemplate.Resources)
				r.Set(&before.Requests, r.Request(c.Resources))
			}
		}
		if before.Resources != (workload.Resources{}) {
			sizes, lowered = append(sizes, size), append(lowered, before)
		}
	}
	return sizes, lowered
}

// mayBeSetBack says that nothing is known because of which the API server would refuse the sizes of a pod
// that has no node.
func (p planner) mayBeSetBack(pod workload.Pod, sizes []model.Size) bool {
	return !pod.PodLevelResources && QoSAfter(pod, sizes) == qosOf(pod) &&
		!p.refusalFor(pod, sizes).Exists() && !decision.OutOfBounds(p.resizedPod(pod, sizes), sizes, p.Bounds).Exists()
}

// hadNoNode says whether a pod was set back a while ago, from a request that is at most that of these sizes.
func (p planner) hadNoNode(sizes []model.Size) bool {
	return slices.ContainsFunc(p.SetBackFrom, func(before model.Size) bool {
		return slices.ContainsFunc(sizes, func(size model.Size) bool {
			return size.Container == before.Container && slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool {
				return r.Request(before.Resources) > 0 && r.Request(size.Resources) >= r.Request(before.Resources)
			})
		})
	})
}
