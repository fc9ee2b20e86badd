// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A rollout leaves pods of an older template behind until it has replaced them. While it is paused or
// stuck they stay, and are resized in place like all others. While it makes progress they are about to
// be replaced: they only get the memory that an OOM kill has shown to be necessary, because a rollout
// may take hours. What such a pod cannot have is no reason to replace it.

// rescued is what a pod gets that is about to be replaced: what it has, but memory up to the decided
// size where it has less than the floor of an OOM kill. decided are its decided sizes.
func (p planner) rescued(pod workload.Pod, decided []model.Size) []model.Size {
	var out []model.Size
	for _, size := range decided {
		has, _ := pod.Container(size.Container)
		rec, _ := p.Recommendation(size.Container)
		request := model.Memory.Request(has.Resources)
		isTooSmall := request < min(rec.OOMFloor, model.Memory.Request(size.Resources))
		kept := model.Size{Container: size.Container, Resources: has.Resources}
		if isTooSmall && !model.Memory.Lowers(has.Resources, size.Resources) {
			model.Memory.Copy(&kept.Resources, size.Resources)
		}
		out = append(out, kept)
	}
	return keepBurstable(pod, out)
}

// classifyLeaving says where a pod stands that is about to be replaced. t is its target.
func (p planner) classifyLeaving(pod workload.Pod, t target) podVerdict {
	sizes, refusal := p.admissible(pod, t.sizes)
	v := podVerdict{
		step:      model.Resize{Pod: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Sizes: sizes},
		isLeaving: true,
	}
	switch {
	case differsFrom(pod, sizes):
		v = p.classifyRequest(pod, v)
	case refusal.Exists():
		v = v.blockedBy(refusal)
		if refusal.Reason == v1beta1.ReasonQuotaExceeded {
			v = v.within(quotaRetry)
		}
	default:
		v = p.classifyAnswer(pod, v)
		v.obstacles = nil
	}
	for i, o := range v.obstacles {
		o.NeedsNewPod = false
		v.obstacles[i] = o.On(subjectOf(pod))
	}
	switch {
	case v.activity == asks, v.activity == inFlight:
		return v
	case v.activity == complete && p.hasDecided(pod):
		return v.as(leavingAtSize)
	}
	return v.as(leaving)
}

// hasDecided reports whether the pod declares the decided sizes.
func (p planner) hasDecided(pod workload.Pod) bool {
	sizes, dropped := p.sizesFor(pod)
	return len(dropped) == 0 && !differsFrom(pod, sizes)
}

// AboutToBeReplaced is the verdict if so many pods keep their size because they have an older
// template.
func AboutToBeReplaced(leaving, pods int) model.Verdict {
	return model.Waiting.Because(v1beta1.ReasonRolloutInProgress, withOldTemplate(leaving, pods)+", and keep their size until they are replaced")
}

func withOldTemplate(old, pods int) string {
	return fmt.Sprintf("%d of %d pods have an older template", old, pods)
}

// notingOldPods is the verdict that says how many pods with an older template it is about.
func (p planner) notingOldPods(v model.Verdict) model.Verdict {
	old := p.OldPods()
	switch {
	case old == 0:
		return v
	case p.Deployment.Paused:
		return v.Noting(withOldTemplate(old, p.AlivePods()) + ", because the Deployment is paused")
	case p.Deployment.Stuck:
		return v.Noting(withOldTemplate(old, p.AlivePods()) + ", because the rollout exceeded its progress deadline")
	}
	return v
}
