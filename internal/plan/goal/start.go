// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"cmp"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
)

const (
	// clockSkew is the largest assumed difference between the clocks of a node and of the API server.
	// The node's clock has the start of a container, and the API server's clock the resize of a pod.
	clockSkew = 5 * time.Second
	// StuckAfter is the time to apply a resize, after which the pod no longer delays others.
	StuckAfter = 10 * time.Minute
)

// boostable is a container that may be boosted when it starts.
type boostable struct {
	*Change

	index int // in the changes of the pod
	// base is its decided CPU request, and most that with the boost.
	base, most int64
	// until is the end of its boost; zero if it is not starting, or has had the boost of this start. If clocks
	// differ, that may be overlooked: better than to mistake a resize just before the start for a boost.
	until time.Time
	// raisedAtStart is true if the pod was last resized while it started, if clocks may differ, or was created with the boost.
	raisedAtStart bool
}

// mayBoost reports whether the container may have a boost: it restarts nothing.
func (c Change) mayBoost() bool { return c.Goal.Boost != nil && !c.Has.RestartOnCPU }

func (c Change) isBoosted() bool {
	return c.mayBoost() && c.Has.Requests.CPUMillis > c.Goal.Requests.CPUMillis
}

// boostables lists the containers of a pod that may be boosted, which would have these sizes without it.
func (p Pod) boostables(plain Changes) (out []boostable) {
	for i := range plain {
		if plain[i].mayBoost() {
			out = append(out, p.boostableOf(plain, i))
		}
	}
	p.shareNode(plain, out)
	return out
}

func (p Pod) boostableOf(plain Changes, index int) boostable {
	c := &plain[index]
	b, boost, cpu := boostable{Change: c, index: index, base: c.Size.Requests.CPUMillis}, *c.Goal.Boost, c.Goal.Of(model.CPU)
	b.most = min(cpu.Allowed.Fit(boostedRequest(boost, b.base)), cpu.ContainerCeiling)
	if boost.LeastMillis > 0 {
		b.most = min(b.most, cpu.MostRaised)
	}
	b.most = max(b.base, c.Goal.Resize(c.Has.Resources, model.CPU.Alone(b.most)).Requests.CPUMillis)
	b.until = boost.Until(p.Pod, c.Has.Name, p.Now)
	began, end := boost.Start(p.Pod, c.Has.Name)
	if p.Resized.IsZero() || began.IsZero() {
		b.raisedAtStart = p.StartedBoosted()
		return b
	}
	b.raisedAtStart = !p.Resized.Before(began.Add(-clockSkew)) && p.Resized.Before(end.Add(clockSkew))
	if p.Resized.After(began) && c.Has.Requests.CPUMillis <= b.base {
		b.until = time.Time{}
	}
	return b
}

func boostedRequest(b model.Boost, request int64) int64 {
	return max(b.LeastMillis, min(row.Scale(request, cmp.Or(b.Percent, 100)), model.CPU.Most()-b.MoreMillis)+b.MoreMillis)
}

// shareNode keeps the boosts within the CPU that the largest node and the node of the pod can give, and that a pod may have:
// each gets an equal part. CPU that a container has begun with is not lowered while it starts.
func (p Pod) shareNode(plain Changes, list []boostable) {
	node := p.mostBoosted()
	if node == model.Any {
		return
	}
	free := node - resized(p.Footprint(), plain.Sizes()).OnceStarted().Counted().Requests.CPUMillis
	for _, b := range list {
		free -= b.keeps() - b.base
	}
	for i, b := range list {
		list[i].most = min(b.most, b.keeps()+max(0, free)/int64(len(list)))
	}
}

func (p Pod) mostBoosted() int64 {
	most := p.Rows.Ceilings[model.CPU].Most
	room, isKnown := p.Room[p.Node]
	switch {
	case !isKnown:
		return most
	case p.IsOvercommitted():
		room.CPUMillis = 0
	}
	return min(most, p.Counted().Requests.CPUMillis+room.CPUMillis)
}

// keeps is the least request while the container starts.
func (b boostable) keeps() int64 {
	if b.until.IsZero() {
		return b.base
	}
	return max(b.base, b.Has.Requests.CPUMillis)
}

// wanted is the request while the container starts. The amount that a pod has begun with is not
// lowered before it has started, if it is allowed.
func (b boostable) wanted() int64 {
	return max(b.most, min(b.Has.Requests.CPUMillis, b.Goal.Of(model.CPU).Allowed.Fit(b.Has.Requests.CPUMillis)))
}

// boosted is the sizes with the boosts of all containers that start, and when the first boost ends; zero for none.
func boosted(list []boostable, plain Changes) (out Changes, until time.Time) {
	out = slices.Clone(plain)
	for _, b := range list {
		if wanted := b.wanted(); !b.until.IsZero() && wanted > b.base {
			model.CPU.Copy(&out[b.index].Size, b.Goal.Resize(b.Has.Resources, model.CPU.Alone(wanted)))
			if until.IsZero() || b.until.Before(until) {
				until = b.until
			}
		}
	}
	return out, until
}

// Boosted is the sizes of a pod with more CPU for containers that start, and when the first boost ends; zero for none.
func (p Pod) Boosted(plain Changes) (sizes Changes, until time.Time) {
	sizes, until = boosted(p.boostables(plain), plain)
	return sizes.withMemory().KeepingBurstable(p.Pod), until
}

// StartedBoosted reports whether a pod has the CPU that new pods were created with because they start.
func (p Pod) StartedBoosted() bool {
	return p.Resized.IsZero() && slices.ContainsFunc(p.NewPods.Starts, func(start model.Size) bool {
		c, _ := p.Container(start.Container)
		return c.Requests.CPUMillis == start.Requests.CPUMillis
	})
}

// HasBoost reports whether a container of the pod has more CPU than is decided because it started.
func (p Pod) HasBoost() bool {
	return slices.ContainsFunc(p.changes(), Change.isBoosted)
}

// KeepsBoost reports whether a pod is boosted although it has started long ago: what lowers no pod would not lower the next one
// either.
func (p Pod) KeepsBoost() bool {
	return model.IsAlive(p.Pod) && slices.ContainsFunc(p.changes(), func(c Change) bool {
		if !c.isBoosted() {
			return false
		}
		_, end := c.Goal.Boost.Start(p.Pod, c.Has.Name)
		return p.Resize.Infeasible || p.Now.After(model.Latest(end, p.Decision.Time).Add(StuckAfter))
	})
}

// BoostedBy is the reason why starting pods have more CPU.
func (g Goals) BoostedBy() string {
	for _, c := range g.Rows.Containers {
		if c.Policy.Boost != nil && c.Policy.Boost.LeastMillis == 0 {
			return "startupBoost"
		}
	}
	return "earlier starts were throttled"
}
