// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Guard returns a client that checks the switch right before each write to a pod, a subresource
// of a pod, or a Deployment. While changes are frozen, it returns an *Error. All other writes
// pass: statuses, checkpoints, events.
func Guard(c client.Client, s *Switch) client.Client {
	if s == nil {
		return c
	}
	return &guarded{c, s}
}

type guarded struct {
	client.Client
	freeze *Switch
}

func (g *guarded) checkObject(obj client.Object) error {
	switch obj.(type) {
	case *corev1.Pod, *appsv1.Deployment:
		return g.checkNamespace(obj.GetNamespace())
	}
	return nil
}

func (g *guarded) checkNamespace(namespace string) error {
	if why, frozen := g.freeze.Frozen(namespace); frozen {
		return &Error{why}
	}
	return nil
}

func (g *guarded) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := g.checkObject(obj); err != nil {
		return err
	}
	return g.Client.Create(ctx, obj, opts...)
}

func (g *guarded) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if err := g.checkObject(obj); err != nil {
		return err
	}
	return g.Client.Update(ctx, obj, opts...)
}

func (g *guarded) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := g.checkObject(obj); err != nil {
		return err
	}
	return g.Client.Patch(ctx, obj, patch, opts...)
}

func (g *guarded) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if d, ok := obj.(*appsv1ac.DeploymentApplyConfiguration); ok {
		if err := g.checkNamespace(ptr.Deref(d.GetNamespace(), "")); err != nil {
			return err
		}
	}
	return g.Client.Apply(ctx, obj, opts...)
}

func (g *guarded) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if err := g.checkObject(obj); err != nil {
		return err
	}
	return g.Client.Delete(ctx, obj, opts...)
}

func (g *guarded) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	if err := g.checkObject(obj); err != nil {
		return err
	}
	return g.Client.DeleteAllOf(ctx, obj, opts...)
}

func (g *guarded) SubResource(name string) client.SubResourceClient {
	return &guardedSubResource{g.Client.SubResource(name), g}
}

type guardedSubResource struct {
	client.SubResourceClient
	guard *guarded
}

func (g *guardedSubResource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	if err := g.guard.checkObject(obj); err != nil {
		return err
	}
	return g.SubResourceClient.Create(ctx, obj, sub, opts...)
}

func (g *guardedSubResource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := g.guard.checkObject(obj); err != nil {
		return err
	}
	return g.SubResourceClient.Update(ctx, obj, opts...)
}

func (g *guardedSubResource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := g.guard.checkObject(obj); err != nil {
		return err
	}
	return g.SubResourceClient.Patch(ctx, obj, patch, opts...)
}
