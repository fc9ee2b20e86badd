// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Average is a metric of an HPA that divides usage by requests, and the absolute amount at which the HPA scales on the
// same usage. HPA and operator then work together, because requests no longer count.
type Average struct {
	Resource corev1.ResourceName
	// Advice is the command that sets the amount, or the field to edit.
	Advice string
}

// AveragesOf are the metrics of HPAs that conflict with sizing the Deployment.
func AveragesOf(hpas []autoscalingv2.HorizontalPodAutoscaler, deployment *appsv1.Deployment) (all []Average) {
	for i := range hpas {
		if !scales(hpas[i].Spec.ScaleTargetRef, deployment) || hpas[i].DeletionTimestamp != nil {
			continue
		}
		for n, metric := range hpas[i].Spec.Metrics {
			if r := UtilizationOf(metric); r == corev1.ResourceCPU || r == corev1.ResourceMemory {
				all = append(all, Average{r, adviceOn(&hpas[i], n, r, &deployment.Spec.Template.Spec)})
			}
		}
	}
	return all
}

// adviceOn is the advice to make the n-th metric of an HPA absolute.
func adviceOn(hpa *autoscalingv2.HorizontalPodAutoscaler, n int, r corev1.ResourceName, template *corev1.PodSpec) string {
	field, container, target := "resource", "", hpa.Spec.Metrics[n].Resource
	if of := hpa.Spec.Metrics[n].ContainerResource; of != nil {
		field, container, target = "containerResource", of.Container, &autoscalingv2.ResourceMetricSource{Target: of.Target}
	}
	percent := int64(0)
	if target.Target.AverageUtilization != nil {
		percent = int64(*target.Target.AverageUtilization)
	}
	value, without := averageOf(template, container, r, percent)
	owner := metav1.GetControllerOfNoCopy(hpa)
	switch {
	case without != "":
		return fmt.Sprintf("container %s requests no %s, so HorizontalPodAutoscaler %s cannot scale on it: request some first", without, r, hpa.Name)
	case owner != nil && isScaledObject(owner):
		return fmt.Sprintf("in the %s trigger of ScaledObject %s, set metricType to AverageValue and metadata.value to %q", r, owner.Name, value)
	}
	path := fmt.Sprintf("/spec/metrics/%d/%s/target", n, field)
	return fmt.Sprintf(`kubectl patch hpa %s -n %s --type=json -p '[{"op":"test","path":"%s/averageUtilization","value":%d},{"op":"replace","path":"%s","value":{"type":"AverageValue","averageValue":"%s"}}]'`,
		hpa.Name, hpa.Namespace, path, percent, path, value)
}

// averageOf is the percentage of the requests of the template's containers, or of one of them, as the HPA controller adds
// it up. without is a container without a request.
func averageOf(template *corev1.PodSpec, container string, r corev1.ResourceName, percent int64) (value, without string) {
	read, write := quantity.CPUMillis, quantity.CPU
	if r == corev1.ResourceMemory {
		read, write = quantity.MemoryBytes, quantity.Memory
	}
	sum := int64(0)
	for _, c := range LongRunning(template) {
		if container != "" && c.Name != container {
			continue
		}
		request, isSet := c.Resources.Requests[r]
		if !isSet {
			request = c.Resources.Limits[r]
		}
		amount, err := read(request)
		if err != nil || amount == 0 {
			return "", c.Name
		}
		sum += amount
	}
	average := write(sum/100*percent + sum%100*percent/100)
	return average.String(), ""
}

// AdviceOn is the advice about the metrics on resources that are managed, sorted.
func AdviceOn(averages []Average, isManaged func(corev1.ResourceName) bool) (advice []string) {
	slices.SortStableFunc(averages, func(a, b Average) int { return cmp.Compare(a.Advice, b.Advice) })
	for _, a := range averages {
		if isManaged(a.Resource) {
			advice = append(advice, a.Advice)
		}
	}
	return slices.Compact(advice)
}
