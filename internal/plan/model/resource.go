// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"math"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Resource is one of the two resources, with the accessors that let one rule serve both.
type Resource struct {
	Name     string
	Most     int64 // the largest amount that is accepted or written
	Of       func(quantity.Amounts) int64
	Set      func(*quantity.Amounts, int64)
	Format   func(int64) string
	Ratio    func(workload.Ratios) int64
	Headroom func(LimitPolicy) *int64
	Restarts func(workload.Container) bool

	controls func(ContainerPolicy) bool
	scaledBy func(workload.Scaled) string
	taken    func(*Original) *bool
}

// CPU and Memory are the resources.
var (
	CPU = Resource{
		Name:     "cpu",
		Most:     quantity.MaxCPUMillis,
		Of:       func(a quantity.Amounts) int64 { return a.CPUMillis },
		Set:      func(a *quantity.Amounts, v int64) { a.CPUMillis = v },
		Format:   quantity.FormatCPU,
		Ratio:    func(r workload.Ratios) int64 { return r.CPU },
		Headroom: func(p LimitPolicy) *int64 { return p.HeadroomCPU },
		Restarts: func(c workload.Container) bool { return c.RestartOnCPU },
		controls: func(c ContainerPolicy) bool { return c.CPU },
		scaledBy: func(s workload.Scaled) string { return s.CPU },
		taken:    func(o *Original) *bool { return &o.CPU },
	}
	Memory = Resource{
		Name:     "memory",
		Most:     quantity.MaxMemoryBytes,
		Of:       func(a quantity.Amounts) int64 { return a.MemoryBytes },
		Set:      func(a *quantity.Amounts, v int64) { a.MemoryBytes = v },
		Format:   quantity.FormatMemory,
		Ratio:    func(r workload.Ratios) int64 { return r.Memory },
		Headroom: func(p LimitPolicy) *int64 { return p.HeadroomMemory },
		Restarts: func(c workload.Container) bool { return c.RestartOnMemory },
		controls: func(c ContainerPolicy) bool { return c.Memory },
		scaledBy: func(s workload.Scaled) string { return s.Memory },
		taken:    func(o *Original) *bool { return &o.Memory },
	}
	Resources = []Resource{CPU, Memory}
)

// IsMemory says whether the resource is memory.
func (r Resource) IsMemory() bool { return r.Name == Memory.Name }

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

// Differs says whether the request or the limit changes.
func (r Resource) Differs(a, b workload.Resources) bool { return r.Pair(a) != r.Pair(b) }

// IsApplied says whether what the kubelet reports is what was asked for. The kernel holds CPU no
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

// Raises says whether the request or the limit goes up.
func (r Resource) Raises(before, after workload.Resources) bool {
	return r.Request(after) > r.Request(before) || r.Limit(after) > r.Limit(before)
}

// Lowers says whether the request or the limit goes down to a value that is set.
func (r Resource) Lowers(before, after workload.Resources) bool {
	return isBelow(r.Request(after), r.Request(before)) || isBelow(r.Limit(after), r.Limit(before))
}

// isBelow says that a value that is set is less than another.
func isBelow(v, than int64) bool { return v > 0 && v < than }
