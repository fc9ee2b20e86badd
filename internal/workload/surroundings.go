// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
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
	// ContainerRatio bounds what a container's limit may be for its request.
	ContainerRatio Ratios
	// ContainerDefault is the limit that new containers without one get.
	ContainerDefault quantity.Amounts
	// PodMin and PodMax bound the sum over a pod's containers.
	PodMin quantity.Amounts
	PodMax quantity.Amounts
}

// Ratios are limit:request ratios in thousandths. 0 stands for no bound.
type Ratios struct{ CPU, Memory int64 }

// ReadLimitRanges reads the LimitRanges of a namespace.
func ReadLimitRanges(ranges []corev1.LimitRange) (b Bounds) {
	var names []string
	for i := range ranges {
		var own Bounds
		for _, item := range ranges[i].Spec.Limits {
			own.add(item)
			b.add(item)
		}
		if own != (Bounds{}) {
			names = append(names, ranges[i].Name)
		}
	}
	slices.Sort(names)
	b.Name = strings.Join(names, ", ")
	return b
}

// add adds what one item bounds. What cannot be read bounds nothing: it is outside
// anything that is ever asked for.
func (b *Bounds) add(item corev1.LimitRangeItem) {
	least, most := readable(item.Min), readable(item.Max)
	switch item.Type {
	case corev1.LimitTypeContainer:
		b.ContainerMin = larger(b.ContainerMin, least)
		b.ContainerMax = stricter(b.ContainerMax, most)
		b.ContainerDefault = stricter(b.ContainerDefault, readable(item.Default))
		b.ContainerRatio.CPU = tighterBound(b.ContainerRatio.CPU, thousandths(item.MaxLimitRequestRatio[corev1.ResourceCPU]))
		b.ContainerRatio.Memory = tighterBound(b.ContainerRatio.Memory, thousandths(item.MaxLimitRequestRatio[corev1.ResourceMemory]))
	case corev1.LimitTypePod:
		b.PodMin = larger(b.PodMin, least)
		b.PodMax = stricter(b.PodMax, most)
	}
}

// readable reads amounts one by one: one that cannot be read costs no other.
func readable(list corev1.ResourceList) (a quantity.Amounts) {
	a.CPUMillis, _ = quantity.CPUMillis(list[corev1.ResourceCPU])
	a.MemoryBytes, _ = quantity.MemoryBytes(list[corev1.ResourceMemory])
	return a
}

// thousandths reads a ratio. The API server counts it in thousandths too.
func thousandths(q resource.Quantity) int64 {
	v, _ := quantity.CPUMillis(q)
	return v
}

func larger(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: max(a.CPUMillis, b.CPUMillis), MemoryBytes: max(a.MemoryBytes, b.MemoryBytes)}
}

func stricter(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: tighterBound(a.CPUMillis, b.CPUMillis), MemoryBytes: tighterBound(a.MemoryBytes, b.MemoryBytes)}
}

// atMost is the smaller of two upper bounds, where 0 is none.
func tighterBound(a, b int64) int64 {
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

// ReadHPAs picks from the HPAs of a namespace those that scale the Deployment, or the
// ScaledDeployment that it belongs to.
func ReadHPAs(hpas []autoscalingv2.HorizontalPodAutoscaler, deployment *appsv1.Deployment) (s Scaled) {
	for i := range hpas {
		if !scales(hpas[i].Spec.ScaleTargetRef, deployment) || hpas[i].DeletionTimestamp != nil {
			continue
		}
		for _, metric := range hpas[i].Spec.Metrics {
			switch utilizationOf(metric) {
			case corev1.ResourceCPU:
				s.CPU = firstByName(s.CPU, describeHPA(&hpas[i]))
			case corev1.ResourceMemory:
				s.Memory = firstByName(s.Memory, describeHPA(&hpas[i]))
			}
		}
	}
	return s
}

// described names the HPA, and the ScaledObject of KEDA that it was made for: whoever
// wants to change the one has to change the other.
func describeHPA(hpa *autoscalingv2.HorizontalPodAutoscaler) string {
	owner := metav1.GetControllerOfNoCopy(hpa)
	if owner == nil || owner.Kind != "ScaledObject" || !strings.HasPrefix(owner.APIVersion, "keda.sh/") {
		return hpa.Name
	}
	return fmt.Sprintf("%s (of ScaledObject %s)", hpa.Name, owner.Name)
}

// ScaledBy names the HPA, of those of a namespace, that scales the Deployment itself and
// not what it belongs to; "" for none.
func ScaledBy(hpas []autoscalingv2.HorizontalPodAutoscaler, deployment *appsv1.Deployment) (name string) {
	for i := range hpas {
		ref := hpas[i].Spec.ScaleTargetRef
		if ref.Kind == "Deployment" && scales(ref, deployment) && hpas[i].DeletionTimestamp == nil {
			name = firstByName(name, hpas[i].Name)
		}
	}
	return name
}

func scales(ref autoscalingv2.CrossVersionObjectReference, deployment *appsv1.Deployment) bool {
	switch ref.Kind {
	case "Deployment":
		return ref.Name == deployment.Name && !isForeignGroup(ref.APIVersion)
	case v1beta1.ScaledDeploymentKind:
		owner := metav1.GetControllerOfNoCopy(deployment)
		return owner != nil && v1beta1.IsScaledDeployment(owner) && ref.Name == owner.Name && isOwnGroup(ref.APIVersion)
	}
	return false
}

// isOurs says that a kind by the name of ScaledDeployment is our own, in whichever
// version.
func isOwnGroup(apiVersion string) bool {
	group, _, found := strings.Cut(apiVersion, "/")
	return found && group == v1beta1.GroupVersion.Group
}

// isForeign says that a kind by the name of Deployment is somebody else's.
func isForeignGroup(apiVersion string) bool {
	return apiVersion != "" && !strings.HasPrefix(apiVersion, "apps/") && !strings.HasPrefix(apiVersion, "extensions/")
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

func firstByName(a, b string) string {
	if a == "" || b < a {
		return b
	}
	return a
}

// ReadNode reads what a node can give to pods. What cannot be read counts for nothing.
func ReadNode(node *corev1.Node) quantity.Amounts { return readable(node.Status.Allocatable) }
