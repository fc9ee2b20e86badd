// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	defaultCooldownSeconds     = 300
	defaultMinReplicas         = 2
	defaultObservationSeconds  = 120
	defaultSafetyMarginPercent = 0
	defaultTolerancePercent    = 100 * plan.DefaultTolerance
)

// policyOf reads the scaler's spec for the plan. The schema has defaults for most
// fields; they are repeated here for objects that were stored without them.
func policyOf(scaler *v1beta1.VerticalScaler, d workload.Deployment) plan.Policy {
	update := scaler.Spec.UpdatePolicy
	p := plan.Policy{
		Mode:        modeOf(scaler),
		Fallback:    fallbackOf(scaler),
		MinReplicas: max(1, ptr.Deref(update.MinReplicas, defaultMinReplicas)),
		Suspended:   scaler.Spec.Suspend,
		Edited:      scaler.Generation != scaler.Status.ObservedGeneration,
		Cooldown:    seconds(ptr.Deref(update.CooldownSeconds, defaultCooldownSeconds)),
		Raise:       directionOf(update.ScaleUp),
		Lower:       directionOf(update.ScaleDown),
		Tolerance:   float64(ptr.Deref(update.TolerancePercent, defaultTolerancePercent)) / 100,
		Containers:  map[string]plan.ContainerPolicy{},

		Observation: seconds(ptr.Deref(update.VerificationSeconds, defaultObservationSeconds)),
	}
	p.Windows, p.BadWindow = windowsOf(update.Windows)
	for _, c := range d.Containers {
		policy := scaler.Spec.ResourcePolicy.For(c.Name)
		p.Containers[c.Name] = plan.ContainerPolicy{
			CPU:         controls(policy, v1beta1.ControlledCPU),
			Memory:      controls(policy, v1beta1.ControlledMemory),
			Limits:      policy.ControlledValues != v1beta1.RequestsOnly,
			LimitPolicy: limitPolicyOf(policy.Limits),
			MinAllowed:  boundsOf(policy.MinAllowed),
			MaxAllowed:  boundsOf(policy.MaxAllowed),
			Boost:       boostOf(policy.StartupBoost),
		}
	}
	return p
}

// boostOf reads a startup boost. One of a newer version counts as none.
func boostOf(policy *v1beta1.StartupBoost) *plan.Boost {
	if policy == nil || policy.CPU == nil {
		return nil
	}
	boost := &plan.Boost{Duration: seconds(max(0, ptr.Deref(policy.CPU.DurationSeconds, 0)))}
	switch cpu := policy.CPU; {
	case cpu.Type == v1beta1.BoostFactor && cpu.Factor != nil:
		boost.Percent = 100 * int64(max(1, *cpu.Factor))
	case cpu.Type == v1beta1.BoostQuantity && cpu.Quantity != nil:
		boost.MoreMillis = amountsOf(v1beta1.Amounts{CPU: cpu.Quantity}).CPUMillis
	default:
		return nil
	}
	return boost
}

// StartsWithBoost says whether a container of a pod is starting at that time, with a boost
// that the scaler's spec gives it.
func StartsWithBoost(scaler *v1beta1.VerticalScaler, pod workload.Pod, container string, at time.Time) bool {
	policy := scaler.Spec.ResourcePolicy.For(container)
	if modeOf(scaler) != v1beta1.UpdateModeInPlace || !controls(policy, v1beta1.ControlledCPU) {
		return false
	}
	boost := boostOf(policy.StartupBoost)
	return boost != nil && !boost.Until(pod, container, at).IsZero()
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func directionOf(policy *v1beta1.DirectionPolicy) (d plan.Direction) {
	if policy == nil {
		return d
	}
	if policy.CooldownSeconds != nil {
		d.Cooldown = ptr.To(seconds(*policy.CooldownSeconds))
	}
	d.MaxStepPercent = int64(ptr.Deref(policy.MaxStepPercent, 0))
	return d
}

// windowsOf reads the windows, and says what is wrong with the first that never opens. The
// schema keeps out most of what cannot be understood.
func windowsOf(list []v1beta1.UpdateWindow) (out window.Windows, bad string) {
	for i, w := range list {
		spec := window.Spec{
			Schedule: w.Schedule, TimeZone: w.TimeZone, Duration: time.Duration(w.DurationMinutes) * time.Minute,
			Directions: []window.Direction{window.ScaleUp, window.ScaleDown},
		}
		if len(w.Directions) > 0 {
			spec.Directions = nil
		}
		for _, d := range w.Directions {
			spec.Directions = append(spec.Directions, window.Direction(d))
		}
		parsed, err := window.Parse(spec)
		if err != nil && bad == "" {
			bad = fmt.Sprintf("updatePolicy.windows[%d] never opens: %s", i, err)
		}
		out = append(out, parsed)
	}
	return out, bad
}

func limitPolicyOf(policy *v1beta1.LimitPolicy) (p plan.LimitPolicy) {
	if policy == nil {
		return p
	}
	if h := policy.HeadroomPercent; h != nil {
		p.HeadroomCPU, p.HeadroomMemory = wide(h.CPU), wide(h.Memory)
	}
	p.MinAllowed, p.MaxAllowed = boundsOf(policy.MinAllowed), boundsOf(policy.MaxAllowed)
	return p
}

func wide(n *int32) *int64 {
	if n == nil {
		return nil
	}
	return ptr.To(int64(*n))
}

func modeOf(scaler *v1beta1.VerticalScaler) v1beta1.UpdateMode {
	switch mode := scaler.Spec.UpdatePolicy.UpdateMode; mode {
	case "":
		return v1beta1.UpdateModeInPlace
	case v1beta1.UpdateModeInitial, v1beta1.UpdateModeInPlace, v1beta1.UpdateModeRollout:
		return mode
	default:
		return v1beta1.UpdateModeRecommend // a mode of a newer version: do nothing
	}
}

// fallbackOf is what InPlace does where a pod cannot be resized in place. Wait stands for
// one of a newer version, too.
func fallbackOf(scaler *v1beta1.VerticalScaler) v1beta1.Fallback {
	switch fallback := scaler.Spec.UpdatePolicy.Fallback; fallback {
	case v1beta1.FallbackRecreate, v1beta1.FallbackRollout:
		return fallback
	}
	return v1beta1.FallbackWait
}

// mayHold says whether the scaler may take over values of the pod template.
func mayHold(scaler *v1beta1.VerticalScaler) bool {
	switch modeOf(scaler) {
	case v1beta1.UpdateModeRollout:
		return true
	case v1beta1.UpdateModeInPlace:
		return fallbackOf(scaler) == v1beta1.FallbackRollout
	}
	return false
}

// recommendPolicyOf reads the scaler's spec for the recommendation of a container.
func recommendPolicyOf(scaler *v1beta1.VerticalScaler, container string) recommend.Policy {
	policy := scaler.Spec.ResourcePolicy.For(container)
	margin := int32(defaultSafetyMarginPercent)
	if p := scaler.Spec.RecommendationPolicy; p != nil {
		margin = ptr.Deref(p.SafetyMarginPercent, margin)
	}
	return recommend.Policy{
		Profile:       profileOf(scaler),
		MarginPercent: int(margin),
		CPU:           controls(policy, v1beta1.ControlledCPU),
		Memory:        controls(policy, v1beta1.ControlledMemory),
		MinAllowed:    boundsOf(policy.MinAllowed),
		MaxAllowed:    boundsOf(policy.MaxAllowed),
	}
}

// profileOf is the profile that the scaler has chosen. Balanced stands for one of a newer
// version, too.
func profileOf(scaler *v1beta1.VerticalScaler) profile.Profile {
	if p := scaler.Spec.RecommendationPolicy; p != nil && slices.Contains(profile.All(), profile.Profile(p.Profile)) {
		return profile.Profile(p.Profile)
	}
	return profile.Balanced
}

func controls(p v1beta1.ContainerPolicy, resource v1beta1.ControlledResource) bool {
	return p.Mode != v1beta1.ContainerModeOff &&
		(len(p.ControlledResources) == 0 || slices.Contains(p.ControlledResources, resource))
}

// boundsOf reads a bound. The schema keeps out what cannot be read; what got past it
// counts as no bound.
func boundsOf(b *v1beta1.ResourceBounds) (a quantity.Amounts) {
	if b == nil {
		return a
	}
	return amountsOf(v1beta1.Amounts{CPU: b.CPU, Memory: b.Memory})
}
