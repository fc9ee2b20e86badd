// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"sort"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Bounds are what the LimitRanges of a namespace allow, the strictest of them.
// 0 stands for no bound.
type Bounds struct {
	// Name names the LimitRanges that bound anything, for messages.
	Name string
	// ContainerMin bounds each container's requests from below, ContainerMax its
	// limits (and so its requests) from above.
	ContainerMin quantity.Amounts
	ContainerMax quantity.Amounts
	// PodMax bounds the sum over a pod's containers.
	PodMax quantity.Amounts
}

// ReadLimitRanges reads the LimitRanges of a namespace.
func ReadLimitRanges(ranges []corev1.LimitRange) (b Bounds) {
	var names []string
	for i := range ranges {
		bounds := false
		for _, item := range ranges[i].Spec.Limits {
			least, ok := readAmounts(item.Min)
			most, ok2 := readAmounts(item.Max)
			if !ok || !ok2 {
				continue
			}
			switch item.Type {
			case corev1.LimitTypeContainer:
				b.ContainerMin = larger(b.ContainerMin, least)
				b.ContainerMax = stricter(b.ContainerMax, most)
				bounds = bounds || least != quantity.Amounts{} || most != quantity.Amounts{}
			case corev1.LimitTypePod:
				b.PodMax = stricter(b.PodMax, most)
				bounds = bounds || most != quantity.Amounts{}
			}
		}
		if bounds {
			names = append(names, ranges[i].Name)
		}
	}
	sort.Strings(names)
	for i, name := range names {
		if i > 0 {
			b.Name += ", "
		}
		b.Name += name
	}
	return b
}

func larger(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: max(a.CPUMillis, b.CPUMillis), MemoryBytes: max(a.MemoryBytes, b.MemoryBytes)}
}

func stricter(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: atMost(a.CPUMillis, b.CPUMillis), MemoryBytes: atMost(a.MemoryBytes, b.MemoryBytes)}
}

// atMost is the smaller of two upper bounds, where 0 is none.
func atMost(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// Scaled names, for each resource, the HorizontalPodAutoscaler that scales the
// Deployment on that resource's utilization. Empty stands for none.
//
// Utilization is usage divided by request, so changing the request changes the
// number of replicas that such an HPA wants. An HPA on an absolute average of the
// same resource is no conflict.
type Scaled struct {
	CPU    string
	Memory string
}

// ReadHPAs picks from the HPAs of a namespace those that scale the Deployment.
func ReadHPAs(hpas []autoscalingv2.HorizontalPodAutoscaler, deploymentName string) (s Scaled) {
	for i := range hpas {
		ref := hpas[i].Spec.ScaleTargetRef
		if ref.Kind != "Deployment" || ref.Name != deploymentName || hpas[i].DeletionTimestamp != nil {
			continue
		}
		for _, metric := range hpas[i].Spec.Metrics {
			switch resource := utilizationOf(metric); resource {
			case corev1.ResourceCPU:
				s.CPU = firstName(s.CPU, hpas[i].Name)
			case corev1.ResourceMemory:
				s.Memory = firstName(s.Memory, hpas[i].Name)
			}
		}
	}
	return s
}

func utilizationOf(metric autoscalingv2.MetricSpec) corev1.ResourceName {
	switch {
	case metric.Resource != nil && metric.Resource.Target.Type == autoscalingv2.UtilizationMetricType:
		return metric.Resource.Name
	case metric.ContainerResource != nil && metric.ContainerResource.Target.Type == autoscalingv2.UtilizationMetricType:
		return metric.ContainerResource.Name
	}
	return ""
}

func firstName(a, b string) string {
	if a == "" || b < a {
		return b
	}
	return a
}
