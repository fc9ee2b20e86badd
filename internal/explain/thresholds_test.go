// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// bounded is checkout with a policy and a LimitRange of CPU, in millicores; 0 means none.
func bounded(minAllowed, maxAllowed, least, most int64) explain.Evidence {
	milli := func(v int64) *resource.Quantity {
		if v == 0 {
			return nil
		}
		return resource.NewMilliQuantity(v, resource.DecimalSI)
	}
	e := checkout(spec(func(s *v1beta1.VerticalScalerSpec) {
		s.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
			ContainerName: "*", ControlledResources: []v1beta1.ControlledResource{"cpu"},
			MinAllowed: &v1beta1.ResourceBounds{CPU: milli(minAllowed)}, MaxAllowed: &v1beta1.ResourceBounds{CPU: milli(maxAllowed)},
		}}}
	}))
	e.Deployment.Spec.Template.Spec.Containers[0].Resources.Limits = nil
	item := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: corev1.ResourceList{}, Max: corev1.ResourceList{}}
	for list, v := range map[*corev1.ResourceList]int64{&item.Min: least, &item.Max: most} {
		if v > 0 {
			(*list)["cpu"] = *milli(v)
		}
	}
	e.LimitRange = workload.ReadLimitRanges([]corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "lr"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}})
	rec := &e.Scaler.Status.Recommendation.ContainerRecommendations[0] // published recommendations are within the policy's bounds
	for _, a := range []*v1beta1.Amounts{&rec.LowerBound, &rec.Target, &rec.UpperBound} {
		v := max(a.CPU.MilliValue(), minAllowed)
		if maxAllowed > 0 {
			v = min(v, maxAllowed)
		}
		a.CPU = milli(v)
	}
	return e
}

// Each amount in the sentence about changes is the same as in the plan: one millicore decides.
func TestStatedThresholdsAreThoseOfThePlan(t *testing.T) {
	for name, e := range map[string]explain.Evidence{
		"no bounds":                             bounded(0, 0, 0, 0),
		"minAllowed below":                      bounded(50, 0, 0, 0),
		"minAllowed above the usage":            bounded(500, 0, 0, 0),
		"maxAllowed above":                      bounded(0, 900, 0, 0),
		"maxAllowed below the usage":            bounded(0, 100, 0, 0),
		"both":                                  bounded(100, 400, 0, 0),
		"a LimitRange above the usage":          bounded(0, 0, 600, 0),
		"a LimitRange's minimum, as maxAllowed": bounded(0, 100, 150, 0),
		"a LimitRange's maximum":                bounded(300, 0, 0, 250),
		"a LimitRange within the policy":        bounded(100, 900, 210, 800),
	} {
		text := explain.Of(e).Text(noon)
		rule := regexp.MustCompile(`(?m)^ +(A request below .*)$`).FindStringSubmatch(text)[1]
		number := func(pattern string) int64 {
			found := regexp.MustCompile(pattern).FindStringSubmatch(rule)
			if found == nil {
				return 0
			}
			v, err := strconv.ParseInt(found[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		below, upper, most := number(`^A request below (\d+)m`), number(`lowered if it is above (\d+)m`), number(`One above (\d+)m`)
		target := max(number(`(\d+)m, the target within these bounds,`), 0)
		if target == 0 {
			target = e.Scaler.Status.Recommendation.ContainerRecommendations[0].Target.CPU.MilliValue()
		}
		for _, has := range []int64{below - 1, below, below + 1, target*10/11 - 1, target * 10 / 11, target*10/11 + 1, target, upper, upper + 1, target*10/9 - 1, target * 10 / 9, target*10/9 + 1, most, most + 1, 2000} {
			if has <= 0 {
				continue
			}
			want := int64(0)
			switch {
			case has < below, strings.Contains(rule, "raised if ") && (target-has)*10 > has && (most == 0 || has <= most):
				want = 1
			case most > 0 && has > most, upper > 0 && has > upper && (has-target)*10 > has:
				want = -1
			}
			if got := planned(e, has); got != want {
				t.Errorf("%s: a request of %dm moves %+d, want %+d: %s", name, has, got, want, rule)
			}
		}
	}
}

// planned is 1 if the plan raises a request of these millicores, -1 if it lowers it, and 0 if it stays.
func planned(e explain.Evidence, has int64) int64 {
	s := plan.Situation{Deployment: workload.ReadDeployment(e.Deployment), Bounds: e.LimitRange, Decision: &plan.Decision{Time: noon.Add(-time.Hour), Requests: map[string]quantity.Amounts{}}}
	s.Deployment.Namespace, s.Deployment.Name, s.Deployment.UID, s.Deployment.Replicas = "shop", "checkout", "uid", 1
	s.Recommendations = append(s.Recommendations, *scaler.PublishedRecommendation(e.Scaler.Status.Recommendation, "app"))
	one := pod(has, 480)
	one.Name, one.UID, one.Running, one.Ready, one.Current = "checkout-1", "uid-1", true, true, true
	one.Containers = slices.Clone(one.Containers)
	one.Containers[0].Limits.CPUMillis = 0
	s.Pods = []workload.Pod{one}
	s.Decision.Requests["app"] = one.Containers[0].Requests
	next := plan.Next(s, scaler.PlanPolicy(e.Scaler, s.Deployment), noon)
	switch to := next.Decision.Requests["app"].CPUMillis; {
	case to > has:
		return 1
	case to < has:
		return -1
	}
	return 0
}

// A broken bound is named, with the object that demands it.
func TestBrokenBoundsAreNamed(t *testing.T) {
	for change, want := range map[string]string{
		"app cpu 25m->50m":   "because app cpu of 25m was below 150m (LimitRange lr) (Bounds)",
		"app cpu 900m->400m": "because app cpu of 900m was above 400m (maxAllowed) (Bounds)",
		"app cpu 300m->400m": "because a request violated minAllowed, maxAllowed, a LimitRange or a limit (Bounds)",
	} {
		e := bounded(50, 400, 150, 0)
		e.Scaler.Status.Decision.Reason = "Bounds"
		e.Scaler.Status.History = []v1beta1.HistoryEntry{{Time: ago(time.Minute), Message: "Bounds: " + change}}
		if got := explain.Of(e).Text(noon); !strings.Contains(got, want) {
			t.Errorf("%s: %s", change, got)
		}
	}
	if got := explain.Of(bounded(50, 400, 150, 0)).Text(noon); !strings.Contains(got, "The policy allows 50m to 400m.\n") || !strings.Contains(got, "LimitRange lr allows 150m and more.\n") {
		t.Error(got)
	}
}
