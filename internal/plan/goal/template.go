// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"cmp"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Template is the Deployment's pod template by the decision.
type Template struct {
	Owned     []model.Size     // the values that we own, by container
	Wanted    Changes          // all resources of the containers in Owned
	Originals []model.Original // the original values to record first
	IsChanged bool
	Obstacle  model.Obstacle
	Withheld  model.Obstacle // what the requests that are to be lowered wait for
}

// Template is the pod template by the decision.
func (g Goals) Template() (t Template) {
	for i := range g.Rows.Containers {
		c := &g.Rows.Containers[i]
		if c.Unreadable && c.Original != (model.Original{}) {
			// A rewrite without what we own of it would remove that.
			t.Obstacle = model.Stall(v1beta1.ReasonRejected, "Container %s has resources outside the supported range: correct them in the Deployment", c.Name)
		}
		if !c.Unreadable {
			t.add(g, Goal{Container: c, Requests: g.Decision.Requests[c.Name]})
		}
	}
	switch {
	case t.Obstacle.Exists():
	case g.Deployment.PodLevelResources:
		t.Obstacle = podLevelResources()
	default:
		t.Obstacle = g.OutOfBounds(t.Wanted.Sizes())
	}
	return t
}

// add adds a container.
//
// A value once taken over stays ours until it is restored. So values that are no longer decided
// are written with their original value.
func (t *Template) add(g Goals, of Goal) {
	c := Change{Goal: &of, Has: of.Container.Container, Size: of.Create(of.Resources, of.Requests)}
	original := of.Original
	for _, r := range model.Resources {
		if r.Of(of.Requests) > 0 {
			original = original.With(r, c.Has)
		} else if original.Has(r) {
			r.Copy(&c.Size, original.Resources)
		}
	}
	if waits := g.WaitsForUsage(); waits.Exists() {
		isExempt := func(r model.Resource) bool {
			return g.Decision.Reason == model.DecidedReverted || r.Of(of.Requests) == 0
		}
		size, isWithheld := c.withheld(isExempt)
		if c.Size = size; isWithheld {
			t.Withheld = cmp.Or(t.Withheld, waits)
		}
	}
	own := workload.Resources{}
	for _, r := range model.Resources {
		if original.Has(r) {
			r.Copy(&own, c.Size)
		}
	}
	if own != (workload.Resources{}) {
		t.Owned = append(t.Owned, model.Size{Container: of.Name, Resources: own})
		t.Wanted = append(t.Wanted, c)
	}
	t.IsChanged = t.IsChanged || c.Size != of.Resources
	if original != of.Original {
		t.Originals = append(t.Originals, original)
	}
}

// OwnsTemplate reports whether values of the template are ours, and may be changed.
func (g Goals) OwnsTemplate() bool { return g.Policy.MayRollOut() && len(g.Originals) > 0 }

// IsTemplateAsDecided reports whether a fallback has given the template the decided size.
func (g Goals) IsTemplateAsDecided() bool {
	if !g.OwnsTemplate() {
		return false
	}
	t := g.DecidedTemplate()
	return !t.IsChanged && len(t.Originals) == 0
}

// DecidedTemplate is the pod template once no usage is missing.
func (g Goals) DecidedTemplate() Template {
	g.MissingUsage = ""
	return g.Template()
}

// OverQuota is the quota that has no room for the first new pod of a rollout. If the strategy removes old pods first, their
// resources are available. The largest are assumed to be removed first, so that only a rollout that can never begin is delayed.
// If a quota has no room later in the rollout, the Deployment waits until more old pods are removed.
func (g Goals) OverQuota(t Template) model.Obstacle {
	if g.Deployment.Replicas == 0 {
		return model.Obstacle{}
	}
	more := resized(g.NewPod(), t.Wanted.Sizes()).With(g.Bounds.Defaulted).Counted()
	for _, r := range model.Resources {
		r.Put(&more, r.Request(more)-g.freed(r.Request), r.Limit(more)-g.freed(r.Limit))
	}
	return withPurpose(overQuota(g.Quotas, more, nil), " for the first new pod of a rollout")
}

// freed is the most that can be freed before the first new pod is created.
func (g Goals) freed(of func(workload.Resources) int64) (sum int64) {
	var has []int64
	for _, pod := range g.Pods {
		has = append(has, of(pod.Counted()))
	}
	slices.Sort(has)
	slices.Reverse(has)
	for _, v := range has[:min(len(has), int(g.Deployment.Unavailable))] {
		sum += v
	}
	return sum
}

// PodsAt counts the pods that carry all sizes. Amounts that are not set in a size may differ.
func (g Goals) PodsAt(sizes []model.Size) int {
	return g.Count(func(pod workload.Pod) bool {
		return model.IsAlive(pod) && !slices.ContainsFunc(sizes, func(size model.Size) bool { return !carries(pod, size) })
	})
}

func carries(pod workload.Pod, size model.Size) bool {
	c, ok := pod.Container(size.Container)
	return ok && Cover(c.Resources, size.Resources) == c.Resources
}

// HasSizes reports whether the pod has the sizes: a new pod would gain nothing.
//
// The declared resources of a pod are applied, except after a resize, which may be Infeasible. Only then does the report of the
// kubelet count: a pod whose kubelet always reports something else would be evicted again and again.
func HasSizes(pod workload.Pod, sizes []model.Size) bool {
	isResized := model.WasResized(pod)
	return !slices.ContainsFunc(sizes, func(size model.Size) bool {
		actual, ok := pod.Actual.Get(size.Container)
		if isResized && ok {
			return !isApplied(actual, Cover(actual, size.Resources))
		}
		return !carries(pod, size)
	})
}
