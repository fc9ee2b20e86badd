// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
)

// NewAPI returns an API server from memory. It has UIDs, generations, managed fields, subresources and conflicts, and
// neither defaults nor validation. now is its clock.
func NewAPI(now func() metav1.Time, objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(app.Scheme()).WithObjects(objects...).WithReturnManagedFields().
		WithStatusSubresource(
			&v1beta1.VerticalScaler{}, &v1beta1.ScaledDeployment{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{}, &corev1.Pod{}, &policyv1.PodDisruptionBudget{},
		).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if o.GetUID() == "" {
					o.SetUID(uuid.NewUUID())
				}
				o.SetGeneration(1)
				o.SetCreationTimestamp(now())
				return c.Create(ctx, o, options...)
			},
			SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, body client.Object, options ...client.SubResourceCreateOption) error {
				binding, ok := body.(*corev1.Binding)
				if !ok {
					return c.SubResource(name).Create(ctx, o, body, options...)
				}
				patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"nodeName":%q}}`, binding.Target.Name))
				return c.Patch(ctx, o, patch)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				if name != "resize" {
					return c.SubResource(name).Patch(ctx, o, patch, options...)
				}
				return resize(ctx, c, o, patch)
			},
		}).Build()
}

// resize changes the resources of a pod. Each change is another generation.
func resize(ctx context.Context, c client.Client, o client.Object, patch client.Patch) error {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return errors.New("only pods are resized")
	}
	var before corev1.Pod
	if err := c.Get(ctx, client.ObjectKeyFromObject(pod), &before); err != nil {
		return err
	}
	if err := c.Patch(ctx, pod, patch); err != nil {
		return err
	}
	if before.ResourceVersion == pod.ResourceVersion {
		return nil
	}
	pod.Generation = before.Generation + 1
	return c.Update(ctx, pod)
}
