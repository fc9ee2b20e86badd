// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// waiting is a scaler without a decision, whose requests wait for evidence: 112 minutes were observed when
// the status was written, 4 minutes ago. The pods are uneven.
func waiting(changes ...change) explain.Evidence {
	return checkout(append([]change{undecided, func(e *explain.Evidence) {
		q := resource.MustParse
		e.Now = noon
		e.Scaler.Status.Recommendation = checkout().Scaler.Status.Recommendation
		rec := &e.Scaler.Status.Recommendation.ContainerRecommendations[0]
		rec.ObservedSeconds = 112 * 60
		rec.UpperBound = v1beta1.Amounts{CPU: ptr.To(q("1524m")), Memory: ptr.To(q("3180Mi"))}
		e.Scaler.Status.Summary = &v1beta1.Summary{CPU: "800m", Memory: "1024Mi", Pods: "0/3"}
		e.Scaler.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: ptr.To(ago(4 * time.Minute))}, {Time: ptr.To(ago(0))}}
		e.Pods = e.Pods[:0]
		for _, cpu := range []int64{500, 800, 500} {
			e.Pods = append(e.Pods, pod(cpu, 1024))
		}
	}, conditions("Applied True WithinBounds app cpu: 800m stays until the upper bound of 1524m falls below it, after about 4h16m of observed time")}, changes...)...)
}

// lowered is the time until CPU and memory of the first container are lowered, and the advice.
func lowered(t *testing.T, e explain.Evidence) (cpu, memory time.Duration, advice string) {
	t.Helper()
	x := explain.Of(e)
	for _, f := range x.Findings {
		if f.Reason.Reason == v1beta1.ReasonWithinBounds {
			advice = f.Advice
		}
	}
	seconds := func(i int) time.Duration {
		return time.Duration(x.Containers[0].Resources[i].LoweredInSeconds) * time.Second
	}
	return seconds(0), seconds(1), advice
}

func TestTheTimeOfALoweringIsShown(t *testing.T) {
	e := waiting()
	cpu, memory, advice := lowered(t, e)
	if cpu != 140*time.Minute || memory != 396*time.Minute {
		t.Errorf("cpu in %s, memory in %s; want 2h20m, when 256 minutes are observed, and 6h36m, when 512 are", cpu, memory)
	}
	const want = "Wait: app cpu is lowered in about 2h20m, after about 4h16m of observed time. To lower it now, set maxAllowed."
	if advice != want {
		t.Errorf("advice %q, want %q", advice, want)
	}
	if got := explain.RowOf(e).Advice; got != want {
		t.Errorf("status is %q", got)
	}
	cooling := waiting(conditions("Applied True InCooldown The next change (ScaleUp) waits until 5m0s after the last change"))
	if cpu, _, _ := lowered(t, cooling); cpu != 140*time.Minute {
		t.Errorf("in cooldown, cpu in %s", cpu)
	}
}

// A time that may change for another reason is not shown.
func TestNoUnknownTimeIsShown(t *testing.T) {
	policy := func(p v1beta1.ContainerPolicy) change {
		p.ContainerName = "app"
		return spec(func(s *v1beta1.VerticalScalerSpec) {
			s.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{p}}
		})
	}
	for name, change := range map[string]change{
		"another reason":          conditions("Applied True HPAConflict cpu: not managed"),
		"only recommends":         spec(func(s *v1beta1.VerticalScalerSpec) { s.UpdatePolicy.UpdateMode = "Recommend" }),
		"an edit is not observed": func(e *explain.Evidence) { e.Scaler.Generation++ },
		"a silent operator": func(e *explain.Evidence) {
			e.Scaler.Status.Conditions[0].LastTransitionTime = ago(90 * time.Minute)
			e.Operators = explain.OperatorsOf([]coordinationv1.Lease{lease("system", 3*time.Minute)})
		},
		"no time":                 func(e *explain.Evidence) { e.Now = time.Time{} },
		"left alone":              policy(v1beta1.ContainerPolicy{Mode: v1beta1.ContainerModeOff}),
		"maxAllowed is the bound": spec(func(s *v1beta1.VerticalScalerSpec) { s.ResourcePolicy = boundedTo("1500m", "2Gi") }),
		"above the bound":         func(e *explain.Evidence) { recommended(e).UpperBound = recommended(e).Target },
		"close enough":            spec(func(s *v1beta1.VerticalScalerSpec) { s.UpdatePolicy.TolerancePercent = ptr.To[int32](90) }),
		"nothing observed":        func(e *explain.Evidence) { recommended(e).ObservedSeconds = 0 },
		"no recommendation":       func(e *explain.Evidence) { e.Scaler.Status.Recommendation = nil },
		"no request":              func(e *explain.Evidence) { e.Pods, e.Deployment = nil, nil },
		"history was lost": func(e *explain.Evidence) {
			for _, r := range []v1beta1.ControlledResource{"cpu", "memory"} {
				recommended(e).Reasons = append(recommended(e).Reasons, v1beta1.RecommendationReason{Resource: r, Code: "NotLowered", Value: resource.MustParse("1")})
			}
		},
		"reverted before": func(e *explain.Evidence) {
			for _, r := range []v1beta1.ControlledResource{"cpu", "memory"} {
				reverted := v1beta1.RevertedChange{ContainerName: "app", Resource: r, Value: resource.MustParse("1"), LastGood: resource.MustParse("2")}
				e.Scaler.Status.RevertedChanges = append(e.Scaler.Status.RevertedChanges, reverted)
			}
		},
	} {
		e := waiting(change)
		if e.Scaler.Status.Recommendation == nil && e.Deployment == nil {
			continue
		}
		cpu, memory, advice := lowered(t, e)
		if cpu != 0 || memory != 0 || strings.Contains(advice, "about") {
			t.Errorf("%s: cpu in %s, memory in %s, advice %q", name, cpu, memory, advice)
		}
	}
	raiseOnly := waiting(spec(func(s *v1beta1.VerticalScalerSpec) {
		s.UpdatePolicy.ScaleDown = &v1beta1.DirectionPolicy{ControlledResources: []v1beta1.ControlledResource{"cpu"}}
	}))
	if cpu, memory, _ := lowered(t, raiseOnly); cpu == 0 || memory != 0 {
		t.Errorf("with raise-only memory: cpu in %s, memory in %s", cpu, memory)
	}
	if text := explain.Of(raiseOnly).Text(noon); !strings.Contains(text, "above it. None is lowered for less usage: updatePolicy.scaleDown.controlledResources does not include memory.") {
		t.Errorf("the text does not mention that memory is raise-only:\n%s", text)
	}
	heap := waiting(func(e *explain.Evidence) { e.Deployment.Spec.Template.Spec.Containers[0].Args = []string{"-Xmx20g"} })
	if cpu, memory, _ := lowered(t, heap); cpu == 0 || memory != 0 {
		t.Errorf("with a heap of 20Gi: cpu in %s, memory in %s", cpu, memory)
	}
	if text := explain.Of(heap).Text(noon); !strings.Contains(text, "above it. None is lowered below 20Gi: -Xmx20g in args.") {
		t.Errorf("the text does not mention that a heap is set:\n%s", text)
	}
	whole := waiting(spec(func(s *v1beta1.VerticalScalerSpec) {
		s.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: "*", ControlledValues: v1beta1.RequestsAndLimits}}}
	}), func(e *explain.Evidence) {
		size := e.Deployment.Spec.Template.Spec.Containers[0].Resources
		size.Requests["cpu"], size.Limits["cpu"] = resource.MustParse("1"), resource.MustParse("1")
	})
	if cpu, _, _ := lowered(t, whole); cpu == 0 {
		t.Error("whole CPUs are lowered in place")
	}
	whole.Scaler.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRollout
	if cpu, memory, _ := lowered(t, whole); cpu != 0 || memory == 0 {
		t.Errorf("whole CPUs in new pods: cpu in %s, memory in %s; only memory is lowered for certain", cpu, memory)
	}
}

func TestTheTimeUntilARequestIsLoweredIsBounded(t *testing.T) {
	decided := func(e *explain.Evidence) {
		e.Scaler.Status.Decision = &v1beta1.Decision{Time: ago(time.Minute), Containers: []v1beta1.ContainerDecision{{
			ContainerName: "app", Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("800m")), Memory: ptr.To(resource.MustParse("1Gi"))},
		}}}
	}
	written := func(d time.Duration) change {
		return func(e *explain.Evidence) {
			for i := range e.Scaler.Status.Conditions {
				e.Scaler.Status.Conditions[i].LastTransitionTime = ago(d)
			}
			e.Scaler.ManagedFields[0].Time = ptr.To(ago(d))
		}
	}
	for name, tc := range map[string]struct {
		change change
		want   time.Duration
	}{
		"as decided": {decided, 140 * time.Minute},
		"not before the cooldown ends": {func(e *explain.Evidence) {
			decided(e)
			e.Scaler.Spec.UpdatePolicy.CooldownSeconds = ptr.To[int32](4 * 3600)
		}, 239 * time.Minute},
		"a status that was just written":       {written(0), 144 * time.Minute},
		"a clock that is behind":               {written(-time.Hour), 144 * time.Minute},
		"an old status: evidence has no 256 m": {written(24 * time.Hour), time.Minute},
	} {
		if cpu, _, _ := lowered(t, waiting(tc.change)); cpu != tc.want {
			t.Errorf("%s: in %s, want %s", name, cpu, tc.want)
		}
	}
}

func TestTheFirstLoweringIsShown(t *testing.T) {
	e := waiting(spec(func(s *v1beta1.VerticalScalerSpec) {
		s.UpdatePolicy.Windows = []v1beta1.UpdateWindow{{Schedule: "0 2 * * *", DurationMinutes: 60}}
	}))
	_, _, advice := lowered(t, e)
	const want = "Wait: app cpu is lowered in about 2h20m, after about 4h16m of observed time, when a window is open. To lower it now, set maxAllowed."
	if advice != want {
		t.Errorf("advice\n%s, want\n%s", advice, want)
	}
}

// TestAppliedAndExplainNameTheSameTime: bounds of a raise, such as the node, do not change when a request is lowered.
func TestAppliedAndExplainNameTheSameTime(t *testing.T) {
	for name, change := range map[string]change{
		"a day":                    func(*explain.Evidence) {},
		"a bound of a small node":  func(e *explain.Evidence) { e.Scaler.UID = "other" },
		"after one of 13 minutes":  func(e *explain.Evidence) { recommended(e).ObservedSeconds = 13 * 60 },
		"with maxAllowed for both": spec(func(s *v1beta1.VerticalScalerSpec) { s.ResourcePolicy = boundedTo("1500m", "2Gi") }),
		"after a history was lost": func(e *explain.Evidence) {
			for _, r := range []v1beta1.ControlledResource{"cpu", "memory"} {
				recommended(e).Reasons = append(recommended(e).Reasons, v1beta1.RecommendationReason{Resource: r, Code: "NotLowered", Value: resource.MustParse("1")})
			}
		},
	} {
		e := waiting(change)
		d := workload.ReadDeployment(e.Deployment)
		rec := scaler.PublishedRecommendation(e.Scaler.Status.Recommendation, "app")
		rec.Phase = scaler.Share(e.Scaler.UID)
		largest := slices.MaxFunc(e.Pods, func(a, b workload.Pod) int {
			return cmp.Compare(a.Containers[0].Requests.CPUMillis, b.Containers[0].Requests.CPUMillis)
		})
		largest.Running, largest.Current = true, true
		situation := plan.Situation{
			Deployment: d, Pods: []workload.Pod{largest}, Recommendations: []recommend.Container{*rec},
			LargestNode: quantity.Amounts{CPUMillis: 1400, MemoryBytes: 3 << 30},
		}
		applied := plan.Next(situation, scaler.PlanPolicy(e.Scaler, d), noon).Verdict.Message
		for _, r := range explain.Of(e).Containers[0].Resources {
			_, after, isNamed := strings.Cut(strings.TrimSuffix(r.Lowering(), "."), ", after ")
			_, message, _ := strings.Cut(applied, "app "+r.Resource+":")
			message, _, _ = strings.Cut(message, ";")
			if !strings.Contains(message, "stays until the upper bound") || isNamed != strings.Contains(message, ", after ") || !strings.Contains(message, after) {
				t.Errorf("%s: Applied has%s; explain has %q", name, message, r.Lowering())
			}
		}
	}
}

// recommended is the published recommendation for the first container.
func recommended(e *explain.Evidence) *v1beta1.ContainerRecommendation {
	return &e.Scaler.Status.Recommendation.ContainerRecommendations[0]
}

func boundedTo(cpu, memory string) *v1beta1.ResourcePolicy {
	return &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
		ContainerName: "app", MaxAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse(cpu)), Memory: ptr.To(resource.MustParse(memory))},
	}}}
}
