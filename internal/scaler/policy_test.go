// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const mebi = 1 << 20

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// checkout is a scaler for Deployment shop/checkout.
func checkout(changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
	s := &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", Generation: 3},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: "checkout"},
		Status:     v1beta1.VerticalScalerStatus{ObservedGeneration: -1},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func withMode(mode v1beta1.UpdateMode) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = mode }
}

// Amounts in millicores and MiB.
func amounts(cpu, memory int64) quantity.Amounts {
	return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory * mebi}
}

func policies(policies ...v1beta1.ContainerPolicy) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) {
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: policies}
	}
}

func observed(s *v1beta1.VerticalScaler) { s.Status.ObservedGeneration = s.Generation }

func TestPlanPolicy(t *testing.T) {
	all := model.ContainerPolicy{CPU: true, Memory: true, Limits: model.LimitsRise}
	byDefault := func(change func(*model.Policy)) model.Policy {
		p := model.Policy{
			Mode: "InPlace", Fallback: "Wait", SizesNewPods: true, MinReplicas: 2, Cooldown: 5 * time.Minute, Tolerance: 0.1, VerificationPeriod: 2 * time.Minute,
			Containers: map[string]model.ContainerPolicy{"app": all, "log": all},
		}
		change(&p)
		return p
	}
	bounds := &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("250m")), Memory: ptr.To(resource.MustParse("1Gi"))}
	cases := map[string]struct {
		scaler *v1beta1.VerticalScaler
		want   model.Policy
	}{
		"a stored object without defaults":        {checkout(observed), byDefault(func(*model.Policy) {})},
		"a spec that is newer than the last pass": {checkout(), byDefault(func(p *model.Policy) { p.Edited = true })},
		"values for the whole spec": {
			checkout(observed, func(s *v1beta1.VerticalScaler) {
				s.Spec.Suspend = true
				s.Spec.UpdatePolicy = v1beta1.UpdatePolicy{UpdateMode: "Rollout", CooldownSeconds: ptr.To[int32](0)}
			}),
			byDefault(func(p *model.Policy) { p.Mode, p.SizesNewPods, p.Suspended, p.Cooldown = "Rollout", false, true, 0 }),
		},
		"the pace of updates": {
			checkout(observed, func(s *v1beta1.VerticalScaler) {
				s.Spec.UpdatePolicy = v1beta1.UpdatePolicy{
					CooldownSeconds: ptr.To[int32](60), TolerancePercent: ptr.To[int32](25), VerificationSeconds: ptr.To[int32](0),
					ScaleUp:   &v1beta1.DirectionPolicy{CooldownSeconds: ptr.To[int32](0), MaxStepPercent: ptr.To[int32](100)},
					ScaleDown: &v1beta1.DirectionPolicy{MaxStepPercent: ptr.To[int32](20), ControlledResources: []v1beta1.ControlledResource{"cpu"}},
					Windows: []v1beta1.UpdateWindow{
						{Schedule: "0 2 * * SAT", TimeZone: "Europe/Berlin", DurationMinutes: 90, Directions: []v1beta1.ChangeDirection{"ScaleDown"}},
						{Schedule: "0 3 * * *", DurationMinutes: 5},
					},
				}
			}),
			byDefault(func(p *model.Policy) {
				p.Cooldown, p.Tolerance, p.VerificationPeriod = time.Minute, 0.25, 0
				p.ScaleUp = model.Direction{Cooldown: ptr.To(time.Duration(0)), MaxStepPercent: 100}
				p.ScaleDown = model.Direction{MaxStepPercent: 20, LeavesMemory: true}
				for _, spec := range []window.Spec{
					{Schedule: "0 2 * * SAT", TimeZone: "Europe/Berlin", Duration: 90 * time.Minute, Directions: []window.Direction{"ScaleDown"}},
					{Schedule: "0 3 * * *", Duration: 5 * time.Minute, Directions: []window.Direction{"ScaleUp", "ScaleDown"}},
				} {
					parsed, err := window.Parse(spec)
					must.Succeed(t, err)
					p.Windows = append(p.Windows, parsed)
				}
			}),
		},
		"a window that never opens": {
			checkout(observed, func(s *v1beta1.VerticalScaler) {
				s.Spec.UpdatePolicy.Windows = []v1beta1.UpdateWindow{{Schedule: "0 0 30 2 *", DurationMinutes: 5}}
			}),
			byDefault(func(p *model.Policy) {
				never, _ := window.Parse(window.Spec{Schedule: "0 0 30 2 *", Duration: 5 * time.Minute, Directions: []window.Direction{"ScaleUp", "ScaleDown"}})
				p.Windows = window.Windows{never}
				p.InvalidWindow = `updatePolicy.windows[0] never opens: schedule "0 0 30 2 *" names a day that no year has`
			}),
		},
		"a policy for limits": {
			checkout(observed, policies(v1beta1.ContainerPolicy{ContainerName: "app", Limits: &v1beta1.LimitPolicy{
				HeadroomPercent: &v1beta1.ResourcePercents{CPU: ptr.To[int32](0)}, MaxAllowed: bounds,
			}})),
			byDefault(func(p *model.Policy) {
				shaped := all
				shaped.LimitPolicy = model.LimitPolicy{HeadroomCPU: ptr.To[int64](0), MaxAllowed: amounts(250, 1024)}
				p.Containers["app"] = shaped
			}),
		},
		"a mode of a newer version does nothing": {checkout(observed, withMode("Recreate")), byDefault(func(p *model.Policy) { p.Mode, p.SizesNewPods = "Recommend", false })},
		"new pods only":                          {checkout(observed, withMode("Initial")), byDefault(func(p *model.Policy) { p.Mode = "Initial" })},
		"a fallback": {
			checkout(observed, func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Rollout" }),
			byDefault(func(p *model.Policy) { p.Fallback = "Rollout" }),
		},
		"a fallback of a newer version is to wait": {
			checkout(observed, func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Migrate" }),
			byDefault(func(*model.Policy) {}),
		},
		"a container's own policy goes before that of any, and does not add to it": {
			checkout(observed, policies(
				v1beta1.ContainerPolicy{ContainerName: "log", ControlledResources: []v1beta1.ControlledResource{"memory"}},
				v1beta1.ContainerPolicy{ContainerName: "*", ControlledValues: "RequestsOnly", MinAllowed: bounds},
			)),
			byDefault(func(p *model.Policy) {
				p.Containers["app"] = model.ContainerPolicy{CPU: true, Memory: true, MinAllowed: amounts(250, 1024)}
				p.Containers["log"] = model.ContainerPolicy{Memory: true, Limits: model.LimitsRise}
			}),
		},
		"the order of the policies does not matter": {
			checkout(observed, policies(
				v1beta1.ContainerPolicy{ContainerName: "*", Mode: "Off"},
				v1beta1.ContainerPolicy{ContainerName: "log", Mode: "Auto", MaxAllowed: bounds},
				v1beta1.ContainerPolicy{ContainerName: "gone", Mode: "Auto"},
			)),
			byDefault(func(p *model.Policy) {
				p.Containers["app"] = model.ContainerPolicy{Limits: model.LimitsRise}
				p.Containers["log"] = model.ContainerPolicy{CPU: true, Memory: true, Limits: model.LimitsRise, MaxAllowed: amounts(250, 1024)}
			}),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := PlanPolicy(tc.scaler, workload.Deployment{Containers: []workload.Container{{Name: "app"}, {Name: "log"}}})
			assert.Equal(t, "PlanPolicy()", tc.want, got, cmp.Comparer(func(a, b window.Window) bool { return reflect.DeepEqual(a, b) }))
		})
	}
}

func TestRecommendPolicy(t *testing.T) {
	got := RecommendPolicy(&checkout().Spec, "app")
	assert.Equal(t, "by default", recommend.Policy{Profile: "Balanced", CPU: true, Memory: true}, got)
	got = RecommendPolicy(&checkout(func(s *v1beta1.VerticalScaler) {
		s.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{Profile: "Safe", SafetyMarginPercent: ptr.To[int32](7)}
	}, policies(v1beta1.ContainerPolicy{ContainerName: "app", ControlledResources: []v1beta1.ControlledResource{"cpu"}, MaxAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("1"))}})).Spec, "app")
	assert.Equal(t, "as specified", recommend.Policy{Profile: "Safe", MarginPercent: 7, CPU: true, MaxAllowed: amounts(1000, 0)}, got)
}

// A container whose limit is its request cannot use more than that, so its bound narrows later.
func TestTheUpperBoundIsWiderWhereTheLimitIsTheRequest(t *testing.T) {
	params := recommend.DefaultParams()
	h := &history.Container{}
	for minute := range 120 {
		h.Add(usage.Sample{Pod: "web-0", Container: "app", Time: noon.Add(time.Duration(minute) * time.Minute), CPUMillis: 200, MemoryBytes: 400 << 20}, params.History)
	}
	bound := func(request, limit int64) int64 {
		app := workload.Container{Name: "app", Resources: workload.Resources{Requests: amounts(request, 0), Limits: amounts(limit, 0)}}
		recs := Recommendations(checkout(), workload.Deployment{Containers: []workload.Container{app}}, nil, history.Histories{"app": h}, nil, params)
		return recs[0].UpperBound.CPUMillis
	}
	none, twice, same, alone := bound(500, 0), bound(500, 1000), bound(500, 500), bound(0, 500)
	if none != twice || same < 2*none || alone != same {
		t.Errorf("the upper bound is %dm without a limit, %dm with twice the request, %dm with the request, and %dm with a limit alone", none, twice, same, alone)
	}
}

func TestStartupBoost(t *testing.T) {
	boost := func(b v1beta1.CPUStartupBoost, changes ...func(*v1beta1.VerticalScaler)) *v1beta1.VerticalScaler {
		s := checkout(observed, policies(v1beta1.ContainerPolicy{ContainerName: "app", StartupBoost: &v1beta1.StartupBoost{CPU: &b}}))
		for _, change := range changes {
			change(s)
		}
		return s
	}
	fixed := checkout(observed, policies(v1beta1.ContainerPolicy{ContainerName: "app", ControlledValues: v1beta1.RequestsOnly}))
	starting := workload.Pod{ReadyChanged: noon, Runs: []workload.Run{{Container: "app", Since: noon}}}
	if StartsWithoutBoost(&fixed.Spec, starting, "app", noon) {
		t.Error("a start may get more CPU under a limit that stays")
	}
	starting.Containers = []workload.Container{{Name: "app", RestartOnCPU: true}}
	if StartsWithoutBoost(&checkout(observed).Spec, starting, "app", noon) {
		t.Error("a start may get more CPU, which restarts it")
	}
	twice := v1beta1.CPUStartupBoost{Type: "Factor", Factor: ptr.To[int32](2), DurationSeconds: ptr.To[int32](30)}
	for name, tc := range map[string]struct {
		scaler *v1beta1.VerticalScaler
		want   *model.Boost
		// starts is true if the CPU of a pod that is not Ready does not count.
		starts bool
	}{
		"none":     {checkout(observed), nil, false},
		"a factor": {boost(twice), &model.Boost{Percent: 200, Duration: 30 * time.Second}, true},
		"a quantity": {
			boost(v1beta1.CPUStartupBoost{Type: "Quantity", Quantity: ptr.To(resource.MustParse("500m"))}), &model.Boost{MoreMillis: 500}, true,
		},
		"one of a newer version": {boost(v1beta1.CPUStartupBoost{Type: "Curve"}), nil, false},
		"a factor without one":   {boost(v1beta1.CPUStartupBoost{Type: "Factor"}), nil, false},
		"below one":              {boost(v1beta1.CPUStartupBoost{Type: "Factor", Factor: ptr.To[int32](-3)}), &model.Boost{Percent: 100}, true},
		"in another mode": {
			boost(twice, func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = "Rollout" }), &model.Boost{Percent: 200, Duration: 30 * time.Second}, false,
		},
		"of memory alone": {
			boost(twice, func(s *v1beta1.VerticalScaler) {
				s.Spec.ResourcePolicy.ContainerPolicies[0].ControlledResources = []v1beta1.ControlledResource{"memory"}
			}), &model.Boost{Percent: 200, Duration: 30 * time.Second}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := PlanPolicy(tc.scaler, workload.Deployment{Containers: []workload.Container{{Name: "app"}}}).Containers["app"].Boost
			assert.Equal(t, "boost", tc.want, got)
			pod := workload.Pod{ReadyChanged: noon, Runs: []workload.Run{{Container: "app", Since: noon}}}
			if got := StartsWithBoost(&tc.scaler.Spec, pod, "app", noon.Add(time.Minute)); got != tc.starts {
				t.Errorf("StartsWithBoost() = %t", got)
			}
			if got := StartsWithoutBoost(&tc.scaler.Spec, pod, "app", noon.Add(time.Minute)); got != (tc.want == nil) {
				t.Errorf("StartsWithoutBoost() = %t", got)
			}
			pod.Ready = true
			if StartsWithBoost(&tc.scaler.Spec, pod, "app", noon.Add(time.Minute)) {
				t.Error("it starts although it has been Ready for a minute")
			}
		})
	}
}
