// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Defaults of the policy, where the spec leaves them out.
const (
	// DefaultTolerance is the smallest relative change of a request that is made.
	DefaultTolerance = 0.10
	// DefaultCooldown is the shortest time between two decisions.
	DefaultCooldown = 5 * time.Minute
)

// Policy is what the scaler's spec allows.
type Policy struct {
	Mode v1beta1.UpdateMode
	// Fallback is what InPlace does where a pod cannot be resized in place. Empty stands
	// for Wait.
	Fallback v1beta1.Fallback
	// SizesNewPods is true if the API server may give new pods the decided size. With InPlace
	// it is a choice; Initial and the fallback Recreate need it.
	SizesNewPods bool
	// MinReplicas is the smallest number of replicas with which pods are evicted.
	MinReplicas int32
	Suspended   bool
	// Paused is the message of a scaler that an annotation pauses; empty if none does.
	Paused string
	// Edited is true if the spec is newer than the last reconcile. Then differences from the
	// template come from the edit, and contested values are tried again.
	Edited bool
	// Cooldown is the shortest time between two decisions, unless ScaleUp or ScaleDown
	// have their own.
	Cooldown time.Duration
	// ScaleUp and ScaleDown are for requests that go up, or down.
	ScaleUp, ScaleDown Direction
	// Windows are when requests may change.
	Windows window.Windows
	// InvalidWindow says which window never opens because it cannot be parsed; empty for
	// none.
	InvalidWindow string
	// Tolerance is the smallest change of a request that is made, as a share of the
	// request: 0 to 1.
	Tolerance float64
	// VerificationPeriod is how long pods are verified after a change; 0 for not at all.
	VerificationPeriod time.Duration
	// Containers is the policy of each container of the template, by name.
	Containers map[string]ContainerPolicy
}

// Direction bounds the changes of one direction.
type Direction struct {
	// Cooldown is the policy's if it is nil.
	Cooldown *time.Duration
	// MaxStepPercent is the most that one decision changes a request, in percent of the
	// request; 0 for any.
	MaxStepPercent int64
}

// ContainerPolicy says what may be changed on one container.
type ContainerPolicy struct {
	CPU, Memory bool
	// Limits is true if limits follow their requests, and LimitPolicy how.
	Limits      bool
	LimitPolicy LimitPolicy
	MinAllowed  quantity.Amounts
	MaxAllowed  quantity.Amounts
	// Boost is more CPU while the container starts; nil for none.
	Boost *Boost
}

// LimitPolicy shapes the limits that follow. The zero value keeps the template's
// proportion.
type LimitPolicy struct {
	// HeadroomCPU and HeadroomMemory are what a limit has above its request, in percent
	// of the request; nil keeps the template's proportion.
	HeadroomCPU, HeadroomMemory *int64
	// MinAllowed and MaxAllowed bound the limits; 0 is no bound.
	MinAllowed, MaxAllowed quantity.Amounts
}

// IsExact reports whether limits equal their requests.
func (p LimitPolicy) IsExact() bool {
	return headroomOf(p.HeadroomCPU) == 0 && headroomOf(p.HeadroomMemory) == 0
}

// headroomOf is the headroom in percent; -1 for none.
func headroomOf(v *int64) int64 {
	if v == nil {
		return -1
	}
	return *v
}

// KeepsCPULimitEqual reports whether a CPU limit that equals its request still does after the request has changed.
func (p ContainerPolicy) KeepsCPULimitEqual() bool {
	l := p.LimitPolicy
	switch {
	case !p.Limits, l.MinAllowed.CPUMillis > 0, l.MaxAllowed.CPUMillis > 0:
		return false
	}
	return headroomOf(l.HeadroomCPU) <= 0
}

// Shapes reports whether the policy has a say in the limit of the resource.
func (p LimitPolicy) Shapes(r Resource) bool {
	return r.Headroom(p) != nil || max(r.Of(p.MinAllowed), r.Of(p.MaxAllowed)) > 0
}

// InPlace reports whether pods are resized in place.
func (p Policy) InPlace() bool { return p.Mode == v1beta1.UpdateModeInPlace }

// RollsOut reports whether every change is a rollout.
func (p Policy) RollsOut() bool { return p.Mode == v1beta1.UpdateModeRollout }

func (p Policy) fallsBackTo(f v1beta1.Fallback) bool { return p.InPlace() && p.Fallback == f }

// MayRollOut reports whether the pod template may be changed, now or as a fallback.
func (p Policy) MayRollOut() bool {
	return p.RollsOut() || p.fallsBackTo(v1beta1.FallbackRollout)
}

// MayEvict reports whether pods may be evicted as a fallback.
func (p Policy) MayEvict() bool { return p.fallsBackTo(v1beta1.FallbackRecreate) }

// ResizesNewPods reports whether a new pod that starts with another size is resized in place, and not replaced.
func (p Policy) ResizesNewPods() bool { return p.InPlace() && !p.MayEvict() }

// NeedsSizedNewPods reports whether the scaler cannot do what it is for unless the API server sizes new pods.
func (p Policy) NeedsSizedNewPods() bool { return p.SizesOnlyNewPods() || p.MayEvict() }

// SizesOnlyNewPods reports whether running pods are left alone.
func (p Policy) SizesOnlyNewPods() bool { return p.Mode == v1beta1.UpdateModeInitial }

// SizesNewPodsForGood reports whether new pods get sizes that they cannot do without: where they are not resized in place.
func (p Policy) SizesNewPodsForGood() bool { return !p.InPlace() || p.MayReplace() }

// BoostOf is the startup boost of a resource of the container; nil for none.
func (p Policy) BoostOf(container string, r Resource) *Boost {
	if r.IsMemory() || !p.InPlace() {
		return nil
	}
	return p.Containers[container].Boost
}

// MayReplace reports whether pods may be replaced by new ones.
func (p Policy) MayReplace() bool { return p.MayRollOut() || p.MayEvict() }

// Verifies reports whether changes are verified.
func (p Policy) Verifies() bool { return p.VerificationPeriod > 0 }

// Controls reports whether the policy manages the resource of the container.
func (p Policy) Controls(container string, r Resource) bool {
	return r.controls(p.Containers[container])
}

// ToDirection is what the policy says about changes of one direction.
func (p Policy) ToDirection(d window.Direction) Direction {
	if d == window.ScaleUp {
		return p.ScaleUp
	}
	return p.ScaleDown
}

// CooldownOf is the shortest time between the last decision and a change in a direction.
func (p Policy) CooldownOf(d window.Direction) time.Duration {
	if own := p.ToDirection(d).Cooldown; own != nil {
		return *own
	}
	return p.Cooldown
}
