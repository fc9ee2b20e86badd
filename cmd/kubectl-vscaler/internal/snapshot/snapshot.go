// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot has the state of a scaler at a moment. It includes the usage and requests of
// its pods, the recommendation and bounds, how they developed, the last change, and the reasons
// why the scaler waits. The commands top and dashboard show it.
//
// It is pure. Amounts are millicores of CPU and bytes of memory. An unknown amount is
// absent, and never 0: a pod without usage does not count in Used.Pods.
package snapshot

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Scaler is the state of one scaler.
type Scaler struct {
	// At is the time of the reading.
	At time.Time
	// AppliedSince is the time since which all pods have exactly the decided sizes; zero if they
	// do not, or if that is unknown.
	AppliedSince time.Time
	// Explanation begins with the line of "status" about the scaler. The scaler waits for those of its findings that do not end
	// as explain.Fine.
	Explanation explain.Explanation
	// Containers are the containers of the pod template, in its order.
	Containers []Container
	// Pods are the running pods, by name; nil if the user may not read them.
	Pods []Pod
	// UsageAge is how old the oldest usage is that is shown; 0 if all is as new as the metrics API has it.
	UsageAge time.Duration
	// UsageMissing is the reason why no usage could be read; empty if it could be.
	UsageMissing string
	// Missing says what else could not be read, and why.
	Missing []string
}

// ErrNotFound is wrapped by errors about scalers that do not exist.
var ErrNotFound = errors.New("not found")

// Container is one container of all pods.
type Container struct {
	Name string `json:"name"`
	// ObservedSeconds is the length of the usage that the targets are based on, when it was last written to the status.
	ObservedSeconds int64      `json:"observedSeconds,omitempty"`
	Resources       []Resource `json:"resources"`
}

// Resource is one resource of one container: cpu or memory.
type Resource struct {
	Resource string
	// Unmanaged is the reason why the scaler does not manage the resource; empty if it does.
	Unmanaged string
	// Used is the usage of the pods. Request and Limit are the amounts that the kubelet has applied, or those
	// of the pod's spec until the kubelet reports them. Pods without a request or a limit do not count in it.
	Used, Request, Limit Spread
	// Busiest is the pod that uses most of its own request.
	Busiest Share
	// Target to MaxAllowed are for one pod; 0 for none.
	Target, LowerBound, UpperBound, Decided, MinAllowed, MaxAllowed int64
	// HasTarget is true if Over and Short are known: there are pods, and a target. They are
	// how much the pods request above and below the target, all pods together.
	HasTarget   bool
	Over, Short int64
}

// Spread is an amount that the pods of a scaler have.
type Spread struct {
	// Pods is how many pods have it; the other fields are 0 if it is 0.
	Pods               int
	Least, Most, Total int64
}

// Share is the usage of a pod, and its request. Request is 0 if no pod has both.
type Share struct {
	Pod           string
	Used, Request int64
}

// Pod is one running pod.
type Pod struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// Resize is the state of a resize that the kubelet has not applied: Deferred,
	// Infeasible, Failed or InProgress; empty if there is none.
	Resize string `json:"resize,omitempty"`
	// OOMKills is the number of OOM kills in its status: at most two of each container.
	OOMKills int `json:"oomKills"`
	// Containers are the containers of the template, in its order.
	Containers []PodContainer `json:"containers"`
}

// PodContainer is one container of a pod.
type PodContainer struct {
	Name string
	// Used is its usage; nil if unknown.
	Used *quantity.Amounts
	// Declared has the resources in the spec of its pod, and Applied those that the kubelet
	// reports as applied. They differ while the pod is being resized.
	Declared, Applied workload.Resources
}

// Resources are the names of the resources, in the order of views.
var Resources = []string{recommend.CPU, recommend.Memory}

// Of is the state of a scaler according to the evidence and the samples. The samples cover its
// namespace. usageMissing is the reason why there are none; empty if they could be read.
func Of(e explain.Evidence, samples []usage.Sample, usageMissing string, at time.Time) Scaler {
	explained := explain.Of(e)
	out := Scaler{
		At:          at,
		Explanation: explained, UsageMissing: usageMissing, Missing: explained.Missing,
	}
	if c := meta.FindStatusCondition(e.Scaler.Status.Conditions, v1beta1.ConditionApplied); c != nil && c.Reason == v1beta1.ReasonApplied {
		out.AppliedSince = c.LastTransitionTime.Time
	}
	used := usageOf(samples, e.Scaler.Namespace)
	for i := range e.Pods {
		for _, c := range e.Pods[i].Containers {
			if s, ok := used[place{e.Pods[i].Name, c.Name}]; ok && at.Sub(s.Time) > oldUsage {
				out.UsageAge = max(out.UsageAge, at.Sub(s.Time))
			}
		}
		out.Pods = append(out.Pods, podOf(e.Pods[i], explained.Containers, used))
	}
	if note := UsageNote(out.UsageAge); note != "" {
		out.Missing = append(slices.Clone(out.Missing), note)
	}
	slices.SortFunc(out.Pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range explained.Containers {
		container := Container{Name: c.Name, ObservedSeconds: c.ObservedSeconds}
		for _, r := range c.Resources {
			container.Resources = append(container.Resources, resourceOf(c.Name, r, out.Pods))
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

// oldUsage is two intervals in which the metrics API has new usage.
const oldUsage = 2 * time.Minute

// UsageNote is the age of old usage; empty if it is recent.
func UsageNote(age time.Duration) string {
	if age == 0 {
		return ""
	}
	return "Usage of the last " + duration.HumanDuration(age) + ": the usage that is shown is older"
}

// place names a container of a pod.
type place struct{ pod, container string }

// usageOf keeps the newest sample of each container.
func usageOf(samples []usage.Sample, namespace string) map[place]usage.Sample {
	newest := map[place]usage.Sample{}
	for _, s := range samples {
		at := place{s.Pod, s.Container}
		if known, ok := newest[at]; s.Namespace == namespace && (!ok || s.Time.After(known.Time)) {
			newest[at] = s
		}
	}
	return newest
}

func podOf(p workload.Pod, containers []explain.Container, used map[place]usage.Sample) Pod {
	out := Pod{Name: p.Name, Ready: p.Ready, Resize: resizeOf(p.Resize), OOMKills: len(p.Kills), Containers: []PodContainer{}}
	for _, c := range containers {
		declared, ok := p.Container(c.Name)
		if !ok || declared.Unreadable {
			continue
		}
		in := PodContainer{Name: c.Name, Declared: declared.Resources, Applied: p.Applied(c.Name)}
		if s, ok := used[place{p.Name, c.Name}]; ok {
			in.Used = &quantity.Amounts{CPUMillis: s.CPUMillis, MemoryBytes: s.MemoryBytes}
		}
		out.Containers = append(out.Containers, in)
	}
	return out
}

func resizeOf(r workload.Resize) string {
	switch {
	case r.Infeasible:
		return "Infeasible"
	case r.Deferred:
		return "Deferred"
	case r.Failed:
		return "Failed"
	case r.InProgress:
		return "InProgress"
	}
	return ""
}

func resourceOf(container string, r explain.Resource, pods []Pod) Resource {
	out := Resource{
		Resource: r.Resource, Unmanaged: r.Unmanaged,
		Target: r.Target.Value(), LowerBound: r.LowerBound.Value(), UpperBound: r.UpperBound.Value(),
		Decided: r.Decided.Value(), MinAllowed: r.MinAllowed.Value(), MaxAllowed: r.MaxAllowed.Value(),
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			if c.Name == container {
				out.count(p.Name, c)
			}
		}
	}
	return out
}

// count adds a container of a pod.
func (r *Resource) count(pod string, c PodContainer) {
	request, limit := explain.AmountOf(r.Resource, c.Applied.Requests), explain.AmountOf(r.Resource, c.Applied.Limits)
	if request > 0 {
		r.Request.add(request)
	}
	if limit > 0 {
		r.Limit.add(limit)
	}
	if r.Target > 0 {
		r.HasTarget = true
		r.Over += max(0, request-r.Target)
		r.Short += max(0, r.Target-request)
	}
	if c.Used == nil {
		return
	}
	share := Share{Pod: pod, Used: explain.AmountOf(r.Resource, *c.Used), Request: request}
	r.Used.add(share.Used)
	if request > 0 && (r.Busiest.Request == 0 || share.Percent() > r.Busiest.Percent()) {
		r.Busiest = share
	}
}

func (s *Spread) add(amount int64) {
	if s.Pods == 0 {
		s.Least = amount
	}
	s.Pods++
	s.Least, s.Most, s.Total = min(s.Least, amount), max(s.Most, amount), s.Total+amount
}

// FurthestFrom is the amount that is furthest from another: the most if that one is 0. It is 0
// if no pod has the amount.
func (s Spread) FurthestFrom(target int64) int64 {
	if target > 0 && target-s.Least > s.Most-target {
		return s.Least
	}
	return s.Most
}

// Range is such as "121m to 500m", or "187m" if all pods have the same amount; empty if none has one.
func (s Spread) Range(resource, to string) string {
	least, most := explain.Format(resource, s.Least), explain.Format(resource, s.Most)
	switch {
	case s.Pods == 0:
		return ""
	case least == most:
		return most
	}
	return least + to + most
}

// Percent is how much of the request is used, in percent; 0 without a request.
func (s Share) Percent() float64 {
	if s.Request == 0 {
		return 0
	}
	return 100 * float64(s.Used) / float64(s.Request)
}

// Unit is the unit of Units.
func Unit(resource string) string {
	if resource == recommend.CPU {
		return "cores"
	}
	return "GiB"
}

// Units is an amount of many pods, in cores or GiB.
func Units(resource string, amount int64) string {
	one := 1000.0
	if resource != recommend.CPU {
		one = 1 << 30
	}
	return strconv.FormatFloat(float64(amount)/one, 'f', 2, 64)
}

// Waits are the findings that the scaler waits for.
func (s Scaler) Waits() []explain.Finding {
	return slices.DeleteFunc(slices.Clone(s.Explanation.Findings), func(f explain.Finding) bool { return f.Ends == explain.Fine })
}

// Total adds up a resource over all containers.
func (s Scaler) Total(resource string) (total Resource) {
	total.Resource = resource
	for _, c := range s.Containers {
		for _, r := range c.Resources {
			if r.Resource == resource {
				total.include(r)
			}
		}
	}
	return total
}

// include adds the totals of another container. Pods is the most that one of the
// containers has.
func (r *Resource) include(other Resource) {
	for _, pair := range []struct{ to, from *Spread }{{&r.Used, &other.Used}, {&r.Request, &other.Request}, {&r.Limit, &other.Limit}} {
		pair.to.Pods = max(pair.to.Pods, pair.from.Pods)
		pair.to.Total += pair.from.Total
	}
	r.HasTarget = r.HasTarget || other.HasTarget
	r.Over, r.Short = r.Over+other.Over, r.Short+other.Short
}

// Table has several scalers, one row each.
type Table struct {
	At   time.Time
	Rows []Row
	// Owned and Policies are the ScaledDeployments and policies that "status" shows beside the scalers.
	Owned    []explain.OwnedRow
	Policies []explain.PolicyRow
	// Operators are the operators that serve them; nil if they are not known.
	Operators explain.Operators
	// Missing lists what could not be read, and why.
	Missing []string
}

// Overview is the part of the fleet that "status" shows.
func (t Table) Overview() explain.Overview {
	out := explain.Overview{ScaledDeployments: t.Owned, Policies: t.Policies, Operators: t.Operators}
	for _, r := range t.Rows {
		out.Scalers = append(out.Scalers, r.Row)
	}
	return out
}

// Row is one scaler of a fleet. Its resources are totals of all pods and containers.
type Row struct {
	explain.Row
	CPU, Memory Resource
	// Severity is the gravest of all containers.
	Severity Severity
	UsageAge time.Duration
}

// RowOf sums up a scaler.
func RowOf(s Scaler) Row {
	out := Row{Row: s.Explanation.Row, CPU: s.Total(Resources[0]), Memory: s.Total(Resources[1]), UsageAge: s.UsageAge}
	for _, c := range s.Containers {
		for _, r := range c.Resources {
			out.Severity = max(out.Severity, r.severity())
		}
	}
	return out
}

// Severity grades the gap between requests and target. A larger one is graver: too little harms a workload, too much costs money.
type Severity int

// The severities. NoTarget means that the gap is unknown.
const (
	NoTarget Severity = iota
	OnTarget
	TooHigh
	TooLow
	FarTooLow
)

// Severities are the known severities, the gravest first.
var Severities = []Severity{FarTooLow, TooLow, TooHigh, OnTarget}

// The thresholds of severities, in percent of the target.
const (
	TooLowPercent    = 10 // the default of tolerancePercent
	FarTooLowPercent = 25
	TooHighPercent   = 25
)

// severity compares the requests of all pods together with their targets.
func (r Resource) severity() Severity {
	target := r.Request.Total - r.Over + r.Short
	isMore := func(gap, percent int64) bool { return 100*gap > percent*target }
	switch {
	case !r.HasTarget:
		return NoTarget
	case isMore(r.Short, FarTooLowPercent):
		return FarTooLow
	case isMore(r.Short, TooLowPercent):
		return TooLow
	case isMore(r.Over, TooHighPercent):
		return TooHigh
	}
	return OnTarget
}

// Total is the sum of all rows.
func (t Table) Total() (cpu, memory Resource) {
	cpu.Resource, memory.Resource = Resources[0], Resources[1]
	for _, r := range t.Rows {
		cpu.include(r.CPU)
		memory.include(r.Memory)
	}
	return cpu, memory
}

// Order is the sort order of the rows of a fleet.
type Order string

const (
	// ByGap has the rows first whose pods request most above or below their targets.
	ByGap Order = "gap"
	// ByWaste has the rows first whose pods request most above their targets.
	ByWaste Order = "waste"
	// ByLack has the rows first whose pods request most below their targets.
	ByLack Order = "lack"
	// ByName sorts by namespace and name.
	ByName Order = "name"
)

// Orders are all orders, the default first.
var Orders = []Order{ByGap, ByWaste, ByLack, ByName}

// Sort sorts the rows. CPU and memory are compared as shares of what all rows request
// together, and the larger share of the two counts. Equal rows are sorted by name.
func (t *Table) Sort(by Order) {
	cpu, memory := t.Total()
	weight := func(r Row) float64 {
		share := func(amount, of int64) float64 { return float64(amount) / float64(max(1, of)) }
		waste := max(share(r.CPU.Over, cpu.Request.Total), share(r.Memory.Over, memory.Request.Total))
		lack := max(share(r.CPU.Short, cpu.Request.Total), share(r.Memory.Short, memory.Request.Total))
		switch by {
		case ByWaste:
			return waste
		case ByLack:
			return lack
		case ByName:
			return 0
		}
		return max(waste, lack)
	}
	slices.SortStableFunc(t.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}
