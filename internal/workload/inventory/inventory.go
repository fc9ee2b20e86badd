// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory finds the pods of a Deployment, the Deployments of an owner and their other
// autoscalers.
//
// It does not use labels to find the owner of a pod. A pod belongs to a Deployment if its controller is a
// ReplicaSet whose controller is that Deployment, by UID. A pod that only has the same labels is never changed.
package inventory

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// controllerIndex indexes objects by the UID of their controller.
const controllerIndex = "metadata.controllerUID"

// revisionAnnotation orders the ReplicaSets of a Deployment: the highest revision has the latest
// template.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// targetIndex indexes HorizontalPodAutoscalers by the object that they scale.
const targetIndex = "spec.scaleTargetRef"

// Index adds the indexes that DeploymentsOf and HPAsOf need.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &appsv1.Deployment{}, controllerIndex, controllerUID); err != nil {
		return fmt.Errorf("indexing Deployments by controller: %w", err)
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

// DeploymentsOf reads the Deployments that an object controls from the cache. They are not copied
// and must not be modified.
func DeploymentsOf(ctx context.Context, cached client.Reader, owner client.Object) ([]appsv1.Deployment, error) {
	var deployments appsv1.DeploymentList
	err := cached.List(ctx, &deployments, client.InNamespace(owner.GetNamespace()),
		client.MatchingFields{controllerIndex: string(owner.GetUID())}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the Deployments of %s/%s: %w", owner.GetNamespace(), owner.GetName(), err)
	}
	return deployments.Items, nil
}

// WholeScaler reads a cached scaler from the API server, to write it: the cache lacks labels, annotations, finalizers and owners of
// others. Another version is a conflict.
func WholeScaler(ctx context.Context, live client.Reader, cached *v1beta1.VerticalScaler) (*v1beta1.VerticalScaler, error) {
	var list v1beta1.VerticalScalerList
	if err := live.List(ctx, &list, client.InNamespace(cached.Namespace), client.MatchingFields{metav1.ObjectNameField: cached.Name}); err != nil {
		return nil, fmt.Errorf("reading VerticalScaler %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	if len(list.Items) == 0 || list.Items[0].UID != cached.UID || list.Items[0].ResourceVersion != cached.ResourceVersion {
		return nil, apierrors.NewConflict(v1beta1.GroupVersion.WithResource("verticalscalers").GroupResource(), cached.Name, errors.New("it was just changed"))
	}
	return &list.Items[0], nil
}
