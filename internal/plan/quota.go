// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// quotaRetry is when to look again at a quota that has no room. Its own events come
// sooner, as far as they may change that.
const quotaRetry = time.Minute

// overQuota says which quota has no room for what is to be added. As the API server does,
// it looks at nothing that does not grow: who is over a quota may always shrink.
func overQuota(quotas []workload.Quota, more workload.Resources) note {
	sorted := slices.SortedFunc(slices.Values(quotas), func(a, b workload.Quota) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	for _, q := range sorted {
		r, added := amountFor(q.Key, more)
		if added > 0 && q.Used+added > q.Hard {
			return note{
				reason: v1beta1.ReasonQuotaExceeded,
				message: fmt.Sprintf("ResourceQuota %s allows %s of %s, of which %s are used, and %s more are needed",
					q.Name, r.format(q.Hard), q.Key, r.format(q.Used), r.format(added)),
				stalled: true,
			}
		}
	}
	return note{}
}

// amountFor picks what a quota counts under a key; nothing under a key that we never
// change.
func amountFor(key string, a workload.Resources) (resource, int64) {
	switch key {
	case "cpu", "requests.cpu":
		return cpu, a.Requests.CPUMillis
	case "limits.cpu":
		return cpu, a.Limits.CPUMillis
	case "memory", "requests.memory":
		return memory, a.Requests.MemoryBytes
	case "limits.memory":
		return memory, a.Limits.MemoryBytes
	}
	return cpu, 0
}

// rolloutOverQuota says which quota has no room for the first new pod of a rollout. Where
// the strategy lets old pods go before, what they have is there for it: the largest are
// taken to go first, so that only what can never begin is held back. What a quota has no
// room for later, while old pods go one by one, is for the Deployment to wait for.
func rolloutOverQuota(s Situation, wanted []Size) note {
	if s.Deployment.Replicas == 0 {
		return note{}
	}
	more := total(withDefaults(withSizes(s.Deployment.Containers, wanted), s.Bounds))
	for _, r := range resources {
		r.set(&more.Requests, r.of(more.Requests)+injected(s, r)-freed(s, func(a workload.Resources) int64 { return r.of(a.Requests) }))
		r.set(&more.Limits, r.of(more.Limits)-freed(s, func(a workload.Resources) int64 { return r.of(a.Limits) }))
	}
	no := overQuota(s.Quotas, more)
	if no.reason != "" {
		no.message += " for the first new pod of a rollout"
	}
	return no
}

// newPodOverQuota says which quota has no room for a new pod that gets sizes, where it would
// get more than without them: such a pod would not be made at all.
func newPodOverQuota(s Situation, made []workload.Container, sizes []Size) note {
	sized, plain := total(withSizes(made, sizes)), total(made)
	var more workload.Resources
	for _, r := range resources {
		if r.of(sized.Requests) > r.of(plain.Requests) {
			r.set(&more.Requests, r.of(sized.Requests)+injected(s, r))
		}
		if r.of(sized.Limits) > r.of(plain.Limits) {
			r.set(&more.Limits, r.of(sized.Limits))
		}
	}
	no := overQuota(s.Quotas, more)
	if no.reason != "" {
		no.message += " for a new pod, which gets what the Deployment says"
	}
	return no
}

// freed is the most that can go before the first new pod comes.
func freed(s Situation, of func(workload.Resources) int64) (sum int64) {
	var has []int64
	for _, pod := range s.Pods {
		has = append(has, of(total(pod.Containers)))
	}
	slices.Sort(has)
	slices.Reverse(has)
	for _, v := range has[:min(len(has), int(s.Deployment.Unavailable))] {
		sum += v
	}
	return sum
}

// growth is what a pod takes more than before.
func growth(before, after []workload.Container) (more workload.Resources) {
	a, b := total(after), total(before)
	for _, r := range resources {
		r.set(&more.Requests, r.of(a.Requests)-r.of(b.Requests))
		r.set(&more.Limits, r.of(a.Limits)-r.of(b.Limits))
	}
	return more
}

func total(containers []workload.Container) (sum workload.Resources) {
	for _, c := range containers {
		for _, r := range resources {
			r.set(&sum.Requests, r.of(sum.Requests)+r.of(c.Requests))
			r.set(&sum.Limits, r.of(sum.Limits)+r.of(c.Limits))
		}
	}
	return sum
}
