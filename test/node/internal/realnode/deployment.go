// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

package realnode

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// AppPort is where the container of a [Deployment] listens.
const AppPort = 8080

// Deployment returns a Deployment whose pods use what [Node.Load] sets. They request 100m
// and 64Mi, with limits of three times the CPU and twice the memory.
func Deployment(key client.ObjectKey, replicas int32) *appsv1.Deployment {
	d := testkit.Deployment(key.Namespace, key.Name)
	d.Spec.Replicas = ptr.To(replicas)
	spec := &d.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	app := &spec.Containers[0]
	app.Image, app.ImagePullPolicy = "verticalscaler.local/stress:dev", corev1.PullNever
	app.Args = []string{"-cpu=20", "-memory=20"}
	app.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	app.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	app.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(AppPort)},
	}}
	return d
}
