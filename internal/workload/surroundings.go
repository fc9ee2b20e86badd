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

// Bounds are the strictest bounds of the LimitRanges of a namespace. 0 means no bound.
type Bounds struct {
	// Name lists the LimitRanges with bounds, for messages.
	Name string
	// ContainerMin is the minimum of each container's requests, ContainerMax the maximum of
	// its limits, and so of its requests.
	ContainerMin quantity.Amounts
	ContainerMax quantity.Amounts
	// ContainerRatio is the maximum ratio of a container's limit to its request.
	ContainerRatio Ratios
	// ContainerDefault is the limit, and ContainerDefaultRequest the request, of a container that declares none: see
	// Defaulted. The API server derives them from maximum and minimum if a LimitRange does not set them.
	ContainerDefault        quantity.Amounts
	ContainerDefaultRequest quantity.Amounts
	// DefaultName lists the LimitRanges with defaults, for messages.
	DefaultName string
	// PodMin and PodMax bound Footprint.Sum, the sum over the containers of a pod. PodRatio is the maximum
	// ratio of the sum of its limits to the sum of its requests.
	PodMin   quantity.Amounts
	PodMax   quantity.Amounts
	PodRatio Ratios
}

// Ratios are limit:request ratios in thousandths. 0 means no bound.
type Ratios struct{ CPU, Memory int64 }

// ReadLimitRanges reads the LimitRanges of a namespace.
func ReadLimitRanges(ranges []corev1.LimitRange) (b Bounds) {
	var names, defaults []string
	for i := range ranges {
		var own Bounds
		for _, item := range ranges[i].Spec.Limits {
			own.add(item)
			b.add(item)
		}
		if own != (Bounds{}) {
			names = append(names, ranges[i].Name)
		}
		if own.ContainerDefault.Or(own.ContainerDefaultRequest) != (quantity.Amounts{}) {
			defaults = append(defaults, ranges[i].Name)
		}
	}
	slices.Sort(names)
	slices.Sort(defaults)
	b.Name, b.DefaultName = strings.Join(names, ", "), strings.Join(defaults, ", ")
	return b
}

// Defaulted has the resources that the API server stores for a container, when its pod is created and each time it is
// resized. A missing request becomes the limit, and then LimitRanger sets defaults for other missing values.
// LimitRanger applies several LimitRanges in no certain order, so the strictest default is an assumption.
func (b Bounds) Defaulted(c Container) Resources {
	if c.Unreadable {
		return c.Resources
	}
	return Resources{Requests: c.Requests.Or(c.Limits).Or(b.ContainerDefaultRequest), Limits: c.Limits.Or(b.ContainerDefault)}
}

// add adds the bounds of one item. An amount out of range is ignored: no request is ever as
// large.
func (b *Bounds) add(item corev1.LimitRangeItem) {
	least, most := readable(item.Min), readable(item.Max)
	switch item.Type {
	case corev1.LimitTypeContainer:
		b.ContainerMin = larger(b.ContainerMin, least)
		b.ContainerMax = stricter(b.ContainerMax, most)
		b.ContainerDefault = stricter(b.ContainerDefault, readable(item.Default))
		b.ContainerDefaultRequest = stricter(b.ContainerDefaultRequest, readable(item.DefaultRequest))
		b.ContainerRatio.add(item.MaxLimitRequestRatio)
	case corev1.LimitTypePod:
		b.PodMin = larger(b.PodMin, least)
		b.PodMax = stricter(b.PodMax, most)
		b.PodRatio.add(item.MaxLimitRequestRatio)
	}
}

func (r *Ratios) add(list corev1.ResourceList) {
	r.CPU = tighterBound(r.CPU, thousandths(list[corev1.ResourceCPU]))
	r.Memory = tighterBound(r.Memory, thousandths(list[corev1.ResourceMemory]))
}

// readable reads amounts one by one: an invalid amount does not affect the other.
func readable(list corev1.ResourceList) (a quantity.Amounts) {
	a.CPUMillis, _ = quantity.CPUMillis(list[corev1.ResourceCPU])
	a.MemoryBytes, _ = quantity.MemoryBytes(list[corev1.ResourceMemory])
	return a
}

// thousandths reads a ratio. The API server uses thousandths too.
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

// tighterBound is the smaller of two upper bounds; 0 means no bound.
func tighterBound(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// Scaled names, for each resource, the HorizontalPodAutoscaler that scales the Deployment on the
// utilization of that resource, if any.
//
// Utilization is usage divided by request, so a changed request changes the number of
// replicas. An HPA on an absolute average of the resource does not conflict.
type Scaled struct {
	CPU    string
	Memory string
}

// Target is an object that an autoscaler names, in its own namespace.
type Target struct{ Kind, Name string }

// TargetOf is the target without its API version.
func TargetOf(ref autoscalingv2.CrossVersionObjectReference) Target {
	return Target{ref.Kind, ref.Name}
}

// TargetsOf are the objects by which an autoscaler can name the Deployment: itself, and the
// ScaledDeployment that controls it.
func TargetsOf(deployment *appsv1.Deployment) []Target {
	targets := []Target{{"Deployment", deployment.Name}}
	if owner := metav1.GetControllerOfNoCopy(deployment); owner != nil && v1beta1.IsScaledDeployment(owner) {
		targets = append(targets, Target{v1beta1.ScaledDeploymentKind, owner.Name})
	}
	return targets
}

// ReadHPAs selects from some HPAs of a namespace those that scale the Deployment or the
// ScaledDeployment that controls it.
func ReadHPAs(hpas []autoscalingv2.HorizontalPodAutoscaler, deployment *appsv1.Deployment) (s Scaled) {
	for i := range hpas {
		if !scales(hpas[i].Spec.ScaleTargetRef, deployment) || hpas[i].DeletionTimestamp != nil {
			continue
		}
		for _, metric := range hpas[i].Spec.Metrics {
			switch UtilizationOf(metric) {
			case corev1.ResourceCPU:
				s.CPU = firstByName(s.CPU, describeHPA(&hpas[i]))
			case corev1.ResourceMemory:
				s.Memory = firstByName(s.Memory, describeHPA(&hpas[i]))
			}
		}
	}
	return s
}

// describeHPA names the HPA, and the KEDA ScaledObject that controls it: a user must edit the
// ScaledObject to change the HPA.
func describeHPA(hpa *autoscalingv2.HorizontalPodAutoscaler) string {
	owner := metav1.GetControllerOfNoCopy(hpa)
	if owner == nil || !isScaledObject(owner) {
		return hpa.Name
	}
	return fmt.Sprintf("%s (of ScaledObject %s)", hpa.Name, owner.Name)
}

func isScaledObject(owner *metav1.OwnerReference) bool {
	return owner.Kind == "ScaledObject" && strings.HasPrefix(owner.APIVersion, "keda.sh/")
}

// ScaledBy names, of some HPAs of a namespace, the one that scales the Deployment itself, not the object
// that controls it; "" for none.
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

// isOwnGroup reports whether the kind ScaledDeployment is of our API group, in any version.
func isOwnGroup(apiVersion string) bool {
	group, _, found := strings.Cut(apiVersion, "/")
	return found && group == v1beta1.GroupVersion.Group
}

// isForeignGroup reports whether the kind Deployment is not of the Kubernetes API.
func isForeignGroup(apiVersion string) bool {
	return apiVersion != "" && !strings.HasPrefix(apiVersion, "apps/") && !strings.HasPrefix(apiVersion, "extensions/")
}

// UtilizationOf is the resource whose utilization a metric is about; empty for other metrics.
func UtilizationOf(metric autoscalingv2.MetricSpec) corev1.ResourceName {
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

// ReadNode reads the allocatable resources of a node. An invalid amount is zero.
func ReadNode(node *corev1.Node) quantity.Amounts { return readable(node.Status.Allocatable) }
