// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// QuotaRetry is when to look again at a quota that has no room. Its own events arrive
// sooner, as far as they may change that.
const QuotaRetry = time.Minute

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

// withPurpose is the obstacle with what it blocks.
func withPurpose(o model.Obstacle, suffix string) model.Obstacle {
	if o.Exists() {
		o.Message += suffix
	}
	return o
}

// growth is the amount that quotas count for the sizes beyond that of now, or once the kubelet has
// applied what is declared now: it may do so at any time.
func (cs Changes) growth(pod workload.Pod) (more workload.Resources) {
	declared, next := pod.Footprint(), cs.Resized(pod)
	now, after := pod.Counted(), pod.CountedWith(next)
	soon, then := declared.Counted(), next.Counted()
	for _, r := range model.Resources {
		r.Put(&more,
			max(r.Request(after)-r.Request(now), r.Request(then)-r.Request(soon)),
			max(r.Limit(after)-r.Limit(now), r.Limit(then)-r.Limit(soon)))
	}
	return more
}
