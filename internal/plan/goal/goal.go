// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package goal sizes footprints: a running pod, a pod that starts, the next pod, the pod template. A decision becomes a goal
// for each container, and each size follows from the goal and from the resources that the container has.
package goal

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Goal is the decided size of one container.
type Goal struct {
	*row.Container
	// Requests are decided; 0 leaves a resource unchanged.
	Requests quantity.Amounts
	// Boost is more CPU while the container starts; nil for none.
	Boost *model.Boost
}

// Goals are the goals of all containers of the template for which something is decided.
type Goals struct {
	model.Situation

	Policy model.Policy
	Rows   row.Table
	Now    time.Time

	list []Goal
}

// Of are the goals of the situation's decision.
func Of(s model.Situation, policy model.Policy, now time.Time) Goals {
	return Goals{Situation: s, Policy: policy, Rows: row.Of(s, policy), Now: now}.With(s.Decision)
}

// With are the goals of another decision.
func (g Goals) With(d *model.Decision) Goals {
	g.Decision, g.list = d, nil
	if d == nil {
		return g
	}
	g.list = make([]Goal, 0, len(g.Rows.Containers))
	for i := range g.Rows.Containers {
		c := &g.Rows.Containers[i]
		requests, isDecided := d.Requests[c.Name]
		if !isDecided {
			continue
		}
		goal := Goal{Container: c, Requests: requests}
		if g.Policy.InPlace() && !c.Unreadable && requests.CPUMillis > 0 {
			goal.Boost = c.Policy.Boost
		}
		g.list = append(g.list, goal)
	}
	return g
}

func (g Goals) of(c workload.Container) *Goal {
	for i := range g.list {
		if g.list[i].Name == c.Name && !c.Unreadable {
			return &g.list[i]
		}
	}
	return nil
}

// Pod is one pod, beside the goals of its containers.
type Pod struct {
	*Goals
	workload.Pod
}

// In are the goals in one pod.
func (g *Goals) In(pod workload.Pod) Pod { return Pod{g, pod} }

// changes are the containers that have a goal, with the sizes that they have.
func (p Pod) changes() Changes {
	out := make(Changes, 0, len(p.Containers))
	for _, c := range p.Containers {
		if goal := p.of(c); goal != nil {
			actual, isReported := p.Actual.Get(c.Name)
			out = append(out, Change{Goal: goal, Has: c, Actual: actual, IsReported: isReported, Size: c.Resources})
		}
	}
	return out
}

// Decided are the decided sizes, and the part that only a restart or less memory in use could change.
func (p Pod) Decided() (sizes Changes, dropped model.Obstacles) {
	sizes = p.changes()
	for i := range sizes {
		dropped = append(dropped, p.size(&sizes[i])...)
	}
	return sizes.KeepingBurstable(p.Pod), dropped
}

func (p Pod) size(of *Change) (dropped model.Obstacles) {
	c, requests := of.Has, of.Goal.Requests
	requests.MemoryBytes = p.memoryOf(of)
	why := "container %s was OOM-killed at a size that is enough for the other pods, and has more memory than they"
	if kept := p.adopted(of); kept > requests.MemoryBytes {
		requests.MemoryBytes, why = kept, "container %s has more memory than the other pods, and keeps it until the next decision"
	}
	of.Size = of.Goal.Resize(c.Resources, requests)
	if requests.MemoryBytes > of.Goal.Requests.MemoryBytes {
		dropped = append(dropped, model.Wait(v1beta1.ReasonOutlierPod, why, c.Name))
		if of.Size.Requests.MemoryBytes == c.Requests.MemoryBytes && of.Size.Limits.MemoryBytes == c.Limits.MemoryBytes-1 {
			of.Size.Limits.MemoryBytes = c.Limits.MemoryBytes // the smallest amount above the request keeps the QoS class
		}
	}
	for _, r := range model.Resources {
		if r.Restarts(c) && r.Differs(c.Resources, of.Size) {
			r.Copy(&of.Size, c.Resources)
			restarts := model.Stall(v1beta1.ReasonRestartRequired, "container %s restarts when its %s changes (resizePolicy)", c.Name, r)
			restarts.NeedsNewPod = true
			dropped = append(dropped, restarts)
		}
	}
	return dropped
}

// memoryOf is the memory of a container: the decided request, and more if one pod of many was OOM-killed with
// that, as far as any could be raised. The next decision ends that, unless memory is raise-only.
//
// A size that was hit is known until the pod is resized; after that, the pod keeps what it has.
func (p Pod) memoryOf(of *Change) int64 {
	has, decided := of.Has.Requests.MemoryBytes, of.Goal.Requests.MemoryBytes
	most := min(of.Goal.Of(model.Memory).MostRaised, model.Memory.Most())
	_, hasEnded := of.Goal.Recommendation.ClimbEnd()
	switch {
	case decided == 0, has < decided, hasEnded != "", p.AlivePods() <= model.FewPods:
		return decided
	}
	wanted := int64(0)
	for _, kill := range p.Kills {
		switch isOld := kill.At.Before(p.Decision.Time.Add(-model.KillSkew)); {
		case kill.Container != of.Has.Name, isOld && !p.Policy.IsRaiseOnly(model.Memory):
		case !isOld && kill.HitBytes >= decided && kill.At.After(p.Resized.Add(model.KillSkew)):
			wanted = max(wanted, doubled(has, most))
		default:
			wanted = max(wanted, min(has, most))
		}
	}
	return max(decided, min(wanted, of.Goal.Of(model.Memory).Allowed.Fit(wanted)))
}

// adopted is the memory that a pod of many keeps if the decision has only adopted requests of pods. A decision that changes more
// ends that, as it ends the raise of an outlier.
func (p Pod) adopted(of *Change) int64 {
	if of.Goal.Requests.MemoryBytes == 0 || !p.Decision.HasReason(model.DecidedAdopted) || p.Created.After(p.Decision.Time) || p.AlivePods() <= model.FewPods {
		return 0
	}
	return of.Goal.Of(model.Memory).Allowed.Fit(of.Has.Requests.MemoryBytes)
}

// doubled is twice an amount, or the most if twice that would reach it.
func doubled(v, most int64) int64 {
	if v > (most-1)/4 {
		return most
	}
	return 2 * v
}

// Rescued are the sizes of a pod that is about to be replaced. They are its current sizes, but with
// memory up to the decided size where it has less than the floor of an OOM kill.
func (p Pod) Rescued() Changes {
	decided, _ := p.Decided()
	return decided.With(func(c Change) workload.Resources {
		kept := c.Has.Resources
		if kept.Requests.MemoryBytes < min(c.Goal.Recommendation.OOMFloor, c.Size.Requests.MemoryBytes) {
			model.Memory.Put(&kept, c.Size.Requests.MemoryBytes, max(kept.Limits.MemoryBytes, c.Size.Limits.MemoryBytes))
		}
		return kept
	}).KeepingBurstable(p.Pod)
}
