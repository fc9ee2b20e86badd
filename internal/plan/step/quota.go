// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// quotaRetry is when to look again at a quota that has no room. Its own events arrive
// sooner, as far as they may change that.
const quotaRetry = time.Minute

// overQuota says which quota has no room for what is to be added. As the API server does,
// it ignores what does not grow: whatever is over a quota may always shrink.
func overQuota(quotas []workload.Quota, more workload.Resources) model.Obstacle {
	sorted := slices.SortedFunc(slices.Values(quotas), func(a, b workload.Quota) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	for _, q := range sorted {
		r, added := amountFor(q.Key, more)
		if added > 0 && q.Used+added > q.Hard {
			return model.Obstacle{
				Reason: v1beta1.ReasonQuotaExceeded,
				Message: fmt.Sprintf("ResourceQuota %s allows %s of %s, of which %s are used, and %s more are needed",
					q.Name, r.Format(q.Hard), q.Key, r.Format(q.Used), r.Format(added)),
				Stalled: true,
			}
		}
	}
	return model.Obstacle{}
}

// amountFor picks what a quota counts under a key; nothing under a key that we never
// change.
func amountFor(key string, a workload.Resources) (model.Resource, int64) {
	switch key {
	case "cpu", "requests.cpu":
		return model.CPU, a.Requests.CPUMillis
	case "limits.cpu":
		return model.CPU, a.Limits.CPUMillis
	case "memory", "requests.memory":
		return model.Memory, a.Requests.MemoryBytes
	case "limits.memory":
		return model.Memory, a.Limits.MemoryBytes
	}
	return model.CPU, 0
}

// rolloutOverQuota says which quota has no room for the first new pod of a rollout. If the
// strategy removes old pods first, what they have is available: the largest are assumed to
// be removed first, so that only a rollout that can never begin is delayed. If a quota has no
// room later in the rollout, the Deployment waits until more old pods are removed.
func (p planner) rolloutOverQuota(wanted []model.Size) model.Obstacle {
	if p.Deployment.Replicas == 0 {
		return model.Obstacle{}
	}
	more := p.withDefaults(resized(p.NewPod(), wanted)).Counted()
	for _, r := range model.Resources {
		r.Put(&more, r.Request(more)-p.freed(r.Request), r.Limit(more)-p.freed(r.Limit))
	}
	return withPurpose(overQuota(p.Quotas, more), " for the first new pod of a rollout")
}

// newPodOverQuota says which quota has no room for a new pod with the sizes, if it would get
// more than without them: such a pod would not be created at all.
func (p planner) newPodOverQuota(made workload.Footprint, sizes []model.Size) model.Obstacle {
	sized, plain := resized(made, sizes).Counted(), made.Counted()
	var more workload.Resources
	for _, r := range model.Resources {
		if r.Request(sized) > r.Request(plain) {
			r.Set(&more.Requests, r.Request(sized))
		}
		if r.Limit(sized) > r.Limit(plain) {
			r.Set(&more.Limits, r.Limit(sized))
		}
	}
	return withPurpose(overQuota(p.Quotas, more), " for a new pod, which gets the size in the Deployment")
}

// withPurpose is the obstacle with what it blocks.
func withPurpose(o model.Obstacle, suffix string) model.Obstacle {
	if o.Exists() {
		o.Message += suffix
	}
	return o
}

// freed is the most that can be freed before the first new pod is created.
func (p planner) freed(of func(workload.Resources) int64) (sum int64) {
	var has []int64
	for _, pod := range p.Pods {
		has = append(has, of(pod.Counted()))
	}
	slices.Sort(has)
	slices.Reverse(has)
	for _, v := range has[:min(len(has), int(p.Deployment.Unavailable))] {
		sum += v
	}
	return sum
}

// growth is what quotas count more for a pod with the sizes than they do now, or will once the kubelet has
// applied what is declared now: it may do so at any time.
func (p planner) growth(pod workload.Pod, sizes []model.Size) (more workload.Resources) {
	declared, next := pod.Footprint(), p.resizedPod(pod, sizes)
	now, after := pod.Counted(), pod.CountedWith(next)
	soon, then := declared.Counted(), next.Counted()
	for _, r := range model.Resources {
		r.Put(&more,
			max(r.Request(after)-r.Request(now), r.Request(then)-r.Request(soon)),
			max(r.Limit(after)-r.Limit(now), r.Limit(then)-r.Limit(soon)))
	}
	return more
}
