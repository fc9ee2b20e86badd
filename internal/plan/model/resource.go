// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Resource is one of the two resources, with the accessors that let one rule serve both. An array with an
// element for each resource has the length of Resources.
type Resource uint8

// CPU and Memory are the resources.
const (
	CPU Resource = iota
	Memory
)

// Resources are all resources.
var Resources = [...]Resource{CPU, Memory}

// IsMemory reports whether the resource is memory.
func (r Resource) IsMemory() bool { return r == Memory }

// String is the resource as the API spells it.
func (r Resource) String() string { return pick(r, "cpu", "memory") }

// Most is the largest amount that is accepted or written.
func (r Resource) Most() int64 { return pick[int64](r, quantity.MaxCPUMillis, quantity.MaxMemoryBytes) }

// Of is the amount of the resource.
func (r Resource) Of(a quantity.Amounts) int64 { return pick(r, a.CPUMillis, a.MemoryBytes) }

// Set sets the amount of the resource.
func (r Resource) Set(a *quantity.Amounts, v int64) { *pick(r, &a.CPUMillis, &a.MemoryBytes) = v }

// Alone has an amount of the resource, and none of the other.
func (r Resource) Alone(v int64) (a quantity.Amounts) {
	r.Set(&a, v)
	return a
}

// Format writes an amount of the resource as users do.
func (r Resource) Format(v int64) string {
	if r.IsMemory() {
		return quantity.FormatMemory(v)
	}
	return quantity.FormatCPU(v)
}

// Ratio is the ratio for the resource.
func (r Resource) Ratio(of workload.Ratios) int64 { return pick(r, of.CPU, of.Memory) }

// Headroom is the headroom for the resource; nil for none.
func (r Resource) Headroom(p LimitPolicy) *int64 { return pick(r, p.HeadroomCPU, p.HeadroomMemory) }

// Boost is the startup boost for the resource; nil for none.
func (r Resource) Boost(p ContainerPolicy) *Boost { return pick(r, p.Boost, nil) }

// Restarts reports whether a container restarts when the resource changes.
func (r Resource) Restarts(c workload.Container) bool {
	return pick(r, c.RestartOnCPU, c.RestartOnMemory)
}

// IsInsufficientFor reports whether the scheduler has found no node with enough of it for a pod.
func (r Resource) IsInsufficientFor(pod workload.Pod) bool {
	return pick(r, pod.InsufficientCPU, pod.InsufficientMemory)
}

// IsControlledBy reports whether a policy includes the resource.
func (r Resource) IsControlledBy(p ContainerPolicy) bool { return pick(r, p.CPU, p.Memory) }

func (r Resource) scaledBy(s workload.Scaled) string { return pick(r, s.CPU, s.Memory) }

func (r Resource) taken(o *Original) *bool { return pick(r, &o.CPU, &o.Memory) }

func pick[T any](r Resource, cpu, memory T) T {
	if r.IsMemory() {
		return memory
	}
	return cpu
}

// Request is the request for the resource.
func (r Resource) Request(of workload.Resources) int64 { return r.Of(of.Requests) }

// Limit is the limit of the resource.
func (r Resource) Limit(of workload.Resources) int64 { return r.Of(of.Limits) }

// Pair is the request and the limit, for comparisons.
func (r Resource) Pair(of workload.Resources) [2]int64 {
	return [2]int64{r.Request(of), r.Limit(of)}
}

// Put sets the request and the limit.
func (r Resource) Put(to *workload.Resources, request, limit int64) {
	r.Set(&to.Requests, request)
	r.Set(&to.Limits, limit)
}

// Copy sets the request and the limit to those of other resources.
func (r Resource) Copy(to *workload.Resources, from workload.Resources) {
	r.Put(to, r.Request(from), r.Limit(from))
}

// Differs reports whether the request or the limit changes.
func (r Resource) Differs(a, b workload.Resources) bool { return r.Pair(a) != r.Pair(b) }

// IsApplied reports whether the kubelet has applied the resources that were asked for. The kernel holds CPU no
// finer than 2 shares and 10 ms of quota, so small differences of CPU are the same.
func (r Resource) IsApplied(actual, asked workload.Resources) bool {
	if r.IsMemory() {
		return !r.Differs(actual, asked)
	}
	return isNear(r.Request(actual), r.Request(asked)) && isNear(r.Limit(actual), r.Limit(asked))
}

func isNear(actual, asked int64) bool {
	if 0 < asked && asked < 20 {
		return actual <= 20
	}
	return math.Abs(float64(actual-asked)) <= 0.02*float64(asked)
}

// Raises reports whether the request or the limit goes up.
func (r Resource) Raises(before, after workload.Resources) bool {
	return r.Request(after) > r.Request(before) || r.Limit(after) > r.Limit(before)
}

// IsBelow reports whether a value that is set is less than another.
func IsBelow(v, than int64) bool { return v > 0 && v < than }

// AfterObserving says how much usage must have been observed, from its beginning: a message that counts down is a write each
// minute.
func AfterObserving(enough time.Duration) string {
	return "after about " + duration.HumanDuration(enough) + " of observed time"
}

// Any is the bound that allows any amount: the largest amount, so that min and max need no special case.
const Any int64 = math.MaxInt64

// BoundOf is a bound as the API has it, where 0 means no bound.
func BoundOf(v int64) int64 { return cmp.Or(v, Any) }
