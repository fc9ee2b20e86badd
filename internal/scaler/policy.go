// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaler reads VerticalScalers. The operator, its collector and checkpoints, the kubectl
// plugin and the tests read a spec and a status through this package only. So they agree on
// defaults, on values of a newer version and on unreadable values.
//
// The package is pure: values in, values out.
package scaler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The schema has the same defaults. They are repeated here for objects that were stored
// without them.
const (
	defaultCooldownSeconds     = int32(model.DefaultCooldown / time.Second)
	defaultMinReplicas         = 2
	defaultVerificationSeconds = 120
	defaultSafetyMarginPercent = 0
	defaultTolerancePercent    = 100 * model.DefaultTolerance
)

// PlanPolicy reads a scaler's spec for the plan of its Deployment.
func PlanPolicy(s *v1beta1.VerticalScaler, d workload.Deployment) model.Policy {
	update := s.Spec.UpdatePolicy
	p := model.Policy{
		Mode:         Mode(&s.Spec),
		Fallback:     Fallback(&s.Spec),
		SizesNewPods: SizesNewPods(&s.Spec),

		MinReplicas: max(1, ptr.Deref(update.MinReplicas, defaultMinReplicas)),
		Suspended:   s.Spec.Suspend,
		Edited:      s.Generation != s.Status.ObservedGeneration,
		Cooldown:    Cooldown(&s.Spec),
		ScaleUp:     direction(update.ScaleUp),
		ScaleDown:   direction(update.ScaleDown),
		Tolerance:   float64(TolerancePercent(&s.Spec)) / 100,
		Containers:  map[string]model.ContainerPolicy{},

		VerificationPeriod: seconds(ptr.Deref(update.VerificationSeconds, defaultVerificationSeconds)),
	}
	if IsPaused(s) {
		p.Paused = PauseMessage(s, "")
	}
	p.Windows, p.InvalidWindow = windows(update.Windows)
	for _, c := range d.Containers {
		policy := s.Spec.ResourcePolicy.For(c.Name)
		p.Containers[c.Name] = model.ContainerPolicy{
			CPU:         Controls(policy, v1beta1.ControlledCPU),
			Memory:      Controls(policy, v1beta1.ControlledMemory),
			Limits:      LimitRule(policy.ControlledValues),
			LimitPolicy: limitPolicy(policy.Limits),
			MinAllowed:  Bounds(policy.MinAllowed),
			MaxAllowed:  Bounds(policy.MaxAllowed),
			Boost:       startupBoost(policy.StartupBoost),
		}
	}
	return p
}

// RecommendPolicy reads a spec for the recommendation of a container.
func RecommendPolicy(spec *v1beta1.VerticalScalerSpec, container string) recommend.Policy {
	policy := spec.ResourcePolicy.For(container)
	margin := int32(defaultSafetyMarginPercent)
	if p := spec.RecommendationPolicy; p != nil {
		margin = ptr.Deref(p.SafetyMarginPercent, margin)
	}
	return recommend.Policy{
		Profile:       Profile(spec),
		MarginPercent: int(margin),
		CPU:           Controls(policy, v1beta1.ControlledCPU),
		Memory:        Controls(policy, v1beta1.ControlledMemory),
		MinAllowed:    Bounds(policy.MinAllowed),
		MaxAllowed:    Bounds(policy.MaxAllowed),
	}
}

// Mode is the update mode that applies. A mode of a newer version counts as Recommend:
// nothing is changed.
func Mode(spec *v1beta1.VerticalScalerSpec) v1beta1.UpdateMode {
	if _, isUnknown := UnknownMode(spec); isUnknown {
		return v1beta1.UpdateModeRecommend
	}
	return cmp.Or(spec.UpdatePolicy.UpdateMode, v1beta1.UpdateModeInPlace)
}

// UnknownMode returns the update mode and true if it is from a newer version.
func UnknownMode(spec *v1beta1.VerticalScalerSpec) (v1beta1.UpdateMode, bool) {
	switch mode := spec.UpdatePolicy.UpdateMode; mode {
	case "", v1beta1.UpdateModeRecommend, v1beta1.UpdateModeInitial, v1beta1.UpdateModeInPlace, v1beta1.UpdateModeRollout:
		return "", false
	default:
		return mode, true
	}
}

// Fallback is the fallback of the mode InPlace for a pod that cannot be resized in place. A
// fallback of a newer version counts as Wait.
func Fallback(spec *v1beta1.VerticalScalerSpec) v1beta1.Fallback {
	switch fallback := spec.UpdatePolicy.Fallback; fallback {
	case v1beta1.FallbackRecreateUnderPressure:
		return v1beta1.FallbackRecreate
	case v1beta1.FallbackRecreate, v1beta1.FallbackRollout:
		return fallback
	}
	return v1beta1.FallbackWait
}

// ResizesPods reports whether the mode resizes running pods.
func ResizesPods(spec *v1beta1.VerticalScalerSpec) bool {
	return Mode(spec) == v1beta1.UpdateModeInPlace
}

// EvictsPods reports whether pods may be evicted.
func EvictsPods(spec *v1beta1.VerticalScalerSpec) bool {
	return ResizesPods(spec) && Fallback(spec) == v1beta1.FallbackRecreate
}

// SizesNewPods reports whether the API server sizes new pods, by an admission policy.
func SizesNewPods(spec *v1beta1.VerticalScalerSpec) bool {
	return Mode(spec) == v1beta1.UpdateModeInitial || EvictsPods(spec) ||
		ResizesPods(spec) && slices.Contains([]v1beta1.NewPodPolicy{"", v1beta1.NewPodsSized}, spec.UpdatePolicy.NewPods)
}

// WritesTemplate reports whether values of the pod template may be taken over.
func WritesTemplate(spec *v1beta1.VerticalScalerSpec) bool {
	return Mode(spec) == v1beta1.UpdateModeRollout || ResizesPods(spec) && Fallback(spec) == v1beta1.FallbackRollout
}

// Profile is the profile of the recommendation. Calm, and a profile of a newer version, count as Balanced.
func Profile(spec *v1beta1.VerticalScalerSpec) profile.Profile {
	if p := spec.RecommendationPolicy; p != nil && slices.Contains(profile.All(), profile.Profile(p.Profile)) {
		return profile.Profile(p.Profile)
	}
	return profile.Balanced
}

// Cooldown is the least time between two changes.
func Cooldown(spec *v1beta1.VerticalScalerSpec) time.Duration {
	return seconds(ptr.Deref(spec.UpdatePolicy.CooldownSeconds, defaultCooldownSeconds))
}

// TolerancePercent is the least change worth making, in percent of the request.
func TolerancePercent(spec *v1beta1.VerticalScalerSpec) int32 {
	return ptr.Deref(spec.UpdatePolicy.TolerancePercent, defaultTolerancePercent)
}

// Controls reports whether a container's policy lets the resource be sized.
func Controls(p v1beta1.ContainerPolicy, resource v1beta1.ControlledResource) bool {
	return p.Mode != v1beta1.ContainerModeOff &&
		(len(p.ControlledResources) == 0 || slices.Contains(p.ControlledResources, resource))
}

// Bounds reads a bound. An unreadable one does not count.
func Bounds(b *v1beta1.ResourceBounds) (a quantity.Amounts) {
	if b == nil {
		return a
	}
	return Amounts(v1beta1.Amounts{CPU: b.CPU, Memory: b.Memory})
}

// BoundsOf is a bound of amounts, where 0 is none; nil without any.
func BoundsOf(a quantity.Amounts) *v1beta1.ResourceBounds {
	if a == (quantity.Amounts{}) {
		return nil
	}
	out := APIAmounts(a)
	return &v1beta1.ResourceBounds{CPU: out.CPU, Memory: out.Memory}
}

// StartsWithBoost reports whether a container of a pod is starting at that time with more
// CPU than usual (startupBoost).
func StartsWithBoost(spec *v1beta1.VerticalScalerSpec, pod workload.Pod, container string, at time.Time) bool {
	policy := spec.ResourcePolicy.For(container)
	boost := startupBoost(policy.StartupBoost)
	return boost != nil && ResizesPods(spec) && Controls(policy, v1beta1.ControlledCPU) && !boost.Until(pod, container, at).IsZero()
}

// LimitRule reads controlledValues. One of a newer version, and none, stand for the default.
func LimitRule(values v1beta1.ControlledValues) model.LimitRule {
	switch values {
	case v1beta1.RequestsOnly:
		return model.LimitsStay
	case v1beta1.RequestsAndLimits:
		return model.LimitsFollow
	}
	return model.LimitsRise
}

// StartsWithoutBoost reports whether a container of a pod without a startupBoost is starting at that time, and may get
// more CPU. Its CPU and its limit can then be resized in place.
func StartsWithoutBoost(spec *v1beta1.VerticalScalerSpec, pod workload.Pod, container string, at time.Time) bool {
	policy := spec.ResourcePolicy.For(container)
	c, _ := pod.Container(container)
	return startupBoost(policy.StartupBoost) == nil && ResizesPods(spec) && Controls(policy, v1beta1.ControlledCPU) &&
		policy.ControlledValues != v1beta1.RequestsOnly && !c.RestartOnCPU && !model.Boost{}.Until(pod, container, at).IsZero()
}

// startupBoost reads a startup boost. One of a newer version counts as none.
func startupBoost(policy *v1beta1.StartupBoost) *model.Boost {
	if policy == nil || policy.CPU == nil {
		return nil
	}
	boost := &model.Boost{Duration: seconds(max(0, ptr.Deref(policy.CPU.DurationSeconds, 0)))}
	switch cpu := policy.CPU; {
	case cpu.Type == v1beta1.BoostFactor && cpu.Factor != nil:
		boost.Percent = 100 * int64(max(1, *cpu.Factor))
	case cpu.Type == v1beta1.BoostQuantity && cpu.Quantity != nil:
		boost.MoreMillis = Amounts(v1beta1.Amounts{CPU: cpu.Quantity}).CPUMillis
	default:
		return nil
	}
	return boost
}

func direction(policy *v1beta1.DirectionPolicy) (d model.Direction) {
	if policy == nil {
		return d
	}
	if policy.CooldownSeconds != nil {
		d.Cooldown = ptr.To(seconds(*policy.CooldownSeconds))
	}
	d.MaxStepPercent = int64(ptr.Deref(policy.MaxStepPercent, 0))
	d.LeavesCPU, d.LeavesMemory = leaves(policy, v1beta1.ControlledCPU), leaves(policy, v1beta1.ControlledMemory)
	return d
}

func leaves(policy *v1beta1.DirectionPolicy, r v1beta1.ControlledResource) bool {
	return len(policy.ControlledResources) > 0 && !slices.Contains(policy.ControlledResources, r)
}

// IsRaiseOnly reports whether a request for the resource is never lowered for less usage.
func IsRaiseOnly(spec *v1beta1.VerticalScalerSpec, r v1beta1.ControlledResource) bool {
	down := spec.UpdatePolicy.ScaleDown
	return down != nil && leaves(down, r)
}

// windows reads the windows, and describes the error in the first that never opens. The schema
// rejects most invalid windows.
func windows(list []v1beta1.UpdateWindow) (out window.Windows, invalid string) {
	for i, w := range list {
		spec := window.Spec{
			Schedule: w.Schedule, TimeZone: w.TimeZone, Duration: time.Duration(w.DurationMinutes) * time.Minute,
		}
		for _, d := range w.Directions {
			spec.Directions = append(spec.Directions, window.Direction(d))
		}
		if len(spec.Directions) == 0 {
			spec.Directions = []window.Direction{window.ScaleUp, window.ScaleDown}
		}
		parsed, err := window.Parse(spec)
		if err != nil && invalid == "" {
			invalid = fmt.Sprintf("updatePolicy.windows[%d] never opens: %s", i, err)
		}
		out = append(out, parsed)
	}
	return out, invalid
}

func limitPolicy(policy *v1beta1.LimitPolicy) (p model.LimitPolicy) {
	if policy == nil {
		return p
	}
	if h := policy.HeadroomPercent; h != nil {
		p.HeadroomCPU, p.HeadroomMemory = widened(h.CPU), widened(h.Memory)
	}
	p.MinAllowed, p.MaxAllowed = Bounds(policy.MinAllowed), Bounds(policy.MaxAllowed)
	return p
}

func widened(n *int32) *int64 {
	if n == nil {
		return nil
	}
	return ptr.To(int64(*n))
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
