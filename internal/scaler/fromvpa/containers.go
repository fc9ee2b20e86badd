// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fromvpa

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// maxPolicies is the number of policies that a scaler may have.
const maxPolicies = 32

// resourcePolicy reads the policies of containers. boost is that of the spec; nil for none. Containers
// without a boost of their own get it.
func (r *reader) resourcePolicy(spec *fields, boost *v1beta1.StartupBoost) *v1beta1.ResourcePolicy {
	value, _ := take[map[string]any](r, spec, "resourcePolicy")
	f := r.object(spec.of("resourcePolicy"), value)
	list, _ := take[[]map[string]any](r, f, "containerPolicies")
	r.unknown(f)

	var policies []v1beta1.ContainerPolicy
	known := map[string]bool{}
	for i, value := range list {
		c := r.object(fmt.Sprintf("%s[%d]", f.of("containerPolicies"), i), value)
		name, _ := take[string](r, c, "containerName")
		switch {
		case known[name]:
			r.note(c.path, encoded(value), "not imported: an earlier policy is for the same container")
			continue
		case name != v1beta1.AnyContainer && len(validation.IsDNS1123Label(name)) > 0:
			r.doubt(c.path, encoded(value), "not imported: containerName is not the name of a container")
			continue
		case len(policies) == maxPolicies:
			r.doubt(c.path, encoded(value), "not imported: a scaler has at most 32 policies")
			continue
		}
		known[name] = true
		r.note(c.of("containerName"), encoded(name), "containerPolicies")
		policies = append(policies, r.container(c, name, boost))
	}
	if boost != nil && !known[v1beta1.AnyContainer] {
		if len(policies) == maxPolicies {
			r.note(spec.of("startupBoost"), "", "not imported for containers without a policy: a scaler has at most 32")
		} else {
			policies = append(policies, v1beta1.ContainerPolicy{ContainerName: v1beta1.AnyContainer, StartupBoost: boost.DeepCopy()})
		}
	}
	if len(policies) == 0 {
		return nil
	}
	return &v1beta1.ResourcePolicy{ContainerPolicies: policies}
}

func (r *reader) container(c *fields, name string, boost *v1beta1.StartupBoost) v1beta1.ContainerPolicy {
	p := v1beta1.ContainerPolicy{ContainerName: name}
	p.Mode = oneOf(r, c, "mode", v1beta1.ContainerModeAuto, v1beta1.ContainerModeOff)
	p.ControlledValues = oneOf(r, c, "controlledValues", v1beta1.RequestsAndLimits, v1beta1.RequestsOnly)
	r.controlled(c, &p)
	least, most := r.bounds(c, "minAllowed"), r.bounds(c, "maxAllowed")
	p.MinAllowed, p.MaxAllowed = scaler.BoundsOf(least), scaler.BoundsOf(most)
	if isAbove(least.CPUMillis, most.CPUMillis) || isAbove(least.MemoryBytes, most.MemoryBytes) {
		p.MinAllowed = nil
		r.doubt(c.of("minAllowed"), "", "not imported: it is above maxAllowed")
	}
	if own := r.boost(c, "startupBoost"); own != nil {
		boost = own
	}
	if boost != nil {
		r.setBoost(c, &p, boost)
	}
	for _, field := range []string{"oomBumpUpRatio", "oomMinBumpUp"} {
		r.unused(c, field, "the steps after OOM kills adapt to how quickly they follow each other")
	}
	for _, field := range []string{"memoryAggregationIntervalSeconds", "memoryAggregationIntervalCount"} {
		r.unused(c, field, "the operator keeps the peaks of the last days and weeks")
	}
	r.unknown(c)
	return p
}

// oneOf reads a field of the same name in both, which has one of these values.
func oneOf[T ~string](r *reader, c *fields, name string, known ...T) (none T) {
	value, ok := take[T](r, c, name)
	switch {
	case !ok:
	case slices.Contains(known, value):
		r.note(c.of(name), encoded(value), name)
		return value
	default:
		r.doubt(c.of(name), encoded(value), "is not known, so it is not imported")
	}
	return none
}

// controlled reads the managed resources. An empty list leaves the container alone.
func (r *reader) controlled(c *fields, p *v1beta1.ContainerPolicy) {
	names, ok := take[[]v1beta1.ControlledResource](r, c, "controlledResources")
	if !ok {
		return
	}
	path, value := c.of("controlledResources"), encoded(names)
	all := []v1beta1.ControlledResource{v1beta1.ControlledCPU, v1beta1.ControlledMemory}
	for _, name := range all {
		if slices.Contains(names, name) {
			p.ControlledResources = append(p.ControlledResources, name)
		}
	}
	switch {
	case len(p.ControlledResources) == 0:
		p.Mode = v1beta1.ContainerModeOff
		r.note(path, value, "mode Off: neither cpu nor memory is managed")
	case slices.ContainsFunc(names, func(name v1beta1.ControlledResource) bool { return !slices.Contains(all, name) }):
		r.note(path, value, "controlledResources, but only cpu and memory")
	default:
		r.note(path, value, "controlledResources")
	}
}

func isAbove(least, most int64) bool { return most > 0 && least > most }

// minMemory is the least amount of memory that a bound may be, in bytes.
const minMemory = 1 << 10

func (r *reader) bounds(c *fields, name string) (out quantity.Amounts) {
	list, ok := take[map[string]any](r, c, name)
	if !ok {
		return out
	}
	for _, of := range slices.Sorted(maps.Keys(list)) {
		path, value := c.of(name)+"."+of, encoded(list[of])
		var q resource.Quantity
		if err := decode(list[of], &q); err != nil {
			r.doubt(path, value, "cannot be read, so it is not imported")
			continue
		}
		var err error
		isImported := true
		switch of {
		case "cpu":
			out.CPUMillis, err = quantity.CPUMillis(q)
		case "memory":
			out.MemoryBytes, err = quantity.MemoryBytes(q)
			if out.MemoryBytes > 0 {
				out.MemoryBytes = max(out.MemoryBytes, minMemory)
			}
		default:
			isImported = false
			r.note(path, value, "not imported: only cpu and memory are managed")
		}
		switch {
		case err != nil:
			r.doubt(path, value, "not imported: it is out of range")
		case isImported && q.IsZero() && name == "maxAllowed":
			r.doubt(path, value, "not imported: 0 is not allowed")
		case isImported && q.IsZero():
			r.note(path, value, "not imported: 0 is no minimum")
		case isImported:
			r.note(path, value, name+"."+of)
		}
	}
	return out
}

// boost reads a startup boost; nil if there is none, or none that a scaler may have.
func (r *reader) boost(f *fields, name string) *v1beta1.StartupBoost {
	value, ok := take[map[string]any](r, f, name)
	if !ok {
		return nil
	}
	outer := r.object(f.of(name), value)
	cpu, ok := take[map[string]any](r, outer, "cpu")
	r.unknown(outer)
	if !ok {
		return nil
	}
	var b struct {
		v1beta1.CPUStartupBoost
		Quantity any `json:"quantity"`
	}
	result := "startupBoost, which maxAllowed bounds, too. Only updateMode InPlace applies it"
	defer func() { r.note(outer.of("cpu"), encoded(cpu), result) }()
	if err := decode(cpu, &b); err != nil {
		result = "cannot be read, so it is not imported"
		return nil
	}
	out := v1beta1.CPUStartupBoost{Type: b.Type}
	switch duration := ptr.Deref(b.DurationSeconds, 0); {
	case duration < 0 || duration > 3600:
		result = "not imported: durationSeconds is not from 0 to 3600"
		return nil
	case duration > 0:
		out.DurationSeconds = ptr.To(duration)
	}
	switch out.Type {
	case v1beta1.BoostFactor:
		if factor := ptr.Deref(b.Factor, 0); factor < 1 || factor > 100 || b.Quantity != nil {
			result = "not imported: factor is not from 1 to 100, or quantity is set, too"
			return nil
		}
		out.Factor = b.Factor
	case v1beta1.BoostQuantity:
		var q resource.Quantity
		err := decode(b.Quantity, &q)
		millis, rangeErr := quantity.CPUMillis(q)
		if err != nil || rangeErr != nil || millis == 0 || b.Factor != nil {
			result = "not imported: quantity is not from 1m to 10k, or factor is set, too"
			return nil
		}
		out.Quantity = ptr.To(quantity.CPU(millis))
	default:
		result = "not imported: its type is not known"
		return nil
	}
	return &v1beta1.StartupBoost{CPU: &out}
}

// setBoost sets a boost if CPU is managed.
func (r *reader) setBoost(c *fields, p *v1beta1.ContainerPolicy, boost *v1beta1.StartupBoost) {
	if p.Mode == v1beta1.ContainerModeOff || len(p.ControlledResources) > 0 && !slices.Contains(p.ControlledResources, v1beta1.ControlledCPU) {
		r.note(c.of("startupBoost"), "", "not imported: CPU is not managed")
		return
	}
	p.StartupBoost = boost.DeepCopy()
}
