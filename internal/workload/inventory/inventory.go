// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory finds the pods of a Deployment, the Deployments of an owner and what else scales
// them in the cache.
//
// It does not use labels. A pod belongs to a Deployment if its controller is a ReplicaSet whose
// controller is that Deployment, by UID. A pod that only has the same labels is never changed.
package inventory

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// controllerIndex indexes objects by the UID of their controller.
const controllerIndex = "metadata.controllerUID"

// revisionAnnotation orders the ReplicaSets of a Deployment: the highest revision has the latest
// template.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// ReplicaSetMetadata is the type under which ReplicaSets are cached: only metadata is needed.
func ReplicaSetMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet"},
	}
}

// targetIndex indexes HorizontalPodAutoscalers by the object that they scale.
const targetIndex = "spec.scaleTargetRef"

// Index adds the indexes that PodsOf, DeploymentsOf and HPAsOf need.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for _, kind := range []client.Object{ReplicaSetMetadata(), &corev1.Pod{}, &appsv1.Deployment{}} {
		if err := indexer.IndexField(ctx, kind, controllerIndex, controllerUID); err != nil {
			return fmt.Errorf("indexing %T by controller: %w", kind, err)
		}
	}
	if err := indexer.IndexField(ctx, &autoscalingv2.HorizontalPodAutoscaler{}, targetIndex, scaleTarget); err != nil {
		return fmt.Errorf("indexing HorizontalPodAutoscalers by target: %w", err)
	}
	return nil
}

func controllerUID(obj client.Object) []string {
	if owner := metav1.GetControllerOf(obj); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

func scaleTarget(obj client.Object) []string {
	if hpa, ok := obj.(*autoscalingv2.HorizontalPodAutoscaler); ok {
		return []string{targetKey(workload.TargetOf(hpa.Spec.ScaleTargetRef))}
	}
	return nil
}

func targetKey(t workload.Target) string { return t.Kind + "/" + t.Name }

// HPAsOf reads the HorizontalPodAutoscalers whose target is the Deployment or the ScaledDeployment that
// controls it from the cache, in any API version. They are not copied and must not be modified.
func HPAsOf(ctx context.Context, cached client.Reader, d *appsv1.Deployment) (out []autoscalingv2.HorizontalPodAutoscaler, err error) {
	for _, target := range workload.TargetsOf(d) {
		var hpas autoscalingv2.HorizontalPodAutoscalerList
		if err := cached.List(ctx, &hpas, client.InNamespace(d.Namespace),
			client.MatchingFields{targetIndex: targetKey(target)}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing the HorizontalPodAutoscalers of %s %s/%s: %w", target.Kind, d.Namespace, target.Name, err)
		}
		out = append(out, hpas.Items...)
	}
	return out, nil
}

// PodsOf reads the pods of a Deployment from the cache.
func PodsOf(ctx context.Context, cached client.Reader, d *appsv1.Deployment) ([]workload.Pod, error) {
	sets := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSetList",
	}}
	if err := listControlledBy(ctx, cached, sets, d.Namespace, d.UID); err != nil {
		return nil, fmt.Errorf("listing the ReplicaSets of Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	newest := newestOf(sets.Items)
	var out []workload.Pod
	for i := range sets.Items {
		var pods corev1.PodList
		if err := listControlledBy(ctx, cached, &pods, d.Namespace, sets.Items[i].UID); err != nil {
			return nil, fmt.Errorf("listing the pods of ReplicaSet %s/%s: %w", d.Namespace, sets.Items[i].Name, err)
		}
		for j := range pods.Items {
			out = append(out, workload.ReadPod(&pods.Items[j], sets.Items[i].UID == newest))
		}
	}
	return out, nil
}

// DeploymentsOf reads the Deployments that an object controls from the cache. They are not copied
// and must not be modified.
func DeploymentsOf(ctx context.Context, cached client.Reader, owner client.Object) ([]appsv1.Deployment, error) {
	var deployments appsv1.DeploymentList
	if err := listControlledBy(ctx, cached, &deployments, owner.GetNamespace(), owner.GetUID()); err != nil {
		return nil, fmt.Errorf("listing the Deployments of %s/%s: %w", owner.GetNamespace(), owner.GetName(), err)
	}
	return deployments.Items, nil
}

// listControlledBy lists without copying: the objects are only read.
func listControlledBy(ctx context.Context, cached client.Reader, list client.ObjectList, namespace string, uid types.UID) error {
	return cached.List(ctx, list, client.InNamespace(namespace),
		client.MatchingFields{controllerIndex: string(uid)}, client.UnsafeDisableDeepCopy)
}

func newestOf(sets []metav1.PartialObjectMetadata) (uid types.UID) {
	best := int64(-1)
	for i := range sets {
		revision, err := strconv.ParseInt(sets[i].Annotations[revisionAnnotation], 10, 64)
		if err != nil {
			revision = 0 // not set yet, or invalid
		}
		if revision > best {
			best, uid = revision, sets[i].UID
		}
	}
	return uid
}

// DeploymentNameOf guesses from a pod alone which Deployment it belongs to: its ReplicaSet is
// named after the Deployment and the pod-template-hash. The result may trigger a reconcile, but
// is not enough to make changes.
func DeploymentNameOf(pod client.Object) (string, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return "", false
	}
	hash := pod.GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey]
	if hash == "" {
		return "", false
	}
	return strings.CutSuffix(owner.Name, "-"+hash)
}
