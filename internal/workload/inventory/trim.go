// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The bounds of what is stored of an object. Users of one namespace write most objects, and all namespaces share the memory.
const (
	mostOfDeployment = 8 << 10 // bytes of a trimmed Deployment
	mostContainers   = 64      // of a Deployment or a pod
	mostOfLabels     = 4 << 10 // bytes of the labels of a Deployment
	mostOfSelector   = 4 << 10 // bytes
	mostOfText       = 1 << 10 // bytes of a message, or of an annotation
	mostOwners       = 64      // of an object
)

// Trim removes the fields of a cached object that the operator does not read, because the cache
// holds every watched object. A trimmed object must never be sent to the API server, except to write its status.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		trimDeployment(o)
	case *corev1.Node:
		trimNode(o)
	case *v1beta1.VerticalScaler:
		trimMetadata(o)
		shareInScaler(o)
	case *v1beta1.ScaledDeployment: // A reconcile reads the others live.
		trimMetadata(o)
		o.Spec.Template, o.Spec.Selector, o.Status.Selector = corev1.PodTemplateSpec{}, nil, ""
	case *v1beta1.ScalingPolicy:
		trimMetadata(o)
		trimPolicy(&o.Spec.PolicyRules, o.Spec.Exclude)
	case *v1beta1.ClusterScalingPolicy:
		trimMetadata(o)
		o.Spec.NamespaceSelector = *bounded(&o.Spec.NamespaceSelector)
		var excluded *v1beta1.DeploymentExclusions
		if o.Spec.Exclude != nil {
			excluded = &o.Spec.Exclude.DeploymentExclusions
		}
		trimPolicy(&o.Spec.PolicyRules, excluded)
	case *v1beta1.NewPodSizes:
		owners := o.OwnerReferences
		trimMetadata(o)
		for _, r := range owners[:min(len(owners), mostOwners)] {
			if isShort(r) && r.Controller == nil {
				o.OwnerReferences = append(o.OwnerReferences, r)
			}
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		trimMetadata(o)
		trimHPA(o)
	case *metav1.PartialObjectMetadata: // a namespace, which its users cannot change
		o.ManagedFields = nil
	case metav1.Object:
		trimMetadata(o)
	}
	return obj, nil
}

// readKeys are the labels and annotations that are read.
var readKeys = []string{
	"app.kubernetes.io/managed-by", v1beta1.ScaledDeploymentLabel, v1beta1.PolicyLabel, v1beta1.AppliedAnnotation, v1beta1.ExcludeAnnotation,
	v1beta1.DetachedAnnotation, v1beta1.PromotedAnnotation, v1beta1.HarmedAnnotation, v1beta1.PausedAnnotation, v1beta1.RestoredAnnotation,
}

// trimMetadata keeps what is read of the metadata of any object.
func trimMetadata(o metav1.Object) {
	o.SetManagedFields(nil)
	o.SetLabels(keepRead(o.GetLabels()))
	o.SetAnnotations(keepRead(o.GetAnnotations()))
	o.SetOwnerReferences(controllerIn(o))
	var finalizers []string
	for _, f := range o.GetFinalizers() {
		if f == v1beta1.RestoreFinalizer {
			finalizers = []string{f}
		}
	}
	o.SetFinalizers(finalizers)
}

func keepRead(m map[string]string) (kept map[string]string) {
	for _, key := range readKeys {
		if value, ok := m[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = cut(value)
		}
	}
	return kept
}

// cut shortens a text to valid UTF-8 in its own memory.
func cut(text string) string {
	if len(text) <= mostOfText {
		return text
	}
	return strings.ToValidUTF8(strings.Clone(text[:mostOfText]), "")
}

// controllerIn is the list with the controller of an object, unless its names are too long for any object.
func controllerIn(o metav1.Object) []metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && isShort(*owner) {
		return []metav1.OwnerReference{*owner}
	}
	return nil
}

func isShort(r metav1.OwnerReference) bool {
	return len(r.APIVersion)+len(r.Kind)+len(r.Name)+len(r.UID) <= mostOfText
}

func trimPolicy(rules *v1beta1.PolicyRules, excluded *v1beta1.DeploymentExclusions) {
	rules.DeploymentSelector = bounded(rules.DeploymentSelector)
	if excluded != nil {
		excluded.DeploymentSelector = bounded(excluded.DeploymentSelector)
	}
}

// bounded is the selector, or one that cannot be parsed if it is too large. The policy reports that.
func bounded(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil || selector.Size() <= mostOfSelector {
		return selector
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "selector", Operator: "larger than 4 KiB"}}}
}

// trimHPA keeps the target, and the first metric of each resource that it scales by.
func trimHPA(o *autoscalingv2.HorizontalPodAutoscaler) {
	if ref := o.Spec.ScaleTargetRef; len(ref.APIVersion)+len(ref.Kind)+len(ref.Name) > mostOfText {
		o.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{}
	}
	var metrics []autoscalingv2.MetricSpec
	seen := map[corev1.ResourceName]bool{}
	for _, m := range o.Spec.Metrics {
		if name := workload.UtilizationOf(m); (name == corev1.ResourceCPU || name == corev1.ResourceMemory) && !seen[name] {
			seen[name], metrics = true, append(metrics, autoscalingv2.MetricSpec{
				Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType}},
			})
		}
	}
	o.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: o.Spec.ScaleTargetRef, Metrics: metrics}
	o.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
}

// trimDeployment keeps what a scaler reads. Of one that a ScaledDeployment controls, it keeps nothing else either: a reconcile of the
// ScaledDeployment reads it live.
func trimDeployment(d *appsv1.Deployment) {
	spec := &d.Spec.Template.Spec
	if IsTooLarge(d) || len(spec.Containers)+len(spec.InitContainers) > mostContainers {
		stripDeployment(d)
		return
	}
	trimMetadata(d)
	d.Annotations, d.Labels = nil, nil
	if d.Spec.Selector.Size() > mostOfSelector {
		d.Spec.Selector = nil
	}
	d.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers:     trimContainers(spec.Containers),
		InitContainers: trimInitContainers(spec.InitContainers),
		Resources:      trimPodResources(spec.Resources),
		Overhead:       keepSizes(spec.Overhead),
	}}
	d.Status.Conditions = trimDeploymentConditions(d)
	if d.Size() > mostOfDeployment {
		stripDeployment(d)
	}
}

// largeKey marks a stripped Deployment. No annotation of the API server can have it.
const largeKey = "too large"

// stripDeployment keeps only the identity of a Deployment that is too large to be stored.
func stripDeployment(d *appsv1.Deployment) {
	*d = appsv1.Deployment{TypeMeta: d.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion, Generation: d.Generation,
		CreationTimestamp: d.CreationTimestamp, DeletionTimestamp: d.DeletionTimestamp,
		OwnerReferences: controllerIn(d), Annotations: map[string]string{largeKey: ""},
	}}
}

// IsTooLarge reports whether a Deployment of the cache is too large to be stored.
func IsTooLarge(d *appsv1.Deployment) bool {
	_, ok := d.Annotations[largeKey]
	return ok
}

// trimDeploymentConditions keeps an exceeded progress deadline without the times and messages that change, and why and since when
// pods cannot be created. A ScaledDeployment repeats the others.
func trimDeploymentConditions(d *appsv1.Deployment) (out []appsv1.DeploymentCondition) {
	owner := metav1.GetControllerOfNoCopy(d)
	isOwned := owner != nil && v1beta1.IsScaledDeployment(owner)
	for _, c := range d.Status.Conditions {
		switch {
		case isOwned || workload.IsReplicaFailure(c):
			c.Message = cut(c.Message)
			out = append(out, c)
		case workload.IsDeadlineExceeded(c):
			out = append(out, appsv1.DeploymentCondition{Type: c.Type, Status: c.Status, Reason: c.Reason})
		}
	}
	return out
}

func trimNode(n *corev1.Node) {
	trimMetadata(n)
	n.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable}
	n.Status = corev1.NodeStatus{Allocatable: keepSizes(n.Status.Allocatable)}
}

// trimInitContainers keeps the restart policy, which makes an init container a sidecar.
func trimInitContainers(containers []corev1.Container) []corev1.Container {
	out := trimContainers(containers)
	for i, c := range containers {
		out[i].RestartPolicy = c.RestartPolicy
	}
	return out
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, 0, len(containers))
	for _, c := range containers {
		kept := corev1.Container{Name: c.Name, ResizePolicy: c.ResizePolicy, Resources: corev1.ResourceRequirements{
			Requests: keepSizes(c.Resources.Requests), Limits: keepSizes(c.Resources.Limits),
		}}
		workload.KeepHeap(&kept, &c)
		out = append(out, kept)
	}
	return out
}

func trimPodResources(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Requests: keepSizes(r.Requests), Limits: keepSizes(r.Limits)}
}

// keepSizes keeps CPU and memory.
func keepSizes(list corev1.ResourceList) (kept corev1.ResourceList) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if amount, ok := list[name]; ok {
			if kept == nil {
				kept = corev1.ResourceList{}
			}
			kept[name] = amount
		}
	}
	return kept
}
