// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objects builds valid objects, so that a test states only its subject. Unlike package testkit, it does not need
// the operator.
package objects

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Scheme has the kinds of Kubernetes and ours.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	return scheme
}

// Deployment returns a valid Deployment with one container "app". The container requests
// 100m and 128Mi; its limits are twice that.
func Deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{Container("app")}},
			},
		},
	}
}

// Container returns a valid container that requests 100m and 128Mi; its limits are twice
// that.
func Container(name string) corev1.Container {
	return corev1.Container{
		Name:  name,
		Image: "example.com/app:1",
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
	}
}

// Scaler returns a valid scaler of the Deployment with that name.
func Scaler(namespace, name, deploymentName string) *v1beta1.VerticalScaler {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: deploymentName},
	}
}
