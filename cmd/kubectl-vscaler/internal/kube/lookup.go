// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// isBelow reports whether the reference names an object that belongs to a Deployment or scales one.
func (r Reference) isBelow() bool {
	return r.Kind == PodKind || r.Kind == ReplicaSetKind || r.Kind == HPAKind
}

// empty is an object of the kind.
func (k Kind) empty() client.Object {
	switch k {
	case PodKind:
		return &corev1.Pod{}
	case ReplicaSetKind:
		return &appsv1.ReplicaSet{}
	}
	return &autoscalingv2.HorizontalPodAutoscaler{}
}

func exists(ctx context.Context, c client.Reader, namespace string, name Reference) bool {
	return c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name.Name}, name.Kind.empty()) == nil
}

// findAbove is Find for a pod, a ReplicaSet or a HorizontalPodAutoscaler: it follows their owners to the Deployment.
func (c *Cluster) findAbove(ctx context.Context, reader client.Reader, namespace string, name Reference) (e explain.Evidence, owner *v1beta1.ScaledDeployment, err error) {
	var (
		pod      *corev1.Pod
		template *corev1.PodTemplateSpec
	)
	of := name
	for of.Kind != DeploymentKind {
		object := of.Kind.empty()
		err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: of.Name}, object)
		switch isAbsent := apierrors.IsNotFound(err); {
		case pod != nil && (isAbsent || apierrors.IsForbidden(err)): // its labels name the Deployment
		case isAbsent:
			return e, nil, fmt.Errorf("%s %s/%s not found", of.Kind, namespace, of.Name)
		case err != nil:
			return e, nil, fmt.Errorf("reading %s %s/%s: %w", of.Kind, namespace, of.Name, err)
		}
		above := metav1.GetControllerOf(object)
		switch o := object.(type) {
		case *corev1.Pod:
			pod = o
		case *appsv1.ReplicaSet:
			if template = &o.Spec.Template; err != nil {
				template, above = nil, &metav1.OwnerReference{Kind: string(DeploymentKind), Name: DeploymentOfPod(pod)}
			}
		case *autoscalingv2.HorizontalPodAutoscaler:
			above = &metav1.OwnerReference{Kind: o.Spec.ScaleTargetRef.Kind, Name: o.Spec.ScaleTargetRef.Name}
		}
		if above == nil || above.Kind != string(ReplicaSetKind) && above.Kind != string(DeploymentKind) {
			return e, nil, fmt.Errorf("%s %s/%s does not belong to a Deployment: no VerticalScaler sizes it", name.Kind, namespace, name.Name)
		}
		of = Reference{Kind(above.Kind), above.Name}
	}
	if e, owner, err = c.Find(ctx, reader, namespace, of); e.Scaler != nil {
		e.Pod, e.PodTemplate = pod, template
	}
	return e, owner, err
}

// NotFound is the error for a name that no scaler has: what exists by that name, and which names are like it.
func (c *Cluster) NotFound(ctx context.Context, reader client.Reader, namespace string, name Reference) error {
	switch name.Kind {
	case PodKind, ReplicaSetKind, HPAKind:
		return cli.Usagef("%s has no scaler of its own: \"%s explain %[1]s\" shows which one sizes it", name, cli.Name)
	case OwnerKind:
		return fmt.Errorf("ScaledDeployment %s/%s not found", namespace, name.Name)
	case PolicyKind:
		return fmt.Errorf("no ScalingPolicy %s/%s and no VerticalScaler of it found", namespace, name.Name)
	case ClusterPolicyKind:
		return fmt.Errorf("no ClusterScalingPolicy %s and no VerticalScaler of it found in namespace %s", name.Name, namespace)
	}
	var deployment appsv1.Deployment
	err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name.Name}, &deployment)
	what := fmt.Sprintf("VerticalScaler %s/%s not found", namespace, name.Name)
	if name.Kind == DeploymentKind {
		what = fmt.Sprintf("no VerticalScaler of Deployment %s/%s found", namespace, name.Name)
	}
	switch {
	case err == nil && name.Kind != ScalerKind:
		what = fmt.Sprintf("Deployment %s/%s has no VerticalScaler: create one with spec.deploymentName: %[2]s, or a policy with %s adopt", namespace, name.Name, cli.Name)
		return errors.New(strings.Join(append([]string{what}, c.leftOut(ctx, reader, &deployment)...), "\n"))
	case apierrors.IsNotFound(err) && name.Kind == DeploymentKind:
		what = fmt.Sprintf("there is no Deployment %s/%s", namespace, name.Name)
	case apierrors.IsNotFound(err):
		what += ", and there is no Deployment of that name"
	}
	if near := nearest(ctx, reader, namespace, name.Name); len(near) > 0 {
		what += ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(what)
}

// nearest are the names of scalers and Deployments that differ little, or begin so.
func nearest(ctx context.Context, c client.Reader, namespace, name string) []string {
	root := &cobra.Command{SuggestionsMinimumDistance: max(1, min(2, len(name)/3))}
	deployments, _ := Deployments(ctx, c, namespace)
	names := namesOf(ctx, c, namespace, ScalerKind)
	for key := range deployments {
		names = append(names, completion{name: key.Name})
	}
	for _, found := range names {
		root.AddCommand(&cobra.Command{Use: found.name, Run: func(*cobra.Command, []string) {}})
	}
	near := root.SuggestionsFor(name)
	slices.Sort(near)
	near = slices.Compact(near)
	return near[:min(3, len(near))]
}
