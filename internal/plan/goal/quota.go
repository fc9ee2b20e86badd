// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// QuotaRetry is the time until the next look at a quota that has no room. Its own events arrive
// sooner, as far as they may change that.
const QuotaRetry = time.Minute

// A quota bounds a raise, and does not drop it whole: each container gets the most that fits, those that were OOM-killed first. A
// rollout of the Deployment may create its first new pod before it removes an old one. Then a raise leaves the quota room for
// that pod: otherwise the next rollout would wait for ever. A container that was OOM-killed does not wait for that.

// WithinQuotas is the sizes with as much of their raises as the quotas leave, and the quota that has no more.
func (p Pod) WithinQuotas(wanted Changes) (sizes Changes, missing model.Obstacle) {
	sizes = wanted
	if len(p.Quotas) == 0 || sizes.RaiseNothing() {
		return sizes, missing
	}
	for _, r := range memoryFirst {
		over := func(changed Changes, c Change) model.Obstacle {
			var more workload.Resources
			r.Copy(&more, changed.growth(p.Pod))
			if c.isKilled(r) {
				return overQuota(p.Quotas, more, nil)
			}
			return overQuota(p.Quotas, more, p.surgeIn)
		}
		given := sizes.part(func(other model.Resource, has, size workload.Resources) bool {
			return other != r || !r.Raises(has, size)
		})
		for _, i := range sizes.urgentFirst(r) {
			c := sizes[i]
			given[i].Size = c.Size
			o := over(given, c)
			if !o.Exists() || !r.Raises(c.Has.Resources, c.Size) {
				continue
			}
			has, whole := r.Request(c.Has.Resources), r.Request(c.Size)
			more := int64(sort.Search(int(max(0, whole-has)), func(more int) bool {
				given[i].Size = c.withRequest(r, has+int64(more)+1)
				return over(given, c).Exists()
			}))
			if more < (whole-has)/leastPart && !c.isKilled(r) {
				more = 0
			}
			given[i].Size = c.withRequest(r, has+more)
			missing = cmp.Or(missing, o)
		}
		sizes = given
	}
	return sizes.KeepingBurstable(p.Pod), missing
}

// GivingBack is the sizes without as much of earlier raises as one new pod of a rollout lacks in a quota, and that quota. Such a
// rollout replaces no pod, so old pods would keep the room for ever. Their requests stay above what usage and the template ask for,
// and their limits stay. One pod at a time gives, since a quota notices with a delay.
func (p Pod) GivingBack(sizes Changes) (given Changes, lacking model.Obstacle) {
	gaveLast := func(pod workload.Pod) bool { return p.Now.Before(pod.Resized.Add(QuotaRetry)) }
	if p.Current || !p.Deployment.RollingOut || !p.Deployment.LacksQuota() || p.MissingUsage != "" || slices.ContainsFunc(p.Pods, gaveLast) {
		return sizes, lacking
	}
	given = slices.Clone(sizes)
	made := p.newPod().Counted()
	made.Limits = quantity.Amounts{} // which stay
	for _, q := range sortedQuotas(p.Quotas) {
		r, needed := amountFor(q.Key, made)
		lacks := q.Used + needed - q.Hard
		for i, c := range given {
			request := r.Request(c.Size)
			if give := min(lacks, request-c.least(r)); needed > 0 && give > 0 {
				requests := quantity.Amounts{}
				r.Set(&requests, request-give)
				given[i].Size = c.Goal.Resize(c.Size, requests)
				lacks -= give
				lacking = model.Obstacle{Reason: v1beta1.ReasonQuotaExceeded, Message: fmt.Sprintf(
					"ResourceQuota %s has no room in %s for a new pod of the rollout: the requests of old pods are lowered as far as usage allows", q.Name, q.Key)}
			}
		}
	}
	return given.KeepingBurstable(p.Pod), lacking
}

// least is the request that usage and the template ask for; Any if usage is not known.
func (c Change) least(r model.Resource) int64 {
	least := max(c.Goal.Of(r).Template, r.Of(c.Goal.Recommendation.LowerBound))
	switch {
	case !c.Goal.IsKnown, !c.Goal.Of(r).IsManaged:
		return model.Any
	case r.IsMemory():
		return max(least, c.Goal.Recommendation.OOMFloor)
	}
	return least
}

// urgentFirst is the order in which containers are raised: OOM-killed ones first.
func (cs Changes) urgentFirst(r model.Resource) (order []int) {
	for _, isKilled := range []bool{true, false} {
		for i, c := range cs {
			if c.isKilled(r) == isKilled {
				order = append(order, i)
			}
		}
	}
	return order
}

// isKilled reports whether the container has less memory than an OOM kill has shown to be necessary.
func (c Change) isKilled(r model.Resource) bool {
	return r.IsMemory() && c.Has.Requests.MemoryBytes < c.Goal.Recommendation.OOMFloor
}

// surgeIn is the room of a quota that rollouts need.
//
// Before a rollout, it is the first new pod: with the larger one of its template and the decided size that still fits. It is 0 if the
// rollout removes an old pod first, or would not fit anyway. During a rollout, it is all pods that are still to be created,
// and another one: an old pod that goes may be smaller than the new one.
func (g Goals) surgeIn(q workload.Quota) int64 {
	d := g.Deployment
	if d.Unavailable > 0 || d.Replicas == 0 {
		return 0
	}
	made := g.newPod()
	_, inTemplate := amountFor(q.Key, made.Counted())
	if d.RollingOut {
		return int64(max(0, d.Replicas-d.UpdatedReplicas)+1) * inTemplate
	}
	decided := made.With(func(c workload.Container) workload.Resources {
		if goal := g.of(c); goal != nil {
			return goal.Create(c.Resources, goal.Requests)
		}
		return c.Resources
	})
	_, asDecided := amountFor(q.Key, decided.Counted())
	for _, surge := range []int64{max(inTemplate, asDecided), inTemplate} {
		if q.Used+surge <= q.Hard {
			return surge
		}
	}
	return 0
}

// overQuota says which quota has no room for an addition and a reserve. As the API server does,
// it ignores what does not grow: a use over a quota may always shrink.
func overQuota(quotas []workload.Quota, more workload.Resources, reserve func(workload.Quota) int64) model.Obstacle {
	for _, q := range sortedQuotas(quotas) {
		r, added := amountFor(q.Key, more)
		if added <= 0 {
			continue
		}
		reserved, beside := int64(0), ""
		if reserve != nil {
			reserved = reserve(q)
		}
		if reserved > 0 && q.Used+added <= q.Hard {
			beside = fmt.Sprintf(", and %s for new pods of a rollout", r.Format(reserved))
		}
		if q.Used+added+reserved > q.Hard {
			return model.Stall(v1beta1.ReasonQuotaExceeded, "ResourceQuota %s allows %s of %s, of which %s are used, and %s more are needed%s",
				q.Name, r.Format(q.Hard), q.Key, r.Format(q.Used), r.Format(added), beside)
		}
	}
	return model.Obstacle{}
}

func sortedQuotas(quotas []workload.Quota) []workload.Quota {
	return slices.SortedFunc(slices.Values(quotas), func(a, b workload.Quota) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
}

// amountFor picks what a quota counts under a key; nothing under a key that we never change.
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

func withPurpose(o model.Obstacle, suffix string) model.Obstacle {
	if o.Exists() {
		o.Message += suffix
	}
	return o
}

// growth is the amount that quotas count for the sizes beyond the current amount. The kubelet may
// apply the declared sizes at any time, so the growth after that counts if it is larger.
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
