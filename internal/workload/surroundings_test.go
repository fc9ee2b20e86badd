// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestReadLimitRanges(t *testing.T) {
	limitRange := func(name string, items ...corev1.LimitRangeItem) corev1.LimitRange {
		return corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.LimitRangeSpec{Limits: items}}
	}
	cases := map[string]struct {
		ranges []corev1.LimitRange
		want   workload.Bounds
	}{
		"none": {},
		"of containers": {
			[]corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{
				Type: "Container", Min: list("10m", "16Mi"), Max: list("2", ""), Default: list("1", "64Mi"), DefaultRequest: list("1m", ""), MaxLimitRequestRatio: list("2.5", "2"),
			})},
			workload.Bounds{
				Name: "a", ContainerMin: amounts(10, 16*mebi), ContainerMax: amounts(2000, 0), ContainerDefault: amounts(1000, 64*mebi),
				ContainerDefaultRequest: amounts(1, 0), DefaultName: "a", ContainerRatio: workload.Ratios{CPU: 2500, Memory: 2000},
			},
		},
		"of pods": {
			[]corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Type: "Pod", Min: list("1", ""), Max: list("4", "8Mi")})},
			workload.Bounds{Name: "a", PodMin: amounts(1000, 0), PodMax: amounts(4000, 8*mebi)},
		},
		"the strictest of several": {
			[]corev1.LimitRange{
				limitRange("b", corev1.LimitRangeItem{Type: "Container", Min: list("10m", ""), Max: list("2", "64Mi"), MaxLimitRequestRatio: list("3", "")}),
				limitRange("a", corev1.LimitRangeItem{Type: "Container", Min: list("5m", "1Mi"), Max: list("3", "32Mi"), MaxLimitRequestRatio: list("2", "")}),
			},
			workload.Bounds{
				Name: "a, b", ContainerMin: amounts(10, mebi), ContainerMax: amounts(2000, 32*mebi), ContainerRatio: workload.Ratios{CPU: 2000},
			},
		},
		"defaults of several": {
			[]corev1.LimitRange{
				limitRange("b", corev1.LimitRangeItem{Type: "Container", Default: list("2", "64Mi"), DefaultRequest: list("1", "32Mi")}),
				limitRange("a", corev1.LimitRangeItem{Type: "Pod", Max: list("4", "")}, corev1.LimitRangeItem{Type: "Container", DefaultRequest: list("500m", "")}),
			},
			workload.Bounds{
				Name: "a, b", DefaultName: "a, b", ContainerDefault: amounts(2000, 64*mebi), ContainerDefaultRequest: amounts(500, 32*mebi), PodMax: amounts(4000, 0),
			},
		},
		"bounds of other objects": {
			[]corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Max: corev1.ResourceList{"storage": list("", "1Gi")["memory"]}})},
			workload.Bounds{},
		},
		"an invalid amount does not affect other bounds": {
			[]corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Type: "Container", Max: list("1e19", "32Mi")})},
			workload.Bounds{Name: "a", ContainerMax: amounts(0, 32*mebi)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 2 { // in both orders
				assert.Equal(t, "ReadLimitRanges()", tc.want, workload.ReadLimitRanges(tc.ranges))
				slices.Reverse(tc.ranges)
			}
		})
	}
}

// The rules of LimitRanger: declared values stay, and a request follows from its limit before any default.
func TestDefaulted(t *testing.T) {
	bounds := workload.Bounds{ContainerDefault: amounts(1000, 64*mebi), ContainerDefaultRequest: amounts(100, 32*mebi)}
	resources := func(requests, limits quantity.Amounts) workload.Resources {
		return workload.Resources{Requests: requests, Limits: limits}
	}
	for name, tc := range map[string]struct{ declared, want workload.Resources }{
		"nothing":    {workload.Resources{}, resources(amounts(100, 32*mebi), amounts(1000, 64*mebi))},
		"requests":   {resources(amounts(200, 128*mebi), amounts(0, 0)), resources(amounts(200, 128*mebi), amounts(1000, 64*mebi))},
		"limits":     {resources(amounts(0, 0), amounts(500, 16*mebi)), resources(amounts(500, 16*mebi), amounts(500, 16*mebi))},
		"everything": {resources(amounts(1, 1), amounts(2, 2)), resources(amounts(1, 1), amounts(2, 2))},
	} {
		if got := bounds.Defaulted(workload.Container{Resources: tc.declared}); got != tc.want {
			t.Errorf("%s declared: %+v, want %+v", name, got, tc.want)
		}
	}
	if got := bounds.Defaulted(workload.Container{Unreadable: true}); got != (workload.Resources{}) {
		t.Errorf("a container out of range gets %+v: nothing is known of it", got)
	}
}

func TestReadHPAs(t *testing.T) {
	hpa := func(name, apiVersion, kind, target string, metrics ...autoscalingv2.MetricSpec) autoscalingv2.HorizontalPodAutoscaler {
		return autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: target},
				Metrics:        metrics,
			},
		}
	}
	utilization := func(name corev1.ResourceName) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{
			Name: name, Target: autoscalingv2.MetricTarget{Type: "Utilization"},
		}}
	}
	ofContainer := autoscalingv2.MetricSpec{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: "memory", Container: "app", Target: autoscalingv2.MetricTarget{Type: "Utilization"},
	}}
	average := autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{
		Name: "cpu", Target: autoscalingv2.MetricTarget{Type: "AverageValue"},
	}}
	deleted := hpa("old", "apps/v1", "Deployment", "web", utilization("cpu"))
	deleted.DeletionTimestamp = &metav1.Time{Time: noon}

	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: "friend"},
		{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: "shop", Controller: ptr.To(true)},
	}}}
	ownedBy := func(apiVersion, kind string) autoscalingv2.HorizontalPodAutoscaler {
		h := hpa("h", "apps/v1", "Deployment", "web", utilization("cpu"))
		h.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "checkout", Controller: ptr.To(true)}}
		return h
	}
	cases := map[string]struct {
		hpas []autoscalingv2.HorizontalPodAutoscaler
		want workload.Scaled
	}{
		"of the ScaledDeployment that controls it":       {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", "shop", utilization("cpu"))}, workload.Scaled{CPU: "h"}},
		"of that ScaledDeployment in another version":    {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "autoscaling.verticalscaler.io/v2", "ScaledDeployment", "shop", utilization("cpu"))}, workload.Scaled{CPU: "h"}},
		"of another ScaledDeployment":                    {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", "web", utilization("cpu"))}, workload.Scaled{}},
		"of a ScaledDeployment that does not control it": {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", "friend", utilization("cpu"))}, workload.Scaled{}},
		"of a ScaledDeployment in another API group":     {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "example.com/v1beta1", "ScaledDeployment", "shop", utilization("cpu"))}, workload.Scaled{}},
		"of a ScaledDeployment without an API version":   {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "", "ScaledDeployment", "shop", utilization("cpu"))}, workload.Scaled{}},

		"none":                                   {},
		"on CPU":                                 {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "apps/v1", "Deployment", "web", utilization("cpu"))}, workload.Scaled{CPU: "h"}},
		"on a container's memory":                {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "apps/v1", "Deployment", "web", ofContainer)}, workload.Scaled{Memory: "h"}},
		"on both":                                {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "apps/v1", "Deployment", "web", utilization("cpu"), ofContainer)}, workload.Scaled{CPU: "h", Memory: "h"}},
		"on an absolute average":                 {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "apps/v1", "Deployment", "web", average)}, workload.Scaled{}},
		"on an external metric":                  {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "apps/v1", "Deployment", "web", autoscalingv2.MetricSpec{Type: "External"})}, workload.Scaled{}},
		"of another Deployment":                  {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "apps/v1", "Deployment", "api", utilization("cpu"))}, workload.Scaled{}},
		"of a StatefulSet with that name":        {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "apps/v1", "StatefulSet", "web", utilization("cpu"))}, workload.Scaled{}},
		"of a Deployment in another API group":   {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "example.com/v1", "Deployment", "web", utilization("cpu"))}, workload.Scaled{}},
		"of a Deployment without an API version": {[]autoscalingv2.HorizontalPodAutoscaler{hpa("h", "", "Deployment", "web", utilization("cpu"))}, workload.Scaled{CPU: "h"}},
		"controlled by a ScaledObject":           {[]autoscalingv2.HorizontalPodAutoscaler{ownedBy("keda.sh/v1alpha1", "ScaledObject")}, workload.Scaled{CPU: "h (of ScaledObject checkout)"}},
		"controlled by another kind":             {[]autoscalingv2.HorizontalPodAutoscaler{ownedBy("example.com/v1", "ScaledObject")}, workload.Scaled{CPU: "h"}},
		"that is being deleted":                  {[]autoscalingv2.HorizontalPodAutoscaler{deleted}, workload.Scaled{}},
		"the first by name of several": {[]autoscalingv2.HorizontalPodAutoscaler{
			hpa("b", "apps/v1", "Deployment", "web", utilization("cpu")), hpa("a", "apps/v1", "Deployment", "web", utilization("cpu")),
		}, workload.Scaled{CPU: "a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 2 { // in both orders
				if got := workload.ReadHPAs(tc.hpas, web); got != tc.want {
					t.Errorf("ReadHPAs() = %+v, want %+v", got, tc.want)
				}
				slices.Reverse(tc.hpas)
			}
		})
	}
}

func TestAbsoluteTargetsOfHPAs(t *testing.T) {
	utilization := func(name corev1.ResourceName, percent int32) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: &percent}}}
	}
	ofProxy := autoscalingv2.MetricSpec{ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: "cpu", Container: "proxy", Target: autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: ptr.To[int32](50)},
	}}
	ofQueue := autoscalingv2.MetricSpec{Type: "External"}
	patch := func(n int, field string, percent int, value string) string {
		at := fmt.Sprintf("/spec/metrics/%d/%s/target", n, field)
		return fmt.Sprintf(`kubectl patch hpa h -n shop --type=json -p '[{"op":"test","path":"%s/averageUtilization","value":%d},{"op":"replace","path":"%s","value":{"type":"AverageValue","averageValue":"%s"}}]'`, at, percent, at, value)
	}
	two := rolledOut(func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers = []corev1.Container{declared("app", list("500m", "1Gi"), nil), declared("proxy", nil, list("100m", "64Mi"))}
	})
	for name, tc := range map[string]struct {
		deployment *appsv1.Deployment
		keda       bool
		metrics    []autoscalingv2.MetricSpec
		want       []string
	}{
		"of all containers, with a limit for a request": {two, false, []autoscalingv2.MetricSpec{utilization("cpu", 80)}, []string{patch(0, "resource", 80, "480m")}},
		"of memory, behind another metric":              {two, false, []autoscalingv2.MetricSpec{ofQueue, utilization("memory", 50)}, []string{patch(1, "resource", 50, "544Mi")}},
		"of one container":                              {two, false, []autoscalingv2.MetricSpec{ofProxy}, []string{patch(0, "containerResource", 50, "50m")}},
		"of KEDA":                                       {two, true, []autoscalingv2.MetricSpec{utilization("cpu", 50)}, []string{`in the cpu trigger of ScaledObject checkout, set metricType to AverageValue and metadata.value to "300m"`}},
		"of a container without requests": {
			rolledOut(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
			}), false,
			[]autoscalingv2.MetricSpec{utilization("cpu", 50)},
			[]string{"container app requests no cpu, so HorizontalPodAutoscaler h cannot scale on it: request some first"},
		},
		"of a resource that is not managed": {two, false, []autoscalingv2.MetricSpec{utilization("storage", 50)}, nil},
	} {
		h := autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "h"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, Metrics: tc.metrics,
		}}
		if tc.keda {
			h.OwnerReferences = []metav1.OwnerReference{{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Name: "checkout", Controller: ptr.To(true)}}
		}
		all := workload.AveragesOf([]autoscalingv2.HorizontalPodAutoscaler{h}, tc.deployment)
		if got := workload.AdviceOn(all, func(corev1.ResourceName) bool { return true }); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestScaledBy(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: "web", Controller: ptr.To(true)},
	}}}
	hpa := func(name, apiVersion, kind, target string) autoscalingv2.HorizontalPodAutoscaler {
		return autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: target},
		}}
	}
	leaving := hpa("a", "apps/v1", "Deployment", "web")
	leaving.DeletionTimestamp = &metav1.Time{Time: noon}
	for name, tc := range map[string]struct {
		hpas []autoscalingv2.HorizontalPodAutoscaler
		want string
	}{
		"none":                                {nil, ""},
		"on the Deployment":                   {[]autoscalingv2.HorizontalPodAutoscaler{hpa("b", "apps/v1", "Deployment", "web"), hpa("a", "apps/v1", "Deployment", "web")}, "a"},
		"on another":                          {[]autoscalingv2.HorizontalPodAutoscaler{hpa("a", "apps/v1", "Deployment", "api")}, ""},
		"on the controller of the Deployment": {[]autoscalingv2.HorizontalPodAutoscaler{hpa("a", "autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", "web")}, ""},
		"being deleted":                       {[]autoscalingv2.HorizontalPodAutoscaler{leaving}, ""},
	} {
		if got := workload.ScaledBy(tc.hpas, web); got != tc.want {
			t.Errorf("%s: ScaledBy() = %q, want %q", name, got, tc.want)
		}
	}
}
