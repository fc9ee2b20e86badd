// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"k8s.io/utils/ptr"

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

// Policy has the limits that the scaler's spec sets.
type Policy struct {
	Mode v1beta1.UpdateMode
	// Fallback is the answer of InPlace to a pod that cannot be resized in place. Empty stands for Wait.
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
	// Cooldown is the shortest time between two decisions, unless ScaleUp or ScaleDown have their own.
	Cooldown time.Duration
	// ScaleUp and ScaleDown are for requests that go up, or down.
	ScaleUp, ScaleDown Direction
	// Windows are the times in which requests may change.
	Windows window.Windows
	// InvalidWindow describes a window that cannot be parsed, if any. It never opens.
	InvalidWindow string
	// Tolerance is the smallest change of a request that is made, as a share of the request: 0 to 1.
	Tolerance float64
	// VerificationPeriod is the time of verification after a change; 0 for none.
	VerificationPeriod time.Duration
	// Containers is the policy of each container of the template, by name.
	Containers map[string]ContainerPolicy
}

// Direction bounds the changes of one direction.
type Direction struct {
	// Cooldown is the policy's if it is nil.
	Cooldown *time.Duration
	// MaxStepPercent is the most that one decision changes a request, in percent of the request; 0 for any.
	MaxStepPercent int64
	// LeavesCPU and LeavesMemory are true if that resource is not changed in the direction for its usage.
	LeavesCPU, LeavesMemory bool
}

// ContainerPolicy says what may be changed on one container.
type ContainerPolicy struct {
	CPU, Memory bool
	// Limits is the rule for limits when requests change, and LimitPolicy its details.
	Limits      LimitRule
	LimitPolicy LimitPolicy
	// StartCPU is the least CPU request that usage lowers it to, in millicores, because starts were seen to need it; 0 for any.
	StartCPU   int64
	MinAllowed quantity.Amounts
	MaxAllowed quantity.Amounts
	// Boost is more CPU while the container starts; nil for none.
	Boost *Boost
}

// LimitRule is the rule for a limit when its request changes.
type LimitRule int

const (
	// LimitsStay leaves limits as they are.
	LimitsStay LimitRule = iota
	// LimitsRise raises limits that their requests need higher. The limit of a running container is never lowered.
	LimitsRise
	// LimitsFollow changes limits with their requests, up and down.
	LimitsFollow
)

// LimitPolicy shapes the limits that follow. The zero value keeps the template's proportion.
type LimitPolicy struct {
	// HeadroomCPU and HeadroomMemory are the part of a limit above its request, in percent
	// of the request; nil keeps the template's proportion.
	HeadroomCPU, HeadroomMemory *int64
	// MinAllowed and MaxAllowed bound the limits; 0 means no bound.
	MinAllowed, MaxAllowed quantity.Amounts
}

// InPlace reports whether pods are resized in place.
func (p Policy) InPlace() bool { return p.Mode == v1beta1.UpdateModeInPlace }

// RollsOut reports whether every change is a rollout.
func (p Policy) RollsOut() bool { return p.Mode == v1beta1.UpdateModeRollout }

// replacement is the way to replace pods, at once or as a fallback; Wait for none.
func (p Policy) replacement() v1beta1.Fallback {
	switch p.Mode {
	case v1beta1.UpdateModeInPlace:
		return p.Fallback
	case v1beta1.UpdateModeRollout:
		return v1beta1.FallbackRollout
	}
	return v1beta1.FallbackWait
}

// MayRollOut reports whether the pod template may be changed, now or as a fallback.
func (p Policy) MayRollOut() bool { return p.replacement() == v1beta1.FallbackRollout }

// MayEvict reports whether pods may be evicted as a fallback.
func (p Policy) MayEvict() bool { return p.replacement() == v1beta1.FallbackRecreate }

// ResizesNewPods reports whether a new pod that starts with another size is resized in place, and not replaced.
func (p Policy) ResizesNewPods() bool { return p.InPlace() && !p.MayEvict() }

// NeedsSizedNewPods reports whether the scaler cannot do what it is for unless the API server sizes new pods.
func (p Policy) NeedsSizedNewPods() bool { return p.SizesOnlyNewPods() || p.MayEvict() }

// SizesOnlyNewPods reports whether running pods are left alone.
func (p Policy) SizesOnlyNewPods() bool { return p.Mode == v1beta1.UpdateModeInitial }

// Verifies reports whether changes are verified.
func (p Policy) Verifies() bool { return p.VerificationPeriod > 0 }

// IsRaiseOnly reports whether a request for the resource is never lowered for less usage.
func (p Policy) IsRaiseOnly(r Resource) bool {
	return pick(r, p.ScaleDown.LeavesCPU, p.ScaleDown.LeavesMemory)
}

// CooldownOf is the shortest time between the last decision and a change in a direction.
func (p Policy) CooldownOf(d window.Direction) time.Duration {
	own := p.ScaleDown.Cooldown
	if d == window.ScaleUp {
		own = p.ScaleUp.Cooldown
	}
	return ptr.Deref(own, p.Cooldown)
}
