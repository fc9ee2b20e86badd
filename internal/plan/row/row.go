// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package row collects, once for each plan, all facts about the containers of a Deployment's template: one row for each
// resource of a container. The rules read rows, and look up nothing by name. A row holds only facts that no decision changes.
package row

import (
	"cmp"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Table has the rows of all containers of the template, in its order.
type Table struct {
	Containers []Container
	// Ceilings are the operator's ceilings for a whole pod.
	Ceilings [len(model.Resources)]Ceiling
}

// Container is one container of the template.
type Container struct {
	workload.Container
	// Written are its resources as the user wrote them, before a rollout of ours. They give the proportion of limits to requests.
	// With a pod's own values, each resize would add a rounding error.
	Written workload.Resources
	// Original has the values that were taken over.
	Original model.Original
	Policy   model.ContainerPolicy
	// Recommendation is the zero value without a history.
	Recommendation recommend.Container
	IsKnown        bool
	Heap           workload.Heap
	// KnownMemory is the memory that it has used, or was OOM-killed with. 0 means none.
	KnownMemory int64
	// IsGuaranteed is true if its limits rise with its requests, and its pods are Guaranteed. Then a limit is the request: the
	// memory of a running container is only raised, and its CPU is lowered to the amount that its starts have needed.
	IsGuaranteed bool
	// Running are the active pods that have it: see model.Situation.IsActive.
	Running []Instance
	// HasWholeCores is true if it requests whole CPUs in a Guaranteed pod, and still may once its request has changed.
	HasWholeCores bool
	Rows          [len(model.Resources)]Row

	limits limitRules
}

// Instance is a container of a pod.
type Instance struct {
	workload.Container
	Pod *workload.Pod
}

// Row is one resource of a container.
type Row struct {
	Resource model.Resource
	// IsControlled is true if the policy includes the resource, IsOurs if no other autoscaler manages it either, and IsManaged if
	// nothing else prevents that it is decided.
	IsControlled, IsOurs, IsManaged bool
	// TakenBy is another autoscaler that manages it; no obstacle for none.
	TakenBy model.Obstacle
	// Template is the request that the API server gives a pod of the template: the limit if no request is set.
	Template int64
	// Granted is the largest request that is granted to a running pod; 0 for none.
	Granted int64
	// MaxAllowed is the policy's bound. RaiseLimit is the most that it is raised to without one, and MostRaised the most that it is
	// raised to in any case. ContainerCeiling is set in the operator's configuration.
	MaxAllowed, RaiseLimit, MostRaised, ContainerCeiling int64 // model.Any for no bound
	// Allowed is the range of the policy, within Enforced, which is the range of LimitRanges and limits.
	Allowed, Enforced Span

	span spanParts
}

// collector collects the rows of a situation.
type collector struct {
	model.Situation

	policy       model.Policy
	ceilings     [len(model.Resources)]Ceiling
	isGuaranteed bool // the template as the user wrote it makes Guaranteed pods
}

// Of collects the rows of a situation.
func Of(s model.Situation, policy model.Policy) Table {
	written := slices.Clone(s.Deployment.Containers)
	for i, c := range written {
		written[i].Resources = Written(s, c)
	}
	of := collector{Situation: s, policy: policy, isGuaranteed: workload.AreGuaranteed(written, s.Pods)}
	for _, r := range model.Resources {
		of.ceilings[r] = ceilingOf(s, policy, r)
	}
	t := Table{Containers: make([]Container, len(written)), Ceilings: of.ceilings}
	for i, c := range s.Deployment.Containers {
		t.Containers[i] = of.container(c, written[i].Resources)
	}
	return t
}

func (of collector) container(c workload.Container, written workload.Resources) Container {
	out := Container{Container: c, Written: written, Policy: of.policy.Containers[c.Name], Heap: of.Deployment.Heaps[c.Name]}
	out.Original, _ = of.Original(c.Name)
	out.Recommendation, out.IsKnown = of.Recommendation(c.Name)
	out.KnownMemory = knownMemory(out.Recommendation)
	out.IsGuaranteed = of.isGuaranteed && out.Policy.Limits == model.LimitsRise && out.Policy.LimitPolicy == model.LimitPolicy{}
	out.HasWholeCores = of.isGuaranteed && out.keepsWholeCores()
	out.limits = limitRules{
		shape: written, rule: out.Policy.Limits, policy: out.Policy.LimitPolicy, bounds: of.Bounds, isGuaranteed: out.IsGuaranteed,
		needed: quantity.Amounts{MemoryBytes: max(out.KnownMemory, out.Heap.Bytes)}, mostRatio: model.BoundOf(of.Ceilings.RaiseFactor),
	}
	for i := range of.Pods {
		if running, ok := of.Pods[i].Readable(c.Name); ok && of.IsActive(of.policy, of.Pods[i]) {
			out.Running = append(out.Running, Instance{running, &of.Pods[i]})
		}
	}
	for _, r := range model.Resources {
		out.Rows[r] = of.row(&out, r)
		out.limits.mostRaised[r] = out.Rows[r].RaiseLimit
	}
	return out
}

func (of collector) row(c *Container, r model.Resource) Row {
	row := Row{
		Resource: r, TakenBy: of.TakenBy(c.Name, r), IsControlled: r.IsControlledBy(c.Policy), Template: templateRequest(c.Resources, r),
		MaxAllowed: model.BoundOf(r.Of(c.Policy.MaxAllowed)), RaiseLimit: of.raiseLimit(c, r), ContainerCeiling: model.BoundOf(r.Of(of.Ceilings.Container)),
		span: of.span(c, r),
	}
	row.IsOurs = row.IsControlled && !row.TakenBy.Exists()
	row.IsManaged = row.IsOurs && !c.Unreadable
	for _, running := range c.Running { // a request that was added can't be taken back
		row.Granted = max(row.Granted, cmp.Or(running.Granted(r), r.Request(running.Resources)))
	}
	row.MostRaised = min(row.MaxAllowed, row.RaiseLimit, row.ContainerCeiling, of.ceilings[r].Most)
	row.Enforced = row.span.within(0, model.Any)
	row.Allowed = row.span.within(r.Of(c.Policy.MinAllowed), row.MaxAllowed)
	return row
}

// Range is the range of the policy with another minimum and maximum, within what is enforced.
func (r Row) Range(least, most int64) Span { return r.span.within(least, most) }

// Of is the row of a resource.
func (c *Container) Of(r model.Resource) *Row { return &c.Rows[r] }

// Find is the container of that name; one that nothing is known of if the template does not have it.
func (t Table) Find(name string) *Container {
	for i := range t.Containers {
		if t.Containers[i].Name == name {
			return &t.Containers[i]
		}
	}
	return &Container{}
}

// Granted is the request that a container declares, as far as its kubelet reports it as applied. A
// raise may wait for room on the node, and an amount that is being lowered must not be raised again.
func (i Instance) Granted(r model.Resource) int64 {
	actual, isReported := i.Pod.Actual.Get(i.Name)
	declared := workload.Resources{Requests: i.Requests}
	switch {
	case !isReported, r.IsApplied(workload.Resources{Requests: actual.Requests}, declared):
		return r.Request(declared)
	}
	return min(r.Request(declared), r.Request(actual))
}

// templateRequest is the request that the API server gives a pod of the template: the limit if no request is set.
func templateRequest(c workload.Resources, r model.Resource) int64 {
	return cmp.Or(r.Request(c), r.Limit(c))
}

// WrittenRequest is the request in the template as the user wrote it; its limit if no request is set.
func (c *Container) WrittenRequest(r model.Resource) int64 { return templateRequest(c.Written, r) }

// Ceiling is the operator's ceiling for a whole pod.
type Ceiling struct {
	Most int64 // model.Any for none
	// NodePercent is the share of the largest node that it is; 0 if it is a setting of its own.
	NodePercent int64
}

func ceilingOf(s model.Situation, policy model.Policy, r model.Resource) Ceiling {
	c := Ceiling{Most: model.BoundOf(r.Of(s.Ceilings.Pod))}
	if !policy.InPlace() {
		return c
	}
	if part := model.BoundOf(MulDiv(r.Of(s.LargestNode), s.Ceilings.NodePercent, 100, false)); part < c.Most {
		c = Ceiling{part, s.Ceilings.NodePercent}
	}
	return c
}

// leastRaiseLimit is the size that any container may be raised to: little enough for any node.
var leastRaiseLimit = quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1 << 30}

// raiseLimit is the most that a request or a limit of a container is raised to if its policy has no
// maxAllowed. It bounds amounts with a wrong unit, usage that follows the size, and hostile usage:
//
//	RaiseFactor * what the user has set, but at least 1 CPU and 1Gi, minAllowed, and the least of a LimitRange
//
// The amount that the user has set is the larger one of request and limit in the template, before it was rewritten, or else
// the default of a LimitRange. Without either, there is nothing to compare with, and only the ceilings bound a request.
func (of collector) raiseLimit(c *Container, r model.Resource) int64 {
	base := cmp.Or(max(r.Request(c.Written), r.Limit(c.Written)), r.Of(of.Bounds.ContainerDefault))
	if min(base, of.Ceilings.RaiseFactor) == 0 || r.Of(c.Policy.MaxAllowed) > 0 {
		return model.Any
	}
	return min(r.Most(), max(MulDiv(base, of.Ceilings.RaiseFactor, 1, true), r.Of(leastRaiseLimit), r.Of(c.Policy.MinAllowed), r.Of(of.Bounds.ContainerMin)))
}

// knownMemory is the memory that the container has used, or was OOM-killed with. The bounds of
// the recommendation do not show it if the policy caps them.
func knownMemory(rec recommend.Container) int64 {
	need := rec.OOMFloor
	for _, reason := range rec.Reasons {
		if reason.Resource == recommend.Memory && reason.Code == recommend.Peak {
			need = max(need, reason.Value)
		}
	}
	if end, why := rec.ClimbEnd(); why == recommend.RaiseDidNotHelp {
		return min(need, end) // no size is enough
	}
	return need
}

// Written are a container's resources in the template as the user wrote it.
func Written(s model.Situation, c workload.Container) workload.Resources {
	written := c.Resources
	original, _ := s.Original(c.Name)
	for _, r := range model.Resources {
		if original.Has(r) {
			r.Copy(&written, original.Resources)
		}
	}
	return written
}
