// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Footprint is all of a pod, or of a pod template, that counts for its requests and limits.
// LimitRange, ResourceQuota, the scheduler and the plan all use the same sum of it.
type Footprint struct {
	// Running are the containers that run for as long as the pod: native sidecars in the order
	// in which they start, then the containers.
	Running []Container
	// Init are the init containers that end before the containers start.
	Init []Container
	// Overhead is the addition of the pod's RuntimeClass.
	Overhead quantity.Amounts
	// PodLevel are the pod-level resources. Each value that is set replaces the sum over the
	// containers.
	PodLevel Resources
	// IsTemplate is true if no pod exists yet: the API server may set missing values.
	IsTemplate bool
}

// Sum has the pod's requests and limits, without its overhead. A LimitRange of the type Pod bounds
// this sum. A container without a value adds nothing; the sum is 0 if no container has one.
//
// An init container runs alone, except for the native sidecars that have started before it. The sum is the
// largest amount that is needed at any time. That is the need of the containers and all native sidecars,
// or of one of the init containers and the native sidecars beside it. This is the formula of PodRequests
// and PodLimits in k8s.io/component-helpers/resource, which quota and scheduler use, and of the API
// server's plugin LimitRanger (KEP-753, "Resources calculation for scheduling and pod admission").
func (f Footprint) Sum() Resources {
	sum := sumOf(f.Running)
	for _, c := range f.Init {
		beside := f.Running[:min(c.SidecarsBefore, len(f.Running))]
		sum = sum.atLeast(sumOf(beside).plus(c.Resources))
	}
	return sum.replacedBy(f.PodLevel)
}

// Counted is the sum with the pod's overhead, as quotas and the scheduler count it. Overhead adds to
// limits only where a container has one.
func (f Footprint) Counted() Resources {
	sum := f.Sum()
	sum.Requests = sum.Requests.Plus(f.Overhead)
	if sum.Limits.CPUMillis > 0 {
		sum.Limits.CPUMillis += f.Overhead.CPUMillis
	}
	if sum.Limits.MemoryBytes > 0 {
		sum.Limits.MemoryBytes += f.Overhead.MemoryBytes
	}
	return sum
}

// With is the footprint with other resources of its containers.
func (f Footprint) With(resources func(Container) Resources) Footprint {
	f.Running, f.Init = slices.Clone(f.Running), slices.Clone(f.Init)
	for _, list := range [][]Container{f.Running, f.Init} {
		for i := range list {
			list[i].Resources = resources(list[i])
		}
	}
	return f
}

// OnceStarted is the footprint after the start, without ended init containers.
func (f Footprint) OnceStarted() Footprint {
	f.Init = nil
	return f
}

// Container returns the container with that name, and whether it exists.
func (f Footprint) Container(name string) (Container, bool) {
	if c, ok := find(f.Running, name); ok {
		return c, true
	}
	return find(f.Init, name)
}

// Footprint is the pod's declared footprint.
func (p Pod) Footprint() Footprint {
	return Footprint{Running: p.Containers, Init: p.Others, Overhead: p.Overhead, PodLevel: p.PodLevel}
}

// Counted is the pod's amount for quotas and the scheduler: the most of its declared and applied
// resources. An infeasible resize does not count, and neither does a pod that has ended.
func (p Pod) Counted() Resources {
	switch {
	case p.Ended:
		return Resources{}
	case p.Resize.Infeasible:
		return p.applied(p.Footprint()).Counted()
	}
	return p.CountedWith(p.Footprint())
}

// CountedWith is Counted for the pod with another declared footprint that its kubelet can grant.
func (p Pod) CountedWith(declared Footprint) Resources {
	return p.applied(declared).Counted().atLeast(declared.Counted())
}

// applied is the footprint that the kubelet reports as applied. Requests or limits that it does not
// report are the declared ones, unless they are infeasible.
func (p Pod) applied(declared Footprint) Footprint {
	return declared.With(func(c Container) Resources {
		out := p.Actual.Of(c.Name)
		if p.Resize.Infeasible {
			return out
		}
		if out.Requests == (quantity.Amounts{}) {
			out.Requests = c.Requests
		}
		if out.Limits == (quantity.Amounts{}) {
			out.Limits = c.Limits
		}
		return out
	})
}

// ContainersSum is the sum of the containers' declared resources, which the API server compares
// with pod-level requests.
func (p Pod) ContainersSum() Resources {
	f := p.Footprint()
	f.PodLevel = Resources{}
	return f.Sum()
}

// Footprint is the template's declared footprint. The API server may add to it in new pods.
func (d Deployment) Footprint() Footprint {
	return Footprint{Running: d.Containers, Init: d.Others, Overhead: d.Overhead, PodLevel: d.PodLevel, IsTemplate: true}
}

// NewPod is the footprint that the next pod of the template will probably have. It is the template's,
// with the containers and the overhead that admission has added to the newest of the pods. A pod of the
// latest template takes precedence; pods that end or have ended are ignored.
func (d Deployment) NewPod(pods []Pod) Footprint {
	template := d.Footprint()
	model, ok := newest(pods)
	if !ok {
		return template
	}
	pod := model.Footprint()
	made := Footprint{Overhead: larger(template.Overhead, pod.Overhead), PodLevel: template.PodLevel, IsTemplate: true}
	made.Running = merge(pod.Running, template.Running)
	slices.SortStableFunc(made.Running, sidecarsFirst)
	made.Init = merge(pod.Init, template.Init)
	sidecars := slices.IndexFunc(made.Running, func(c Container) bool { return !c.IsSidecar })
	for i, c := range made.Init {
		if _, ok := find(pod.Init, c.Name); !ok { // Any sidecar may start before it.
			made.Init[i].SidecarsBefore = max(0, sidecars)
		}
	}
	return made
}

// merge lists the containers of a pod with the template's resources, and those that only the template
// has.
func merge(pod, template []Container) []Container {
	out := make([]Container, 0, len(pod)+len(template))
	for _, c := range pod {
		if declared, ok := find(template, c.Name); ok {
			c.Resources = declared.Resources
		}
		out = append(out, c)
	}
	for _, c := range template {
		if _, ok := find(pod, c.Name); !ok {
			out = append(out, c)
		}
	}
	return out
}

func sidecarsFirst(a, b Container) int {
	switch {
	case a.IsSidecar == b.IsSidecar:
		return 0
	case a.IsSidecar:
		return -1
	}
	return 1
}

// newest is the newest pod that stays, preferably of the latest template.
func newest(pods []Pod) (newest Pod, ok bool) {
	for _, pod := range pods {
		if pod.Terminating || pod.Ended {
			continue
		}
		isBetter := pod.Current
		if pod.Current == newest.Current {
			isBetter = cmp.Or(pod.Created.Compare(newest.Created), cmp.Compare(pod.Name, newest.Name)) > 0
		}
		if !ok || isBetter {
			newest, ok = pod, true
		}
	}
	return newest, ok
}

func sumOf(containers []Container) (sum Resources) {
	for _, c := range containers {
		sum = sum.plus(c.Resources)
	}
	return sum
}

func (r Resources) plus(other Resources) Resources {
	return Resources{Requests: r.Requests.Plus(other.Requests), Limits: r.Limits.Plus(other.Limits)}
}

func (r Resources) atLeast(other Resources) Resources {
	return Resources{Requests: larger(r.Requests, other.Requests), Limits: larger(r.Limits, other.Limits)}
}

// replacedBy is the resources with the other values that are set.
func (r Resources) replacedBy(other Resources) Resources {
	return Resources{Requests: other.Requests.Or(r.Requests), Limits: other.Limits.Or(r.Limits)}
}
