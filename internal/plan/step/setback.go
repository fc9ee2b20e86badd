// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A pod that is created with the decided size may find no node, where one of the template's size would. Its
// rollout would then wait until somebody deletes it. So after a while it is set back: insufficient resources get the
// requests of the template, and the scheduler tries it again. Once it runs, it is resized like any other. For a time, later
// pods start as in the template.

// nodeGrace is how long a new pod may wait for a node, so that an autoscaler can add one. Those who wait for a rollout
// give up later: Helm after 5 minutes by default, and a Deployment after 10.
const nodeGrace = 3 * time.Minute

// setBack is the resize of the first pod that has waited for a node too long; nil for none. The planner
// requeues for the next one.
func (p planner) setBack() (planner, *model.Resize) {
	mayTakeBack := func(pod workload.Pod) bool {
		if p.policy.EvictsUnderPressure() { // whose pods are replaced for their size, but not for a boost
			return slices.ContainsFunc(pod.Containers, p.isBoosted)
		}
		return p.policy.SizesNewPods && p.policy.ResizesNewPods()
	}
	made := p.withDefaults(p.NewPod())
	for _, pod := range p.Pods {
		sizes, left := p.asInTemplate(pod, made), pod.NoNodeSince.Add(nodeGrace).Sub(p.now)
		switch {
		case !mayTakeBack(pod), !lacksNode(pod), !pod.Current, !pod.Resized.IsZero(), pod.Generation > 1: // after the end of a scheduling gate, it is not known how long it has waited
		case !differsFrom(pod, sizes), QoSAfter(pod, sizes) != qosOf(pod), pod.PodLevelResources:
		case cmp.Or(p.refusalFor(pod, sizes), p.limitRangeObstacle(pod, sizes)).Exists():
		case left > 0:
			p = p.within(left)
		default:
			return p, &model.Resize{Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Sizes: sizes, SetsBack: true}
		}
	}
	return p, nil
}

// lacksNode reports whether the scheduler has found no node for a pod of the current template.
func lacksNode(pod workload.Pod) bool {
	return pod.Current && !pod.NoNodeSince.IsZero() && !pod.IsOver()
}

// asInTemplate are the containers that get the template's request for a resource of which no node has enough: only if
// it is less, and nothing if the template requests none, which a resize may not remove. Limits stay, since memory that
// was raised after an OOM kill may be needed, unless the pod is Guaranteed.
func (p planner) asInTemplate(pod workload.Pod, made workload.Footprint) (sizes []model.Size) {
	for _, c := range pod.Containers {
		inTemplate, _ := made.Container(c.Name)
		size := model.Size{Container: c.Name, Resources: c.Resources}
		for _, r := range model.Resources {
			request := r.Request(inTemplate.Resources)
			switch {
			case p.Decision.Request(c.Name, r) == 0, !r.IsInsufficientFor(pod), !model.IsBelow(request, r.Request(c.Resources)):
			case qosOf(pod) == corev1.PodQOSGuaranteed:
				r.Copy(&size.Resources, inTemplate.Resources)
			default:
				r.Set(&size.Requests, request)
			}
		}
		if size.Resources != c.Resources {
			sizes = append(sizes, size)
		}
	}
	return sizes
}
