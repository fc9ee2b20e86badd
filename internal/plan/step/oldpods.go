// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"slices"

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
		kept := model.Size{Container: size.Container, Resources: has.Resources}
		if has.Requests.MemoryBytes < min(rec.OOMFloor, size.Requests.MemoryBytes) {
			model.Memory.Put(&kept.Resources, size.Requests.MemoryBytes, max(has.Limits.MemoryBytes, size.Limits.MemoryBytes))
		}
		out = append(out, kept)
	}
	return keepBurstable(pod, out)
}

// classifyLeaving is the verdict on a pod that is about to be replaced. What it cannot have is no reason to replace it.
func (p planner) classifyLeaving(pod workload.Pod, v podVerdict) podVerdict {
	v.isLeaving = true
	v.obstacles = slices.DeleteFunc(v.obstacles, func(o model.Obstacle) bool { return o.NeedsNewPod })
	sizes, dropped := p.sizesFor(pod)
	switch v.activity {
	case asks, asksInstead, asksAgain, inFlight:
		return v
	case complete:
		if len(dropped) == 0 && !differsFrom(pod, sizes) {
			return v.as(leavingAtSize)
		}
	}
	return v.as(leaving)
}

// AboutToBeReplaced is the verdict if so many pods keep their size because they have an older
// template.
func AboutToBeReplaced(leaving, pods int) model.Verdict {
	return model.Waiting.Because(v1beta1.ReasonRolloutInProgress, fmt.Sprintf(
		"%d of %d pods have an older template, and keep their size until they are replaced", leaving, pods))
}
