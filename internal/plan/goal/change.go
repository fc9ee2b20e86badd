// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Change is the size of a container beside the resources that it has.
type Change struct {
	Goal *Goal
	Has  workload.Container
	// Actual has the resources that the kubelet reports as applied, if IsReported is true.
	Actual     workload.Resources
	IsReported bool
	Size       workload.Resources
}

// Changes are the sizes of the containers of one pod that have a goal.
type Changes []Change

// Sizes are the sizes by container.
func (cs Changes) Sizes() []model.Size {
	out := make([]model.Size, 0, len(cs))
	for _, c := range cs {
		out = append(out, model.Size{Container: c.Has.Name, Resources: c.Size})
	}
	return out
}

func (cs Changes) anyResource(is func(r model.Resource, has, size workload.Resources) bool) bool {
	return slices.ContainsFunc(cs, func(c Change) bool {
		return slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return is(r, c.Has.Resources, c.Size) })
	})
}

// Differ reports whether the sizes change the pod.
func (cs Changes) Differ() bool { return cs.anyResource(model.Resource.Differs) }

// RaiseNothing reports whether the sizes give a pod nothing, which frees capacity for others.
func (cs Changes) RaiseNothing() bool { return !cs.anyResource(model.Resource.Raises) }

// LowerRequest reports whether the sizes lower a request of the pod.
func (cs Changes) LowerRequest() bool {
	return cs.anyResource(func(r model.Resource, has, size workload.Resources) bool { return r.Request(size) < r.Request(has) })
}

// OnlyLowerRequests reports whether the sizes lower a request, and raise none.
func (cs Changes) OnlyLowerRequests() bool {
	raises := func(r model.Resource, has, size workload.Resources) bool { return r.Request(size) > r.Request(has) }
	return cs.LowerRequest() && !cs.anyResource(raises)
}

// LowerMemoryLimit reports whether the sizes lower a memory limit of the pod.
func (cs Changes) LowerMemoryLimit() bool {
	return slices.ContainsFunc(cs, func(c Change) bool { return c.Size.Limits.MemoryBytes < c.Has.Limits.MemoryBytes })
}

// AreApplied reports whether the kubelet of the pod reports the sizes as applied.
func (cs Changes) AreApplied() bool {
	return !slices.ContainsFunc(cs, func(c Change) bool { return !isApplied(c.Actual, c.Size) })
}

func isApplied(actual, asked workload.Resources) bool {
	return !slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return !r.IsApplied(actual, asked) })
}

// With are the changes with other sizes.
func (cs Changes) With(size func(Change) workload.Resources) Changes {
	out := slices.Clone(cs)
	for i, c := range cs {
		out[i].Size = size(c)
	}
	return out
}

// part is the sizes with those resources that are included, and the others as the pod has them.
func (cs Changes) part(includes func(r model.Resource, has, size workload.Resources) bool) Changes {
	return cs.With(func(c Change) workload.Resources {
		size := c.Size
		for _, r := range model.Resources {
			if !includes(r, c.Has.Resources, c.Size) {
				r.Copy(&size, c.Has.Resources)
			}
		}
		return size
	})
}

// Only is the sizes without the changes of the other resource.
func (cs Changes) Only(r model.Resource) Changes {
	return cs.part(func(other model.Resource, _, _ workload.Resources) bool { return other == r })
}

// Raised is the sizes without the resources that they lower.
func (cs Changes) Raised() Changes { return cs.part(model.Resource.Raises) }

// Lowered is the sizes without the resources that they raise.
func (cs Changes) Lowered() Changes {
	return cs.part(func(r model.Resource, has, size workload.Resources) bool { return !r.Raises(has, size) })
}

// Unchanged keeps the pod's resources.
func (cs Changes) Unchanged() Changes {
	return cs.With(func(c Change) workload.Resources { return c.Has.Resources })
}

// WithMemoryLimits is the sizes with no lower memory limit than the pod has.
func (cs Changes) WithMemoryLimits() Changes {
	return cs.With(func(c Change) workload.Resources {
		c.Size.Limits.MemoryBytes = max(c.Size.Limits.MemoryBytes, c.Has.Limits.MemoryBytes)
		return c.Size
	})
}

// withMemory is the sizes with no less memory than the pod has, which it may need to start.
func (cs Changes) withMemory() Changes {
	return cs.With(func(c Change) workload.Resources {
		model.Memory.Copy(&c.Size, c.larger())
		return c.Size
	})
}

// larger has the larger one of each amount.
func (c Change) larger() workload.Resources {
	for _, r := range model.Resources {
		r.Put(&c.Size, max(r.Request(c.Size), r.Request(c.Has.Resources)), max(r.Limit(c.Size), r.Limit(c.Has.Resources)))
	}
	return c.Size
}

// covering is the size with the amounts that the container has where it has none.
func (c Change) covering() workload.Resources { return Cover(c.Has.Resources, c.Size) }

func resized(f workload.Footprint, sizes []model.Size) workload.Footprint {
	return f.With(func(c workload.Container) workload.Resources {
		if i := indexOf(sizes, c.Name); i >= 0 {
			return sizes[i].Resources
		}
		return c.Resources
	})
}

func indexOf(sizes []model.Size, container string) int {
	return slices.IndexFunc(sizes, func(size model.Size) bool { return size.Container == container })
}

// KeepingBurstable takes the smallest amount off a request if all requests would equal their
// limits: that is another QoS class, and no pod may change its own.
func (cs Changes) KeepingBurstable(pod workload.Pod) Changes {
	switch {
	case pod.PodLevelResources: // which alone decide the class
		return cs
	case !cs.Differ(), QoSOf(pod) != corev1.PodQOSBurstable, cs.QoSOf(pod) != corev1.PodQOSGuaranteed:
		return cs
	}
	for _, r := range model.Resources {
		for i, c := range cs {
			if r.Request(c.Size) > 1 && r.Differs(c.Has.Resources, c.Size) {
				r.Set(&cs[i].Size.Requests, r.Request(c.Size)-1)
				return cs
			}
		}
	}
	return cs
}

// QoSOf is the pod's QoS class.
func QoSOf(pod workload.Pod) corev1.PodQOSClass {
	if pod.QoS != "" {
		return pod.QoS
	}
	return workload.QoSOf(pod.Containers, pod.Others)
}

// QoSOf is the pod's QoS class once it has the sizes.
func (cs Changes) QoSOf(pod workload.Pod) corev1.PodQOSClass {
	return workload.QoSOf(resized(pod.Footprint(), cs.Sizes()).Running, pod.Others)
}

// Cover puts the amounts that are set over others.
func Cover(has, over workload.Resources) workload.Resources {
	for _, r := range model.Resources {
		if v := r.Request(over); v > 0 {
			r.Set(&has.Requests, v)
		}
		if v := r.Limit(over); v > 0 {
			r.Set(&has.Limits, v)
		}
	}
	return has
}
